"""Card families: which one a chip belongs to, and the names that follow from it.

Sources: ``docs/spec/dcmi.md#1.6``, ``docs/spec/device-plugin.md#0`` and 1.3.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


class SwitchInfo(Enum):
    """What a family has under ``SwitchInfoCfg`` while no switch reports."""

    NONE = "none"
    CLEAN = "clean"
    ZERO = "zero"


class Family(msgspec.Struct, frozen=True):
    """One card family.

    ``name`` is the driver's (``Inventory.family``), ``device_type`` begins its devices' names and
    its resource key, ``fault_type`` is the type under whose key the fault list is written. The
    drivers of a family that has no ``events`` never report a fault unasked.
    """

    name: str
    device_type: str
    has_network: bool
    switch_info: SwitchInfo = SwitchInfo.NONE
    fault_type: str = ""
    events: bool = True

    @property
    def resource(self) -> str:
        """Key of the free list and prefix of the other keys: ``huawei.com/Ascend910``."""
        return resource_of(self.device_type)

    @property
    def fault_key(self) -> str:
        """Key of the fault list; on 310 upstream has it under the 310P key (defect K19)."""
        return resource_of(self.fault_type or self.device_type) + "-Fault"

    def device_name(self, physical_id: int) -> str:
        """Return the name of the chip with ``physical_id``: ``Ascend910-3``."""
        return f"{self.device_type}-{physical_id}"


def resource_of(device_type: str) -> str:
    """Resource key of a device type."""
    return f"huawei.com/{device_type}"


_FAMILIES = (
    Family("Ascend910", "Ascend910", True),
    Family("Ascend910B", "Ascend910", True),
    Family("Ascend910A3", "Ascend910", True, SwitchInfo.CLEAN),
    Family("Ascend910A5", "npu", True, SwitchInfo.ZERO),
    Family("Ascend310P", "Ascend310P", False, events=False),
    Family("Ascend310", "Ascend310", False, fault_type="Ascend310P", events=False),
    Family("Ascend310B", "Ascend310", False, fault_type="Ascend310P", events=False),
)
FAMILIES = {family.name: family for family in _FAMILIES}

# The chips of an A3 are called ``Ascend910``: only the board shows the family (dcmi#1.6).
_A3_BOARDS = frozenset({0xB0, 0xB1, 0xB2, 0xB3, 0xB4, 0x81, 0x83, 0xD1, 0xD3})
_ORDERED_RULES = (
    (re.compile(r"Ascend950"), "Ascend910A5"),
    (re.compile(r"310P\d?|I2\d?"), "Ascend310P"),
    # These two may be anywhere in the name, the others must begin it (dcmi#1.6).
    (re.compile(r".*310B"), "Ascend310B"),
    (re.compile(r".*310"), "Ascend310"),
    (re.compile(r"910B\d|A2G\d"), "Ascend910B"),
    (re.compile(r"910"), "Ascend910"),
)
"""The first pattern that matches the beginning of a chip's name decides."""

_TYPES = ("npu", "Ascend910", "Ascend310P", "Ascend310")
"""Device types in the order in which a reader asks for them (``docs/spec/clusterd.md#1.3``)."""


def chip_family(chip_name: str, board_id: int | None) -> str | None:
    """Return the family by board id, then by chip name; ``None`` when no rule matches."""
    if board_id in _A3_BOARDS:
        return "Ascend910A3"
    return next((family for rule, family in _ORDERED_RULES if rule.match(chip_name)), None)


def device_type_of(keys: AbstractSet[str]) -> str:
    """Return the device type that a document with these ``DeviceList`` keys is about.

    A free list decides; without one, any key that contains a type's name; else ``npu``. Upstream
    asks in random key order, so its answer for mixed types varies.
    """
    for device_type in _TYPES:
        if resource_of(device_type) in keys:
            return device_type
    for device_type in _TYPES[1:]:
        if any(device_type in key for key in keys):
            return device_type
    return "npu"

"""Values that the shim returns. Sentinels of the driver are ``None`` here."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from contract.codes.levels import Severity


class Utilization(IntEnum):
    """What ``dcmi_get_device_utilization_rate`` is asked for (``docs/spec/dcmi.md#2.3``)."""

    AI_CORE = 2
    HBM = 6


class Chip(msgspec.Struct, frozen=True, order=True):
    """Identifiers of one NPU die (``docs/spec/dcmi.md#1.4``).

    ``die`` and ``serial`` (of its card) do not depend on its place; empty where the driver does not
    return them.
    """

    physical_id: int
    logic_id: int
    card_id: int
    device_id: int
    die: str = ""
    serial: str = ""

    def __str__(self) -> str:
        return f"chip {self.physical_id} (card {self.card_id} device {self.device_id})"

    @property
    def place(self) -> tuple[int, int]:
        """The arguments with which a library is called about it."""
        return self.card_id, self.device_id


class ChipNames(msgspec.Struct, frozen=True):
    """The names of a chip; empty where the driver does not return them.

    ``model`` is ``<name>-<type>-<version>``, ``vdie`` five words in hexadecimal, ``pcie_address``
    ``<domain>:<bus>:<device>.<function>`` (``docs/spec/dcmi.md#2.2``, 9.2).
    """

    model: str
    vdie: str
    pcie_address: str


class SuperPod(msgspec.Struct, frozen=True):
    """Super-pod identity of a chip; a member the driver calls invalid is ``None``."""

    sdid: int | None
    size: int | None
    super_pod_id: int | None
    server_index: int | None
    chassis_id: int | None
    super_pod_type: int | None


class NodeFacts(msgspec.Struct, frozen=True):
    """Further properties of this node, for its labels and annotations.

    ``None``: the driver returns none. ``aicores`` and ``memory_mb`` are those of one chip,
    ``products`` the product names of the cards, ``super_devices`` the ids of chips in their super
    pod, by physical id (``docs/spec/device-plugin.md#6.2``, 6.3).
    """

    aicores: int | None = None
    memory_mb: int | None = None
    main_board: int | None = None
    products: tuple[str, ...] = ()
    super_devices: dict[int, int | None] = {}


class Inventory(msgspec.Struct, frozen=True):
    """The chips that the driver lists on this node, and their identity.

    Read once per child process.

    ``family`` is one of ``Ascend910``, ``Ascend910B``, ``Ascend910A3``, ``Ascend910A5``,
    ``Ascend310P``, ``Ascend310B``, ``Ascend310`` (``dcmi#1.6``). ``super_pod`` is ``None`` where
    the driver does not support it. ``virtual`` are the physical ids of the chips that are divided
    into virtual devices, which this program does not render. ``main_board`` is read on an A5 only,
    where it decides whether ports are used.
    """

    chips: tuple[Chip, ...]
    family: str
    chip_name: str
    board_id: int | None
    driver_version: str | None
    super_pod: SuperPod | None
    library: str
    virtual: tuple[int, ...] = ()
    main_board: int | None = None


class DriverEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="of", tag="chip"
):
    """One fault event, copied in the driver's callback (``docs/spec/dcmi.md#5.2``).

    ``severity`` is ``None`` for a number that has no name.
    """

    code: int
    logic_id: int
    severity: Severity | None
    assertion: int
    seen_at_ms: int
    driver_raised_at_ms: int | None
    serial: int
    node_type: int
    node_id: int
    sub_node_type: int
    sub_node_id: int
    name: str
    information: str


class DriverSwitchEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="of", tag="switch"
):
    """A fault event of an on-board switch, or a fault of its list (``docs/spec/dcmi.md#6``).

    A ``port`` of 65535 is the whole switch chip. ``assertion`` is 0 recovery, 1 occurrence,
    2 notice. ``seen_at_ms`` is 0 in a list.
    """

    event_type: int
    sub_type: int | None
    peer_device: int
    peer_port: int
    chip: int
    port: int
    severity: Severity | None
    assertion: int
    seen_at_ms: int
    driver_raised_at_ms: int | None
    serial: int
    information: str


class DriverGap(msgspec.Struct, frozen=True):
    """Events may have been missed until ``at_ms``: a child was replaced, or a queue was full."""

    at_ms: int
    reason: str


class StuckCall(msgspec.Struct, frozen=True):
    """A function that did not return on a chip and is left out until a probe gets an answer."""

    function: str
    chip: Chip | None
    since_ms: int

"""Which chips the driver lists: input of the policy, and a warning for each that is missing.

Where the driver reports no card family, the last known family applies.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.policy.chips import compared
from agent.policy.state import ChipsListed, ServerState
from agent.publishing.chip_lists import family_of, super_pod_ids
from contract.codes.families import FAMILIES
from contract.listed_chips import ListedChip
from dcmi_shim.values import Inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agent.fault_state import FaultState
    from agent.publishing.device_info import DeviceInfoDocument
    from dcmi_shim.values import Chip

log = logging.getLogger("agent.listing")


class ChipList:
    """Apply listings of the driver to fault state and device-info.

    ``on_other_chips`` is called when physical ids or chips have changed.
    """

    def __init__(
        self,
        fault_state: FaultState,
        document: DeviceInfoDocument,
        wall_clock: Callable[[], int],
        on_other_chips: Callable[[], None],
        state_dir: Path,
    ) -> None:
        self._fault_state = fault_state
        self._document = document
        self._wall_clock = wall_clock
        self._on_other_chips = on_other_chips
        self._state_dir = state_dir
        self._named: set[int] = set()

    def apply_listing(
        self, chips: Sequence[Chip], identified: Inventory | None, library: str
    ) -> bool:
        """Apply a listing of ``chips``; ``identified`` is the inventory by ``library``, if known.

        Returns whether chips are missing. Raises ``DriverError`` for an unknown card family.
        """
        inventory = identified or self._last_known(tuple(chips), library)
        if inventory is None:
            return False
        family = family_of(inventory)
        state = self._fault_state.state
        super_pod = None if state.server is None else state.server.super_pod
        if inventory.super_pod is not None or super_pod is None:
            super_pod = super_pod_ids(inventory.super_pod, family)
        item = ChipsListed(
            tuple(
                ListedChip(
                    chip.physical_id,
                    chip.logic_id,
                    chip.device_id,
                    chip.die,
                    chip.serial,
                )
                for chip in chips
            ),
            inventory.family,
            self._wall_clock(),
            super_pod,
            is_first=self._document.inventory is None,
        )
        changes = compared(dict(state.subjects()), item)
        for before, now in sorted(changes.moved.items()):
            log.warning(
                "%s is %s now: the driver gave its cards other ids; its faults go with it",
                family.device_name(before),
                family.device_name(now),
            )
        for chip in sorted(changes.replaced):
            log.warning("%s was replaced by another chip", family.device_name(chip))
        # Before the input: that wakes the publisher, which renders with the inventory.
        self._document.identify(inventory)
        self._fault_state.apply_inputs([item])
        if changes.moved or changes.replaced:
            self._on_other_chips()
        return self._name_missing()

    def forget(self, chip: int) -> None:
        """Warn again about the chip with this physical id when it is missing once more."""
        self._named.discard(chip)

    def _name_missing(self) -> bool:
        missing = self._document.missing()
        for chip in missing:
            if chip not in self._named:
                self._named.add(chip)
                state = self._fault_state.state.chips[chip]
                name = f"{self._document.device_type}-{chip}"
                serial = "" if state.place is None else state.place.serial
                log.warning(
                    "%s%s was in this node before and the driver does not list it: what is known "
                    "of it stays, and it is not free. If it was taken out on purpose: "
                    "vigil forget --chip %s --state-dir %s",
                    name,
                    f" (serial number {serial})" if serial else "",
                    name,
                    self._state_dir,
                )
        return bool(missing)

    def _last_known(self, chips: tuple[Chip, ...], library: str) -> Inventory | None:
        server: ServerState | None = self._fault_state.state.server or self._document.server_before
        if server is None or server.family not in FAMILIES:
            return None
        return Inventory(chips, server.family, "", None, None, None, library)

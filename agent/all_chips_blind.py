"""Whether this agent is blind: no chip of the node gives it an answer.

A blind agent beats on (``docs/decisions/008``) and its documents keep their last state, so it
reports its blindness: in the log, in ``/readyz`` and in each beat.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.policy.state import CHIP_SOURCE, Blindness

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.fault_state import FaultState
    from agent.policy.state import PolicyState
    from agent.publishing.device_info import DeviceInfoDocument
    from dcmi_shim.driver import Driver
    from dcmi_shim.values import Inventory

log = logging.getLogger("agent.blindness")

_START_MS = 10_000
"""How long a driver that never answered may take before the agent is blind."""


def blind_chips(state: PolicyState, inventory: Inventory | None) -> Blindness | None:
    """Return since when and why no chip gives an answer; ``None`` when one does.

    Also ``None`` while no chip is known.

    The reason is that of the chip that was the last to fall silent.
    """
    listed = [] if inventory is None else [chip.physical_id for chip in inventory.chips]
    before = [number for number, chip in state.chips.items() if chip.was_read or chip.blind]
    numbers = [number for number in listed if number in state.chips] if listed else before
    last: Blindness | None = None
    for number in numbers:
        blindness = state.chips[number].blind.get(CHIP_SOURCE)
        if blindness is None:
            return None
        if last is None or blindness.since_ms > last.since_ms:
            last = blindness
    return last


class AgentBlindness:
    """Decides whether the agent is blind, and logs when that begins and ends."""

    def __init__(
        self,
        fault_state: FaultState,
        document: DeviceInfoDocument,
        driver: Driver,
        wall_clock: Callable[[], int],
    ) -> None:
        self._fault_state = fault_state
        self._document = document
        self._driver = driver
        self._wall_clock = wall_clock
        self._began_ms = wall_clock()
        self._now: Blindness | None = None

    def check(self) -> Blindness | None:
        """Return since when and why the agent is blind; ``None`` while it is not."""
        blindness, before = self._find(), self._now
        self._now = blindness
        if before is None and blindness is not None:
            log.error(
                "blind: no chip gives an answer: %s; faults of chips are not seen, and documents "
                "keep their last state. Look at the driver on this node",
                blindness.reason,
            )
        elif before is not None and blindness is None:
            seconds = (self._wall_clock() - before.since_ms) / 1000
            log.warning("not blind any more after %.1f s: chips give answers again", seconds)
        return blindness

    def is_blind(self) -> bool:
        """Return whether no chip gives an answer now."""
        return self.check() is not None

    def _find(self) -> Blindness | None:
        inventory = self._document.inventory
        blindness = blind_chips(self._fault_state.state, inventory)
        if blindness is not None or inventory is not None:
            return blindness
        # The state of chips is from before this process: nothing has answered it yet.
        trouble = self._driver.trouble
        if trouble is None or self._wall_clock() - self._began_ms < _START_MS:
            return None
        return Blindness(self._began_ms, f"the driver has not answered since the start: {trouble}")

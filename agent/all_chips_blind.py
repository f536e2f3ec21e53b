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

    from agent.policy.state import PolicyState
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
    known_before = [chip for chip, known in state.chips.items() if known.was_read or known.blind]
    known = [chip for chip in listed if chip in state.chips] if listed else known_before
    last: Blindness | None = None
    for chip in known:
        found = state.chips[chip].blind.get(CHIP_SOURCE)
        if found is None:
            return None
        if last is None or found.since_ms > last.since_ms:
            last = found
    return last


class AgentBlindness:
    """Knows whether the agent is blind, and logs when that begins and ends.

    ``trouble`` is why the driver does not answer.
    """

    def __init__(
        self,
        *,
        state: Callable[[], PolicyState],
        inventory: Callable[[], Inventory | None],
        trouble: Callable[[], str | None],
        wall_clock: Callable[[], int],
    ) -> None:
        self._state = state
        self._inventory = inventory
        self._trouble = trouble
        self._wall_clock = wall_clock
        self._began_ms = wall_clock()
        self._now: Blindness | None = None

    def check(self) -> Blindness | None:
        """Return since when and why the agent is blind; ``None`` while it is not."""
        found, before = self._find(), self._now
        self._now = found
        if before is None and found is not None:
            log.error(
                "blind: no chip gives an answer: %s; faults of chips are not seen, and documents "
                "keep their last state. Look at the driver on this node",
                found.reason,
            )
        elif before is not None and found is None:
            seconds = (self._wall_clock() - before.since_ms) / 1000
            log.warning("not blind any more after %.1f s: chips give answers again", seconds)
        return found

    def _find(self) -> Blindness | None:
        inventory = self._inventory()
        found = blind_chips(self._state(), inventory)
        if found is not None or inventory is not None:
            return found
        # What is known of chips is from before this process: nothing has answered it yet.
        trouble = self._trouble()
        if trouble is None or self._wall_clock() - self._began_ms < _START_MS:
            return None
        return Blindness(self._began_ms, f"the driver has not answered since the start: {trouble}")

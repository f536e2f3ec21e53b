"""What a UB port that is down means for the chips of an A5 (``device-plugin#2.4``). Pure.

A chip whose UB port is down is separated (``020001002``). When all chips of the node have one, the
plane is down, and they are sub-healthy instead (``020000002``). Without defect K39: both follow
what holds now, in both directions, and one chip alone is not a plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.codes.chip_codes import UB_PORT_DOWN, UB_SEPARATE, UB_SUB_HEALTH
from contract.observation import Assertion, Observation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from contract.observation import Report, Subject

_DERIVED = (UB_SEPARATE, UB_SUB_HEALTH)
_BEGINS = (Assertion.OCCUR, Assertion.PRESENT)


class UnifiedBus:
    """The UB ports of all chips as one source tracks them, and the codes derived from them."""

    def __init__(self, source: str, tracked: Collection[tuple[Subject, str]]) -> None:
        self._source = source
        self._derived = {chip: code for chip, code in tracked if code in _DERIVED}
        # The tool itself ends what it reported before a restart; the rest was the driver's.
        self._tool = {chip for chip, code in tracked if code == UB_PORT_DOWN}
        self._driver = self._derived.keys() - self._tool

    def observe_driver(self, seen: Observation) -> None:
        """Apply an event of the driver about a UB port. A recovery ends it for the tool, too."""
        if seen.code != UB_PORT_DOWN:
            return
        if seen.assertion in _BEGINS:
            self._driver.add(seen.subject)
            return
        self._driver.discard(seen.subject)
        if seen.assertion is Assertion.RECOVER:
            self._tool.discard(seen.subject)

    def observe_tool(self, chip: Subject, *, down: bool) -> None:
        """Apply whether the tool found a UB port of ``chip`` down."""
        if down:
            self._tool.add(chip)
        else:
            self._tool.discard(chip)

    def changes(self, chips: Iterable[Subject], now_ms: int) -> list[Report]:
        """Return what differs from the last reports; ``chips`` are all of the node."""
        down = self._driver | self._tool
        all_chips = set(chips)
        code = UB_SUB_HEALTH if len(all_chips) > 1 and all_chips <= down else UB_SEPARATE
        reports: list[Report] = []
        for chip in sorted(all_chips | self._derived.keys()):
            derived = code if chip in down else None
            current = self._derived.get(chip)
            if derived == current:
                continue
            if current is not None:
                reports.append(self._observation(chip, current, Assertion.ABSENT, now_ms))
                del self._derived[chip]
            if derived is not None:
                reports.append(self._observation(chip, derived, Assertion.PRESENT, now_ms))
                self._derived[chip] = derived
        return reports

    def _observation(
        self, chip: Subject, code: str, assertion: Assertion, now_ms: int
    ) -> Observation:
        return Observation(self._source, chip, code, assertion, now_ms)

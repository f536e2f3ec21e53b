"""What a UB port that is down means for the chips of an A5 (``device-plugin#2.4``). Pure.

One chip whose UB port is down is separated (``020001002``); when it is so on every chip of the node
the plane is down, and the chips are of less use (``020000002``). Without defect K39: both follow
what holds now, in both directions, and one chip alone is no plane.
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
    """What one source holds of the UB ports of all chips, and derives from it."""

    def __init__(self, source: str, tracked: Collection[tuple[Subject, str]]) -> None:
        self._source = source
        self._derived = {chip: code for chip, code in tracked if code in _DERIVED}
        # What the tool said before a restart it takes back itself; the rest was the driver's.
        self._tool = {chip for chip, code in tracked if code == UB_PORT_DOWN}
        self._driver = self._derived.keys() - self._tool

    def observe(self, seen: Observation) -> None:
        """Apply an event of the driver about a UB port. A recovery ends it for the tool, too."""
        if seen.code != UB_PORT_DOWN:
            return
        if seen.assertion in _BEGINS:
            self._driver.add(seen.subject)
            return
        self._driver.discard(seen.subject)
        if seen.assertion is Assertion.RECOVER:
            self._tool.discard(seen.subject)

    def found(self, chip: Subject, *, down: bool) -> None:
        """The tool found the ports of ``chip`` so."""
        if down:
            self._tool.add(chip)
        else:
            self._tool.discard(chip)

    def changes(self, chips: Iterable[Subject], now_ms: int) -> list[Report]:
        """Return what is different now from what was reported; ``chips`` are all of the node."""
        down = self._driver | self._tool
        everyone = set(chips)
        code = UB_SUB_HEALTH if len(everyone) > 1 and everyone <= down else UB_SEPARATE
        reports: list[Report] = []
        for chip in sorted(everyone | self._derived.keys()):
            wanted = code if chip in down else None
            known = self._derived.get(chip)
            if wanted == known:
                continue
            if known is not None:
                reports.append(self._observation(chip, known, Assertion.ABSENT, now_ms))
                del self._derived[chip]
            if wanted is not None:
                reports.append(self._observation(chip, wanted, Assertion.PRESENT, now_ms))
                self._derived[chip] = wanted
        return reports

    def _observation(
        self, chip: Subject, code: str, assertion: Assertion, now_ms: int
    ) -> Observation:
        return Observation(self._source, chip, code, assertion, now_ms)

"""The tracked state of one chip by ``hccn_tool``. Pure: times are passed in.

A driver event of a network code decides nothing here, but resets the tracked state: a RECOVER ends
the fault for this source, too. The tool is asked 2 s later, and its answer is reported in any case,
so a link that is still down returns. An answer asked earlier than that may be from before the event
and is not compared (``docs/packages/collectors.md``, "Two sources for one link").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.answer_tracker import AnswerTracker
from collectors.driver_list_tracker import LAG_SECONDS
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import Severity
from contract.observation import Assertion, Observation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.observation import Report, Subject


class LinkTracker:
    """The tracked links of one chip, of one source."""

    def __init__(self, source: str, chip: Subject, tracked: Iterable[str]) -> None:
        self._source = source
        self._chip = chip
        self._present = set(tracked)
        self._settled = True
        self._event_at = float("-inf")
        self._answers = AnswerTracker(source, chip)
        self.check_at: float | None = None
        """When the tool is to be asked because of an event."""

    @property
    def present(self) -> frozenset[str]:
        """Codes that hold, as far as the tool reported."""
        return frozenset(self._present)

    @property
    def is_new(self) -> bool:
        """Whether the tool has neither answered nor failed."""
        return self._answers.is_answering is None

    @property
    def blind(self) -> bool:
        """Whether the last question had no answer."""
        return self._answers.is_answering is False

    def apply_event(self, at: float) -> None:
        """Apply that the driver reported a network code of the chip."""
        self._event_at = at
        self._settled = False
        if self.check_at is None:
            self.check_at = at + LAG_SECONDS

    def record_question(self, at: float) -> None:
        """Record that the tool is asked now."""
        if self.check_at is None or at < self.check_at:
            return
        again = self._event_at + LAG_SECONDS
        # An event since the check was planned needs an answer that is asked later.
        self.check_at = again if again > at else None

    def observe_link_faults(
        self, faults: Mapping[str, bool], queried_at: float, now_ms: int
    ) -> list[Report]:
        """Apply the tool's answer, which has for each code whether it holds.

        Returns what to report.
        """
        reports = self._answers.observe_answer(now_ms)
        if queried_at < self._event_at + LAG_SECONDS:
            return reports
        for code, holds in faults.items():
            if self._settled and holds is (code in self._present):
                continue
            assertion = Assertion.PRESENT if holds else Assertion.ABSENT
            reports.append(self._observation(code, assertion, now_ms, "hccn_tool"))
        self._present = {code for code, holds in faults.items() if holds}
        self._settled = True
        return reports

    def observe_failure(
        self, reason: str, now_ms: int, down: Iterable[str] = (), queried_at: float = 0.0
    ) -> list[Report]:
        """Apply a question without an answer: the tracked state stays, but codes of ``down`` now
        hold.
        """
        reports = self._answers.observe_failure(reason, now_ms)
        counts = queried_at >= self._event_at + LAG_SECONDS
        codes = [code for code in down if counts and not (self._settled and code in self._present)]
        reports += [self._observation(code, Assertion.PRESENT, now_ms, reason) for code in codes]
        self._present.update(codes)
        self._settled = self._settled or bool(codes)
        return reports

    def end_faults(self, codes: Iterable[str], now_ms: int) -> list[Report]:
        """Return the end of ``codes``, which the driver reports as recovered.

        The tool is asked later.
        """
        gone = [code for code in codes if code in self._present]
        self._present.difference_update(gone)
        return [self._observation(code, Assertion.ABSENT, now_ms, "recovered") for code in gone]

    def _observation(self, code: str, assertion: Assertion, now_ms: int, text: str) -> Observation:
        severity = Severity.MINOR if code == LINK_DOWN else None
        return Observation(self._source, self._chip, code, assertion, now_ms, severity, text=text)

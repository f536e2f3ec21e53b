"""The sessions that the scheduler is assumed to have, and what is advised in each.

A session is assumed each schedule period while a job is in the scheduler's cache, else with the
next change. What changes within a period is shown at once, and counts from the next session on:
the scheduler counts sessions (``docs/spec/consumers.md#2.8``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.advise import Advisor
from advisor.checks.ended_vcjobs import ended_jobs
from advisor.checks.written_retries import written_retries
from advisor.inputs.scheduler_options import scheduler_options
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from aggregator.advising.outcomes import Outcomes, Watched

if TYPE_CHECKING:
    from collections.abc import Collection

    from advisor.checks.ended_vcjobs import EndedJobs
    from advisor.report import AdviceReport
    from advisor.snapshot import ClusterSnapshot
    from aggregator.advising.outcomes import Missed

PERIOD_MS = 1000
"""``--schedule-period`` of the scheduler."""


class Sessions:
    """The states of both profiles, and the newest reports.

    ``look`` may run in a thread: what is public is replaced as a whole, never changed.
    """

    def __init__(self) -> None:
        self.reports: tuple[AdviceReport, ...] = ()
        self.count = 0
        self.outcomes: dict[str, int] = {}
        self.missed: tuple[Missed, ...] = ()
        self.states: dict[Profile, SchedulerState] = {}
        self._advisor = Advisor()
        self._outcomes = Outcomes()
        self._at_ms: int | None = None
        self._has_previewed = False

    @property
    def next_ms(self) -> int | None:
        """When the next session is due without a change (wall); ``None``: nothing waits for it."""
        if self._at_ms is None:
            return None
        if self._has_previewed or any(state.jobs for state in self.states.values()):
            return self._at_ms + PERIOD_MS
        return self._outcomes.next_ms

    def ended(
        self,
        snapshot: ClusterSnapshot,
        sized: Collection[tuple[str, str]],
        judged: Collection[tuple[str, str]],
        *,
        running: bool = False,
    ) -> EndedJobs:
        """Return what is known of ended vcjobs, see ``ended_jobs``, as the next session has it.

        The scheduler stamps its lists in whole seconds, and takes nothing in twice within one.
        """
        state = self.states.get(Profile.UPSTREAM) or SchedulerState()
        next_ms = (state.session_at + 1) * 1000
        if 0 < next_ms - snapshot.now_ms <= PERIOD_MS:
            snapshot = msgspec.structs.replace(snapshot, now_ms=next_ms)
        options = _options(snapshot)
        return ended_jobs(snapshot, state, options, sized=sized, judged=judged, running=running)

    def look(self, snapshot: ClusterSnapshot, watched: Watched = Watched()) -> None:  # noqa: B008
        """Advise about ``snapshot``. The clock may have been set back: that begins a session.

        What comes within a period is judged as the next session will.
        """
        now_ms = snapshot.now_ms
        self._outcomes.look(snapshot, watched)
        options = _options(snapshot)
        is_session = self._at_ms is None or not 0 <= snapshot.now_ms - self._at_ms < PERIOD_MS
        if not is_session and self._at_ms is not None:
            snapshot = msgspec.structs.replace(snapshot, now_ms=self._at_ms + PERIOD_MS)
        reports, states = [], {}
        for profile in Profile:
            before = self.states.get(profile) or SchedulerState(
                retries=written_retries(snapshot.configmaps) or {}
            )
            chosen = msgspec.structs.replace(options, profile=profile)
            report, after = self._advisor.advise(snapshot, before, chosen)
            reports.append(report)
            states[profile] = after
        self._has_previewed = not is_session
        # The real session comes at its own time within the period.
        self._outcomes.foretell(reports[0], now_ms, is_preview=not is_session)
        if is_session:
            self.states = states
            self._at_ms = snapshot.now_ms
            self.count += 1
        self.outcomes = {one.value: count for one, count in self._outcomes.counts.items()}
        self.missed = tuple(self._outcomes.missed)
        self.reports = tuple(reports)


def _options(snapshot: ClusterSnapshot) -> AdvisorOptions:
    read = scheduler_options(snapshot.configmaps)
    return AdvisorOptions() if read is None else read[0]

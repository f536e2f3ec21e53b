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
from advisor.inputs.scheduler_options import scheduler_configmap, scheduler_options, written_retries
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from aggregator.advising.outcomes import Outcomes, Watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from advisor.checks.ended_vcjobs import EndedJobs
    from advisor.report import AdviceReport
    from advisor.snapshot import ClusterSnapshot, StoredConfigMap
    from aggregator.advising.outcomes import Missed

PERIOD_MS = 1000
"""``--schedule-period`` of the scheduler."""


def options_of(snapshot: ClusterSnapshot) -> AdvisorOptions:
    """Return the switches of the scheduler, its defaults where it has no ConfigMap."""
    read = scheduler_options(snapshot.configmaps)
    return AdvisorOptions() if read is None else read[0]


def first_state(snapshot: ClusterSnapshot) -> SchedulerState:
    """Return the state before the first session: the retries that the scheduler has written."""
    return SchedulerState(retries=written_retries(snapshot.configmaps) or {})


class Sessions:
    """The states of both profiles, and the newest reports.

    ``look`` may run in a thread: public values are replaced as a whole, never changed.
    """

    def __init__(self) -> None:
        self.reports: tuple[AdviceReport, ...] = ()
        self.count = 0
        self.outcomes: dict[str, int] = {}
        self.missed: tuple[Missed, ...] = ()
        self.states: dict[Profile, SchedulerState] = {}
        self.apart: dict[Profile, frozenset[str]] = {}
        """Nodes whose lists in a state no document or object shows."""
        self._advisor = Advisor()
        self._outcomes = Outcomes()
        self._at_ms: int | None = None
        self._has_previewed = False
        self._switches: tuple[StoredConfigMap | None, AdvisorOptions] = None, AdvisorOptions()

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
        hit: bool = False,
    ) -> EndedJobs:
        """Return the ended vcjobs (see ``ended_jobs``) as of the next session.

        The scheduler stamps its lists in whole seconds, and takes nothing in twice within one.
        """
        state = self.states.get(Profile.UPSTREAM) or SchedulerState()
        next_ms = (state.session_at + 1) * 1000
        if 0 < next_ms - snapshot.now_ms <= PERIOD_MS:
            snapshot = msgspec.structs.replace(snapshot, now_ms=next_ms)
        options = options_of(snapshot)
        return ended_jobs(
            snapshot, state, options, sized=sized, judged=judged, running=running, hit=hit
        )

    def look(self, snapshot: ClusterSnapshot, watched: Watched = Watched()) -> None:  # noqa: B008
        """Compute the reports for ``snapshot``. A clock that was set back begins a session.

        Changes within a period are judged as the next session will judge them.
        """
        now_ms = snapshot.now_ms
        self._outcomes.look(snapshot, watched)
        options = self._options(snapshot)
        is_session = self._at_ms is None or not 0 <= snapshot.now_ms - self._at_ms < PERIOD_MS
        if not is_session and self._at_ms is not None:
            snapshot = msgspec.structs.replace(snapshot, now_ms=self._at_ms + PERIOD_MS)
        reports, states = [], {}
        for profile in Profile:
            before = self.states.get(profile) or first_state(snapshot)
            chosen = msgspec.structs.replace(options, profile=profile)
            report, after = self._advisor.advise(snapshot, before, chosen)
            reports.append(report)
            states[profile] = after
        self._has_previewed = not is_session
        # The real session comes at its own time within the period.
        self._outcomes.foretell(reports[0], now_ms, is_preview=not is_session)
        if is_session:
            self.states = states
            self.apart = {profile: self._advisor.remembered_nodes(profile) for profile in Profile}
            self._at_ms = snapshot.now_ms
            self.count += 1
        self.outcomes = {outcome.value: count for outcome, count in self._outcomes.counts.items()}
        self.missed = tuple(self._outcomes.missed)
        self.reports = tuple(reports)

    def restore_states(self, states: Mapping[Profile, SchedulerState]) -> None:
        """Restore the states of an earlier run."""
        self.states = dict(states)

    def _options(self, snapshot: ClusterSnapshot) -> AdvisorOptions:
        """Return the switches, read once for each version of the scheduler's ConfigMap."""
        configmap = scheduler_configmap(snapshot.configmaps)
        if configmap is not self._switches[0]:
            self._switches = configmap, options_of(snapshot)
        return self._switches[1]

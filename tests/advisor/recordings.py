"""Recordings of the real scheduler, played to the advisor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from advisor.advise import advise
from advisor.scheduler_view.state import SchedulerState
from tests.advisor.player import options_of, play, recorded, snapshot_of

if TYPE_CHECKING:
    from advisor.report import AdviceReport
    from advisor.snapshot import ClusterSnapshot
    from tests.advisor.player import Session


@dataclass
class Played:
    """One session: what the scheduler found and did, and what the advisor reported."""

    session: Session
    snapshot: ClusterSnapshot
    report: AdviceReport

    def placement(self, pod: str) -> tuple[tuple[str, ...], dict[str, str]] | None:
        """Return where a pod can go; ``None`` for one that does not wait."""
        for group in self.report.placement:
            if any(f"{one.namespace}/{one.name}" == pod for one in group.pods):
                return group.accepts, group.refuses
        return None


@cache
def played(name: str) -> tuple[Played, ...]:
    """Return all sessions of a recording."""
    recording = recorded(name)
    options, state = options_of(recording), SchedulerState(is_known=True)
    found = []
    for session in play(recording):
        snapshot = snapshot_of(session, recording)
        report, state = advise(snapshot, state, options)
        found.append(Played(session, snapshot, report))
    return tuple(found)

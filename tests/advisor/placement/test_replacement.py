"""Whether deleted pods would fit again, made anew."""

from __future__ import annotations

import pytest

from advisor.advise import advise
from advisor.options import AdvisorOptions
from advisor.scheduler_view.state import SchedulerState
from tests.advisor.controllers.elastic_fleet import CARDS, Fleet, entry

FORCE = {"fault-scheduling": "force"}


def replacements(fleet: Fleet, gone: tuple[str, ...] = ()) -> dict[str, str]:
    """Return by job what becomes of the pods made in place of deleted ones."""
    report, _ = advise(fleet.snapshot(gone), SchedulerState(), AdvisorOptions())
    return {one.job: one.replacement for one in report.decisions}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (3, "made anew, they fit"),
        (2, "made anew, they do not fit: 2 × 8 cards are needed, there is room for 1"),
    ],
)
def test_the_place_of_the_job_itself_counts(nodes: int, expected: str) -> None:
    assert replacements(Fleet(nodes).job("a", 2, labels=FORCE), ("n0",)) == {"ns/a": expected}


def test_an_unhealthy_card_stays_away() -> None:
    bad = {"n0": entry(unhealthy=CARDS[3])}
    short = "made anew, they do not fit: 1 × 8 cards are needed, there is room for 0"
    assert replacements(Fleet(1, **bad).job("a", 1, labels=FORCE)) == {"ns/a": short}
    small = Fleet(1, **bad).job("a", 1, cards=4, labels=FORCE)
    assert replacements(small) == {"ns/a": "made anew, they fit"}


def test_older_jobs_get_room_first() -> None:
    """One node is spare for two jobs that lose one each."""
    fleet = Fleet(3).job("b", 1, labels=FORCE, created_at_ms=1).job("a", 1, labels=FORCE)
    fleet.groups = [
        type(one)(one.namespace, one.name, one.uid, one.phase, one.min_member, created_at_ms=at)
        for one, at in zip(fleet.groups, (1, 2), strict=True)
    ]
    fleet.pods = [
        type(pod)(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.node,
            pod.phase,
            labels=FORCE,
            annotations=pod.annotations,
            requests=pod.requests,
        )
        for pod in fleet.pods
    ]
    found = replacements(fleet, ("n0", "n1"))
    assert found["ns/b"] == "made anew, they fit"
    assert found["ns/a"].startswith("made anew, they do not fit: 1 × 8 cards")


def test_nothing_is_logged_where_nothing_is_deleted() -> None:
    report, _ = advise(
        Fleet(2).job("a", 2, labels={}).snapshot(("n0",)), SchedulerState(), AdvisorOptions()
    )
    assert [one.replacement for one in report.decisions] == [""]

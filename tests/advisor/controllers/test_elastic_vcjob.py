"""Elastic training: the size with which a job goes on after a fault (R60)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from advisor.advise import advise
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import (
    LifecyclePolicy,
)
from tests.advisor.controllers.elastic_fleet import CARDS, LABELS, Fleet, entry

if TYPE_CHECKING:
    from advisor.report import ElasticAdvice


def sizes(found: list[ElasticAdvice]) -> list[tuple[str, int | None, str]]:
    """Return names, replicas and reasons."""
    return [(one.name, one.replicas, one.reason) for one in found]


def test_no_fault_no_advice() -> None:
    assert Fleet(4).job("a", 4).advice() == []


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("replicas", [2, 4])
def test_the_original_size_comes_first(profile: Profile, replicas: int) -> None:
    """(a): a spare node takes the place of the one that is gone."""
    (one,) = Fleet(replicas + 1).job("a", replicas).advice(("n0",), profile)
    assert (one.replicas, one.cards, one.trigger, one.reason) == (replicas, 8, "HEARTBEAT", "")


@pytest.mark.parametrize(
    ("nodes", "gone", "least", "halve", "replicas", "reason"),
    [
        (4, ("n0",), "1", False, 3, ""),
        (6, ("n0",), "1", False, 5, ""),
        (4, ("n0",), "1", True, 2, ""),
        (6, ("n0",), "1", True, 3, ""),
        (4, ("n0", "n1"), "2", False, 2, ""),
        (6, ("n0", "n1"), "4", False, 4, ""),
        (4, ("n0", "n1"), "3", False, None, "BELOW_MIN_REPLICAS"),
        (6, ("n0", "n1"), "5", False, None, "BELOW_MIN_REPLICAS"),
        (4, ("n0",), "3", True, None, "BELOW_MIN_REPLICAS"),
        (6, ("n0",), "4", True, None, "BELOW_MIN_REPLICAS"),
        (4, ("n0", "n1", "n2"), "1", True, 1, ""),
        (8, ("n0", "n1", "n2", "n3", "n4"), "1", True, 2, ""),
    ],
)
def test_the_largest_size_that_there_is_room_for(
    nodes: int,
    gone: tuple[str, ...],
    least: str,
    halve: bool,
    replicas: int | None,
    reason: str,
) -> None:
    """(b): in whole pods, with the cards of each unchanged."""
    (one,) = Fleet(nodes).job("a", nodes, least).advice(gone, halve=halve)
    assert (one.replicas, one.reason) == (replicas, reason)
    assert one.cards == (None if replicas is None else 8)


@pytest.mark.parametrize(
    ("asked", "bad", "cards"),
    [
        (8, 1, 4),
        (8, 5, 2),
        (8, 7, 1),
        (8, 8, None),
        (4, 5, 2),
        (4, 7, 1),
        (4, 8, None),
        (2, 7, 1),
    ],
)
def test_a_single_host_goes_down_in_cards(asked: int, bad: int, cards: int | None) -> None:
    """(c): 8, 4, 2, 1 on what is left of the node."""
    fleet = Fleet(1, n0=entry(unhealthy=",".join(CARDS[:bad]))).job("a", 1, cards=asked)
    (one,) = fleet.advice()
    assert (one.cards, one.trigger) == (cards, "DEVICE")
    assert one.reason == ("" if cards else "BELOW_MIN_REPLICAS")
    assert one.flags == ("UNDISTRIBUTED",)


def test_a_network_fault_is_a_trigger() -> None:
    fleet = Fleet(3, n0=entry(network=CARDS[3])).job("a", 2)
    (one,) = fleet.advice()
    assert (one.trigger, one.replicas) == ("NETWORK", 2)
    small = Fleet(2, n0=entry(network=CARDS[3])).job("a", 2)
    assert sizes(small.advice()) == [("a", 1, "")]


def test_a_fault_on_cards_of_others_is_none() -> None:
    fleet = Fleet(1, n0=entry(unhealthy=CARDS[7])).job("a", 1, cards=4)
    assert fleet.advice() == []


@pytest.mark.parametrize(
    ("labels", "least", "flags"),
    [
        ({**LABELS, "elastic-scheduling": "off"}, "1", ()),
        ({**LABELS, "fault-scheduling": "force"}, "1", ("FORCE",)),
        (LABELS, "", ()),
        (LABELS, "0", ()),
        (LABELS, " 1", ()),
    ],
)
def test_a_job_that_is_not_enabled_gets_no_size(
    labels: dict[str, str], least: str, flags: tuple[str, ...]
) -> None:
    (one,) = Fleet(2).job("a", 2, least, labels=labels).advice(("n0",))
    assert (one.replicas, one.reason, one.flags) == (None, "NOT_ENABLED", flags)


def test_a_job_without_the_label_is_not_mentioned() -> None:
    assert Fleet(2).job("a", 2, labels={"fault-scheduling": "grace"}).advice(("n0",)) == []


@pytest.mark.parametrize("max_retry", [3, None])
def test_a_stored_max_retry_is_flagged(max_retry: int | None) -> None:
    (one,) = Fleet(2).job("a", 2, max_retry=max_retry).advice(("n0",))
    assert (one.flags, one.reason) == (("MAX_RETRY_NOT_0",), "NOT_ENABLED")
    assert "with stored maxRetry 3 starts it at full size" in one.why
    (ended,) = Fleet(2).job("a", 2, max_retry=max_retry, action="AbortJob").advice(("n0",))
    assert (ended.flags, ended.replicas) == ((), 1)


def test_a_job_without_a_policy_gets_no_size() -> None:
    (one,) = Fleet(2).job("a", 2, action="").advice(("n0",))
    assert (one.flags, one.reason) == (("NO_POLICY",), "NOT_ENABLED")
    assert "made anew at full size" in one.why


def test_min_success_is_a_smallest_size_too() -> None:
    fleet = Fleet(4).job("a", 4)
    fleet.vcjobs = [msgspec.structs.replace(fleet.vcjobs[0], min_success=3)]
    assert sizes(fleet.advice(("n0",))) == [("a", 3, "")]
    assert sizes(fleet.advice(("n0", "n1"))) == [("a", None, "BELOW_MIN_REPLICAS")]


def test_older_jobs_are_served_first() -> None:
    """Both lose a node, and one node is spare."""
    fleet = Fleet(5).job("b", 2, "2", created_at_ms=1).job("a", 2, "2", created_at_ms=2)
    assert sizes(fleet.advice(("n0", "n2"))) == [("a", None, "BELOW_MIN_REPLICAS"), ("b", 2, "")]
    younger = Fleet(5).job("b", 2, "2").job("a", 2, "2")
    assert sizes(younger.advice(("n0", "n2"))) == [("a", 2, ""), ("b", None, "BELOW_MIN_REPLICAS")]


def test_a_job_that_is_being_rescheduled() -> None:
    snapshot = Fleet(3).job("a", 2).snapshot(("n0",))
    report, state = advise(snapshot, SchedulerState(), AdvisorOptions())
    assert sizes(list(report.elastic_advice)) == [("a", 2, "")]
    assert report.deletions
    after = msgspec.structs.replace(snapshot, now_ms=snapshot.now_ms + 1000)
    report, _ = advise(after, state, AdvisorOptions())
    assert sizes(list(report.elastic_advice)) == [("a", None, "ALREADY_RESCHEDULING")]


def test_a_decision_foretells_the_start_after_a_fault_of_a_node() -> None:
    fleet = Fleet(4).job("a", 3, "2")
    policy = LifecyclePolicy(("PodEvicted",), "TerminateJob")
    (job,) = fleet.vcjobs
    fleet.vcjobs = [
        msgspec.structs.replace(job, policies=(policy,), template=fleet.pods[0]),
    ]
    report, _ = advise(fleet.snapshot(("n0",)), SchedulerState(), AdvisorOptions())
    (one,) = report.decisions
    assert "the job is Terminated when all pods have ended; vigil elastic" in one.follow_up
    assert one.follow_up.endswith("with 2 to 3 pods")

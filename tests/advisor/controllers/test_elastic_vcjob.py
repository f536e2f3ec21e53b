"""Elastic training: the size with which a job goes on after a fault (R60)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from advisor.advise import advise
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import (
    ClusterSnapshot,
    ControllingOwner,
    LifecyclePolicy,
    PodGroup,
    SchedulerNode,
    SchedulerPod,
    StoredConfigMap,
    VcJob,
    VcJobTask,
)

if TYPE_CHECKING:
    from advisor.report import ElasticAdvice

CARDS = [f"Ascend910-{number}" for number in range(8)]
LABELS = {"fault-scheduling": "grace", "elastic-scheduling": "on"}


def node(name: str) -> SchedulerNode:
    """Return an A2 node."""
    amounts = {"huawei.com/Ascend910": 8, "pods": 110}
    infos = json.dumps({card: {"IP": "", "SuperDeviceID": 0} for card in CARDS})
    return SchedulerNode(
        name,
        labels={"accelerator": "huawei-Ascend910"},
        annotations={"baseDeviceInfos": infos},
        capacity=amounts,
        allocatable=amounts,
    )


def entry(unhealthy: str = "", network: str = "") -> dict[str, object]:
    """Return a device entry with these cards out of order."""
    key = "huawei.com/Ascend910"
    return {
        "DeviceList": {
            key: ",".join(card for card in CARDS if card not in unhealthy.split(",")),
            f"{key}-Fault": "[]",
            f"{key}-NetworkUnhealthy": network,
            f"{key}-Recovering": "",
            f"{key}-Unhealthy": unhealthy,
        },
        "UpdateTime": 1_795_450_000,
    }


def device(entries: dict[str, dict[str, object]]) -> StoredConfigMap:
    """Return a document with these entries."""
    name = "cluster-info-device-0"
    text = json.dumps({f"mindx-dl-deviceinfo-{node}": one for node, one in entries.items()})
    return StoredConfigMap("mindx-dl", name, {name: text}, {"mx-consumer-volcano": "true"})


class Fleet:
    """Jobs on nodes ``n0``, ``n1``, …: each pod takes the next one whole, or its first cards."""

    def __init__(self, nodes: int, **entries: dict[str, object]) -> None:
        self.nodes = [f"n{index}" for index in range(nodes)]
        self.entries = {name: entry() for name in self.nodes} | entries
        self.pods: list[SchedulerPod] = []
        self.groups: list[PodGroup] = []
        self.vcjobs: list[VcJob] = []

    def job(
        self,
        name: str,
        replicas: int,
        least: str = "1",
        *,
        cards: int = 8,
        labels: dict[str, str] | None = None,
        created_at_ms: int = 0,
        max_retry: int | None = 0,
        action: str = "RestartJob",
    ) -> Fleet:
        """Add a job whose pods run."""
        given = LABELS if labels is None else labels
        annotations = {"minReplicas": least} if least else {}
        owner = ControllingOwner("Job", name, f"u-{name}")
        self.vcjobs.append(
            VcJob(
                "ns",
                name,
                owner.uid,
                given,
                annotations,
                (VcJobTask("w", replicas, None, "huawei.com/Ascend910", cards),),
                max_retry=max_retry,
                policies=(LifecyclePolicy(("PodEvicted",), action),) if action else (),
                created_at_ms=created_at_ms,
            )
        )
        resources = {"huawei.com/Ascend910": str(cards * replicas)}
        self.groups.append(
            PodGroup("ns", name, f"g-{name}", "Running", replicas, resources, given, owner=owner)
        )
        for index in range(replicas):
            self.pods.append(
                SchedulerPod(
                    "ns",
                    f"{name}-{index}",
                    f"p-{name}-{index}",
                    self.nodes[len(self.pods)],
                    "Running",
                    annotations={
                        "scheduling.k8s.io/group-name": name,
                        "huawei.com/AscendReal": ",".join(CARDS[:cards]),
                    },
                    owner=owner,
                    requests={"huawei.com/Ascend910": cards},
                )
            )
        return self

    def snapshot(self, gone: tuple[str, ...] = ()) -> ClusterSnapshot:
        """Return the cluster without the nodes ``gone``."""
        return ClusterSnapshot(
            1_795_450_000_000,
            nodes=tuple(node(name) for name in self.nodes if name not in gone),
            pods=tuple(self.pods),
            podgroups=tuple(self.groups),
            vcjobs=tuple(self.vcjobs),
            configmaps=(device(self.entries),),
        )

    def advice(
        self,
        gone: tuple[str, ...] = (),
        profile: Profile = Profile.UPSTREAM,
        *,
        halve: bool = False,
    ) -> list[ElasticAdvice]:
        """Return what is advised."""
        options = AdvisorOptions(profile=profile, halving_only=halve)
        return list(advise(self.snapshot(gone), SchedulerState(), options)[0].elastic_advice)


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

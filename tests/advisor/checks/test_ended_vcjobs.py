"""The size of an elastic vcjob that has ended, from its own object alone (R60)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from advisor.checks.ended_vcjobs import EndedJob, EndedJobs, FaultUnder, ended_jobs
from advisor.options import AdvisorOptions
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import (
    ClusterSnapshot,
    ControllingOwner,
    SchedulerPod,
    VcJob,
    VcJobTask,
)
from contract.documents.elastic_job import KEPT, PersistedJob, Size
from tests.advisor.checks.ended_jobs import NOW_MS, RESOURCE, ended, snapshot
from tests.advisor.controllers.elastic_fleet import CARDS, entry


def with_kept(job: VcJob, original: Size, phase: str) -> VcJob:
    """Return ``job`` as started again from ``original``."""
    assert job.template is not None
    written = Size(job.replicas, job.template.requests[RESOURCE], job.replicas)
    kept = msgspec.json.encode(PersistedJob(original, written, "x", 1, 1)).decode()
    return msgspec.structs.replace(
        job, annotations={**job.annotations, KEPT: kept}, phase=phase, version="9"
    )


def found(cluster: ClusterSnapshot, *names: str) -> EndedJobs:
    keys = {("ns", name) for name in names}
    return ended_jobs(cluster, SchedulerState(), AdvisorOptions(), sized=keys, judged=())


def sizes(answer: EndedJobs) -> list[tuple[str, int | None, int | None]]:
    return [
        (one.name, one.advice.replicas, one.advice.cards)
        for one in answer.jobs
        if one.advice is not None
    ]


@pytest.mark.parametrize(
    ("nodes", "replicas", "least", "expected"),
    [(4, 4, "1", 4), (3, 4, "1", 3), (1, 4, "1", 1), (2, 4, "3", None), (0, 4, "1", None)],
)
def test_several_hosts(nodes: int, replicas: int, least: str, expected: int | None) -> None:
    ((_, size, cards),) = sizes(found(snapshot(nodes, ended("a", replicas, least=least)), "a"))
    assert (size, cards) == (expected, None if expected is None else 8)


@pytest.mark.parametrize(("bad", "expected"), [(0, 8), (1, 4), (5, 2), (7, 1), (8, None)])
def test_one_host(bad: int, expected: int | None) -> None:
    cluster = snapshot(1, ended("a", 1), entries={"n0": entry(unhealthy=",".join(CARDS[:bad]))})
    assert sizes(found(cluster, "a")) == [("a", None if expected is None else 1, expected)]


@pytest.mark.parametrize(("nodes", "expected"), [(4, 4), (3, 3)])
def test_the_size_is_computed_from_the_original(nodes: int, expected: int) -> None:
    """A job of four pods that ran with two."""
    job = with_kept(ended("a", 2), Size(4, 8, 4), "Terminated")
    assert sizes(found(snapshot(nodes, job), "a")) == [("a", expected, 8)]


def test_older_jobs_are_served_first() -> None:
    old, young = ended("b", 2, least="2", created_at_ms=1), ended("a", 2, created_at_ms=2)
    assert sizes(found(snapshot(3, young, old), "a", "b")) == [("b", 2, 8), ("a", 1, 8)]


def test_jobs_that_no_size_is_asked_for_take_no_room() -> None:
    cluster = snapshot(2, ended("b", 2, created_at_ms=1), ended("a", 2, created_at_ms=2))
    assert sizes(found(cluster, "a")) == [("a", 2, 8)]


@pytest.mark.parametrize(("bound", "expected"), [(0, 1), (1, 1), (2, 1)])
def test_unbound_pods_of_a_started_job_count_as_placed(bound: int, expected: int) -> None:
    """Of three nodes the started job has two, wherever its pods are by now."""
    started = with_kept(ended("b", 2), Size(4, 8, 4), "Pending")
    owner = ControllingOwner("Job", "b", "u-b")
    pods = tuple(
        SchedulerPod(
            "ns",
            f"b-{index}",
            f"p-{index}",
            f"n{index}" if index < bound else "",
            "Running" if index < bound else "Pending",
            annotations={"huawei.com/AscendReal": ",".join(CARDS)} if index < bound else {},
            owner=owner,
            requests={RESOURCE: 8},
        )
        for index in range(2)
    )
    answer = found(snapshot(3, started, ended("a", 4), pods=pods), "a")
    assert sizes(answer) == [("a", expected, 8)]
    assert answer.version == 9


@pytest.mark.parametrize("phase", ["Failed", "Running"])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (entry(unhealthy=CARDS[0]), (FaultUnder("DEVICE", "n0", chip=CARDS[0]),)),
        (entry(network=CARDS[0]), (FaultUnder("NETWORK", "n0", chip=CARDS[0]),)),
        (entry(unhealthy=CARDS[7]), ()),
        (entry(), ()),
    ],
)
def test_the_fault_under_a_pod_of_a_job_that_ends(
    changed: dict[str, object], expected: tuple[FaultUnder, ...], phase: str
) -> None:
    """Its pod has failed by itself, or ends because another one failed."""
    pod = SchedulerPod(
        "ns",
        "a-0",
        "p",
        "n0",
        phase,
        annotations={"huawei.com/AscendReal": CARDS[0]},
        owner=ControllingOwner("Job", "a", "u-a"),
    )
    cluster = snapshot(1, ended("a", 2), pods=(pod,), entries={"n0": changed})
    keys = {("ns", "a")}
    (one,) = ended_jobs(cluster, SchedulerState(), AdvisorOptions(), sized=(), judged=keys).jobs
    assert one.faults == expected
    assert one.advice is None


def test_when_a_fault_began() -> None:
    lists = entry(unhealthy=CARDS[0])
    codes = {"80E01801": {"fault_time": 7000, "fault_level": "SeparateNPU"}}
    fault = {"fault_type": "CardUnhealthy", "npu_name": CARDS[0], "fault_time_and_level_map": codes}
    given = lists["DeviceList"]
    assert isinstance(given, dict)
    given[f"{RESOURCE}-Fault"] = json.dumps([fault])
    pod = SchedulerPod(
        "ns",
        "a-0",
        "p",
        "n0",
        "Failed",
        annotations={"huawei.com/AscendReal": CARDS[0]},
        owner=ControllingOwner("Job", "a", "u-a"),
    )
    cluster = snapshot(1, ended("a", 2), pods=(pod,), entries={"n0": lists})
    (one,) = found(cluster, "a").jobs
    assert one.faults == (FaultUnder("DEVICE", "n0", 7000, CARDS[0], "80E01801"),)


def test_without_documents_nothing_is_to_be_relied_on() -> None:
    assert found(snapshot(1, ended("a", 2), documents=()), "a").not_known
    assert found(snapshot(1, ended("a", 2)), "a").not_known == ()
    old = msgspec.structs.replace(snapshot(1, ended("a", 2)), now_ms=NOW_MS + 61_000)
    assert "not touched" in found(old, "a").not_known[0]


def test_a_job_with_a_live_pod_gets_no_size() -> None:
    pod = SchedulerPod("ns", "a-0", "p", "n0", "Running", owner=ControllingOwner("Job", "a", "u-a"))
    (one,) = found(snapshot(3, ended("a", 2), pods=(pod,)), "a").jobs
    assert one.advice is not None
    assert (one.advice.replicas, one.advice.reason) == (None, "PODS_LEFT")


def running(
    name: str, *nodes: str, created_at_ms: int = 0
) -> tuple[VcJob, tuple[SchedulerPod, ...]]:
    """Return a job with a pod of eight cards on each of ``nodes``."""
    job = msgspec.structs.replace(
        ended(name, len(nodes), created_at_ms=created_at_ms), phase="Running"
    )
    owner = ControllingOwner("Job", name, f"u-{name}")
    pods = tuple(
        SchedulerPod(
            "ns",
            f"{name}-{node}",
            f"p-{name}-{node}",
            node,
            "Running",
            annotations={"huawei.com/AscendReal": ",".join(CARDS)},
            owner=owner,
            requests={RESOURCE: 8},
        )
        for node in nodes
    )
    return job, pods


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"n0": entry(network=CARDS[3])}, (FaultUnder("NETWORK", "n0", chip=CARDS[3]),)),
        ({"n1": entry(unhealthy=CARDS[2])}, (FaultUnder("DEVICE", "n1", chip=CARDS[2]),)),
        ({"n2": entry(unhealthy=CARDS[2])}, ()),
    ],
)
def test_jobs_that_run_over_a_fault_of_any_kind(
    entries: dict[str, dict[str, object]], expected: tuple[FaultUnder, ...]
) -> None:
    job, pods = running("a", "n0", "n1")
    cluster = snapshot(3, job, pods=pods, entries=entries)
    asked = ended_jobs(cluster, SchedulerState(), AdvisorOptions(), sized=(), judged=(), hit=True)
    assert [one.faults for one in asked.hit] == ([expected] if expected else [])
    assert found(cluster, "b").hit == ()


def over(cluster: ClusterSnapshot, *sized_names: str) -> tuple[EndedJob, ...]:
    """Return the jobs that run over a network fault."""
    keys = {("ns", name) for name in sized_names}
    return ended_jobs(
        cluster, SchedulerState(), AdvisorOptions(), sized=keys, judged=(), running=True
    ).running


@pytest.mark.parametrize(("nodes", "least", "expected"), [(3, "1", 2), (2, "1", 1), (2, "2", None)])
def test_a_job_over_a_network_fault_has_the_size_of_what_is_left(
    nodes: int, least: str, expected: int | None
) -> None:
    """Its own nodes count as free, but for the card without a link."""
    job, pods = running("a", "n0", "n1")
    job = msgspec.structs.replace(job, annotations={"minReplicas": least})
    cluster = snapshot(nodes, job, pods=pods, entries={"n0": entry(network=CARDS[3])})
    (one,) = over(cluster)
    assert one.advice is not None
    assert (one.name, one.advice.replicas) == ("a", expected)
    assert one.faults == (FaultUnder("NETWORK", "n0", chip=CARDS[3]),)
    assert found(cluster, "b").running == ()


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"n2": entry(network=CARDS[3])},
        {"n0": entry(network=CARDS[3]), "n1": entry(unhealthy=CARDS[0])},
    ],
)
def test_other_faults_and_other_nodes_are_none_of_it(entries: dict[str, dict[str, object]]) -> None:
    """For a fault of a chip the scheduler evicts."""
    job, pods = running("a", "n0", "n1")
    assert over(snapshot(3, job, pods=pods, entries=entries)) == ()


@pytest.mark.parametrize(
    "change", [{"phase": "Terminating"}, {"tasks": (VcJobTask("w"),)}, {"labels": {}}]
)
def test_only_elastic_jobs_of_several_pods_that_run(change: dict[str, Any]) -> None:
    job, pods = running("a", "n0", "n1")
    job = msgspec.structs.replace(job, **change)
    assert over(snapshot(3, job, pods=pods, entries={"n0": entry(network=CARDS[3])})) == ()


def test_who_waits_for_room_has_it_before_who_would_be_ended() -> None:
    """Of the free nodes n2 and n3 the ended job takes both."""
    job, pods = running("a", "n0", "n1")
    waits = ended("b", 2, least="2", created_at_ms=1)
    cluster = snapshot(4, job, waits, pods=pods, entries={"n0": entry(network=CARDS[3])})
    (alone,), (after,) = over(cluster), over(cluster, "b")
    assert alone.advice is not None
    assert after.advice is not None
    assert (alone.advice.replicas, after.advice.replicas) == (2, 1)

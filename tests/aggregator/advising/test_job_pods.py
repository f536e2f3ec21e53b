"""The faults under the pods of a job that has ended: pods are kept, and what was published."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from advisor.snapshot import ControllingOwner, SchedulerNode, SchedulerPod
from aggregator.advising.job_pods import JobPods, PodOfRun, PublishedPast, judge
from aggregator.notify.history import ClusterHistory
from contract.documents.elastic_job import PersistedJob
from contract.pages.changes import STATUS, FaultChange
from service.clock import Instant
from stores.cluster import Snapshot, Update
from tests.elastic.jobs import ENDED_MS, UID, read, size, vcjob, with_kept
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from advisor.checks.ended_vcjobs import FaultUnder
    from advisor.snapshot import VcJob

_CARD, _CODE = "Ascend910-3", "80E18005"
_PODS = ("n0", "n1", "n2", "n3")
_LONG_BEFORE_MS = ENDED_MS - 600_000
_LATER_MS = ENDED_MS + 70_000


def _pod(node: str, *, ends: bool = False, run: str = "a") -> SchedulerPod:
    return SchedulerPod(
        "default",
        f"j-w-{node}",
        f"{run}-{node}",
        node,
        "Running",
        annotations={"scheduling.k8s.io/group-name": "j-x", "huawei.com/AscendReal": _CARD},
        owner=ControllingOwner("Job", "j", UID),
        is_terminating=ends,
    )


def _change(
    at_ms: int,
    was: str | None,
    level: str | None,
    *,
    node: str = "n1",
    subject: str = _CARD,
    code: str = _CODE,
) -> FaultChange:
    return FaultChange(node, at_ms, subject, code, was, level)


@dataclass
class _Clock:
    now_ms: int = _LONG_BEFORE_MS

    def __call__(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)


def _seen(job: VcJob, *, asked_ms: int = ENDED_MS - 1000) -> JobPods:
    """Return what is kept of four pods that ran and have gone with the job."""
    pods = JobPods()
    pods.observe_pods("vcjobs", Snapshot({UID: job}), _LONG_BEFORE_MS)
    running = {f"a-{node}": _pod(node) for node in _PODS}
    pods.observe_pods("pods", Snapshot(running), _LONG_BEFORE_MS)
    for key, pod in running.items():
        ending = msgspec.structs.replace(pod, is_terminating=True)
        pods.observe_pods("pods", Update(key, ending), asked_ms)
        pods.observe_pods("pods", Update(key, None), ENDED_MS)
    return pods


async def _stored(history: ClusterHistory, changes: Iterable[FaultChange]) -> None:
    """Record changes, and wait until the file has them."""
    async with _running(history):
        history.record(changes)


@contextlib.asynccontextmanager
async def _running(history: ClusterHistory) -> AsyncIterator[None]:
    """Run a history in the block. Its end stores what it has gathered."""
    async with beside(history.run()):
        await asyncio.sleep(0)  # a task that has not begun has no end either
        yield


async def _judged(
    directory: Path,
    pods: JobPods,
    job: VcJob,
    changes: Iterable[FaultChange] = (),
    levels: dict[tuple[str, str], str] | None = None,
) -> tuple[tuple[FaultUnder, ...], str]:
    """Return what is answered by a history that has ``changes`` and began before the job ended."""
    clock = _Clock()
    history = ClusterHistory(directory, {}, clock)
    history.begin_span()
    clock.now_ms = _LATER_MS
    await _stored(history, changes)
    past = PublishedPast(history, lambda node: (levels or {}) if node == "n1" else {})
    return await judge(job, pods.runs.get(job.uid), past)


@pytest.mark.parametrize(
    ("changes", "levels", "expected"),
    [
        # It passed before the pods had ended, and the scheduler evicted for it.
        (
            (
                _change(ENDED_MS - 2000, None, "SeparateNPU"),
                _change(ENDED_MS - 1500, "SeparateNPU", None),
            ),
            {},
            ["DEVICE"],
        ),
        # It stands since long.
        ((), {(_CARD, _CODE): "SeparateNPU"}, ["DEVICE"]),
        # It stood when the job ended, and has passed since.
        ((_change(ENDED_MS + 5000, "SeparateNPU", None),), {}, ["DEVICE"]),
        # It had passed for long.
        (
            (
                _change(ENDED_MS - 300_000, None, "SeparateNPU"),
                _change(ENDED_MS - 100_000, "SeparateNPU", None),
            ),
            {},
            [],
        ),
        # It was seen after the end, in time or too late.
        ((_change(ENDED_MS + 60_000, None, "SeparateNPU"),), {}, ["DEVICE"]),
        ((_change(ENDED_MS + 60_001, None, "SeparateNPU"),), {}, []),
        ((_change(ENDED_MS - 2000, None, "NotHandleFault"),), {}, []),
        ((_change(ENDED_MS - 2000, None, "SeparateNPU", subject="Ascend910-4"),), {}, []),
        ((_change(ENDED_MS - 2000, None, "SeparateNPU", node="n9"),), {}, []),
        ((_change(ENDED_MS - 2000, None, "SubHealthFault", code="81078603"),), {}, ["NETWORK"]),
        (
            (_change(ENDED_MS - 2000, None, "UnHealthy", subject="node", code=STATUS),),
            {},
            ["HEARTBEAT"],
        ),
        (
            (_change(ENDED_MS - 2000, None, "PreSeparate", subject="node", code=STATUS),),
            {},
            [],
        ),
    ],
)
async def test_the_faults_under_pods_that_are_gone(
    tmp_path: Path,
    changes: tuple[FaultChange, ...],
    levels: dict[tuple[str, str], str],
    expected: list[str],
) -> None:
    job = read(vcjob())
    faults, not_known = await _judged(tmp_path, _seen(job), job, changes, levels)
    assert ([one.kind for one in faults], not_known) == (expected, "")
    assert all(one.is_past and one.node == "n1" for one in faults)
    if expected == ["DEVICE"]:
        assert (faults[0].chip, faults[0].code) == (_CARD, _CODE)


async def test_pods_with_a_long_grace_were_evicted_long_before_the_job_ended(
    tmp_path: Path,
) -> None:
    """The fault has passed while they saved a checkpoint."""
    job, at_ms = read(vcjob()), ENDED_MS - 25_000
    changes = (_change(at_ms - 500, None, "SeparateNPU"), _change(at_ms, "SeparateNPU", None))
    faults, not_known = await _judged(tmp_path, _seen(job, asked_ms=at_ms), job, changes)
    assert ([one.kind for one in faults], not_known) == (["DEVICE"], "")


async def test_a_node_that_became_not_ready_is_a_fault_under_its_pods(tmp_path: Path) -> None:
    """No document shows it, and Volcano evicts for it (consumers#2.4)."""
    job, pods = read(vcjob()), JobPods()
    pods.observe_pods("vcjobs", Snapshot({UID: job}), 1)
    pods.observe_pods("pods", Snapshot({f"a-{node}": _pod(node) for node in _PODS}), 1)
    for node, is_ready in (("n2", False), ("n3", False), ("n3", True)):
        one = SchedulerNode(node, is_ready=is_ready)
        pods.observe_pods("nodes", Update(node, one), ENDED_MS - 3000)
    pods.observe_pods("pods", Snapshot({}), ENDED_MS - 1000)
    faults, _ = await _judged(tmp_path, pods, job)
    assert [(one.kind, one.node) for one in faults] == [("HEARTBEAT", "n2")]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("none", "has seen 0 pods of 4"),
        ("three", "has seen 3 pods of 4"),
        ("all", ""),
    ],
)
async def test_it_is_known_which_pods_were_not_seen(tmp_path: Path, run: str, why: str) -> None:
    """The history begins after the job, so pods may have gone before."""
    job, pods = read(vcjob()), JobPods()
    if run != "none":
        pods = _seen(job)
    if run == "three":
        del pods.runs[UID].pods["a-n0"]
    faults, not_known = await _judged(tmp_path, pods, job)
    assert faults == ()
    assert why in not_known if why else not not_known


@pytest.mark.parametrize(("away_ms", "is_known"), [(0, True), (-3000, False), (70_000, True)])
async def test_it_is_known_when_nothing_was_recorded(
    tmp_path: Path, away_ms: int, is_known: bool
) -> None:
    """The aggregator was away from 3 s before the end on, from 70 s after it on, or never."""
    job, clock = read(vcjob()), _Clock()
    first = ClusterHistory(tmp_path, {}, clock)
    first.begin_span()
    clock.now_ms = ENDED_MS + away_ms if away_ms else _LATER_MS
    await _stored(first, ())
    clock.now_ms = _LATER_MS + 60_000
    second = ClusterHistory(tmp_path, {}, clock)
    second.begin_span()
    past = PublishedPast(second, lambda _: {})
    _, not_known = await judge(job, _seen(job).runs[UID], past)
    assert (not not_known) is is_known


async def test_a_history_that_was_lost_knows_nothing(tmp_path: Path) -> None:
    job, clock = read(vcjob()), _Clock(_LATER_MS)
    history = ClusterHistory(tmp_path, {}, clock)
    history.begin_span()
    _, not_known = await judge(job, None, PublishedPast(history, lambda _: {}))
    assert "begins later" in not_known


async def test_pods_are_there_again_after_a_restart(tmp_path: Path) -> None:
    job = read(vcjob())
    before = _seen(job)
    history = ClusterHistory(tmp_path, {}, _Clock())
    async with _running(history):
        history.keep_runs(before.take_changed())
    after = JobPods()
    after.observe_pods("vcjobs", Snapshot({UID: job}), _LATER_MS)
    after.observe_pods("pods", Snapshot({}), _LATER_MS)
    after.restore_runs(await ClusterHistory(tmp_path, {}, _Clock()).runs())
    assert after.runs[UID].pods == before.runs[UID].pods
    after.observe_pods("vcjobs", Update(UID, None), _LATER_MS)
    assert after.take_changed() == {UID: None}, "they go with the job"


@pytest.mark.parametrize("is_restored", [False, True])
def test_pods_of_an_earlier_run_are_none_of_the_next_one(is_restored: bool) -> None:
    """They are separated while both are watched, and where one was not there at the start."""
    first = read(vcjob())
    pods = _seen(first)
    kept = PersistedJob(size(4), size(2), "x", 1, ENDED_MS + 1000)
    again = read(with_kept(vcjob(phase="Running"), kept, started=1))
    if is_restored:
        texts: dict[str, Any] = pods.take_changed()
        pods = JobPods()
        pods.observe_pods("vcjobs", Snapshot({UID: again}), _LATER_MS)
        pods.observe_pods("pods", Snapshot({"b-n5": _pod("n5", run="b")}), _LATER_MS)
        pods.observe_pods("vcjobs", Update(UID, again), _LATER_MS)
        pods.restore_runs(texts)
    else:
        pods.observe_pods("vcjobs", Update(UID, again), _LATER_MS)
        pods.observe_pods("pods", Update("b-n5", _pod("n5", run="b")), _LATER_MS)
    assert pods.runs[UID].pods.keys() == {"b-n5"}


def test_pods_of_other_controllers_and_jobs_are_not_kept() -> None:
    pods = JobPods()
    plain = vcjob()
    plain["metadata"]["labels"] = {}
    batch = msgspec.structs.replace(_pod("n0"), annotations={})
    pods.observe_pods("pods", Snapshot({"a": batch, "b": _pod("")}), 1)
    assert pods.runs == {}
    pods.observe_pods("pods", Snapshot({"b": _pod("n0")}), 1)
    pods.observe_pods("vcjobs", Snapshot({UID: read(plain)}), 1)
    assert pods.runs == {}


class _Looked(dict[str, PodOfRun]):
    """The pods of a run, which count how often all are looked at."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_a_list_of_nodes_looks_at_each_pod_once() -> None:
    """Once for each Node made 38 s of a list of 10,000 with 20,000 pods."""
    pods = JobPods()
    pods.observe_pods("pods", Snapshot({f"a-{node}": _pod(node) for node in _PODS}), 1)
    run = pods.runs[UID]
    looked = run.pods = _Looked(run.pods)
    nodes = {f"n{number}": SchedulerNode(f"n{number}", number > 1) for number in range(50)}
    pods.observe_pods("nodes", Snapshot(nodes), 2)
    assert {pod.node: pod.not_ready_ms for pod in looked.copy().values()} == {
        "n0": 2,
        "n1": 2,
        "n2": 0,
        "n3": 0,
    }
    assert looked.times == 1

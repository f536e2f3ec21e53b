"""Network faults and dead nodes, which Volcano leaves alone: what is written, and when not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from advisor.checks.ended_vcjobs import EndedJob, EndedJobs, FaultUnder
from advisor.report import ElasticAdvice
from contract.documents.elastic_job import CAUSE, Cause, CauseSource, PersistedJob, read_cause
from contract.errors import StoreError, StoreForbidden, StoreNotFound, StoreUnavailable
from elastic.aggregator_client import AggregatorReply
from elastic.controller import ElasticController
from elastic.job import read_pod
from elastic.job_cache import KINDS, QUEUES, SCHEDULER
from service.clock import Instant
from stores.cluster import Snapshot
from tests.elastic.jobs import NOW_MS, OPEN, UID, read, size, vcjob, with_cause, with_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.snapshot import VcJob
    from elastic.decision import RestartDecision

_FAULT = FaultUnder("NETWORK", "n0", 5)
_GRACE_SECONDS = 60


def _raw_pod(node: str, *, left_seconds: float | None) -> bytes:
    """Return a pod of the job; it is being deleted, with so much of its grace left."""
    metadata: dict[str, Any] = {
        "name": "j-w-0",
        "namespace": "default",
        "uid": "p0",
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": UID, "controller": True}],
    }
    if left_seconds is not None:
        end = _text(NOW_MS + int(left_seconds * 1000))
        metadata |= {"deletionTimestamp": end, "deletionGracePeriodSeconds": 30}
    content = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
    return json.dumps(content).encode()


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def _status(ready: str, seconds: float) -> dict[str, Any]:
    """Return the status of a Node that has been so for some seconds."""
    since = _text(NOW_MS - int(seconds * 1000))
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    return {"conditions": [{"type": "DiskPressure", "status": "False"}, condition]}


class Bench:
    """A daemon that acts on one job at a virtual time, with everything around it in memory."""

    leads = True

    def __init__(self, *items: dict[str, Any], network: bool = False, dead: bool = False) -> None:
        self.items = {item["metadata"]["name"]: item for item in items}
        self.raw_pods: list[bytes] = []
        self.now_ms = NOW_MS
        self.answer = AggregatorReply(EndedJobs(99), silent=frozenset())
        self.status: dict[str, Any] | StoreError = {}
        self.command_fails: StoreError | None = None
        self.done: list[tuple[str, ...]] = []
        self.waiting: set[str] = set()
        """Jobs with a Command that the controller has not obeyed."""
        self.late_ms = 0
        """How long an answer of the aggregator takes."""
        self.meanwhile: Callable[[], object] | None = None
        """What another program does when the job is annotated."""
        self.asked = 0
        part = cast("Any", self)
        self.controller = ElasticController(
            part,
            part,
            part,
            part,
            lambda: Instant(self.now_ms, self.now_ms),
            acts=True,
            ends_on_network_faults=network,
            deletes_on_dead_nodes=dead,
        )
        self.see()

    def see(self) -> None:
        """Observe all objects, as watches show them."""
        jobs = {item["metadata"]["uid"]: read(item) for item in self.items.values()}
        given: dict[str, dict[str, Any]] = {
            "jobs": jobs,
            "pods": {str(i): read_pod(raw) for i, raw in enumerate(self.raw_pods)},
            SCHEDULER: {"s": _GRACE_SECONDS},
            QUEUES: OPEN,
        }
        for name in KINDS:
            self.controller.cache.update(name, Snapshot(given.get(name, {})))

    async def rounds(self, seconds: int, *, every: int = 2) -> None:
        """Let time pass, with a round each ``every`` seconds and one at the end."""
        for _ in range(seconds // every):
            await self.controller.round()
            self.now_ms += every * 1000
        await self.controller.round()

    def shown(self, name: str = "j") -> tuple[str, str]:
        """Return state and reason of a job."""
        return next((one.state, one.why) for one in self.controller.jobs if one.name == name)

    async def request(
        self, _sized: Sequence[VcJob], _judged: Sequence[VcJob], *, running: bool, hit: bool
    ) -> AggregatorReply:
        """See ``Aggregators``."""
        assert running is self.controller.faults.ends_on_network_faults
        self.asked += 1
        self.now_ms += self.late_ms
        return msgspec.structs.replace(self.answer)

    async def read(self, _namespace: str, name: str) -> bytes:
        """See ``VcJobs``."""
        return json.dumps(self.items[name]).encode()

    async def pods(self, _namespace: str, _name: str) -> list[msgspec.Raw]:
        """See ``VcJobs``."""
        return [msgspec.Raw(raw) for raw in self.raw_pods]

    async def patch(self, _namespace: str, name: str, patch: list[dict[str, Any]]) -> str:
        """See ``VcJobs``."""
        metadata = self.items[name]["metadata"]
        assert patch[0] == {
            "op": "add",
            "path": "/metadata/resourceVersion",
            "value": metadata["resourceVersion"],
        }
        (one,) = patch[1:]
        assert one["path"] == "/metadata/annotations/npu-vigil~1elastic-cause"
        metadata["annotations"][CAUSE] = one["value"]
        metadata["resourceVersion"] = "8"
        cause = read_cause(metadata["annotations"])
        assert cause is not None
        if cause.source is CauseSource.COMMAND:
            self.done.append(("annotate", name))
        if self.meanwhile is not None:
            self.meanwhile()
        self.see()
        return "8"

    async def jobs(self) -> list[msgspec.Raw]:
        """See ``VcJobs``."""
        return [msgspec.Raw(json.dumps(item).encode()) for item in self.items.values()]

    async def is_commanded(self, _namespace: str, name: str, _uid: str) -> bool:
        """See ``VcJobs``."""
        return name in self.waiting

    async def terminate(self, _namespace: str, name: str, uid: str) -> None:
        """See ``VcJobs``."""
        if self.command_fails is not None:
            raise self.command_fails
        self.done.append(("terminate", name, uid))

    async def node(self, name: str) -> bytes:
        """See ``VcJobs``."""
        if isinstance(self.status, Exception):
            raise self.status
        return json.dumps({"metadata": {"name": name}, "status": self.status}).encode()

    async def delete_pod(self, _namespace: str, name: str, uid: str) -> None:
        """See ``VcJobs``."""
        self.done.append(("delete", name, uid))

    def report_state(self, job: VcJob, state: str, why: str, *, is_overdue: bool = False) -> None:
        """See ``JobEvents``."""

    def report_write(self, _job: VcJob, decision: RestartDecision) -> None:
        """See ``JobEvents``."""
        self.done.append(("wrote", str(decision.write)))


def over(
    *faults: FaultUnder, replicas: int | None = 2, version: int = 99, name: str = "j"
) -> AggregatorReply:
    """Return the answer that a job runs over a network fault, and what there is room for."""
    why = "" if replicas else "there is room for 0 × 8 chips"
    advice = ElasticAdvice("default", name, replicas=replicas, cards=8, why=why)
    one = EndedJob("default", name, version, advice, faults or (_FAULT,))
    return AggregatorReply(EndedJobs(99, (), (), (one,)), silent=frozenset())


ENDED = [("annotate", "j"), ("terminate", "j", UID), ("wrote", "end")]


@pytest.mark.parametrize(("seconds", "done"), [(18, []), (20, ENDED)])
async def test_a_job_is_ended_after_20_seconds_over_a_network_fault(
    seconds: int, done: list[tuple[str, ...]]
) -> None:
    bench = Bench(vcjob(phase="Running"), network=True)
    bench.answer = over()
    await bench.rounds(seconds)
    assert bench.done == done
    cause = read_cause(bench.items["j"]["metadata"]["annotations"])
    assert (cause is not None and cause.text == "NETWORK on n0") is bool(done)
    await bench.rounds(10)
    assert bench.done == (done or ENDED), "there is one Command"


async def test_without_the_setting_faults_under_it_are_only_looked_at() -> None:
    bench = Bench(vcjob(phase="Running"))
    bench.answer = over()
    await bench.rounds(30)
    assert (bench.asked, bench.done, bench.shown()) == (6, [], ("running", "the job runs"))


@pytest.mark.parametrize(
    ("between", "seconds"),
    [
        (AggregatorReply(EndedJobs(99), silent=frozenset()), 2),
        (over(FaultUnder("NETWORK", "n0", 6)), 2),
        (AggregatorReply(troubles=("the aggregator is away",)), 2),
        (None, 12),
    ],
)
async def test_a_link_that_was_up_again_or_not_seen_counts_from_then_on(
    between: AggregatorReply | None, seconds: int
) -> None:
    bench = Bench(vcjob(phase="Running"), network=True)
    bench.answer = over()
    await bench.rounds(16)
    if between is not None:
        bench.answer = between
        bench.now_ms += 2000
        await bench.controller.round()
    bench.now_ms += seconds * 1000
    bench.answer = over()
    await bench.rounds(18)
    assert bench.done == []
    await bench.rounds(2)
    assert bench.done == ENDED


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (over(replicas=None), "there is room for 0"),
        (over(replicas=5), "does not allow"),
        (msgspec.structs.replace(over(), troubles=("silence alarm",)), "the job runs"),
    ],
)
async def test_a_job_without_another_place_goes_on(answer: AggregatorReply, text: str) -> None:
    bench = Bench(vcjob(phase="Running"), network=True)
    bench.answer = answer
    await bench.rounds(40)
    assert bench.done == []
    assert bench.shown()[0] == "running"
    assert text in bench.shown()[1]


@pytest.mark.parametrize("annotations", [{"npu-vigil/elastic": "off"}, {"minReplicas": "0"}])
async def test_a_job_of_which_a_condition_does_not_hold_goes_on(
    annotations: dict[str, str],
) -> None:
    item = vcjob(phase="Running")
    item["metadata"]["annotations"] |= annotations
    bench = Bench(item, network=True)
    bench.answer = over()
    await bench.rounds(40)
    assert (bench.done, bench.shown()[0]) == ([], "conditions")


async def test_a_job_that_has_started_three_times_goes_on() -> None:
    starts = (NOW_MS - 3000, NOW_MS - 2000, NOW_MS - 1000)
    item = with_kept(
        vcjob(phase="Running"), PersistedJob(size(4), size(3), "x", 3, NOW_MS, starts), started=3
    )
    bench = Bench(item, network=True)
    bench.answer = over()
    bench.raw_pods = [_raw_pod("n0", left_seconds=None)]
    bench.see()
    await bench.rounds(40)
    assert (bench.done, bench.shown()[0]) == ([], "running")
    assert "3 starts of this job" in bench.shown()[1]


def command(kept_ms: int = NOW_MS, node: str = "n0", uid: str = UID) -> Cause:
    """Return that a job is ended for a network fault."""
    return Cause("NETWORK", node, 5, CauseSource.COMMAND, uid, kept_ms=kept_ms)


def beside(phase: str, kept_ms: int = NOW_MS) -> Bench:
    """Return job ``j`` over a network fault, beside ``a``, which was ended for one before."""
    first = vcjob("a", phase=phase)
    first["metadata"]["uid"] = "u-a"
    if phase == "Pending":
        first = with_kept(first, PersistedJob(size(4), size(2), "x", 1, NOW_MS), started=1)
    else:
        first = with_cause(first, command(kept_ms, "n1", "u-a"))
    bench = Bench(first, vcjob(phase="Running"), network=True)
    bench.raw_pods = [_raw_pod("n9", left_seconds=None).replace(UID.encode(), b"u-a")]
    bench.see()
    bench.answer = over()
    return bench


@pytest.mark.parametrize("phase", ["Terminating", "Terminated", "Pending"])
async def test_one_job_at_a_time(phase: str) -> None:
    bench = beside(phase)
    await bench.rounds(24)
    assert bench.done == []
    assert "default/a was ended before" in bench.shown()[1]


async def test_a_command_that_waits_counts_however_long_the_controller_is_away() -> None:
    bench = beside("Running", kept_ms=1)
    bench.waiting = {"a"}
    await bench.rounds(90)
    assert bench.done == []
    assert "default/a was ended before" in bench.shown()[1]
    bench.waiting = set()
    await bench.rounds(2)
    assert bench.done == ENDED, "its Command came to nothing"


async def test_a_job_that_another_process_has_just_annotated_counts() -> None:
    """Watches show nothing of it yet; the API server's own list does."""
    bench = beside("Running", kept_ms=NOW_MS + 18_000)
    shown = json.loads(json.dumps(bench.items["a"]))
    del shown["metadata"]["annotations"][CAUSE]
    bench.controller.cache.update(
        "jobs", Snapshot({"u-a": read(shown), UID: read(bench.items["j"])})
    )
    await bench.rounds(46)
    assert bench.done == []
    await bench.rounds(2)
    assert bench.done == ENDED


async def test_of_two_processes_that_annotate_two_jobs_neither_commands() -> None:
    """The other one's annotation comes between the look at the jobs and the own annotation."""
    bench = beside("Running", kept_ms=1)
    late = command(NOW_MS + 20_000, "n1", "u-a")
    bench.meanwhile = lambda: with_cause(bench.items["a"], late)
    await bench.rounds(20)
    assert bench.done == [("annotate", "j")]
    assert bench.controller.refusals["conflict"] == 1


@pytest.mark.parametrize(("kept_ms", "done"), [(NOW_MS, ENDED[1:]), (1, ENDED)])
async def test_a_kill_before_the_command_is_gone_over(
    kept_ms: int, done: list[tuple[str, ...]]
) -> None:
    """The annotation is there, no Command: the next process writes one."""
    item = with_cause(vcjob(phase="Running"), command(kept_ms))
    bench = Bench(item, network=True)
    bench.answer = over()
    await bench.rounds(20)
    assert bench.done == done


async def test_a_command_without_an_answer_is_not_written_again_at_once() -> None:
    """It may have arrived; a second one would end the next start."""
    bench = Bench(vcjob(phase="Running"), network=True)
    bench.answer, bench.command_fails = over(), StoreUnavailable("no answer in time")
    await bench.rounds(20)
    bench.command_fails = None
    await bench.rounds(28)
    assert bench.done == [("annotate", "j")]
    await bench.rounds(2)
    assert ("terminate", "j", UID) in bench.done


async def test_an_answer_that_came_late_shows_nothing_of_the_time_since() -> None:
    """It was asked for 19 s after the first one; in the 3 s since the link may be up again."""
    bench = Bench(vcjob(phase="Running"), network=True)
    bench.answer = over()
    await bench.rounds(18)
    bench.now_ms += 1000
    bench.late_ms = 3000
    await bench.controller.round()
    assert bench.done == []
    bench.late_ms = 0
    await bench.controller.round()
    assert bench.done == ENDED


@pytest.mark.parametrize("error", [StoreForbidden("no right"), StoreNotFound("no such kind")])
async def test_a_missing_right_to_commands_is_named(error: StoreError) -> None:
    bench = Bench(vcjob(phase="Running"), network=True)
    bench.answer, bench.command_fails = over(), error
    await bench.rounds(28)
    assert bench.done == [("annotate", "j")]
    assert bench.shown() == ("refused", str(error))
    refused = bench.controller.refusals["refused"]
    assert refused <= 2, "it is not tried again each second"


def dead(left_seconds: float | None = -1, phase: str = "Terminating") -> Bench:
    """Return a job with a pod on ``n0``, which is silent, and NotReady for long."""
    bench = Bench(vcjob(phase=phase), dead=True)
    bench.raw_pods = [_raw_pod("n0", left_seconds=left_seconds)]
    bench.answer = AggregatorReply(EndedJobs(99), silent=frozenset({"n0"}))
    bench.status = _status("Unknown", 3600)
    bench.see()
    return bench


DELETED = [("delete", "j-w-0", "p0"), ("wrote", "pods")]


@pytest.mark.parametrize("phase", ["Terminating", "Running"])
async def test_a_pod_on_a_dead_node_is_deleted_by_force(phase: str) -> None:
    """``grace-over-time`` is 60 s there."""
    bench = dead(phase=phase)
    await bench.rounds(60)
    assert bench.done == []
    await bench.rounds(2)
    assert bench.done == []
    cause = read_cause(bench.items["j"]["metadata"]["annotations"])
    assert cause is not None
    assert cause.text == "HEARTBEAT on n0", "the cause is kept before that"
    await bench.controller.round()
    assert bench.done == DELETED
    assert "silent and NotReady" in bench.shown()[1]


async def test_without_the_setting_it_is_only_named() -> None:
    bench = dead()
    bench.controller.faults.deletes_on_dead_nodes = False
    await bench.rounds(120)
    assert bench.done == []
    assert bench.shown()[0] == "waiting-for-pods"
    assert "out-of-service" in bench.shown()[1]


@pytest.mark.parametrize(
    "change",
    [
        {"answer": AggregatorReply(EndedJobs(99), silent=frozenset({"n1"}))},
        {"answer": AggregatorReply(EndedJobs(99), ("silence alarm",), frozenset({"n0"}))},
        {"answer": AggregatorReply(troubles=("the aggregator is away",))},
        {"status": _status("True", 3600)},
        {"status": _status("False", -90)},
        {"status": {}},
        {"status": StoreNotFound("it was deleted")},
        {"status": StoreForbidden("no right")},
        {"raw_pods": [_raw_pod("n0", left_seconds=None)]},
        {"raw_pods": [_raw_pod("n0", left_seconds=600)]},
        {"raw_pods": [_raw_pod("n2", left_seconds=-1)]},
    ],
)
async def test_a_pod_stays_while_anything_shows_that_it_may_live(change: dict[str, Any]) -> None:
    bench = dead()
    for name, value in change.items():
        setattr(bench, name, value)
    bench.see()
    await bench.rounds(120)
    assert bench.done == []


async def test_a_missing_right_to_nodes_is_named() -> None:
    bench = dead()
    bench.status = StoreForbidden("nodes is forbidden")
    await bench.rounds(64)
    assert "Node n0: nodes is forbidden" in bench.controller.blocked_reasons


@pytest.mark.parametrize(
    ("gap", "silent", "is_deleted"),
    [(20, None, True), (40, None, False), (2, frozenset[str](), False)],
)
async def test_silence_counts_from_the_last_gap_on(
    gap: int, silent: frozenset[str] | None, is_deleted: bool
) -> None:
    """A failover of the aggregator is none; a node that was back is silent anew."""
    bench = dead()
    await bench.rounds(40)
    bench.answer = AggregatorReply(silent=silent, troubles=() if silent is not None else ("away",))
    await bench.rounds(gap)
    bench.answer = AggregatorReply(EndedJobs(99), silent=frozenset({"n0"}))
    await bench.rounds(30)
    assert (bench.done[:2] == DELETED) is is_deleted

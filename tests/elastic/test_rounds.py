"""What a round does with an answer of the aggregator."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from advisor.checks.ended_vcjobs import EndedJob, EndedJobs, FaultUnder
from advisor.report import ElasticAdvice
from contract.documents.elastic_job import CAUSE, Cause, CauseSource, PersistedJob, read_cause
from contract.errors import StoreRefused
from elastic.aggregator_client import AggregatorReply
from elastic.controller import ElasticController
from elastic.end_cause import Evicted
from elastic.job_cache import KINDS
from service.clock import Instant
from stores.cluster import Snapshot
from tests.elastic.jobs import ENDED_MS, NOW_MS, OPEN, UID, read, size, vcjob, with_cause, with_kept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import msgspec

    from advisor.snapshot import VcJob
    from elastic.decision import RestartDecision


_CAUSE = Cause("CardUnhealthy", "n0", ENDED_MS - 60_000, CauseSource.RECORD, UID)


class _Around:
    """The aggregator, the leadership and what is shown to people; keeps what would be written."""

    cluster: SimpleNamespace
    leads = True
    steady_ms = NOW_MS
    wall_ms = NOW_MS

    def __init__(self, version: int, reason: str = "") -> None:
        self.item = with_cause(vcjob(), _CAUSE)
        self.would_write: list[str] = []
        self.shown: list[str] = []
        self.sized: list[int] = []
        self.judged: list[int] = []
        advice = ElasticAdvice("default", "j", replicas=None if reason else 2, cards=8)
        found = EndedJob("default", "j", version, advice)
        if reason:
            found = EndedJob("default", "j", version, ElasticAdvice("default", "j", reason=reason))
        self.answer = AggregatorReply(EndedJobs(version, (), (found,)), (), frozenset())

    async def request(
        self, sized: Sequence[VcJob], judged: Sequence[VcJob], *, running: bool, hit: bool
    ) -> AggregatorReply:
        """See ``Aggregators``."""
        self.sized.append(len(sized))
        self.judged.append(len(judged))
        return self.answer

    async def read(self, _namespace: str, _name: str) -> bytes:
        """See ``VcJobs``."""
        return json.dumps(self.item).encode()

    async def pods(self, _namespace: str, _name: str) -> list[msgspec.Raw]:
        """See ``VcJobs``."""
        return []

    async def patch(self, _namespace: str, _name: str, patch: list[dict[str, Any]]) -> str:
        """See ``VcJobs``."""
        raise StoreRefused("the chips of a job stay")

    async def patch_status(self, _namespace: str, _name: str, _patch: object) -> str:
        """See ``VcJobs``."""
        raise StoreRefused("jobs/status is forbidden")

    def report_state(self, job: VcJob, state: str, why: str, *, is_overdue: bool = False) -> None:
        """See ``JobEvents``."""
        self.shown.append(state)

    def report_write(self, _job: VcJob, decision: RestartDecision) -> None:
        """See ``JobEvents``."""

    def report_dry_run(self, _job: VcJob, decision: RestartDecision) -> None:
        """See ``JobEvents``."""
        self.would_write.append(str(decision.write))


def _controller(
    around: _Around, *, acts: bool = False, is_evicted: bool = True
) -> ElasticController:
    """Return a process over one job of version 7 without pods."""
    part = cast("Any", around)
    clock = lambda: Instant(around.wall_ms, around.steady_ms)  # noqa: E731
    controller = ElasticController(part, part, part, part, clock, acts=acts)
    job = read(around.item)
    evicted = {"r": {job.group: (Evicted(ENDED_MS // 1000 - 60, "CardUnhealthy", "n0"),)}}
    given: dict[str, dict[str, Any]] = {
        "jobs": {UID: job},
        "records": evicted if is_evicted else {},
        "queues": OPEN,
    }
    for name in KINDS:
        controller.cache.update(name, Snapshot(given.get(name, {})))
    return controller


@pytest.mark.parametrize(
    ("version", "reason", "written", "seconds"),
    [(7, "", ["size"], 5.0), (6, "", [], 0.1), (7, "PODS_LEFT", [], 0.1)],
)
async def test_an_answer_from_before_the_end_is_asked_for_again_at_once(
    version: int, reason: str, written: list[str], seconds: float
) -> None:
    around = _Around(version, reason)
    controller = _controller(around)
    assert await controller.round() == seconds
    assert around.would_write == written


async def test_an_aggregator_that_stays_behind_is_asked_once_a_second() -> None:
    controller = _controller(_Around(6))
    pauses = [await controller.round() for _ in range(22)]
    assert pauses == [0.1] * 20 + [1.0] * 2


async def test_a_job_that_was_refused_takes_no_room_from_others_until_it_is_tried_again() -> None:
    """The aggregator serves jobs in their order, so one that cannot start would keep its nodes."""
    around = _Around(7)
    controller = _controller(around, acts=True)
    await controller.round()
    assert around.sized == [1]
    for _ in range(3):
        await controller.round()
    assert around.sized == [1], "it is not asked for"
    assert (controller.jobs[0].state, controller.jobs[0].why) == (
        "refused",
        "the chips of a job stay",
    )
    around.steady_ms += 30_000
    await controller.round()
    assert around.sized == [1, 1]
    assert controller.refusals["refused"] == 2


class _Half(_Around):
    """Takes the cause, and the size as version 8 of the job, and refuses the phase."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.causes: list[Cause] = []
        self.removals = 0

    @override
    async def patch(self, _namespace: str, _name: str, patch: list[dict[str, Any]]) -> str:
        if patch[1]["path"] == "/metadata/annotations/npu-vigil~1elastic-cause":
            cause = read_cause({CAUSE: patch[1].get("value", "null")})
            self.causes += [] if cause is None else [cause]
            self.removals += patch[1]["op"] == "remove"
            return "8"
        at_ms = ENDED_MS + 1000
        written = PersistedJob(size(4), size(2), "x", 1, at_ms, (at_ms,))
        self.item = with_kept(self.item, written)
        self.item["metadata"]["resourceVersion"] = "8"
        return "8"


async def test_it_waits_until_the_aggregator_has_seen_the_last_write() -> None:
    """What was started counts as taken; an answer from before that has its room as free."""
    around = _Half(7)
    controller = _controller(around, acts=True)
    await controller.round()
    controller.cache.update("jobs", Snapshot({UID: read(around.item)}))
    await controller.round()
    assert controller.blocked_reasons == ("the aggregator has not seen the last write yet",)
    assert controller.refusals["refused"] == 0


async def test_a_refused_start_is_shown_though_the_size_before_it_was_written_here() -> None:
    """Nothing is asked meanwhile, so no answer shows whether the aggregator has seen the size."""
    around = _Half(8)
    controller = _controller(around, acts=True)
    for _ in range(4):
        await controller.round()
        controller.cache.update("jobs", Snapshot({UID: read(around.item)}))
    assert (controller.jobs[0].state, controller.jobs[0].why) == (
        "refused",
        "jobs/status is forbidden",
    )
    assert controller.blocked_reasons == ()


async def test_a_fault_under_a_pod_that_ends_with_its_job_is_kept_until_the_job_has_ended() -> None:
    """One pod fails, the controller ends the others, and the fault is under one of these."""
    around = _Around(7)
    controller = _controller(around, is_evicted=False)
    fault = FaultUnder("NETWORK", "n1", ENDED_MS - 5000)
    ending = vcjob(phase="Terminating")
    controller.cache.update("jobs", Snapshot({UID: read(ending)}))
    around.answer = AggregatorReply(
        EndedJobs(7, (), (EndedJob("default", "j", 7, None, (fault,)),))
    )
    await controller.round()
    assert around.judged == [1]
    assert controller.jobs[0].state == "ending"
    controller.cache.update("jobs", Snapshot({UID: read(vcjob())}))
    advice = ElasticAdvice("default", "j", replicas=2, cards=8)
    around.answer = AggregatorReply(EndedJobs(7, (), (EndedJob("default", "j", 7, advice),)))
    await controller.round()
    assert controller.jobs[0].why == "start with 2 × 8 chips of 4 × 8: NETWORK on n1"
    assert around.would_write == ["size"]


async def test_a_fault_under_an_earlier_end_is_none_of_the_next_one() -> None:
    around = _Around(7)
    controller = _controller(around, is_evicted=False)
    fault = FaultUnder("NETWORK", "n1", ENDED_MS - 5000)
    found = EndedJob("default", "j", 7, None, (fault,))
    around.answer = AggregatorReply(EndedJobs(7, (), (found,)))
    for phase in ("Terminating", "Running", "Terminated"):
        controller.cache.update("jobs", Snapshot({UID: read(vcjob(phase=phase))}))
        await controller.round()
        none = EndedJob("default", "j", 7, not_known="")
        around.answer = AggregatorReply(EndedJobs(7, (), (none,)))
        around.steady_ms += 5000
    assert controller.jobs[0].state == "no-cause"


async def test_a_record_that_is_taken_back_at_once_is_kept_on_the_job() -> None:
    """It is shown and goes between two rounds, or while the aggregator is slow."""
    around = _Half(7)
    around.item = vcjob(phase="Running")
    controller = _controller(around, acts=True, is_evicted=False)
    job = read(around.item)
    controller.cache.update("jobs", Snapshot({UID: job}))
    evicted = {"r": {job.group: (Evicted(ENDED_MS // 1000 - 60, "CardUnhealthy", "n0"),)}}
    controller.cache.update("records", Snapshot(evicted))
    controller.cache.update("records", Snapshot({}))
    assert await controller.round() == 0.1
    assert around.sized == around.judged == [], "it does not wait for an answer"
    (written,) = around.causes
    assert (written.text, written.source) == ("CardUnhealthy on n0", CauseSource.RECORD)
    await controller.round()
    assert len(around.causes) == 1, "the watch has not shown it yet"


@pytest.mark.looptime
async def test_a_change_that_is_seen_begins_the_next_round() -> None:
    around = _Around(7)
    events: asyncio.Queue[object] = asyncio.Queue()

    async def objects(kind: object) -> AsyncIterator[object]:
        while True:
            event = await (events if kind is KINDS["jobs"] else asyncio.Queue()).get()
            yield event

    around.cluster = SimpleNamespace(objects=objects)
    controller = _controller(around)
    run = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    assert around.sized == [1]
    events.put_nowait(Snapshot({UID: read(around.item)}))
    await asyncio.sleep(1)
    assert around.sized == [1, 1], "a round without a change begins after 5 s"
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def test_a_follower_sees_what_the_leader_sees() -> None:
    """The leader dies between seeing and writing; then this process leads."""
    around = _Half(7)
    around.leads = False
    around.item = vcjob(phase="Terminating")
    controller = _controller(around, acts=True, is_evicted=False)
    job = read(around.item)
    controller.cache.update("jobs", Snapshot({UID: job}))
    fault = FaultUnder("DEVICE", "n1", ENDED_MS - 5000)
    found = EndedJob("default", "j", 7, None, (fault,))
    around.answer = AggregatorReply(EndedJobs(7, (), (found,)))
    await controller.round()
    assert around.causes == []
    around.answer = AggregatorReply(troubles=("the aggregator is away",))
    around.item = vcjob()
    controller.cache.update("jobs", Snapshot({UID: read(around.item)}))
    around.leads = True
    await controller.round()
    assert [one.text for one in around.causes] == ["DEVICE on n1"]


async def test_a_fault_under_a_job_that_runs_is_kept_until_it_has_passed() -> None:
    around = _Half(7)
    around.item = vcjob(phase="Running")
    controller = _controller(around, acts=True, is_evicted=False)
    controller.cache.update("jobs", Snapshot({UID: read(around.item)}))
    fault = FaultUnder("NETWORK", "n1", 5, "Ascend910-3")
    hit = EndedJob("default", "j", 7, None, (fault,))
    around.answer = AggregatorReply(EndedJobs(7, (), (), (), (hit,)))
    await controller.round()
    assert [one.source for one in around.causes] == [CauseSource.RUNNING]
    around.item = with_cause(around.item, around.causes[0])
    controller.cache.update("jobs", Snapshot({UID: read(around.item)}))
    around.answer = AggregatorReply(EndedJobs(7))
    for _ in range(13):
        around.steady_ms += 5000
        assert around.removals == 0
        await controller.round()
    assert around.removals == 1


async def test_an_end_that_cannot_be_judged_is_asked_about_again_each_minute() -> None:
    """Another aggregator may lead by then, and have more of the history."""
    around = _Around(7)
    around.item = vcjob()
    controller = _controller(around, acts=True, is_evicted=False)
    controller.cache.update("jobs", Snapshot({UID: read(around.item)}))
    around.answer = AggregatorReply(
        EndedJobs(7, (), (EndedJob("default", "j", 7, not_known="it began later"),))
    )
    around.wall_ms = ENDED_MS + 600_000
    for _ in range(40):
        await controller.round()
        around.steady_ms += 5000
    assert around.judged.count(1) == 4, "at first, and each minute"
    assert controller.jobs[0].state == "cause-not-known"
    assert "it began later" in controller.jobs[0].why


async def test_a_cause_that_cannot_be_asked_for_has_the_reason() -> None:
    around = _Around(7)
    around.item = vcjob()
    controller = _controller(around, acts=True, is_evicted=False)
    around.answer = AggregatorReply(troubles=("the aggregator is away",))
    await controller.round()
    assert controller.jobs[0].state == "cause-not-known"
    assert "the aggregator is away" in controller.jobs[0].why

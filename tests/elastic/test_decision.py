"""What is done with one job, at each step of its way, and by which patches."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from advisor.report import ElasticAdvice
from contract.documents.elastic_job import (
    KEPT,
    RESTORE,
    RESTORE_NEXT,
    RESTORE_NOW,
    PersistedJob,
    Size,
)
from elastic.decision import HOUR_MS, DueWrite, JobContext, VcjobState, decide
from elastic.end_cause import Evicted
from elastic.patches import size_patch, start_patch
from tests.elastic.jobs import CHIPS, ENDED_MS, NOW_MS, pod, read, size, vcjob, with_kept

EVICTED = (Evicted(ENDED_MS // 1000 - 60, "CardUnhealthy", "n0"),)


def facts(**changes: Any) -> JobContext:
    """Return that the job was evicted, has no pods, and that there is room for two pods."""
    known = JobContext(NOW_MS, evictions=EVICTED, advice=advice(2), judged="")
    return msgspec.structs.replace(known, **changes)


def advice(replicas: int | None, cards: int | None = 8, why: str = "") -> ElasticAdvice:
    """Return a size that is advised."""
    return ElasticAdvice("default", "j", replicas=replicas, cards=cards, why=why)


def kept(size_: Size, *, start: int = 1, starts_ms: tuple[int, ...] = ()) -> PersistedJob:
    """Return what is kept after ``size_`` was written, a second after the end."""
    at_ms = ENDED_MS + 1000
    return PersistedJob(size(4), size_, "DEVICE on n0", start, at_ms, starts_ms or (at_ms,))


def test_the_size_comes_first_and_the_phase_after_it() -> None:
    job = read(vcjob())
    found = decide(job, facts())
    assert (found.state, found.write, found.size) == (VcjobState.READY, DueWrite.SIZE, size(2))
    assert (found.original, found.cause, found.start) == (size(4), "CardUnhealthy on n0", 1)
    resized = read(with_kept(vcjob(), kept(size(2))))
    after = decide(resized, facts())
    assert (after.write, after.start, after.cause) == (DueWrite.START, 1, "DEVICE on n0")


@pytest.mark.parametrize(("replicas", "cards"), [(4, 8), (3, 8), (2, 8), (1, 8)])
def test_the_size_patch_of_several_pods(replicas: int, cards: int) -> None:
    job = read(vcjob())
    found = decide(job, facts(advice=advice(replicas, cards)))
    patch = {one["path"]: one["value"] for one in size_patch(job, found, NOW_MS)}
    assert patch.pop("/metadata/resourceVersion") == "7"
    state = msgspec.json.decode(patch.pop("/metadata/annotations/npu-vigil~1elastic-state"))
    assert state["original"] == msgspec.to_builtins(size(4))
    assert state["starts_ms"] == [NOW_MS]
    assert patch == {
        "/metadata/annotations/distributed": "true",
        "/spec/tasks/0/replicas": replicas,
        "/spec/tasks/0/minAvailable": replicas,
        "/spec/minAvailable": replicas,
    }


@pytest.mark.parametrize("cards", [4, 2, 1])
def test_the_size_patch_of_a_single_pod(cards: int) -> None:
    job = read(vcjob(replicas=1))
    found = decide(job, facts(advice=advice(1, cards)))
    patch = {one["path"]: one["value"] for one in size_patch(job, found, NOW_MS)}
    where = "/spec/tasks/0/template/spec/containers/0/resources"
    assert {path: value for path, value in patch.items() if path.startswith(where)} == {
        f"{where}/limits/{CHIPS.replace('/', '~1')}": str(cards),
        f"{where}/requests/{CHIPS.replace('/', '~1')}": str(cards),
    }


@pytest.mark.parametrize(("original", "written", "expected"), [(2, 4, 2), (2, 1, 1), (4, 3, 3)])
def test_no_more_start_together_than_before(original: int, written: int, expected: int) -> None:
    item = vcjob()
    item["spec"]["minAvailable"] = item["spec"]["tasks"][0]["minAvailable"] = original
    found = decide(read(item), facts(advice=advice(written)))
    assert found.size == Size(written, 8, expected, expected)


def test_the_status_shows_the_number_of_the_start() -> None:
    patch = start_patch(read(vcjob()), 3, "2 × 8 chips")
    state = patch["status"]["state"]
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert (state["phase"], state["message"]) == ("Pending", "NPU Vigil start 3: 2 × 8 chips")
    item = vcjob()
    item["status"]["state"] |= {"message": state["message"]}
    assert read(item).started == 3


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Running", VcjobState.RUNNING),
        ("Pending", VcjobState.STARTING),
        ("Terminating", VcjobState.ENDING),
        ("Restarting", VcjobState.ENDING),
        ("Completed", VcjobState.FINISHED),
    ],
)
def test_a_job_that_has_not_ended_is_left_alone(phase: str, state: VcjobState) -> None:
    found = decide(read(vcjob(phase=phase)), facts())
    assert (found.state, found.write) == (state, None)


@pytest.mark.parametrize(
    "left", [pod(), pod(deleted=True), pod(phase="Failed", deleted=True), pod(phase="Pending")]
)
def test_nothing_is_written_while_a_pod_has_not_ended(left: Any) -> None:
    """``Failed`` does not mean that the pods have ended (consumers#2.9)."""
    item = vcjob(action="RestartJob", phase="Failed")
    found = decide(read(item), facts(pods=(left, pod("j-w-1", "Failed"))))
    assert (found.state, found.write) == (VcjobState.WAITING_FOR_PODS, None)
    assert "j-w-0 on n0" in found.why
    assert not found.is_overdue


def test_pods_that_have_not_ended_are_named_with_their_time() -> None:
    """The grace of 600 s is over at 11:00; a pod that is not deleted waits since the end."""
    found = decide(read(vcjob()), facts(pods=(pod(deleted=True), pod("j-w-1"))))
    assert found.why == (
        "pods that have not ended: j-w-0 on n0, grace 600 s, since 2026-11-23T10:50:00Z; "
        "j-w-1 on n0, not deleted, since 2026-11-23T11:00:00Z"
    )


def test_a_pod_that_is_not_deleted_waits_since_the_job_began_to_end() -> None:
    """The controller adds a condition for each pod that is gone."""
    item = vcjob(phase="Terminating")
    item["status"]["conditions"] += [
        {"status": "Terminating", "lastTransitionTime": f"2026-11-23T10:{minute}:00Z"}
        for minute in (55, 59)
    ]
    assert "not deleted, since 2026-11-23T10:55:00Z" in decide(read(item), facts(pods=(pod(),))).why


@pytest.mark.parametrize(
    ("phase", "before"),
    [
        ("Terminated", VcjobState.WAITING_FOR_PODS),
        ("Terminating", VcjobState.ENDING),
        ("Running", VcjobState.RUNNING),
    ],
)
@pytest.mark.parametrize("grace_seconds", [900, 1800])
@pytest.mark.parametrize("is_overdue", [False, True])
def test_pods_on_a_dead_node_need_a_taint_after_the_grace_over_time(
    phase: str, before: VcjobState, grace_seconds: int, is_overdue: bool
) -> None:
    """They were deleted 600 s before 11:00. With ``TerminateJob`` the phase stays Terminating.

    Where all pods are on dead nodes it stays Running.
    """
    now_ms = ENDED_MS + (grace_seconds - 600) * 1000 + is_overdue
    known = facts(now_ms=now_ms, pods=(pod(deleted=True),), grace_over_time_ms=grace_seconds * 1000)
    found = decide(read(vcjob(phase=phase)), known)
    assert found.state is (VcjobState.WAITING_FOR_PODS if is_overdue else before)
    assert (found.is_overdue, "out-of-service" in found.why) == (is_overdue, is_overdue)
    assert (f"more than {grace_seconds} s" in found.why) is is_overdue
    assert found.write is None


def test_pods_that_ended_by_themselves_are_removed_first() -> None:
    """Size 0 and ``Pending``, then the size; the phase has pods made by then (consumers#2.9)."""
    ended = (pod("j-w-1", "Failed"),)
    job = read(vcjob())
    first = decide(job, facts(pods=ended))
    assert (first.write, first.start) == (DueWrite.CLEAR, 1)
    patch = {one["path"]: one["value"] for one in size_patch(job, first, NOW_MS)}
    assert patch["/spec/tasks/0/replicas"] == patch["/spec/minAvailable"] == 0
    nothing = kept(size(0))
    second = decide(read(with_kept(vcjob(), nothing)), facts(pods=ended))
    assert (second.write, second.start) == (DueWrite.START, 1)
    active = with_kept(vcjob(phase="Running"), nothing, started=1)
    assert decide(read(active), facts(pods=ended)).state is VcjobState.STARTING
    last = decide(read(active), facts())
    assert (last.write, last.size, last.start) == (DueWrite.SIZE, size(2), 1)


def test_an_end_after_our_start_needs_a_cause_of_its_own() -> None:
    item = with_kept(vcjob(), kept(size(2)), started=1)
    assert decide(read(item), facts()).state is VcjobState.NO_CAUSE
    later = (Evicted(ENDED_MS // 1000 + 5, "NodeUnhealthy", "n1"),)
    found = decide(read(item), facts(evictions=later))
    assert (found.write, found.start, found.original) == (DueWrite.SIZE, 2, size(4))


@pytest.mark.parametrize("ahead_seconds", [0, 30])
def test_one_eviction_is_followed_by_one_start(ahead_seconds: int) -> None:
    """Pods end at once, so the job starts in the second of its eviction; then it fails by itself.

    The scheduler's clock may be ahead of ours, too.
    """
    evicted = Evicted(NOW_MS // 1000 + ahead_seconds, "CardUnhealthy", "n0")
    first = read(vcjob())
    found = decide(first, facts(evictions=(evicted,)))
    patch = {one["path"]: one["value"] for one in size_patch(first, found, NOW_MS)}
    written = patch["/metadata/annotations/npu-vigil~1elastic-state"]
    state = msgspec.json.decode(written, type=PersistedJob)
    again = read(with_kept(vcjob(), state, started=1))
    assert decide(again, facts(evictions=(evicted,))).state is VcjobState.NO_CAUSE
    later = msgspec.structs.replace(evicted, at_seconds=evicted.at_seconds + 1)
    assert decide(again, facts(evictions=(evicted, later))).state is VcjobState.READY


@pytest.mark.parametrize(
    ("evicted_at", "state"),
    [("2026-11-23T10:10:00Z", VcjobState.NO_CAUSE), ("2026-11-23T10:40:00Z", VcjobState.READY)],
)
def test_an_end_after_its_owner_resumed_it_needs_a_cause_of_its_own(
    evicted_at: str, state: VcjobState
) -> None:
    """``vcctl job resume`` starts a job that was evicted before, at 10:30.

    A job may be evicted while it is Pending: its pods are bound and pull their images.
    """
    item = vcjob(phase="Aborted")
    times = (("Pending", "10:00"), ("Running", "10:00"), ("Aborted", "10:11"))
    resumed = (("Restarting", "10:29"), ("Pending", "10:30"), ("Pending", "10:50"))
    item["status"]["conditions"] = [
        {"status": phase, "lastTransitionTime": f"2026-11-23T{at}:00Z"}
        for phase, at in (*times, *resumed, ("Running", "10:51"), ("Aborted", "11:00"))
    ]
    at_seconds = int(datetime.fromisoformat(evicted_at).timestamp())
    found = decide(read(item), facts(evictions=(Evicted(at_seconds, "CardUnhealthy", "n0"),)))
    assert found.state is state


@pytest.mark.parametrize(("phases", "is_named"), [(("Pending",), True), (("Running",), False)])
def test_a_quota_that_is_used_up_is_named_and_no_start_follows(
    phases: tuple[str, ...], is_named: bool
) -> None:
    """The controller ends a job of which no pod can be made after 15 tries.

    The job ran until the second in which it was started again.
    """
    item = with_kept(vcjob(), kept(size(2)), started=1)
    item["status"]["conditions"] = [
        {"status": phase, "lastTransitionTime": "2026-11-23T11:00:01Z"}
        for phase in ("Running", "Terminated", *phases, "Terminating", "Terminated")
    ]
    found = decide(read(item), facts())
    assert (found.state, found.write) == (VcjobState.NO_CAUSE, None)
    assert ("quota" in found.why) is is_named


def test_another_size_than_was_written_is_written_again() -> None:
    """Between the two writes the room has become smaller: the number of the start stays."""
    found = decide(read(with_kept(vcjob(), kept(size(3)))), facts())
    assert (found.write, found.size, found.start) == (DueWrite.SIZE, size(2), 1)


@pytest.mark.parametrize("replicas", [4, 6, 3])
def test_a_size_of_the_owner_between_the_two_writes_keeps_cause_and_start(replicas: int) -> None:
    """Argo CD writes its manifest again at once; the eviction is older than our first write."""
    item = with_kept(vcjob(), kept(size(2)))
    item["spec"]["tasks"][0]["replicas"] = item["spec"]["minAvailable"] = replicas
    item["spec"]["tasks"][0]["minAvailable"] = replicas
    job = read(item)
    found = decide(job, facts())
    assert (found.write, found.size, found.cause) == (DueWrite.SIZE, size(2), "DEVICE on n0")
    assert (found.original, found.start) == (size(replicas), 1)
    patch = {one["path"]: one["value"] for one in size_patch(job, found, NOW_MS)}
    state = msgspec.json.decode(patch["/metadata/annotations/npu-vigil~1elastic-state"])
    assert state["starts_ms"] == [ENDED_MS + 1000], "the start counts once"


@pytest.mark.parametrize(
    ("advised", "text"),
    [
        (advice(None, None, "there is room for 0 × 8 chips"), "there is room for 0"),
        (advice(5), "does not allow"),
        (advice(2, 16), "does not allow"),
        (None, "is asked"),
    ],
)
def test_without_a_size_it_waits(advised: ElasticAdvice | None, text: str) -> None:
    found = decide(read(vcjob()), facts(advice=advised))
    assert (found.state, found.write, found.asks) == (VcjobState.WAITING_FOR_ROOM, None, True)
    assert text in found.why


def test_a_closed_queue_keeps_the_job_as_it_is() -> None:
    """Also between the two writes; but a job of size 0 gets its size back."""
    closed = facts(closed_queue="queue q is Closed; open it")
    for item in (vcjob(), with_kept(vcjob(), kept(size(2)))):
        found = decide(read(item), closed)
        assert (found.state, found.write) == (VcjobState.WAITING_FOR_ROOM, None)
        assert (found.why, found.asks) == ("queue q is Closed; open it", False)
    cleared = with_kept(vcjob(phase="Running"), kept(size(0)), started=1)
    assert decide(read(cleared), closed).write is DueWrite.SIZE
    assert "queue q is Closed" in decide(read(vcjob(phase="Pending")), closed).why


@pytest.mark.parametrize("change", [{"least": "3"}, {"least": "1", "succeed": 3}])
def test_never_below_the_minimum_or_the_pods_that_have_to_succeed(change: dict[str, Any]) -> None:
    item = vcjob(least=change["least"])
    item["spec"]["minSuccess"] = change.get("succeed")
    assert decide(read(item), facts(advice=advice(3))).write is DueWrite.SIZE
    found = decide(read(item), facts(advice=advice(2)))
    assert (found.state, found.write) == (VcjobState.WAITING_FOR_ROOM, None)
    assert "does not allow" in found.why


def test_it_stands_still() -> None:
    found = decide(read(vcjob()), facts(blocked_reasons=("the aggregator is away", "x")))
    assert (found.state, found.write) == (VcjobState.BLOCKED, None)
    assert found.why == "the aggregator is away; x"


@pytest.mark.parametrize(
    ("count", "state"), [(2, VcjobState.READY), (3, VcjobState.TOO_MANY_STARTS)]
)
def test_a_fourth_start_within_an_hour_waits(count: int, state: VcjobState) -> None:
    starts = tuple(NOW_MS - 1000 * number for number in range(count))
    later = (Evicted(NOW_MS // 1000, "x"),)
    item = with_kept(vcjob(), kept(size(2), start=count, starts_ms=starts), started=count)
    assert decide(read(item), facts(evictions=later)).state is state
    old = tuple(at_ms - HOUR_MS for at_ms in starts)
    item = with_kept(vcjob(), kept(size(2), start=count, starts_ms=old), started=count)
    assert decide(read(item), facts(evictions=later)).state is VcjobState.READY


@pytest.mark.parametrize(
    ("count", "state"), [(9, VcjobState.READY), (10, VcjobState.TOO_MANY_STARTS)]
)
def test_an_eleventh_start_in_the_cluster_waits(count: int, state: VcjobState) -> None:
    starts = (NOW_MS - HOUR_MS + 1,) * count
    assert decide(read(vcjob()), facts(cluster_starts_ms=starts)).state is state


@pytest.mark.parametrize(("value", "evictions"), [(RESTORE_NOW, ()), (RESTORE_NEXT, EVICTED)])
def test_restoring_waits_for_the_original_size(value: str, evictions: tuple[Evicted, ...]) -> None:
    item = vcjob()
    item["metadata"]["annotations"][RESTORE] = value
    job = read(item)
    found = decide(job, facts(evictions=evictions))
    assert (found.state, found.write) == (VcjobState.WAITING_FOR_ROOM, None)
    whole = decide(job, facts(evictions=evictions, advice=advice(4)))
    assert whole.write is DueWrite.SIZE
    paths = [(one["op"], one["path"]) for one in size_patch(job, whole, NOW_MS)]
    assert ("remove", "/metadata/annotations/npu-vigil~1elastic-restore") in paths


def test_a_job_that_fails_by_itself_is_not_started_because_it_is_to_be_restored() -> None:
    """``restore`` without ``--now`` is about the next start after a fault."""
    item = vcjob()
    item["metadata"]["annotations"][RESTORE] = RESTORE_NEXT
    found = decide(read(item), facts(evictions=(), advice=advice(4)))
    assert (found.state, found.write) == (VcjobState.NO_CAUSE, None)


def test_a_broken_annotation_is_left_alone() -> None:
    item = vcjob()
    item["metadata"]["annotations"][KEPT] = '{"original": 3}'
    found = decide(read(item), facts())
    assert (found.state, found.write) == (VcjobState.CONDITIONS, None)
    assert KEPT in found.why


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    item = vcjob()
    item["metadata"]["deletionTimestamp"] = "2026-11-23T11:00:05Z"
    assert decide(read(item), facts()).state is VcjobState.FINISHED


@pytest.mark.parametrize(
    "change",
    [
        {"policies": [{"event": "PodEvicted", "action": "RestartJob"}], "maxRetry": 3},
        {"policies": []},
        {"ttlSecondsAfterFinished": 60},
    ],
)
def test_changes_of_the_owner_between_the_two_writes_count(change: dict[str, Any]) -> None:
    """The size is written, and the start is not: it would not end at the next fault."""
    item = with_kept(vcjob(), kept(size(2)))
    assert decide(read(item), facts()).write is DueWrite.START
    item["spec"] |= change
    found = decide(read(item), facts())
    assert (found.state, found.write) == (VcjobState.CONDITIONS, None)

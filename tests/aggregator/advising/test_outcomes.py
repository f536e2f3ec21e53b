"""What became of foretold deletions, as the scheduler's records and the pods show it."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from advisor.options import Profile
from advisor.report import Action, AdviceReport, Deletion, JobDecision, WorkloadKind
from advisor.snapshot import (
    ClusterSnapshot,
    ControllingOwner,
    LifecyclePolicy,
    PodGroup,
    SchedulerPod,
    StoredConfigMap,
    VcJob,
)
from aggregator.advising.outcomes import WINDOW_MS, DeletionOutcome, Outcomes, Watched
from tests.advisor.player import PLAYED_AGAIN, recorded
from tests.advisor.recordings import played

GROUP = {"scheduling.k8s.io/group-name": "j"}
PODS = tuple(
    SchedulerPod("ns", name, f"u-{name}", "n1", "Running", annotations=GROUP) for name in "ab"
)
KEY = "recent-reschedule-records"


def record(times: int, job: str = "ns/j") -> StoredConfigMap:
    """Return what the scheduler has written after so many deletions of a job."""
    text = json.dumps({job: {"JobID": job, "TotalRescheduleTimes": times, "RescheduleRecords": []}})
    return StoredConfigMap("mindx-dl", "job-reschedule-reason", {KEY: text})


class Observed:
    """A job of two pods, looked at when something changes."""

    def __init__(self, grace: int | None = 0, *, reasons: StoredConfigMap | None = None) -> None:
        self.now_ms = 1_000_000
        self.pods = {pod.name: pod for pod in PODS}
        self.reasons: StoredConfigMap | None = record(0) if reasons is None else reasons
        self.records_known = True
        self.graces: dict[str, int | None] = {}
        self.vcjobs: tuple[VcJob, ...] = ()
        self.outcomes = Outcomes()
        self.look()
        if grace is not None:
            self.foretell(grace, "a", "b")

    def look(self, after_ms: int = 0) -> None:
        """Take another snapshot ``after_ms`` later."""
        self.now_ms += after_ms
        maps = () if self.reasons is None else (self.reasons,)
        snapshot = ClusterSnapshot(
            self.now_ms,
            pods=tuple(self.pods.values()),
            podgroups=(PodGroup("ns", "j", owner=ControllingOwner("Job", "v", "u-v")),),
            vcjobs=self.vcjobs,
            configmaps=maps,
        )
        self.outcomes.look(snapshot, Watched(self.records_known, self.graces))
        self.graces = {}

    def go(self, *names: str) -> None:
        """Let these pods be gone at once."""
        for name in names:
            del self.pods[name]

    def end(self, *names: str, grace: int = 30) -> None:
        """Let these pods begin to end."""
        for name in names:
            self.pods[name] = msgspec.structs.replace(
                self.pods[name], is_terminating=True, deletion_grace_seconds=grace
            )

    def foretell(
        self,
        grace: int,
        *names: str,
        is_preview: bool = False,
        kind: WorkloadKind = WorkloadKind.VCJOB,
    ) -> None:
        """Report advice to delete these pods now."""
        pods = tuple(Deletion("ns", name, f"u-{name}", grace) for name in names)
        decision = JobDecision("ns", "ns/j", kind, Action.EVICT, "D15", (), "", pods=pods)
        decisions = (decision,) if names else ()
        report = AdviceReport(Profile.UPSTREAM, self.now_ms, decisions=decisions)
        self.outcomes.foretell(report, self.now_ms, is_preview=is_preview)

    @property
    def counts(self) -> dict[str, int]:
        """Return what is counted."""
        return {outcome.value: n for outcome, n in self.outcomes.counts.items() if n}


def test_foretold_deletion_with_a_new_record_counts_as_come() -> None:
    job = Observed()
    job.go("a", "b")
    job.look(200)
    assert job.counts == {}, "it is not known yet who it was"
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 2}
    assert (job.outcomes.next_ms, list(job.outcomes.missed)) == (None, [])


def test_a_record_before_the_pods_are_seen_to_go() -> None:
    job = Observed()
    job.reasons = record(1)
    job.look(100)
    job.go("a", "b")
    job.look(900)
    assert job.counts == {"came": 2}


def test_an_eviction_comes_when_the_pods_begin_to_end() -> None:
    job = Observed(grace=30)
    job.end("a", "b")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 2}
    job.go("a", "b")
    job.look(30_000)
    assert job.counts == {"came": 2}, "their end is no deletion of its own"


@pytest.mark.parametrize(
    ("foretold", "seen"), [(0, 30), (30, 0), (30, 60)], ids=["some", "none", "another"]
)
def test_another_grace_than_foretold(foretold: int, seen: int) -> None:
    job = Observed(grace=foretold)
    if seen:
        job.end("a", grace=seen)
    else:
        job.go("a")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"otherwise": 1}
    (one,) = job.outcomes.missed
    assert (one.outcome, one.pod, one.job) == (DeletionOutcome.OTHERWISE, "ns/a", "ns/j")
    assert one.why == f"it ends with {seen} s, and {foretold} s were foretold"


@pytest.mark.parametrize(("grace", "outcome"), [(30, "came"), (5, "otherwise"), (None, "came")])
def test_a_pod_that_ended_before_the_first_list(grace: int | None, outcome: str) -> None:
    """The feed has seen with which grace; where it has not, nothing is compared."""
    job = Observed(grace=30)
    job.go("a")
    job.graces = {"u-a": grace}
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {outcome: 1}


@pytest.mark.parametrize("change", [{"phase": "Failed"}, {"node": ""}])
def test_the_api_server_deletes_some_pods_at_once(change: dict[str, str]) -> None:
    """Those that are over or on no node: no grace applies."""
    job = Observed(grace=None)
    job.pods["a"] = msgspec.structs.replace(job.pods["a"], **change)
    job.look(10)
    job.foretell(30, "a")
    job.go("a")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 1}


def test_the_forced_end_of_an_eviction() -> None:
    """The scheduler writes no record of it."""
    job = Observed(grace=30)
    job.end("a", "b")
    job.reasons = record(1)
    job.look(100)
    job.look(900_000)
    job.foretell(0, "a", "b")
    job.go("a")
    job.look(100)
    assert job.counts == {"came": 3}
    job.look(WINDOW_MS)
    assert job.counts == {"came": 3, "did_not_come": 1}


def test_the_end_of_a_pod_that_others_have_deleted_is_not_forced() -> None:
    job = Observed(grace=None)
    job.end("a")
    job.look(10)
    job.look(WINDOW_MS)
    assert job.counts == {"by_others": 1}
    job.foretell(0, "a")
    job.go("a")
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {"by_others": 2}


def test_nothing_shows_a_second_eviction() -> None:
    job = Observed(grace=None)
    job.end("a")
    job.look(10)
    job.foretell(30, "a")
    job.look(2 * WINDOW_MS)
    assert job.counts == {"by_others": 1}


def test_a_session_that_was_shown_early_and_is_otherwise() -> None:
    """The fault has gone before the scheduler looked, or the scheduler was quicker."""
    for goes, counts in ((False, {}), (True, {"came": 1})):
        job = Observed(grace=None)
        job.foretell(0, "a", is_preview=True)
        job.foretell(0)
        if goes:
            job.go("a")
            job.reasons = record(1)
        job.look(100)
        job.look(WINDOW_MS)
        assert job.counts == counts
    job = Observed(grace=None)
    job.foretell(0, "a", is_preview=True)
    job.foretell(0, "a")
    job.foretell(0)
    job.look(WINDOW_MS)
    assert job.counts == {"did_not_come": 1}


@pytest.mark.parametrize(
    ("kind", "action", "outcome"),
    [
        (WorkloadKind.OME_LWS, "", "by_others"),
        (WorkloadKind.VCJOB, "RestartJob", "by_others"),
        (WorkloadKind.VCJOB, "RestartTask", "not_foretold"),
        (WorkloadKind.AIBRIX, "RestartJob", "not_foretold"),
    ],
)
def test_pods_that_a_controller_ends_are_not_counted_as_the_schedulers(
    kind: WorkloadKind, action: str, outcome: str
) -> None:
    job = Observed(grace=None)
    job.vcjobs = (VcJob("ns", "v", policies=(LifecyclePolicy(("PodEvicted",), action),)),)
    job.look(10)
    job.foretell(0, "a", kind=kind)
    job.go("a", "b")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 1, outcome: 1}


@pytest.mark.parametrize("name", PLAYED_AGAIN)
def test_all_recorded_deletions_of_the_scheduler_come_as_foretold(name: str) -> None:
    outcomes, recording = Outcomes(), recorded(name)
    rows = [row for row in recording["observed"] if row["kind"] == "pod-delete"]
    deleted = iter([*(row for row in rows if row.get("http_status", 200) < 400), None])
    row, times, evicted, expected = next(deleted), Counter[str](), set[str](), 0
    pods: dict[str, SchedulerPod] = {}
    for one in played(name):
        acted, graces = set(), {}
        while row is not None and row["at_ms"] < one.session.at_ms:
            if row["by"] == "scheduler":
                expected += 1
                pod, grace = pods[row["pod"]], row["effective_grace_seconds"]
                if pod.uid not in evicted:  # Of a forced end there is no record.
                    acted.add(f"{pod.namespace}/{pod.group}")
                    graces[pod.uid] = grace
                if grace:
                    evicted.add(pod.uid)
            row = next(deleted)
        times.update(acted)
        counted = {job: {"TotalRescheduleTimes": number} for job, number in times.items()}
        reasons = StoredConfigMap("mindx-dl", "job-reschedule-reason", {KEY: json.dumps(counted)})
        snapshot = msgspec.structs.replace(one.snapshot, configmaps=(reasons,))
        outcomes.look(snapshot, Watched(graces=graces))
        outcomes.foretell(one.report, snapshot.now_ms)
        pods = {f"{pod.namespace}/{pod.name}": pod for pod in snapshot.pods}
    counts = {outcome: n for outcome, n in outcomes.counts.items() if n}
    counts.pop(DeletionOutcome.BY_OTHERS, 0)
    assert counts == ({DeletionOutcome.CAME: expected} if expected else {})


def test_foretold_deletion_that_does_not_come_within_the_window_is_counted() -> None:
    job = Observed()
    job.look(WINDOW_MS - 1)
    assert (job.counts, job.outcomes.next_ms) == ({}, job.now_ms + 1)
    job.look(1)
    assert job.counts == {"did_not_come": 2}


@pytest.mark.parametrize(
    ("reasons", "outcome"), [(record(1), "not_foretold"), (record(0), "by_others")]
)
def test_deletion_that_was_not_foretold_is_counted_by_who_made_it(
    reasons: StoredConfigMap, outcome: str
) -> None:
    job = Observed(grace=None)
    job.go("a")
    job.reasons = reasons
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {outcome: 1}


def test_a_record_of_another_job_proves_nothing() -> None:
    job = Observed(grace=None)
    job.go("a")
    job.reasons = record(5, "ns/k")
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {"by_others": 1}


def test_a_foretold_deletion_by_others() -> None:
    job = Observed()
    job.go("a", "b")
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {"by_others": 2}


@pytest.mark.parametrize("text", ["{", "[]", '{"ns/j": 3}'])
def test_records_that_cannot_be_read_prove_nothing(text: str) -> None:
    """Then what was foretold and happens has come."""
    job = Observed(reasons=StoredConfigMap("mindx-dl", "job-reschedule-reason", {KEY: text}))
    job.go("a", "b")
    job.look(100)
    assert job.counts == {"came": 2}


def test_the_first_record_ever() -> None:
    job = Observed()
    job.reasons = None
    job.look(100)
    job.go("a", "b")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 2}


def test_records_that_may_not_be_read_prove_nothing() -> None:
    job = Observed()
    job.records_known = False
    job.look()
    job.go("a")
    job.look(100)
    assert job.counts == {"came": 1}


def test_the_last_hundred_are_kept() -> None:
    job = Observed(grace=None)
    for number in range(150):
        name = f"p{number}"
        job.pods[name] = SchedulerPod("ns", name, f"u-{name}", "n1", annotations=GROUP)
    job.look(10)
    job.go(*[name for name in job.pods if name.startswith("p")])
    job.look(10)
    job.look(WINDOW_MS)
    assert (job.counts, len(job.outcomes.missed)) == ({"by_others": 150}, 100)

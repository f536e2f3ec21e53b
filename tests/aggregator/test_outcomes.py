"""What became of foretold deletions, as the scheduler's records and the pods show it."""

from __future__ import annotations

import json

import msgspec
import pytest

from advisor.options import Profile
from advisor.report import Action, Decision, Deletion, Report, Workload
from advisor.snapshot import ConfigMap, Pod, Snapshot
from aggregator.advising.outcomes import WINDOW_MS, Outcome, Outcomes

GROUP = {"scheduling.k8s.io/group-name": "j"}
PODS = tuple(Pod("ns", name, f"u-{name}", "n1", "Running", annotations=GROUP) for name in "ab")
KEY = "recent-reschedule-records"


def record(times: int, job: str = "ns/j") -> ConfigMap:
    """Return what the scheduler has written after so many deletions of a job."""
    text = json.dumps({job: {"JobID": job, "TotalRescheduleTimes": times, "RescheduleRecords": []}})
    return ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: text})


class Watched:
    """A job of two pods, looked at when something changes."""

    def __init__(self, grace: int | None = 0, *, reasons: ConfigMap | None = None) -> None:
        self.now_ms = 1_000_000
        self.pods = {pod.name: pod for pod in PODS}
        self.reasons: ConfigMap | None = record(0) if reasons is None else reasons
        self.records_known = True
        self.outcomes = Outcomes()
        self.look()
        if grace is not None:
            deletions = tuple(Deletion("ns", pod.name, pod.uid, grace) for pod in PODS)
            decision = Decision(
                "ns", "ns/j", Workload.VCJOB, Action.EVICT, "D15", (), "", pods=deletions
            )
            self.outcomes.foretell(
                Report(Profile.UPSTREAM, self.now_ms, decisions=(decision,)), self.now_ms
            )

    def look(self, after_ms: int = 0) -> None:
        """Look again, so much later."""
        self.now_ms += after_ms
        maps = () if self.reasons is None else (self.reasons,)
        snapshot = Snapshot(self.now_ms, pods=tuple(self.pods.values()), configmaps=maps)
        self.outcomes.look(snapshot, records_known=self.records_known)

    def go(self, *names: str) -> None:
        """These pods are gone at once."""
        for name in names:
            del self.pods[name]

    def end(self, *names: str) -> None:
        """These pods begin to end."""
        for name in names:
            self.pods[name] = msgspec.structs.replace(self.pods[name], is_terminating=True)

    @property
    def counts(self) -> dict[str, int]:
        """Return what is counted."""
        return {outcome.value: n for outcome, n in self.outcomes.counts.items() if n}


def test_what_comes_as_foretold() -> None:
    job = Watched()
    job.go("a", "b")
    job.look(200)
    assert job.counts == {}, "nobody knows yet who it was"
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 2}
    assert (job.outcomes.next_ms, list(job.outcomes.missed)) == (None, [])


def test_a_record_before_the_pods_are_seen_to_go() -> None:
    job = Watched()
    job.reasons = record(1)
    job.look(100)
    job.go("a", "b")
    job.look(900)
    assert job.counts == {"came": 2}


def test_an_eviction_comes_when_the_pods_begin_to_end() -> None:
    job = Watched(grace=30)
    job.end("a", "b")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 2}
    job.go("a", "b")
    job.look(30_000)
    assert job.counts == {"came": 2}, "their end is no deletion of its own"


def test_a_grace_where_none_was_foretold() -> None:
    job = Watched(grace=0)
    job.end("a")
    job.go("b")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 1, "otherwise": 1}
    (one,) = job.outcomes.missed
    assert (one.outcome, one.pod, one.job) == (Outcome.OTHERWISE, "ns/a", "ns/j")


def test_the_forced_end_of_an_eviction() -> None:
    job = Watched(grace=30)
    job.end("a", "b")
    job.reasons = record(1)
    job.look(100)
    deletions = tuple(Deletion("ns", pod.name, pod.uid, 0) for pod in PODS)
    forced = Decision(
        "ns", "ns/j", Workload.VCJOB, Action.FORCE_DELETE, "D15", (), "", pods=deletions
    )
    job.now_ms += 900_000
    job.outcomes.foretell(Report(Profile.UPSTREAM, job.now_ms, decisions=(forced,)), job.now_ms)
    job.go("a", "b")
    job.reasons = record(2)
    job.look(100)
    assert job.counts == {"came": 4}


def test_what_does_not_come() -> None:
    job = Watched()
    job.look(WINDOW_MS - 1)
    assert (job.counts, job.outcomes.next_ms) == ({}, job.now_ms + 1)
    job.look(1)
    assert job.counts == {"did_not_come": 2}


@pytest.mark.parametrize(
    ("reasons", "outcome"), [(record(1), "not_foretold"), (record(0), "by_others")]
)
def test_what_was_not_foretold(reasons: ConfigMap, outcome: str) -> None:
    job = Watched(grace=None)
    job.go("a")
    job.reasons = reasons
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {outcome: 1}


def test_a_record_of_another_job_says_nothing() -> None:
    job = Watched(grace=None)
    job.go("a")
    job.reasons = record(5, "ns/k")
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {"by_others": 1}


def test_a_foretold_deletion_by_others() -> None:
    job = Watched()
    job.go("a", "b")
    job.look(100)
    job.look(WINDOW_MS)
    assert job.counts == {"by_others": 2}


@pytest.mark.parametrize("text", ["{", "[]", '{"ns/j": 3}'])
def test_records_that_cannot_be_read_tell_nothing(text: str) -> None:
    """Then what was foretold and happens has come."""
    job = Watched(reasons=ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: text}))
    job.go("a", "b")
    job.look(100)
    assert job.counts == {"came": 2}


def test_the_first_record_ever() -> None:
    job = Watched()
    job.reasons = None
    job.look(100)
    job.go("a", "b")
    job.reasons = record(1)
    job.look(100)
    assert job.counts == {"came": 2}


def test_records_that_may_not_be_read_tell_nothing() -> None:
    job = Watched(reasons=ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: "{"}))
    job.records_known = False
    job.go("a")
    job.look(100)
    assert job.counts == {"came": 1}


def test_the_last_hundred_are_kept() -> None:
    job = Watched(grace=None)
    for number in range(150):
        name = f"p{number}"
        job.pods[name] = Pod("ns", name, f"u-{name}", "n1", annotations=GROUP)
    job.look(10)
    job.go(*[name for name in job.pods if name.startswith("p")])
    job.look(10)
    job.look(WINDOW_MS)
    assert (job.counts, len(job.outcomes.missed)) == ({"by_others": 150}, 100)

"""Compares foretold deletions of pods with those that came. Pure: snapshots in, counts out.

The scheduler has deleted the pods of a job when it has written a new record about it
(``consumers#1.14``); pods of the job that the record does not name count too. It writes
none when it ends by force what it has evicted (recorded).
"""

from __future__ import annotations

from collections import Counter, deque
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from advisor.report import WorkloadKind
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot_index import changed
from advisor.workloads.pod_recreation import action_after_eviction
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.report import AdviceReport, JobDecision
    from advisor.snapshot import SchedulerPod, StoredConfigMap, VcJob

WINDOW_MS = 10_000
"""Longest time between a session, the deletions that it makes, and its record."""
_KEPT = 100


class DeletionOutcome(StrEnum):
    """The outcome of one deletion, foretold or not."""

    CAME = "came"
    OTHERWISE = "otherwise"
    DID_NOT_COME = "did_not_come"
    NOT_FORETOLD = "not_foretold"
    BY_OTHERS = "by_others"


class Missed(msgspec.Struct, frozen=True):
    """A deletion that did not come as foretold; ``why`` is what was seen instead."""

    at_ms: int
    outcome: DeletionOutcome
    job: str
    pod: str
    uid: str
    why: str


class Watched(msgspec.Struct, frozen=True):
    """Observations that a snapshot does not contain.

    ``records_known``: whether the scheduler's records are in it if there are any. ``graces``: by
    uid the grace with which pods began to end since the snapshot before, ``None`` where that was
    not seen.
    """

    records_known: bool = True
    graces: dict[str, int | None] = {}


class _Foretold(msgspec.Struct, frozen=True):
    """``is_firm`` is false once a session that was shown early has not come about."""

    at_ms: int
    job: str
    pod: str
    grace_seconds: int
    is_firm: bool = True


class _Seen(msgspec.Struct, frozen=True):
    """``grace_seconds`` of ``None``: not known. ``is_bound_to_wait`` is false for a pod that the
    API server deletes at once, whatever the grace."""

    at_ms: int
    job: str
    pod: str
    grace_seconds: int | None
    is_bound_to_wait: bool


class Outcomes:
    """Counts of outcomes, and the last deletions that did not come as foretold."""

    def __init__(self) -> None:
        self.counts: Counter[DeletionOutcome] = Counter(dict.fromkeys(DeletionOutcome, 0))
        self.missed: deque[Missed] = deque(maxlen=_KEPT)
        self._pods: dict[str, SchedulerPod] = {}
        self._records: Mapping[str, tuple[int, int]] | None = None
        self._acted: dict[str, int] = {}
        self._foretold: dict[str, _Foretold] = {}
        self._previewed: frozenset[str] = frozenset()
        self._seen: dict[str, _Seen] = {}
        self._evicted: set[str] = set()
        """Pods that the scheduler has deleted with a grace, and that have not ended yet."""
        self._rest: dict[str, int] = {}
        """When it was foretold that a job's controller ends the pods that the scheduler leaves."""
        self._snapshot = ClusterSnapshot(0)
        self._owners: dict[str, str] = {}
        """By PodGroup, as ``<namespace>/<name>``, the name of its owner."""
        self._vcjobs: dict[tuple[str, str], VcJob] = {}
        self._reasons: StoredConfigMap | None = None
        self._read: Mapping[str, tuple[int, int]] | None = {}
        """The records in that ConfigMap."""

    @property
    def next_ms(self) -> int | None:
        """The wall time of the next ``look`` without a change; ``None`` if there is none."""
        waiting = [foretold.at_ms for foretold in self._foretold.values()]
        waiting += [seen.at_ms for seen in self._seen.values()]
        return min(waiting) + WINDOW_MS if waiting else None

    def foretell(self, report: AdviceReport, now_ms: int, *, is_preview: bool = False) -> None:
        """Expect the deletions of ``report`` from ``now_ms`` on, or since they were foretold.

        ``is_preview``: the session is still to come. A deletion that a later report about it lacks
        may come or not.
        """
        foretold: set[str] = set()
        for decision in report.decisions:
            if decision.pods and self._controller_ends_rest(decision):
                self._rest[decision.job] = now_ms
            for pod in decision.pods:
                before = self._pods.get(pod.uid)
                if before is not None and before.is_terminating and pod.grace_seconds:
                    continue  # It is terminating: nothing will show a second eviction.
                foretold.add(pod.uid)
                earlier = self._foretold.get(pod.uid)
                if (
                    earlier is None
                    or earlier.grace_seconds != pod.grace_seconds
                    or not earlier.is_firm
                ):
                    name = f"{pod.namespace}/{pod.name}"
                    self._foretold[pod.uid] = _Foretold(
                        now_ms, decision.job, name, pod.grace_seconds
                    )
        for uid in self._previewed - foretold:
            if uid in self._foretold:
                self._foretold[uid] = msgspec.structs.replace(self._foretold[uid], is_firm=False)
        self._previewed = frozenset(foretold) if is_preview else frozenset()

    def look(self, snapshot: ClusterSnapshot, watched: Watched) -> None:
        """Find the pods deleted since the last snapshot, and count the outcomes known by now."""
        now_ms = snapshot.now_ms
        self._note_records(self._read_records(snapshot) if watched.records_known else None, now_ms)
        removed, added = changed(self._snapshot.pods, snapshot.pods)
        gone = [self._pods.pop(pod.uid) for pod in removed if pod.uid in self._pods]
        self._pods.update({pod.uid: pod for pod in added if pod.group})
        self._index(snapshot)
        for before in gone:
            self._compare(before, self._pods.get(before.uid), watched.graces, now_ms)
        self._snapshot = snapshot
        self._settle(now_ms)
        self._evicted &= self._pods.keys()

    def _index(self, snapshot: ClusterSnapshot) -> None:
        for groups, is_there in zip(
            changed(self._snapshot.podgroups, snapshot.podgroups), (False, True), strict=True
        ):
            for group in groups:
                self._owners.pop(group.key, None)
                if is_there and group.owner is not None:
                    self._owners[group.key] = group.owner.name
        removed, added = changed(self._snapshot.vcjobs, snapshot.vcjobs)
        for job in removed:
            self._vcjobs.pop((job.namespace, job.name), None)
        self._vcjobs.update({(job.namespace, job.name): job for job in added})

    def _controller_ends_rest(self, decision: JobDecision) -> bool:
        """Return whether the controller of a job ends its other pods once one is deleted.

        Source: docs/spec/consumers.md#2.9.
        """
        if decision.workload is WorkloadKind.OME_LWS:
            return True
        if decision.workload is not WorkloadKind.VCJOB:
            return False
        owner = self._owners.get(decision.job)
        job = None if owner is None else self._vcjobs.get((decision.namespace, owner))
        return job is not None and action_after_eviction(job) == "RestartJob"

    def _read_records(self, snapshot: ClusterSnapshot) -> Mapping[str, tuple[int, int]] | None:
        """Return how often each job was rescheduled; decode each version of the records once."""
        place = (scheduling.RESCHEDULE_NAMESPACE, scheduling.RESCHEDULE_CONFIGMAP)
        matches = (
            configmap
            for configmap in snapshot.configmaps
            if (configmap.namespace, configmap.name) == place
        )
        reasons = next(matches, None)
        if reasons is not self._reasons:
            self._reasons, self._read = reasons, {} if reasons is None else _records_in(reasons)
        return self._read

    def _compare(
        self,
        before: SchedulerPod,
        now: SchedulerPod | None,
        graces: Mapping[str, int | None],
        now_ms: int,
    ) -> None:
        """Record a deletion that has begun, or the forced end of one."""
        if now is not None and (before.is_terminating or not now.is_terminating):
            return
        uid = before.uid
        if before.is_terminating:
            foretold = self._foretold.get(uid)
            if foretold is None or foretold.grace_seconds:
                return  # It ends as its grace allows.
            if uid in self._evicted:
                del self._foretold[uid]
                self.counts[DeletionOutcome.CAME] += 1
                return
        grace = 0 if now is None else now.deletion_grace_seconds
        self._seen[uid] = _Seen(
            now_ms,
            f"{before.namespace}/{before.group}",
            f"{before.namespace}/{before.name}",
            graces.get(uid, grace),
            is_bound_to_wait=bool(before.node) and before.is_live,
        )

    def _note_records(self, records: Mapping[str, tuple[int, int]] | None, now_ms: int) -> None:
        if records is None:
            self._records = None
            return
        for job, record in records.items():
            if self._records is not None and self._records.get(job) != record:
                self._acted[job] = now_ms
        self._records = records

    def _settle(self, now_ms: int) -> None:
        for uid, seen in tuple(self._seen.items()):
            is_over = not 0 <= now_ms - seen.at_ms < WINDOW_MS
            acted = self._acted.get(seen.job)
            by_scheduler = acted is not None and abs(acted - seen.at_ms) <= WINDOW_MS
            if self._records is None:
                by_scheduler = uid in self._foretold  # Nothing else shows who it was.
            if by_scheduler:
                self._by_scheduler(uid, seen, now_ms)
            elif is_over:
                self._count(
                    now_ms, DeletionOutcome.BY_OTHERS, uid, seen, "the scheduler has no record"
                )
                self._foretold.pop(uid, None)
            else:
                continue
            del self._seen[uid]
        for uid, foretold in tuple(self._foretold.items()):
            if uid not in self._seen and not 0 <= now_ms - foretold.at_ms < WINDOW_MS:
                if foretold.is_firm:
                    reason = f"the pod stays, {foretold.grace_seconds} s of grace were foretold"
                    self._count(now_ms, DeletionOutcome.DID_NOT_COME, uid, foretold, reason)
                del self._foretold[uid]
        for times in (self._acted, self._rest):
            for job, at_ms in tuple(times.items()):
                if not 0 <= now_ms - at_ms <= 2 * WINDOW_MS:
                    del times[job]

    def _by_scheduler(self, uid: str, seen: _Seen, now_ms: int) -> None:
        foretold = self._foretold.pop(uid, None)
        if foretold is None and seen.job in self._rest:
            reason = "the controller of its job ends the pods that the scheduler leaves"
            self._count(now_ms, DeletionOutcome.BY_OTHERS, uid, seen, reason)
            return
        if seen.grace_seconds != 0:
            self._evicted.add(uid)
        if foretold is None:
            reason = "the scheduler has deleted it, and that was not foretold"
            self._count(now_ms, DeletionOutcome.NOT_FORETOLD, uid, seen, reason)
            return
        grace = foretold.grace_seconds if seen.is_bound_to_wait else 0
        if seen.grace_seconds in (None, grace):
            self.counts[DeletionOutcome.CAME] += 1
        else:
            reason = f"it ends with {seen.grace_seconds} s, and {grace} s were foretold"
            self._count(now_ms, DeletionOutcome.OTHERWISE, uid, seen, reason)

    def _count(
        self,
        now_ms: int,
        outcome: DeletionOutcome,
        uid: str,
        deletion: _Seen | _Foretold,
        reason: str,
    ) -> None:
        self.counts[outcome] += 1
        self.missed.append(Missed(now_ms, outcome, deletion.job, deletion.pod, uid, reason))


class _JobRecord(msgspec.Struct):
    total: int = msgspec.field(default=0, name="TotalRescheduleTimes")
    records: list[msgspec.Raw] | None = msgspec.field(default=None, name="RescheduleRecords")


_records = msgspec.json.Decoder(dict[str, _JobRecord])


def _records_in(configmap: StoredConfigMap) -> Mapping[str, tuple[int, int]] | None:
    """Return by job how often it was rescheduled; ``None`` where that cannot be read."""
    try:
        records = _records.decode(configmap.data.get(scheduling.RESCHEDULE_KEY, "") or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return {job: (each.total, len(each.records or ())) for job, each in records.items()}

"""What became of the deletions that were foretold. Pure: snapshots in, counts out.

The scheduler has deleted the pods of a job when it has written a new record about it
(``spec/consumers.md`` 1.14); pods of the job that the record does not name count too.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from advisor.index import changed
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.report import Report
    from advisor.snapshot import ConfigMap, Pod, Snapshot

WINDOW_MS = 10_000
"""So far apart are a session, the pods that go by it, and its record."""
_KEPT = 100


class Outcome(StrEnum):
    """What became of one deletion."""

    CAME = "came"
    OTHERWISE = "otherwise"
    DID_NOT_COME = "did_not_come"
    NOT_FORETOLD = "not_foretold"
    BY_OTHERS = "by_others"


class Missed(msgspec.Struct, frozen=True):
    """A deletion that did not come as foretold; ``why`` is what was seen instead."""

    at_ms: int
    outcome: Outcome
    job: str
    pod: str
    uid: str
    why: str


class _Foretold(msgspec.Struct, frozen=True):
    at_ms: int
    job: str
    pod: str
    grace_seconds: int


class _Seen(msgspec.Struct, frozen=True):
    at_ms: int
    job: str
    pod: str
    was_at_once: bool


class Outcomes:
    """Counts, and the last ones that were not as foretold."""

    def __init__(self) -> None:
        self.counts: Counter[Outcome] = Counter(dict.fromkeys(Outcome, 0))
        self.missed: deque[Missed] = deque(maxlen=_KEPT)
        self._pods: tuple[Pod, ...] = ()
        self._records: Mapping[str, tuple[int, int]] | None = None
        self._acted: dict[str, int] = {}
        self._foretold: dict[str, _Foretold] = {}
        self._seen: dict[str, _Seen] = {}

    @property
    def next_ms(self) -> int | None:
        """When ``look`` has something to settle without a change (wall)."""
        waiting = [one.at_ms for one in self._foretold.values()]
        waiting += [one.at_ms for one in self._seen.values()]
        return min(waiting) + WINDOW_MS if waiting else None

    def foretell(self, report: Report, now_ms: int) -> None:
        """Count on the deletions of ``report`` from ``now_ms`` on, or since they were foretold."""
        for decision in report.decisions:
            for pod in decision.pods:
                known = self._foretold.get(pod.uid)
                if known is None or known.grace_seconds != pod.grace_seconds:
                    name = f"{pod.namespace}/{pod.name}"
                    self._foretold[pod.uid] = _Foretold(
                        now_ms, decision.job, name, pod.grace_seconds
                    )

    def look(self, snapshot: Snapshot, *, records_known: bool) -> None:
        """See which pods are gone since the last time, and settle what is known by now.

        ``records_known``: whether the scheduler's records are in ``snapshot`` if there are any.
        """
        now_ms = snapshot.now_ms
        self._note_records(_read_records(snapshot.configmaps) if records_known else None, now_ms)
        removed, added = changed(self._pods, snapshot.pods)
        pods = {pod.uid: pod for pod in added if pod.group}
        for before in removed:
            if before.group:
                self._compare(before.uid, before, pods.get(before.uid), now_ms)
        self._pods = snapshot.pods
        self._settle(now_ms)

    def _compare(self, uid: str, before: Pod, now: Pod | None, now_ms: int) -> None:
        """Note a deletion that has begun, or the forced end of one."""
        if now is not None and (before.is_terminating or not now.is_terminating):
            return
        foretold = self._foretold.get(uid)
        if before.is_terminating and (foretold is None or foretold.grace_seconds):
            return  # It ends as its grace allows.
        job, pod = f"{before.namespace}/{before.group}", f"{before.namespace}/{before.name}"
        self._seen[uid] = _Seen(now_ms, job, pod, was_at_once=now is None)

    def _note_records(self, records: Mapping[str, tuple[int, int]] | None, now_ms: int) -> None:
        if records is None:
            return
        for job, one in records.items():
            if self._records is not None and self._records.get(job) != one:
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
                self._count(now_ms, Outcome.BY_OTHERS, uid, seen, "the scheduler has no record")
                self._foretold.pop(uid, None)
            else:
                continue
            del self._seen[uid]
        for uid, foretold in tuple(self._foretold.items()):
            if uid not in self._seen and not 0 <= now_ms - foretold.at_ms < WINDOW_MS:
                why = f"the pod stays, {foretold.grace_seconds} s of grace were foretold"
                self._count(now_ms, Outcome.DID_NOT_COME, uid, foretold, why)
                del self._foretold[uid]

    def _by_scheduler(self, uid: str, seen: _Seen, now_ms: int) -> None:
        foretold = self._foretold.pop(uid, None)
        if foretold is None:
            why = "the scheduler has deleted it, and that was not foretold"
            self._count(now_ms, Outcome.NOT_FORETOLD, uid, seen, why)
        elif foretold.grace_seconds == 0 and not seen.was_at_once:
            why = "it ends with a grace, and 0 s were foretold"
            self._count(now_ms, Outcome.OTHERWISE, uid, seen, why)
        else:
            self.counts[Outcome.CAME] += 1

    def _count(
        self, now_ms: int, outcome: Outcome, uid: str, one: _Seen | _Foretold, why: str
    ) -> None:
        self.counts[outcome] += 1
        self.missed.append(Missed(now_ms, outcome, one.job, one.pod, uid, why))


class _Record(msgspec.Struct):
    total: int = msgspec.field(default=0, name="TotalRescheduleTimes")
    records: list[msgspec.Raw] | None = msgspec.field(default=None, name="RescheduleRecords")


_records = msgspec.json.Decoder(dict[str, _Record])


def _read_records(configmaps: Iterable[ConfigMap]) -> Mapping[str, tuple[int, int]] | None:
    """Return by job how often it was rescheduled; ``None`` where that cannot be read.

    Without the ConfigMap no job was.
    """
    place = (scheduling.RESCHEDULE_NAMESPACE, scheduling.RESCHEDULE_CONFIGMAP)
    for one in configmaps:
        if (one.namespace, one.name) == place:
            try:
                found = _records.decode(one.data.get(scheduling.RESCHEDULE_KEY, "") or "{}")
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return None
            return {job: (each.total, len(each.records or ())) for job, each in found.items()}
    return {}

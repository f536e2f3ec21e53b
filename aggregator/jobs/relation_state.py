"""The relation faults of all jobs, and their persistent state.

A window is measured by the steady clock once a fault is known, so a change of the wall clock
neither shortens nor lengthens it; a new leader continues by wall time. Source: ``clusterd#3.10``.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

from aggregator.jobs.relations import (
    SEPARATE,
    SUB_HEALTH,
    FaultPlace,
    RelationContext,
    Track,
    judged_tracks,
    stronger,
    worst,
)
from aggregator.state_buckets import ChangedBuckets, bucket_of, decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from aggregator.jobs.pods_of_jobs import PodIndex
    from aggregator.jobs.relations import RelationTables, Relevant
    from service.clock import Instant

_BUCKETS = 64
_NONE: dict[FaultPlace, Track] = {}
_RESULTS = ("", SUB_HEALTH, SEPARATE)


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(dict[str, list[tuple[FaultPlace, Track]]])


LABEL = "fault-type"
"""The label by which schedulers read relation faults (``docs/spec/consumers.md#1.10``)."""


class PodLabel(msgspec.Struct, frozen=True):
    """The value that the label ``fault-type`` of a pod is to have."""

    namespace: str
    name: str
    uid: str
    value: str


class RelationState:
    """Relation faults by job."""

    def __init__(self, tables: RelationTables) -> None:
        self.tables = tables
        self._tracks: dict[str, dict[FaultPlace, Track]] = {}
        self._in: dict[str, set[str]] = {}
        """The jobs with relation faults, by bucket."""
        self._due: dict[str, dict[FaultPlace, int]] = {}
        self._heap: list[tuple[int, str]] = []
        self._changed = ChangedBuckets()

    def tracks(self, job: str) -> Mapping[FaultPlace, Track]:
        """Return the relation faults of a job."""
        return self._tracks.get(job, _NONE)

    @property
    def jobs(self) -> Iterable[str]:
        """The jobs that have relation faults."""
        return self._tracks.keys()

    def forget(self, job: str) -> None:
        """Remove a job that has no pods any more."""
        if job in self._tracks:
            self._set(job, {})

    def judge(
        self,
        job: str,
        relevant: Iterable[Relevant],
        pods: Callable[[FaultPlace], tuple[str, ...]],
        came: Collection[str],
        now: Instant,
    ) -> frozenset[str]:
        """Judge a job's relation faults; return nodes for which something else follows now.

        ``pods`` and ``came`` as in ``RelationContext``.
        """
        before = self.tracks(job)
        dues = self._due.get(job, {})

        def is_overdue(place: FaultPlace) -> bool:
            at_ms = dues.get(place)
            return at_ms is not None and at_ms <= now.steady_ms

        context = RelationContext(pods, is_overdue, came, now.wall_ms)
        after = judged_tracks(before, relevant, context, self.tables)
        new = {place: track for place, track in after.items() if place not in dues}
        renewed = {
            place: track
            for place, track in after.items()
            if place in before and before[place].since_ms != track.since_ms
        }
        if new or renewed:
            for place, track in (new | renewed).items():
                self._await(job, place, track, now)
        for place in before.keys() - after.keys():
            self._due.get(job, {}).pop(place, None)
        if after == before:
            return frozenset()
        self._set(job, after)
        return frozenset(
            place.node
            for place in before.keys() | after.keys()
            if _result(before.get(place)) != _result(after.get(place))
        )

    def _set(self, job: str, tracks: dict[FaultPlace, Track]) -> None:
        bucket = bucket_of(job, _BUCKETS)
        self._changed.add(bucket)
        if tracks:
            self._tracks[job] = tracks
            self._in.setdefault(bucket, set()).add(job)
            return
        del self._tracks[job]
        self._due.pop(job, None)
        self._in[bucket].discard(job)
        if not self._in[bucket]:
            del self._in[bucket]

    def _await(self, job: str, place: FaultPlace, track: Track, now: Instant) -> None:
        window_ms = self.tables.windows_ms.get(place.code, 0)
        left_ms = min(window_ms, track.since_ms + window_ms - now.wall_ms)
        at_ms = now.steady_ms + left_ms
        self._due.setdefault(job, {})[place] = at_ms
        heapq.heappush(self._heap, (at_ms, job))

    def pop_due(self, now: Instant) -> frozenset[str]:
        """Return the jobs that time alone may have changed."""
        due = set()
        while self._heap and self._heap[0][0] <= now.steady_ms:
            due.add(heapq.heappop(self._heap)[1])
        return frozenset(job for job in due if job in self._tracks)

    def next_due_ms(self) -> int | None:
        """Return the steady time at which something is due."""
        while self._heap and self._heap[0][1] not in self._tracks:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def wanted_labels(self, index: PodIndex) -> Iterator[PodLabel]:
        """Yield the labels that are desired and not there.

        A label is never removed: the pod was hit. ``Separate`` is never made ``SubHealth`` again.
        """
        for job in sorted(self._tracks):
            results: dict[tuple[str, str], list[str]] = {}
            for place, track in self._tracks[job].items():
                for uid in track.pods if track.result else ():
                    results.setdefault((place.node, uid), []).append(track.result)
            pods = {pod.uid: pod for node, _ in results for pod in index.pods(job, node)}
            for (_, uid), strategies in sorted(results.items()):
                pod, value = pods.get(uid), worst(strategies)
                if pod is not None and pod.labels.get(LABEL) not in (value, SEPARATE):
                    yield PodLabel(pod.namespace, pod.name, uid, value)

    def pop_changed(self) -> frozenset[str]:
        """Return the buckets whose text changed since the last call."""
        return self._changed.pop()

    def text(self, bucket: str) -> str | None:
        """Return the text of a bucket; ``None`` where it is empty."""
        jobs = self._in.get(bucket, ())
        tracks_by_job = {
            job: sorted(self._tracks[job].items(), key=lambda item: item[0]) for job in jobs
        }
        return _encoder.encode(tracks_by_job).decode() if tracks_by_job else None

    def restore_buckets(self, texts: Mapping[str, str], now: Instant) -> list[str]:
        """Restore the relation faults of an earlier leader; of a known one the stronger result
        counts.

        Return why a bucket cannot be read: nothing of it counts.
        """
        buckets, problems = decoded(texts, _decode)
        for tracks_by_job in buckets.values():
            for job, tracks in tracks_by_job.items():
                self._take_over(job, tracks, now)
        return problems

    def _take_over(
        self, job: str, restored: Iterable[tuple[FaultPlace, Track]], now: Instant
    ) -> None:
        tracks = dict(self.tracks(job))
        for place, track in restored:
            own = tracks.get(place)
            tracks[place] = track if own is None else stronger(track, own)
            self._await(job, place, tracks[place], now)
        if tracks:
            self._set(job, tracks)


def _result(track: Track | None) -> str:
    return "" if track is None else track.result


def _decode(text: str) -> dict[str, list[tuple[FaultPlace, Track]]]:
    """Decode a bucket. Raises ``ValueError``, ``msgspec.MsgspecError`` and ``RecursionError``."""
    tracks_by_job = _decoder.decode(text)
    results = {track.result for tracks in tracks_by_job.values() for _, track in tracks}
    if wrong := results.difference(_RESULTS):
        raise ValueError(f"{min(wrong)!r} is none of {', '.join(_RESULTS[1:])}")
    return tracks_by_job

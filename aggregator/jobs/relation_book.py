"""What is remembered of the relation faults of all jobs, and kept for the next leader.

A window is measured by the steady clock once a fault is known, so a clock that is set neither
shortens nor lengthens it; a new leader goes on by wall time. Source: ``spec/clusterd.md`` 3.10.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from aggregator.jobs.relation_tables import SEPARATE, SUB_HEALTH
from aggregator.jobs.relations import Around, Place, Track, judged, stronger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.jobs.relation_tables import Tables
    from aggregator.jobs.relations import Relevant
    from aggregator.moment import Moment

_BUCKETS = 64
_NONE: dict[Place, Track] = {}
_RESULTS = ("", SUB_HEALTH, SEPARATE)


class _Kept(msgspec.Struct, frozen=True):
    since_ms: int
    tracks: list[tuple[Place, Track]]


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(dict[str, _Kept])


class RelationBook:
    """Relation faults by job. A job is known from when its first pod was seen."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._since_ms: dict[str, int] = {}
        self._tracks: dict[str, dict[Place, Track]] = {}
        self._due: dict[str, dict[Place, int]] = {}
        self._heap: list[tuple[int, str]] = []
        self._changed: set[str] = set()

    def tracks(self, job: str) -> Mapping[Place, Track]:
        """The relation faults of a job."""
        return self._tracks.get(job, _NONE)

    @property
    def jobs(self) -> Iterable[str]:
        """The jobs that have relation faults."""
        return self._tracks.keys()

    def meet(self, job: str, now: Moment) -> None:
        """The job has pods; from when it first had, its age counts."""
        self._since_ms.setdefault(job, now.wall_ms)

    def forget(self, job: str) -> None:
        """The job has no pods any more."""
        self._since_ms.pop(job, None)
        if self._tracks.pop(job, None) is not None:
            self._changed.add(_bucket(job))
        self._due.pop(job, None)

    def judge(
        self,
        job: str,
        relevant: Iterable[Relevant],
        pods: Mapping[Place, tuple[str, ...]],
        now: Moment,
    ) -> frozenset[str]:
        """Judge a job's relation faults; returns nodes for which something else follows now."""
        before = self.tracks(job)
        dues = self._due.get(job, {})
        overdue = {place for place, at_ms in dues.items() if at_ms <= now.steady_ms}
        since_ms = self._since_ms.setdefault(job, now.wall_ms)
        after = judged(before, relevant, Around(since_ms, pods, overdue), self.tables)
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
        self._changed.add(_bucket(job))
        if after:
            self._tracks[job] = after
        else:
            del self._tracks[job]
            self._due.pop(job, None)
        return frozenset(
            place.node
            for place in before.keys() | after.keys()
            if _result(before.get(place)) != _result(after.get(place))
        )

    def _await(self, job: str, place: Place, track: Track, now: Moment) -> None:
        window_ms = self.tables.windows_ms.get(place.code, 0)
        at_ms = now.steady_ms + track.since_ms + window_ms - now.wall_ms
        self._due.setdefault(job, {})[place] = at_ms
        heapq.heappush(self._heap, (at_ms, job))

    def take_due(self, now: Moment) -> frozenset[str]:
        """The jobs that time alone may have changed."""
        due = set()
        while self._heap and self._heap[0][0] <= now.steady_ms:
            due.add(heapq.heappop(self._heap)[1])
        return frozenset(job for job in due if job in self._tracks)

    def next_due_ms(self) -> int | None:
        """Steady time at which something is due."""
        while self._heap and self._heap[0][1] not in self._tracks:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_changed(self) -> frozenset[str]:
        """The buckets whose text changed since this was asked last."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def text(self, bucket: str) -> str | None:
        """What a bucket holds; ``None`` where nothing is in it."""
        kept = {
            job: _Kept(self._since_ms[job], sorted(tracks.items(), key=lambda item: item[0]))
            for job, tracks in self._tracks.items()
            if _bucket(job) == bucket
        }
        return _encoder.encode(kept).decode() if kept else None

    def restore(self, texts: Mapping[str, str], now: Moment) -> list[str]:
        """Take over what was kept; of what is known already the stronger result counts.

        Returns why a bucket cannot be read: nothing of it counts.
        """
        problems = []
        for bucket, text in sorted(texts.items()):
            try:
                kept = _decoder.decode(text)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                problems.append(f"{bucket}: {error}")
                continue
            wrong = {track.result for one in kept.values() for _, track in one.tracks}.difference(
                _RESULTS
            )
            if wrong:
                problems.append(f"{bucket}: {min(wrong)!r} is none of {', '.join(_RESULTS[1:])}")
                continue
            for job, one in kept.items():
                self._take_over(job, one, now)
        return problems

    def _take_over(self, job: str, kept: _Kept, now: Moment) -> None:
        self._since_ms[job] = min(kept.since_ms, self._since_ms.get(job, kept.since_ms))
        tracks = self._tracks.setdefault(job, {})
        for place, track in kept.tracks:
            known = tracks.get(place)
            tracks[place] = track if known is None else stronger(track, known)
            self._await(job, place, tracks[place], now)
        if not tracks:
            del self._tracks[job]


def _result(track: Track | None) -> str:
    return "" if track is None else track.result


def _bucket(job: str) -> str:
    return f"{crc32(job.encode()) % _BUCKETS:02x}"

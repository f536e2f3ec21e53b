"""What follows from faults of one job that belong together (``docs/spec/clusterd.md#3.10``). Pure.

A *relation fault* (a link or a port that is down) waits for a *trigger* (an operator of the job
that failed). While both hold, in whatever order they came and on whatever nodes of the job, the
strategy of their row follows for the node of the relation fault: its pods are marked, and its
devices are as ill as that. What follows stays as long as the relation fault lasts and one of the
pods that it followed for is there (B43). A relation fault that nothing followed from within its
window is closed: a port of a switch makes its node sub-healthy, a chip's link separates it where a
CQE trigger came after it in a super pod, and no trigger that comes later counts. Nothing follows
from the time alone where the fault is older than the pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aggregator.jobs.relation_tables import CQE_CODES, SEPARATE, SUB_HEALTH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from aggregator.jobs.relation_tables import RelationRow, RelationTables

_STRENGTH = {"": 0, SUB_HEALTH: 1, SEPARATE: 2}


class FaultPlace(NamedTuple):
    """Where a code holds: ``subject`` is a chip's name, or ``<chip>/<port>`` of a switch."""

    node: str
    subject: str
    code: str

    @property
    def is_switch(self) -> bool:
        """Whether it is about a switch."""
        return "/" in self.subject


class Trigger(NamedTuple):
    """``is_late``: it counts only when the time of a relation fault is over."""

    since_ms: int
    is_late: bool


class Relevant(msgspec.Struct, frozen=True):
    """The faults of a node that matter for a job's relation faults; times are those of receipt."""

    faults: dict[FaultPlace, int] = {}
    triggers: dict[FaultPlace, Trigger] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is relevant."""
        return not self.faults and not self.triggers


class Track(msgspec.Struct, frozen=True, omit_defaults=True):
    """A relation fault of a job. ``since_ms`` is wall time.

    ``result`` is the strategy that followed, for ``pods`` by uid. ``is_old``: it was there before
    the pods that it hits. ``is_followed``: a late trigger came within its window.
    """

    since_ms: int
    is_old: bool = False
    is_gone: bool = False
    is_closed: bool = False
    is_followed: bool = False
    result: str = ""
    pods: tuple[str, ...] = ()


class RelationContext(NamedTuple):
    """The rest of a job's state.

    ``pods`` returns the uids of those that a fault hits. ``is_overdue`` returns whether the window
    of a fault is over. ``came``: nodes on which a pod of the job is new or got its chips;
    ``now_ms`` is wall time.
    """

    pods: Callable[[FaultPlace], tuple[str, ...]]
    is_overdue: Callable[[FaultPlace], bool]
    came: Collection[str]
    now_ms: int


def judged_tracks(
    tracks: Mapping[FaultPlace, Track],
    relevant: Iterable[Relevant],
    context: RelationContext,
    tables: RelationTables,
) -> dict[FaultPlace, Track]:
    """Return the tracks of a job's relation faults after this judgement, with what follows from
    them.
    """
    present: dict[FaultPlace, int] = {}
    triggers: dict[FaultPlace, Trigger] = {}
    for one in relevant:
        present |= one.faults
        triggers |= one.triggers
    after = {
        place: _seen(tracks.get(place), place, since_ms, context)
        for place, since_ms in present.items()
    }
    for place, track in tracks.items():
        if place not in present and not context.is_overdue(place):
            after[place] = _gone(track)
    codes = {place.code for place, trigger in triggers.items() if not trigger.is_late}
    for row in tables.rows:
        if row.trigger in codes:
            _follow(after, row, context, gone=False)
            if row.trigger in CQE_CODES:
                _follow(after, row, context, gone=True)
    late_ms = [trigger.since_ms for trigger in triggers.values() if trigger.is_late]
    for place in present:
        after[place] = _closed_if_over(place, after[place], late_ms, context, tables)
    return after


def _seen(track: Track | None, place: FaultPlace, since_ms: int, context: RelationContext) -> Track:
    if track is None or track.is_gone:
        return Track(since_ms, is_old=place.node in context.came and since_ms < context.now_ms)
    if track.result:
        hit = context.pods(place)
        if not any(pod in hit for pod in track.pods):
            return Track(track.since_ms, is_old=True)
    return track


def _gone(track: Track) -> Track:
    if track.is_gone and not track.result:
        return track
    return msgspec.structs.replace(track, is_gone=True, result="", pods=())


def _follow(
    tracks: dict[FaultPlace, Track], row: RelationRow, context: RelationContext, *, gone: bool
) -> None:
    open_places = [
        place
        for place, track in tracks.items()
        if track.is_gone == gone and not track.is_closed and place.code in row.relations
    ]
    if {place.code for place in open_places} < set(row.relations):
        return
    for place in open_places:
        tracks[place] = _with(place, tracks[place], row.strategy, context)


def _with(place: FaultPlace, track: Track, strategy: str, context: RelationContext) -> Track:
    if _STRENGTH[track.result] >= _STRENGTH[strategy]:
        return track
    return msgspec.structs.replace(track, result=strategy, pods=context.pods(place))


def _closed_if_over(
    place: FaultPlace,
    track: Track,
    late_ms: Iterable[int],
    context: RelationContext,
    tables: RelationTables,
) -> Track:
    if track.is_closed:
        return track
    window_ms = tables.windows_ms.get(place.code, 0)
    if any(0 <= at_ms - track.since_ms <= window_ms for at_ms in late_ms):
        track = msgspec.structs.replace(track, is_followed=True)
    if window_ms and not context.is_overdue(place):
        return track
    track = msgspec.structs.replace(track, is_closed=True)
    if track.result or track.is_old:
        return track
    strategy = SUB_HEALTH if place.is_switch else SEPARATE if track.is_followed else ""
    return _with(place, track, strategy, context)


def worst(strategies: Iterable[str]) -> str:
    """Return the strongest of these strategies; empty where there is none."""
    return max(strategies, key=_STRENGTH.__getitem__, default="")


def stronger(one: Track, other: Track) -> Track:
    """Return the one of two tracks of a relation fault with the stronger result, or that
    is closed.
    """
    return max(one, other, key=lambda track: (_STRENGTH[track.result], track.is_closed))

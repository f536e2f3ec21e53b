"""Decide what follows from faults of one job that belong together (``docs/spec/clusterd.md#3.10``).

A *relation fault* (a link or a port that is down) waits for a *trigger* (an operator of the job
that failed). While both hold, in whatever order they came and on whatever nodes of the job, the
strategy of their row follows for the node of the relation fault: its pods are marked, and its
devices are as ill as that. What follows stays as long as the relation fault lasts and one of the
pods that it followed for is there (B43). A relation fault that nothing followed from within its
window is closed: a port of a switch makes its node sub-healthy, a chip's link separates it where a
CQE trigger came after it in a super pod, and no trigger that comes later counts. Nothing follows
from the time alone where the fault is older than the pods.

The tables are those that upstream ships in ``relationFaultCustomization.json`` and
``faultDuration.json``. Of a node whose switch is ``UnHealthy`` no fault is relevant: its job is hit
already. Withheld faults do not count. Pure.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aggregator.jobs.rank_faults import NPU, SWITCH, WHOLE, device_id_of
from contract.documents.switch_info import event_key
from contract.pages.aggregator_status import RankFaultDevice
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.inputs.node_context import PodState

SEPARATE = "Separate"
SUB_HEALTH = "SubHealth"

CQE_CODES = frozenset({"8C1F8608", "4C1F8608"})
"""Triggers that come late: they count for a link that is well again, too, and in a super pod only
when the time of the fault before them is over."""


class RelationRow(msgspec.Struct, frozen=True):
    """When ``trigger`` and all of ``relations`` hold in a job, ``strategy`` follows."""

    trigger: str
    relations: tuple[str, ...]
    strategy: str


class RelationTables(Record, frozen=True, dict=True):
    """``windows_ms``: how long a relation fault waits for its trigger; 0 where none is named."""

    rows: tuple[RelationRow, ...]
    windows_ms: Mapping[str, int]

    @cached_property
    def relations(self) -> frozenset[str]:
        """All codes that wait for a trigger."""
        return frozenset(code for row in self.rows for code in row.relations)

    @cached_property
    def triggers(self) -> frozenset[str]:
        """All codes that others wait for."""
        return frozenset(row.trigger for row in self.rows)


_LINK_DOWN = "81078603"
_SWITCH_PORT_DOWN = "[0x08520003,na,L2,na]"

SHIPPED = RelationTables(
    rows=(
        RelationRow("8C1F8609", (_LINK_DOWN,), SUB_HEALTH),
        RelationRow("8C1F860B", (_LINK_DOWN,), SEPARATE),
        RelationRow("8C1F860B", (_SWITCH_PORT_DOWN,), SEPARATE),
        RelationRow("8C1F8608", (_LINK_DOWN,), SEPARATE),
        RelationRow("4C1F8608", (_LINK_DOWN,), SEPARATE),
    ),
    windows_ms={_LINK_DOWN: 300_000, _SWITCH_PORT_DOWN: 300_000},
)


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
    for node_faults in relevant:
        present |= node_faults.faults
        triggers |= node_faults.triggers
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


def stronger(first: Track, other: Track) -> Track:
    """Return the one of two tracks of a relation fault with the stronger result, or that
    is closed.
    """
    return max(first, other, key=lambda track: (_STRENGTH[track.result], track.is_closed))


_NOTHING = Relevant()


def relevant_faults(
    node: str,
    published: PublishedNode,
    chips: Collection[str],
    before: Relevant | None,
    now_ms: int,
    tables: RelationTables,
) -> Relevant:
    """Return the relevant faults of ``node`` for a job that has these chips there.

    A fault whose time of receipt is unknown counts from when it was first seen here: ``before`` is
    what was relevant until now, ``now_ms`` wall time.
    """
    before = _NOTHING if before is None else before
    if not chips or (published.switch is not None and published.switch.status == "UnHealthy"):
        return _NOTHING
    faults: dict[FaultPlace, int] = {}
    triggers: dict[FaultPlace, Trigger] = {}
    in_super_pod = published.device is not None and published.device.super_pod_id >= 0
    for place, received_ms in _received(node, published, chips):
        if place.code in tables.relations:
            known_ms = before.faults.get(place, now_ms)
            faults[place] = known_ms if received_ms is None else received_ms
        if place.code in tables.triggers:
            earlier = before.triggers.get(place)
            known_ms = now_ms if earlier is None else earlier.since_ms
            since_ms = known_ms if received_ms is None else received_ms
            triggers[place] = Trigger(since_ms, in_super_pod and place.code in CQE_CODES)
    return Relevant(faults, triggers) if faults or triggers else _NOTHING


def _received(
    node: str, published: PublishedNode, chips: Collection[str]
) -> Iterator[tuple[FaultPlace, int | None]]:
    """Yield every fault of the chips and of the switch, and when it was first received."""
    for fault in () if published.device is None else published.device.faults:
        if fault.chip in chips:
            times = published.received_ms.get(fault.chip, {})
            yield FaultPlace(node, fault.chip, fault.code), times.get(fault.code)
    for event in () if published.switch is None else published.switch.events:
        port = f"{event.switch_chip_id}/{event.switch_port_id}"
        received_ms = published.events_received_ms.get(event_key(event))
        yield FaultPlace(node, port, event.assembled_fault_code), received_ms


def pods_hit(place: FaultPlace, pods: Iterable[PodState]) -> tuple[str, ...]:
    """Return the pods of a job on a node, by uid, that a fault hits: those with the chip, or with
    any.
    """
    return tuple(
        pod.uid
        for pod in pods
        if (bool(pod.chips) if place.is_switch else place.subject in pod.chips)
    )


def relation_fault_devices(
    node: str, tracks: Mapping[FaultPlace, Track]
) -> Iterator[RankFaultDevice]:
    """Yield the devices of a node with the health of the strategy that followed for them."""
    here = [(place, track) for place, track in tracks.items() if place.node == node]
    for place, track in sorted(here, key=lambda item: item[0]):
        if not track.result:
            continue
        if place.is_switch:
            chip, _, port = place.subject.partition("/")
            yield RankFaultDevice(
                WHOLE,
                SWITCH,
                place.code,
                track.result,
                track.since_ms,
                chip,
                port,
                str(track.since_ms // 1000),
            )
        else:
            device_id = device_id_of(place.subject)
            yield RankFaultDevice(device_id, NPU, place.code, track.result, track.since_ms)

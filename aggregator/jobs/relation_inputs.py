"""The faults of a node that matter for the relation faults of a job
(``docs/spec/clusterd.md#3.10``).

Of a node whose switch is ``UnHealthy`` none does: its job is hit already. Withheld faults do not
count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.jobs.rank_faults import NPU, SWITCH, WHOLE, device_id_of
from aggregator.jobs.relation_tables import CQE_CODES
from aggregator.jobs.relations import FaultPlace, Relevant, Trigger
from contract.documents.switch_info import event_key
from contract.pages.aggregator_status import RankFaultDevice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.inputs.node_context import PodState
    from aggregator.jobs.relation_tables import RelationTables
    from aggregator.jobs.relations import Track

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
            known = before.triggers.get(place)
            known_ms = now_ms if known is None else known.since_ms
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
    for place, track in sorted(here, key=lambda one: one[0]):
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

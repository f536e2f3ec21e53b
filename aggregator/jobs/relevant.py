"""What of a node the relation faults of a job are about (``spec/clusterd.md`` 3.10).

Of a node whose switch is ``UnHealthy`` nothing: its job is hit already. Hidden faults do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.jobs.found import NPU, SWITCH, WHOLE, FaultDevice, device_id_of, switch_subject
from aggregator.jobs.relation_tables import CQE_CODES
from aggregator.jobs.relations import Place, Relevant, Trigger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from aggregator.facts import Pod
    from aggregator.jobs.relation_tables import Tables
    from aggregator.jobs.relations import Track
    from aggregator.jobs.sources import Published

_NOTHING = Relevant()


def relevant(
    node: str,
    told: Published,
    chips: Collection[str],
    before: Relevant | None,
    now_ms: int,
    tables: Tables,
) -> Relevant:
    """What is relevant on ``node`` for a job that has these chips there.

    What was heard of at an unknown time counts from when it was first seen here: ``before`` is what
    was relevant until now, ``now_ms`` wall time.
    """
    before = _NOTHING if before is None else before
    if not chips or (told.switch is not None and told.switch.status == "UnHealthy"):
        return _NOTHING
    faults: dict[Place, int] = {}
    triggers: dict[Place, Trigger] = {}
    in_super_pod = told.device is not None and told.device.super_pod_id >= 0
    for subject, code in _codes(told, chips):
        place = Place(node, subject, code)
        if code in tables.relations:
            received_ms = told.received_ms(subject, code)
            faults[place] = before.faults.get(place, now_ms) if received_ms is None else received_ms
        if code in tables.triggers:
            received_ms = told.received_ms(subject, code)
            known = before.triggers.get(place)
            if received_ms is None:
                received_ms = now_ms if known is None else known.since_ms
            triggers[place] = Trigger(received_ms, in_super_pod and code in CQE_CODES)
    return Relevant(faults, triggers) if faults or triggers else _NOTHING


def _codes(told: Published, chips: Collection[str]) -> Iterator[tuple[str, str]]:
    for fault in () if told.device is None else told.device.faults:
        if fault.chip in chips:
            yield fault.chip, fault.code
    for event in () if told.switch is None else told.switch.events:
        subject = switch_subject(event.switch_chip_id, event.switch_port_id)
        yield subject, event.assembled_fault_code


def pods_hit(place: Place, pods: Iterable[Pod]) -> tuple[str, ...]:
    """The pods of a job on a node, by uid, that a fault hits: those with the chip, or with any."""
    return tuple(
        pod.uid
        for pod in pods
        if (bool(pod.chips) if place.is_switch else place.subject in pod.chips)
    )


def followed(node: str, tracks: Mapping[Place, Track]) -> Iterator[FaultDevice]:
    """The devices of a node that are as ill as a strategy says that followed for them."""
    for place, track in sorted(tracks.items()):
        if place.node != node or not track.result:
            continue
        if place.is_switch:
            chip, _, port = place.subject.partition("/")
            yield FaultDevice(
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
            yield FaultDevice(device_id, NPU, place.code, track.result, track.since_ms)

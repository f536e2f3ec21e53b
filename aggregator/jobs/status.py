"""Which jobs are hit, by what, on which nodes and ranks, since when: for people and programs.

There are no rank tables here (``docs/spec/clusterd.md#6``): the ranks of a pod's chips follow those
of the pods before it, by the annotation ``hccl/rankIndex``, and within a pod the numbers of the
chips. A pod without that annotation has no ranks, and where a pod is missing those behind it have
none unless all pods have the same number of chips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aggregator.advising.status import AdviceOfJob
from aggregator.jobs.messages import Health
from aggregator.jobs.rank_faults import device_id_of, rank_faults
from contract.pages.aggregator_status import HitJob, NodeHit, RelationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.inputs.node_context import JobState, PodState
    from aggregator.jobs.messages import NodeImpact
    from aggregator.jobs.relations import FaultPlace, Track

RANK_ANNOTATION = "hccl/rankIndex"
_LEVELS = {"SubHealth": "SubHealthFault", "Separate": "SeparateFault"}
_MAX_RANK_DIGITS = 9


class RankedChip(NamedTuple):
    """A chip of a job and its rank; ``rank`` and ``pod_rank`` are empty where they are unknown."""

    rank: str
    pod_uid: str
    pod_rank: str
    chip: str


class RankRecord(msgspec.Struct, frozen=True):
    """What a rank suffers from. ``device_id`` is empty where the fault is the whole node's."""

    rank: str
    pod_uid: str
    pod_rank: str
    code: str
    level: str
    time_ms: int
    device_id: str


def ranked_chips(pods: Iterable[PodState]) -> dict[str, list[RankedChip]]:
    """Return the seats of a job by node, in the order of their ranks."""
    by_rank = sorted(pods, key=lambda pod: (_rank_of(pod) is None, _rank_of(pod) or 0, pod.uid))
    chips_by_node: dict[str, list[RankedChip]] = {}
    are_alike = len({len(pod.chips) for pod in by_rank}) == 1
    first = 0
    for position, pod in enumerate(by_rank):
        pod_rank = _rank_of(pod)
        if are_alike and pod_rank is not None:
            first = pod_rank * len(pod.chips)
        is_known = pod_rank == position or (are_alike and pod_rank is not None)
        for offset, chip in enumerate(sorted(pod.chips, key=_number)):
            rank = str(first + offset) if is_known else ""
            seat = RankedChip(rank, pod.uid, "" if pod_rank is None else str(pod_rank), chip)
            chips_by_node.setdefault(pod.node, []).append(seat)
        first += len(pod.chips)
    return chips_by_node


def _rank_of(pod: PodState) -> int | None:
    text = pod.annotations.get(RANK_ANNOTATION, "")
    return (
        int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_RANK_DIGITS else None
    )


def _number(chip: str) -> tuple[int, str]:
    text = device_id_of(chip)
    return (int(text) if text.isascii() and text.isdecimal() else -1), chip


def rank_records(
    node: str,
    published: PublishedNode,
    on_node: Iterable[RankedChip],
    tracks: Mapping[FaultPlace, Track],
    *,
    ready: bool,
) -> Iterator[RankRecord]:
    """Yield the faults that hit the ranks of a job on a node."""
    by_chip = {seat.chip: seat for seat in on_node}
    for fault in rank_faults(published, by_chip.keys(), ready=ready):
        for seat in [by_chip[fault.chip]] if fault.chip else by_chip.values():
            device_id = device_id_of(fault.chip) if fault.chip else ""
            yield _record(seat, fault.code, fault.level, fault.time_ms, device_id)
    for place, track in sorted(tracks.items()):
        if place.node != node or not track.result:
            continue
        hit = (
            by_chip.values()
            if place.is_switch
            else [by_chip[c] for c in by_chip if c == place.subject]
        )
        for seat in hit:
            level, device_id = _LEVELS[track.result], device_id_of(seat.chip)
            yield _record(seat, place.code, level, 0, device_id)


def _record(seat: RankedChip, code: str, level: str, time_ms: int, device_id: str) -> RankRecord:
    return RankRecord(seat.rank, seat.pod_uid, seat.pod_rank, code, level, time_ms, device_id)


class JobStatus(HitJob, frozen=True):
    """A job with its ranks that suffer and its relation faults.

    ``advice``: what the scheduler will do about it, ``null`` where that is not computed or its
    pods have no PodGroup.
    """

    ranks: tuple[RankRecord, ...]
    relations: tuple[RelationStatus, ...]
    advice: AdviceOfJob | None = None


def hit_job(job: str, about: JobState | None, impacts: Mapping[str, NodeImpact]) -> HitJob:
    """Return the state of a job that is hit by these impacts, by node."""
    return HitJob(
        job,
        "" if about is None else about.namespace,
        "" if about is None else about.name,
        max((impact.health for impact in impacts.values()), default=Health.HEALTHY).word,
        min((impact.since_ms for impact in impacts.values()), default=None),
        tuple(
            NodeHit(
                node, impact.info.node_ip, impact.info.fault_level, impact.since_ms, impact.faults
            )
            for node, impact in sorted(impacts.items())
        ),
    )


def relation_statuses(job: str, tracks: Mapping[FaultPlace, Track]) -> Iterator[RelationStatus]:
    """Yield the relation faults of a job."""
    for place, track in sorted(tracks.items(), key=lambda item: item[0]):
        yield RelationStatus(job, *place, track.since_ms, track.result, track.is_closed)


def job_status(
    job: str,
    about: JobState | None,
    impacts: Mapping[str, NodeImpact],
    ranks: Iterable[RankRecord],
    tracks: Mapping[FaultPlace, Track],
) -> JobStatus:
    """Return everything about a job."""
    return JobStatus(
        **msgspec.structs.asdict(hit_job(job, about, impacts)),
        ranks=tuple(ranks),
        relations=tuple(relation_statuses(job, tracks)),
    )

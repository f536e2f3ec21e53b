"""Which jobs are hit, by what, on which nodes, since when: for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.advising.status import AdviceOfJob
from aggregator.jobs.health import Health
from aggregator.jobs.rank_faults import RankFaultDevice
from aggregator.jobs.ranks import RankRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.inputs.node_context import JobState
    from aggregator.jobs.node_impact import NodeImpact
    from aggregator.jobs.relations import FaultPlace, Track


class NodeHit(msgspec.Struct, frozen=True):
    """What hits a job on one node. ``health`` is that of its devices, ``since_ms`` wall time."""

    node: str
    ip: str
    health: str
    since_ms: int
    faults: tuple[RankFaultDevice, ...]


class HitJob(msgspec.Struct, frozen=True):
    """A job, its nodes that are hit, and since when (wall time, ``null`` where none is).
    ``health`` is upstream's ``HealthyState`` of it.
    """

    job: str
    namespace: str
    name: str
    health: str
    since_ms: int | None
    nodes: tuple[NodeHit, ...]


class RelationStatus(msgspec.Struct, frozen=True):
    """A relation fault: a code on a part of a node that waits for a failure of the job, or that
    something followed from (``result``: ``SubHealth``, ``Separate`` or nothing yet). ``subject`` is
    a chip or ``<chip>/<port>`` of a switch; ``closed``: what comes now does not count any more.
    """

    job: str
    node: str
    subject: str
    code: str
    since_ms: int
    result: str
    closed: bool


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
        max((one.health for one in impacts.values()), default=Health.HEALTHY).word,
        min((one.since_ms for one in impacts.values()), default=None),
        tuple(
            NodeHit(node, one.info.node_ip, one.info.fault_level, one.since_ms, one.faults)
            for node, one in sorted(impacts.items())
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

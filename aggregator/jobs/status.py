"""Which jobs are hit, by what, on which nodes, since when: for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.advising.status import AdviceOfJob
from aggregator.jobs.health import Health
from aggregator.jobs.ranks import RankRecord
from contract.pages.aggregator_status import HitJob, NodeHit, RelationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.inputs.node_context import JobState
    from aggregator.jobs.node_impact import NodeImpact
    from aggregator.jobs.relations import FaultPlace, Track


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

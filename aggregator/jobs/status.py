"""Which jobs are hit, by what, on which nodes, since when: for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.jobs.found import FaultDevice
from aggregator.jobs.ranks import RankRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.facts import Job
    from aggregator.jobs.parts import Part


class NodeHit(msgspec.Struct, frozen=True):
    """What hits a job on one node. ``health`` is that of its devices, ``since_ms`` wall time."""

    node: str
    ip: str
    health: str
    since_ms: int
    faults: tuple[FaultDevice, ...]


class JobStatus(msgspec.Struct, frozen=True):
    """A job that is hit. ``health`` is upstream's ``HealthyState`` of it."""

    job: str
    namespace: str
    name: str
    health: str
    since_ms: int
    nodes: tuple[NodeHit, ...]
    ranks: tuple[RankRecord, ...]


def job_status(
    job: str, about: Job | None, parts: Mapping[str, Part], ranks: Iterable[RankRecord]
) -> JobStatus:
    """The state of a job that is hit by these parts, by node."""
    return JobStatus(
        job,
        "" if about is None else about.namespace,
        "" if about is None else about.name,
        max(one.health for one in parts.values()).word,
        min(one.since_ms for one in parts.values()),
        tuple(
            NodeHit(node, one.info.node_ip, one.info.fault_level, one.since_ms, one.faults)
            for node, one in sorted(parts.items())
        ),
        tuple(ranks),
    )

"""What the pages of the API answer with. Pages about advice are in ``advising/status.py``."""

from __future__ import annotations

import msgspec

from aggregator.fault_statuses import FaultStatus, ServerFaultStatus, SwitchFaultStatus
from aggregator.jobs.status import HitJob
from aggregator.keeping import KeptStatus
from aggregator.processors.status import SeparationStatus
from aggregator.public_faults.status import PublicFaultStatus
from aggregator.rejections import RefusedStatus, RejectedCount
from aggregator.status import (
    DocumentStatus,
    LeaderStatus,
    LivenessStatus,
    NodeStatus,
    ServicesStatus,
    SourceStatus,
)
from aggregator.world_status import WorldStatus


class Nodes(msgspec.Struct, frozen=True):
    """Every node; ``at_ms`` is when the picture was taken (epoch milliseconds)."""

    at_ms: int
    nodes: tuple[NodeStatus, ...]


class Liveness(msgspec.Struct, frozen=True):
    """Who fell silent."""

    at_ms: int
    liveness: LivenessStatus


class Faults(msgspec.Struct, frozen=True):
    """Every fault that holds now, those that are held back from readers, too."""

    at_ms: int
    faults: tuple[FaultStatus, ...]
    switch_faults: tuple[SwitchFaultStatus, ...]
    server_faults: tuple[ServerFaultStatus, ...]


class Documents(msgspec.Struct, frozen=True):
    """The stores that are read, the documents that are published, and what is refused of others."""

    at_ms: int
    stores: tuple[SourceStatus, ...]
    documents: tuple[DocumentStatus, ...]
    refused: tuple[RefusedStatus, ...]
    rejected: tuple[RejectedCount, ...]


class Leader(msgspec.Struct, frozen=True):
    """Which of several aggregators writes, and the state that the next one will find."""

    at_ms: int
    leader: LeaderStatus
    kept: tuple[KeptStatus, ...]


class Jobs(msgspec.Struct, frozen=True):
    """The jobs that are hit."""

    at_ms: int
    jobs: tuple[HitJob, ...]


class PublicFaultsPage(msgspec.Struct, frozen=True):
    """How it stands with public faults."""

    at_ms: int
    public_faults: PublicFaultStatus


class Separation(msgspec.Struct, frozen=True):
    """How it stands with manual separation."""

    at_ms: int
    separation: SeparationStatus


class World(msgspec.Struct, frozen=True):
    """What stores tell of Nodes, pods and PodGroups."""

    at_ms: int
    world: WorldStatus


class Services(msgspec.Struct, frozen=True):
    """Who is served besides readers of documents."""

    at_ms: int
    services: ServicesStatus


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    error: str

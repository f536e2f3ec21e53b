"""Answers of daemons, as far as verbs show them.

Only these fields are read, and those that another release may lack have a default. Times are epoch
milliseconds. ``reported`` is the level that the node reports, ``published`` that in cluster-info.
"""

from __future__ import annotations

import msgspec

from contract.pages.blind import BlindStatus
from contract.pages.faults import FaultStatus


class AgentUpgrade(msgspec.Struct, frozen=True):
    """Why an agent raises the level of a code; ``because`` names who isolated a chip."""

    code: str
    level: str
    upgraded_at_ms: int
    because: str = ""


class AgentChip(msgspec.Struct, frozen=True):
    """A chip as its agent knows it."""

    chip: int
    device: str
    level: str
    link_up: bool | None = None
    blind: tuple[BlindStatus, ...] = ()
    answers: bool = True
    upgrades: tuple[AgentUpgrade, ...] = ()


class AgentFault(msgspec.Struct, frozen=True):
    """A fault as its agent knows it."""

    subject: str
    code: str
    level: str
    since_ms: int
    device: str | None = None
    part: str = ""
    severity: str | None = None
    reason: str = ""
    reported_by: tuple[str, ...] = ()


class AgentDriver(msgspec.Struct, frozen=True):
    """The driver."""

    family: str | None = None
    chip_name: str | None = None
    version: str | None = None
    trouble: str | None = None


class AgentPublication(msgspec.Struct, frozen=True):
    """A document of an agent."""

    kind: str
    store: str
    acknowledged_at_ms: int | None = None
    trouble: str | None = None
    conflict: str | None = None
    left_to: str | None = None


class AgentHeartbeat(msgspec.Struct, frozen=True):
    """The heartbeat of an agent."""

    interval_seconds: float
    beaten_at_ms: int | None = None
    trouble: str | None = None
    withheld: str | None = None
    conflict: str | None = None


class AgentAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/status`` of an agent."""

    node: str
    at_ms: int
    version: str
    chips: tuple[AgentChip, ...]
    faults: tuple[AgentFault, ...]
    driver: AgentDriver
    publications: tuple[AgentPublication, ...]
    heartbeat: AgentHeartbeat
    not_ready: tuple[str, ...] = ()
    stalled: dict[str, float] = {}
    blind: tuple[BlindStatus, ...] = ()
    kernel_log_pipe: str | None = None


class NodeSummaryAnswer(msgspec.Struct, frozen=True):
    """A node as an aggregator knows it."""

    node: str
    state: str
    heartbeat: str
    switch_status: str | None = None
    node_status: str | None = None
    blind: tuple[BlindStatus, ...] | None = None


class NodesAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/nodes`` of an aggregator."""

    at_ms: int
    nodes: tuple[NodeSummaryAnswer, ...]


class NodeLivenessAnswer(msgspec.Struct, frozen=True):
    """The heartbeats as an aggregator knows them."""

    alarm: bool
    problems: dict[str, str] = {}


class LivenessAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/liveness`` of an aggregator."""

    liveness: NodeLivenessAnswer


class LeaderStateAnswer(msgspec.Struct, frozen=True):
    """Who leads."""

    role: str
    leads: bool
    holder: str


class LeaderAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/leader`` of an aggregator."""

    at_ms: int
    leader: LeaderStateAnswer


class ReadinessAnswer(msgspec.Struct, frozen=True):
    """``/readyz`` of a daemon."""

    ready: bool
    reasons: tuple[str, ...] = ()


class ExplainedFaultAnswer(msgspec.Struct, frozen=True):
    """A code on a chip."""

    code: str
    because: str
    fault_type: str = ""
    severity: str | None = None
    reported: str | None = None
    published: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class ExplainedChipAnswer(msgspec.Struct, frozen=True):
    """A chip. ``reported`` and ``published`` are the lists that it is in; ``pods`` use it."""

    chip: str
    because: tuple[str, ...]
    reported: str = ""
    published: str = ""
    pods: tuple[str, ...] = ()
    faults: tuple[ExplainedFaultAnswer, ...] = ()
    blind: tuple[BlindStatus, ...] = ()


class ExplainedEventAnswer(ExplainedFaultAnswer, frozen=True, kw_only=True):
    """A code on a port of a switch."""

    switch: int
    port: int


class ExplainedJobAnswer(msgspec.Struct, frozen=True):
    """A job with pods on the node. ``since_ms`` is ``None`` where nothing here hits it."""

    job: str
    namespace: str
    name: str
    health: str
    because: tuple[str, ...]
    pods: tuple[str, ...] = ()
    since_ms: int | None = None


class ExplainedDpuAnswer(msgspec.Struct, frozen=True):
    """A fault of an RDMA NIC or DPU of a node; ``since_ms`` is 0 where its plugin has no time."""

    subject: str
    code: str
    level: str
    since_ms: int
    description: str
    because: str


class NodeAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/nodes/{node}`` of an aggregator.

    ``documents`` hold the node; with whether every store has them as they are now.
    """

    node: NodeSummaryAnswer
    because: tuple[str, ...]
    chips: tuple[ExplainedChipAnswer, ...]
    switch_events: tuple[ExplainedEventAnswer, ...] = ()
    documents: dict[str, bool] = {}
    server_faults: tuple[FaultStatus, ...] = ()
    jobs: tuple[ExplainedJobAnswer, ...] = ()
    dpu_faults: tuple[ExplainedDpuAnswer, ...] = ()


class DeviceAnswer(msgspec.Struct, frozen=True):
    """A fault that hits a job; ``time_ms`` is 0 where its source gives no time."""

    device_id: str
    device_type: str
    code: str
    level: str
    time_ms: int = 0


class HitNodeAnswer(msgspec.Struct, frozen=True):
    """What hits a job on one node."""

    node: str
    health: str
    since_ms: int
    faults: tuple[DeviceAnswer, ...] = ()


class HitJobAnswer(msgspec.Struct, frozen=True):
    """A job that is hit."""

    job: str
    namespace: str
    name: str
    health: str
    since_ms: int | None
    nodes: tuple[HitNodeAnswer, ...]


class JobsAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/jobs`` of an aggregator."""

    at_ms: int
    jobs: tuple[HitJobAnswer, ...]


class ObjectsAnswer(msgspec.Struct, frozen=True):
    """What one store reports of one kind of objects."""

    store: str
    kind: str
    followed: bool
    known: bool
    interrupted: str | None = None


class StoreStateAnswer(msgspec.Struct, frozen=True):
    """What stores report besides documents."""

    objects: tuple[ObjectsAnswer, ...]


class ClusterStateAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/cluster-state`` of an aggregator."""

    cluster_state: StoreStateAnswer

"""What a daemon answers, as far as ``vigil status`` and ``vigil faults`` show it.

Only these fields are read, and those that another release may lack have a default. Times are epoch
milliseconds.
"""

from __future__ import annotations

import msgspec

from contract.pages.blind import BlindStatus


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

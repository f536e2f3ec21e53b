"""Why a node, its chips and switches are published as they are: ``/api/v1/nodes/{node}``."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from contract.pages.aggregator_status import NodeStatus, RelationStatus
from contract.pages.blind import BlindStatus
from contract.pages.faults import FaultStatus
from contract.pages.messages import PageMessage

Advice = TypeVar("Advice")


class ExplainedCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code on a part of a node, and why it is published or not.

    ``reported`` (by the node) and ``published`` are its levels, ``null`` where there is none.
    ``since_ms``: when it began as its source reports it, else ``received_at_ms``; that is since
    when an aggregator has it. ``until_ms``: when what ``because`` names ends by time alone. Times
    are epoch milliseconds, ``null`` where there is none. The names are those of ``FaultStatus``.
    """

    code: str
    reported: str | None
    published: str | None
    since_ms: int | None
    until_ms: int | None
    because: str
    received_at_ms: int | None = None
    name: str | None = None
    name_zh: str | None = None
    summary: str = ""


class ExplainedFault(ExplainedCode, frozen=True, kw_only=True):
    """A code on a chip. ``severity``, ``device_fault`` and ``severity_source`` are those of
    ``FaultStatus``.
    """

    severity: str | None
    device_fault: bool | None
    severity_source: str
    fault_type: str


class ExplainedEvent(ExplainedCode, frozen=True, kw_only=True):
    """A code on a port of an on-board switch."""

    switch: int
    port: int


class ExplainedChip(msgspec.Struct, frozen=True):
    """A chip. ``reported`` and ``published``: the list it is in (``available``, ``unhealthy``,
    ``network_unhealthy``, ``recovering``; several with a comma between, ``none`` where it is in
    none). ``pods`` use it, as ``namespace/name``. ``blind``: the sources that give the node's agent
    no answer about it.
    """

    chip: str
    reported: str
    published: str
    used_by_pod: bool | None
    pods: tuple[str, ...]
    faults: tuple[ExplainedFault, ...]
    because: tuple[str, ...]
    blind: tuple[BlindStatus, ...] = ()


class ExplainedPublicFault(msgspec.Struct, frozen=True):
    """A public fault that holds on the node. ``devices`` are physical ids, ``since_ms`` when it was
    accepted, ``until_ms`` when it ends by itself (epoch milliseconds). The names are those of
    ``FaultStatus``.
    """

    resource: str
    fault_id: str
    code: str
    level: str
    devices: tuple[int, ...]
    since_ms: int
    until_ms: int | None
    because: str
    name: str | None = None
    name_zh: str | None = None
    summary: str = ""


class ExplainedDpuFault(msgspec.Struct, frozen=True):
    """A fault of an RDMA NIC or DPU of the node, as its plugin reports it.

    ``since_ms`` is when the plugin saw it first, 0 where it names no time. ``because`` is what
    follows from it. The names are those of ``FaultStatus``.
    """

    subject: str
    code: str
    level: str
    since_ms: int
    description: str
    because: str
    name: str | None = None
    name_zh: str | None = None
    summary: str = ""


class ExplainedJob(msgspec.Struct, frozen=True):
    """A job with pods on the node (``namespace/name``), and what the node does to it.

    ``health`` is what follows for the job from this node, ``since_ms`` since when (epoch
    milliseconds, ``null`` where nothing here hits it).
    """

    job: str
    namespace: str
    name: str
    pods: tuple[str, ...]
    health: str
    since_ms: int | None
    relations: tuple[RelationStatus, ...]
    because: tuple[str, ...]


class ExplainedNode(msgspec.Struct, Generic[Advice], frozen=True):
    """Why a node, its chips and its jobs are in their published states.

    ``reported_status`` is the status in the node's own node-info, ``reported_switch_status`` that
    of its switches, ``null`` where it reported none. ``documents`` are those with an entry of the
    node, with whether every store has their newest value. ``because`` is about the node as a whole.
    ``chips``: all that are known. ``stream`` is that of ``FaultsPage``. ``advice``: what the
    scheduler will do about it, ``null`` where that is not computed; its type is the
    advisor's, which contract does not import. ``messages`` are the sentences of the page that a
    verb can translate, by their English text.
    """

    node: NodeStatus
    reported_status: str | None
    reported_switch_status: str | None
    documents: dict[str, bool]
    because: tuple[str, ...]
    chips: tuple[ExplainedChip, ...]
    switch_events: tuple[ExplainedEvent, ...]
    server_faults: tuple[FaultStatus, ...]
    public_faults: tuple[ExplainedPublicFault, ...]
    jobs: tuple[ExplainedJob, ...]
    dpu_faults: tuple[ExplainedDpuFault, ...] = ()
    advice: Advice | None = None
    stream: str = ""
    messages: dict[str, PageMessage] = {}

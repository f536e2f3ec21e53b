"""What an aggregator answers about one node, as far as ``vigil explain NODE`` shows it.

Only these fields are read, and those that another release may lack have a default. Times are epoch
milliseconds. ``reported`` is the level that the node reports, ``published`` that in cluster-info.
"""

from __future__ import annotations

import msgspec

from contract.pages.blind import BlindStatus
from contract.pages.faults import FaultStatus
from vigil.reports.answers import NodeSummaryAnswer


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

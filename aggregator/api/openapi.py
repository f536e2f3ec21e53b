"""The description of the API for programs: ``GET /api/v1/openapi.json`` (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.checks.ended_vcjobs import EndedJobs
from aggregator.advising.outcomes import Missed
from aggregator.advising.status import AdviceChange, AdviceOfJob, AdviceStatus, AssumedAdvice
from aggregator.agent_reports.blindness import BlindChange
from aggregator.api import advice_pages, history_page
from aggregator.api.cluster_state_status import ClusterStateStatus
from aggregator.api.explanation import Explanation
from aggregator.api.fault_status import FaultStatus, ServerFaultStatus, SwitchFaultStatus
from aggregator.api.rejections import RefusedStatus, RejectedCount
from aggregator.api.status import (
    DocumentStatus,
    LeaderStatus,
    LivenessStatus,
    NodeStatus,
    ServicesStatus,
    SourceStatus,
)
from aggregator.failover.persistent_state import PersistentStateStatus
from aggregator.jobs.status import HitJob, JobStatus
from aggregator.notify import sse
from aggregator.notify.changes import PublishedChange
from aggregator.notify.history_file import HistoryPage
from aggregator.processors.status import SeparationStatus
from aggregator.public_faults.status import PublicFaultStatus

PATH = "/api/v1/openapi.json"


class NodesPage(msgspec.Struct, frozen=True):
    """Every node; ``at_ms`` is when the picture was taken (epoch milliseconds)."""

    at_ms: int
    nodes: tuple[NodeStatus, ...]


class LivenessPage(msgspec.Struct, frozen=True):
    """Who fell silent."""

    at_ms: int
    liveness: LivenessStatus


class AdvicePage(msgspec.Struct, frozen=True):
    """What the scheduler will do about what is published; ``null`` where that is not computed."""

    at_ms: int
    enabled: bool
    advice: AdviceStatus | None


class EndedJobsPage(msgspec.Struct, frozen=True):
    """What is known of vcjobs that have ended; ``null`` where nothing is advised.

    ``leads``: this aggregator writes. ``alarm``: too many nodes fell silent at once. ``silent``
    are nodes whose heartbeats have ended.
    """

    at_ms: int
    leads: bool
    alarm: bool
    silent: tuple[str, ...]
    ended: EndedJobs | None


class AdviceOutcomes(msgspec.Struct, frozen=True):
    """What became of deletions of pods since the start, and the last 100 that were not ``came``."""

    at_ms: int
    enabled: bool
    outcomes: dict[str, int]
    missed: tuple[Missed, ...]


class FaultsPage(msgspec.Struct, frozen=True):
    """Every fault that holds now, those that are held back from readers, too."""

    at_ms: int
    faults: tuple[FaultStatus, ...]
    switch_faults: tuple[SwitchFaultStatus, ...]
    server_faults: tuple[ServerFaultStatus, ...]


class DocumentsPage(msgspec.Struct, frozen=True):
    """The stores that are read, the documents that are published, and what is refused of others."""

    at_ms: int
    stores: tuple[SourceStatus, ...]
    documents: tuple[DocumentStatus, ...]
    refused: tuple[RefusedStatus, ...]
    rejected: tuple[RejectedCount, ...]


class LeaderPage(msgspec.Struct, frozen=True):
    """Which of several aggregators writes, and the state that the next one will find."""

    at_ms: int
    leader: LeaderStatus
    kept: tuple[PersistentStateStatus, ...]


class JobsPage(msgspec.Struct, frozen=True):
    """The jobs that are hit."""

    at_ms: int
    jobs: tuple[HitJob, ...]


class PublicFaultsPage(msgspec.Struct, frozen=True):
    """How it stands with public faults."""

    at_ms: int
    public_faults: PublicFaultStatus


class SeparationPage(msgspec.Struct, frozen=True):
    """How it stands with manual separation."""

    at_ms: int
    separation: SeparationStatus


class ClusterStatePage(msgspec.Struct, frozen=True):
    """What stores tell of Nodes, pods and PodGroups."""

    at_ms: int
    world: ClusterStateStatus


class ServicesPage(msgspec.Struct, frozen=True):
    """Who is served besides readers of documents."""

    at_ms: int
    services: ServicesStatus


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    error: str


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a page; ``place`` is ``query``, ``path`` or ``header``."""

    name: str
    about: str
    is_number: bool = False
    place: str = "query"
    is_repeatable: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """What it may be."""
        one = {"type": "integer" if self.is_number else "string"}
        return {"type": "array", "items": one} if self.is_repeatable else one


class Operation(msgspec.Struct, frozen=True):
    """One page. ``refusals`` are the statuses of a ``Refusal``; 400 is one everywhere."""

    path: str
    about: str
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()
    content: str = "application/json"
    or_else: tuple[Any, ...] = ()
    """What else an answer may be; with several events of a stream, one of them."""


_NODE = Parameter("node", "Only what is about this node")

OPERATIONS: tuple[Operation, ...] = (
    Operation("/api/v1/nodes", "Every node that is published or was heard of", NodesPage),
    Operation(
        "/api/v1/nodes/{node}",
        "Why a node and its chips are published as they are",
        Explanation,
        (Parameter("node", "The node's name", place="path"),),
        (404,),
    ),
    Operation("/api/v1/liveness", "Who fell silent", LivenessPage),
    Operation("/api/v1/faults", "Every fault that holds", FaultsPage),
    Operation("/api/v1/jobs", "Which jobs are hit, by what, on which nodes, since when", JobsPage),
    Operation(
        "/api/v1/jobs/{job}",
        "One job, hit or not, with its ranks and relation faults",
        JobStatus,
        (Parameter("job", "Its key: the uid of the owner of its pods", place="path"),),
        (404,),
    ),
    Operation(
        advice_pages.PATH,
        "What the scheduler will do about what is published",
        AdvicePage,
        (Parameter("node", "Only what is about this node and the jobs there, with placement"),),
        (404,),
    ),
    Operation(
        advice_pages.OUTCOMES_PATH,
        "Whether the scheduler has deleted the pods that were foretold, and no others",
        AdviceOutcomes,
    ),
    Operation(
        advice_pages.WHAT_IF_PATH,
        "What would follow in the next session, with assumptions and without. One is computed at a "
        "time",
        AssumedAdvice,
        (
            Parameter(
                "what_if",
                "What is assumed, as vigil advise takes it; applied in order, at most 20",
                is_repeatable=True,
            ),
            Parameter("job", "Only of this PodGroup, or of its owner: NAMESPACE/NAME"),
            _NODE,
        ),
        (404, 503),
    ),
    Operation(
        advice_pages.JOB_PATH,
        "What the scheduler will do with one PodGroup, and where its pods can go",
        AdviceOfJob,
        (
            Parameter("namespace", "Of the PodGroup", place="path"),
            Parameter("podgroup", "Its name, or that of its owner", place="path"),
            _NODE,
        ),
        (404,),
    ),
    Operation(
        "/api/v1/ended-jobs",
        "With which size elastic vcjobs that have ended can start again, and what stood under them",
        EndedJobsPage,
        (
            Parameter("sized", "NAMESPACE/NAME, several with commas: their sizes, in turn"),
            Parameter("judged", "NAMESPACE/NAME, several with commas: faults under their pods"),
            Parameter("running", "true: also jobs that run over a network fault"),
        ),
    ),
    Operation("/api/v1/public-faults", "How it stands with public faults", PublicFaultsPage),
    Operation(
        "/api/v1/separation", "Which chips came into manual separation, by what", SeparationPage
    ),
    Operation("/api/v1/world", "What stores tell of Nodes, pods and PodGroups", ClusterStatePage),
    Operation("/api/v1/services", "gRPC, rank tables, streams and the history", ServicesPage),
    Operation("/api/v1/documents", "What is read, and what is published", DocumentsPage),
    Operation("/api/v1/leader", "Which of several aggregators writes", LeaderPage),
    Operation(
        history_page.PATH,
        "What happened to faults, newest last",
        HistoryPage,
        (
            _NODE,
            Parameter("since_ms", "Heard since this time, epoch milliseconds", is_number=True),
            Parameter("after", "Behind this number: next of the answer before", is_number=True),
            Parameter("limit", "At most so many, 1 to 10000", is_number=True),
        ),
        (503,),
    ),
    Operation(
        sse.PATH,
        "Changes as they happen: events change (of what is published), blind (of which sources "
        "give agents no answer), advice (of what the scheduler will do with a job), and gap where "
        "some are lost",
        PublishedChange,
        (_NODE, Parameter("Last-Event-ID", "What came behind this event", place="header")),
        (503,),
        "text/event-stream",
        (BlindChange, AdviceChange),
    ),
)


def description(version: str) -> dict[str, Any]:
    """The document."""
    types = {one.answer for one in OPERATIONS} | {Refusal}
    types |= {other for one in OPERATIONS for other in one.or_else}
    listed = sorted(types, key=lambda one: str(one.__name__))
    schemas, components = msgspec.json.schema_components(
        listed, ref_template="#/components/schemas/{name}"
    )
    found = dict(zip(listed, schemas, strict=True))
    refusal = found[Refusal]
    return {
        "openapi": "3.1.0",
        "info": {"title": "NPU Vigil aggregator", "version": version},
        "paths": {
            one.path: {"get": _operation(one, _answer(one, found), refusal)} for one in OPERATIONS
        },
        "components": {"schemas": components},
    }


def _answer(one: Operation, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if not one.or_else:
        return schemas[one.answer]
    return {"anyOf": [schemas[kind] for kind in (one.answer, *one.or_else)]}


def _operation(one: Operation, answer: object, refusal: object) -> dict[str, Any]:
    statuses: dict[str, Any] = {
        "200": {"description": one.about, "content": {one.content: {"schema": answer}}}
    }
    for status in sorted({400, *one.refusals}):
        statuses[str(status)] = {
            "description": "Refused; the answer says why",
            "content": {"application/json": {"schema": refusal}},
        }
    return {
        "summary": one.about,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "description": parameter.about,
                "schema": parameter.schema,
            }
            for parameter in one.parameters
        ],
        "responses": statuses,
    }

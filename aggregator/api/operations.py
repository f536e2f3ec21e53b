"""The pages of the aggregator: paths, parameters and types of their answers."""

from __future__ import annotations

import msgspec

from advisor.checks.ended_vcjobs import EndedJobs
from aggregator.advising.outcomes import Missed
from aggregator.advising.status import (
    AdviceAbout,
    AdviceChange,
    AdviceOfJob,
    AdviceStatus,
    AssumedAdvice,
)
from aggregator.api.rejections import RefusedStatus, RejectedCount
from aggregator.api.separation_status import SeparationStatus
from aggregator.api.status import ServicesStatus
from aggregator.dpu_faults.documents import DpuStatus
from aggregator.jobs.status import JobStatus
from aggregator.public_faults.status import PublicFaultStatus
from contract.pages.aggregator_status import (
    HEARTBEATS,
    STATES,
    ClusterStatePage,
    DocumentStatus,
    JobsPage,
    LeaderPage,
    LivenessPage,
    NodesPage,
    Page,
    SourceStatus,
)
from contract.pages.changes import BlindChange, FaultChange, JobChange, LeaderChange
from contract.pages.explanation import ExplainedNode
from contract.pages.fleet import FleetPage, FleetRows
from contract.pages.history import PublishedPage
from contract.pages.messages import PageMessage
from contract.pages.scheduler_signals import SchedulerSignalsPage
from service.pages import event_stream, fault_pages
from service.pages.operations import Operation
from service.pages.page_rows import PAGING
from service.pages.parameters import Parameter

PUBLISHED_PATH = "/api/v1/published"
FLEET_PATH = "/api/v1/fleet"
SIGNALS_PATH = "/api/v1/scheduler-signals"
ADVICE_PATH = "/api/v1/advice"
ADVICE_OUTCOMES_PATH = f"{ADVICE_PATH}/outcomes"
ADVICE_WHAT_IF_PATH = f"{ADVICE_PATH}/what-if"
ADVICE_JOB_PATH = f"{ADVICE_PATH}/{{namespace}}/{{podgroup}}"


class Explanation(ExplainedNode[AdviceAbout], frozen=True):
    """Why a node, its chips and its jobs are in their published states.

    ``reported_status`` is the status in the node's own node-info, ``reported_switch_status`` that
    of its switches, ``null`` where it reported none. ``documents`` are those with an entry of the
    node, with whether every store has their newest value. ``because`` is about the node as a whole.
    ``chips``: all that are known. ``stream`` is that of ``FaultsPage``. ``advice``: what the
    scheduler will do about it, ``null`` where that is not computed.
    """


class AdvicePage(Page, frozen=True):
    """What the scheduler will do about what is published; ``null`` where that is not computed.

    ``messages`` are the sentences that a verb can translate, by their English text.
    """

    enabled: bool
    advice: AdviceStatus | None
    messages: dict[str, PageMessage] = msgspec.field(default_factory=dict)


class EndedJobsPage(Page, frozen=True):
    """The vcjobs that have ended; ``null`` without advice.

    ``leads``: this aggregator writes. ``alarm``: too many nodes fell silent at once. ``silent`` are
    nodes whose heartbeats have ended.
    """

    leads: bool
    alarm: bool
    silent: tuple[str, ...]
    ended: EndedJobs | None


class AdviceOutcomes(Page, frozen=True):
    """Whether advised deletions of pods were made since the start, and the last 100 that were not
    (``came``).
    """

    enabled: bool
    outcomes: dict[str, int]
    missed: tuple[Missed, ...]


class DocumentsPage(Page, frozen=True):
    """The stores that are read, the published documents, and refused documents of others."""

    stores: tuple[SourceStatus, ...]
    documents: tuple[DocumentStatus, ...]
    refused: tuple[RefusedStatus, ...]
    rejected: tuple[RejectedCount, ...]


class PublicFaultsPage(Page, frozen=True):
    """The state of public faults, and of the documents of RDMA plugins."""

    public_faults: PublicFaultStatus
    dpu_faults: DpuStatus


class SeparationPage(Page, frozen=True):
    """The state of manual separation."""

    separation: SeparationStatus


class ServicesPage(Page, frozen=True):
    """The services besides documents: gRPC, rank tables, streams and the history."""

    services: ServicesStatus


_STATE = Parameter(
    "state",
    "Only nodes whose device-info or heartbeat is in this state",
    is_repeatable=True,
    values=(*STATES, *HEARTBEATS),
)
_NODE = Parameter("node", "Only what is about this node")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        FLEET_PATH,
        "The state of every node in one short row, for pages that stay open",
        FleetPage,
        (fault_pages.NODES,),
        (503,),
    ),
    Operation(
        "/api/v1/nodes",
        "Every node that is published or has a heartbeat",
        NodesPage,
        (fault_pages.NODES, _STATE, fault_pages.LEVEL, fault_pages.CODE, *PAGING),
    ),
    Operation(
        "/api/v1/nodes/{node}",
        "Why a node and its chips are published as they are",
        Explanation,
        (Parameter("node", "The node's name", place="path"),),
        (404,),
    ),
    Operation("/api/v1/liveness", "Who fell silent", LivenessPage),
    fault_pages.FAULTS,
    Operation(
        "/api/v1/jobs",
        "Which jobs are hit, by what, on which nodes, since when",
        JobsPage,
        (fault_pages.NODES, *PAGING),
    ),
    Operation(
        "/api/v1/jobs/{job}",
        "One job, hit or not, with its ranks and relation faults",
        JobStatus,
        (Parameter("job", "Its key: the uid of the owner of its pods", place="path"),),
        (404,),
    ),
    Operation(
        ADVICE_PATH,
        "What the scheduler will do about what is published",
        AdvicePage,
        (Parameter("node", "Only what is about this node and the jobs there, with placement"),),
        (404,),
    ),
    Operation(
        ADVICE_OUTCOMES_PATH,
        "Whether the scheduler has deleted the pods that were foretold, and no others",
        AdviceOutcomes,
    ),
    Operation(
        ADVICE_WHAT_IF_PATH,
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
        ADVICE_JOB_PATH,
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
            Parameter("hit", "true: also jobs with live pods over any fault"),
        ),
    ),
    Operation("/api/v1/public-faults", "How it stands with public faults", PublicFaultsPage),
    Operation(
        "/api/v1/separation", "Which chips came into manual separation, by what", SeparationPage
    ),
    Operation(
        "/api/v1/cluster-state", "What stores report of Nodes, pods and PodGroups", ClusterStatePage
    ),
    Operation("/api/v1/services", "gRPC, rank tables, streams and the history", ServicesPage),
    Operation(
        SIGNALS_PATH,
        "Conditions and taints that are written for schedulers, and what of them waits",
        SchedulerSignalsPage,
    ),
    Operation("/api/v1/documents", "What is read, and what is published", DocumentsPage),
    Operation("/api/v1/leader", "Which of several aggregators writes", LeaderPage),
    fault_pages.HISTORY,
    Operation(
        PUBLISHED_PATH,
        "What was published at a time, from the history",
        PublishedPage,
        (
            Parameter("at_ms", "The time, epoch milliseconds; now without it", is_number=True),
            Parameter("node", "Only what is about this node"),
        ),
        (503,),
    ),
    Operation(
        event_stream.PATH,
        "Changes as they happen. Events are change (of what is published), blind (sources that "
        "give agents no answer), job (jobs that are hit) and leader. Others are advice (what the "
        "scheduler will do with a job), and gap where some are lost. Clients that ask for rows get "
        "those of changed nodes",
        FaultChange,
        (
            *event_stream.PARAMETERS,
            Parameter(event_stream.ROWS, "Also the new rows of changed nodes", values=("true",)),
        ),
        (503,),
        "text/event-stream",
        (BlindChange, JobChange, LeaderChange, AdviceChange, FleetRows),
    ),
)

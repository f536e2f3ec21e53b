"""The status of an agent at one instant: ``/api/v1/status`` answers with it, for metrics too.

The agent fills it in, and the command line decodes it. Times are epoch milliseconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from contract.codes.levels import ChipLevel, Severity
from contract.documents.isolation_request import IsolationRequest
from contract.pages.blind import BlindStatus
from contract.pages.messages import PageMessage


class Upgrade(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A reason why a code of a chip is at ``level``, whether it holds or not.

    ``kind`` is the type of the rule as on the wire (``FaultDuration``). ``gone_since_ms``: the code
    does not hold since then, and the rule waits for the end of the reason. ``request`` is an
    operator's, which no rule ends.
    """

    code: str
    kind: str
    level: ChipLevel
    upgraded_at_ms: int
    because: str
    episode: str
    severity: Severity | None = None
    gone_since_ms: int | None = None
    request: IsolationRequest | None = None


class WriteResult(StrEnum):
    """The result of a write, or of a write that did not come.

    The values are those of the label ``result`` of the metrics.
    """

    SAME = "same"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    DELETED = "deleted"
    NOT_WRITTEN = "not_written"


class Field(StrEnum):
    """What a fact is about; causes before their effects, which is the order of a report.

    The values are those of the label ``field`` of the metrics.
    """

    DOCUMENT = "document"
    CHECK_CODE = "check_code"
    UPDATE_TIME = "update_time"
    DEVICE_TYPE = "device_type"
    FAULT_CODE = "fault_code"
    CODE_LEVEL = "code_level"
    FAULT_LEVEL = "fault_level"
    FAULT_HANDLING = "fault_handling"
    LARGE_MODEL_FAULT_LEVEL = "large_model_fault_level"
    UNHEALTHY = "unhealthy"
    NETWORK_UNHEALTHY = "network_unhealthy"
    FREE = "free"
    RECOVERING = "recovering"
    MANUALLY_SEPARATED = "manually_separated"
    UPGRADE_REASON = "upgrade_reason"
    SWITCH_FAULT = "switch_fault"
    SWITCH_CODE_LEVEL = "switch_code_level"
    SWITCH_LEVEL = "switch_level"
    SWITCH_STATUS = "switch_status"
    SUPER_POD_ID = "super_pod_id"
    SERVER_INDEX = "server_index"
    RACK_ID = "rack_id"
    ORDER = "order"
    KEYS = "keys"
    LABELS = "labels"
    DESCRIPTION = "description"


class ReportedDifference(msgspec.Struct, frozen=True):
    """A difference of one device, or of the node where ``device`` is empty, for people.

    ``place`` and ``field`` are the first field that differs, ``also`` the places of more fields of
    that device. ``theirs`` is what the Device Plugin wrote, ``ours`` what we would have written,
    ``None`` where one has nothing. It was seen from ``since_ms`` on in ``seen`` writes or missing
    writes, last at ``last_ms``, and is over since ``over_at_ms``. Times are epoch milliseconds.
    ``defect`` is the id of the known defect of the Device Plugin that explains it, if one does.
    """

    result: WriteResult
    device: str
    field: Field
    place: str
    theirs: str | None
    ours: str | None
    reported: str
    also: tuple[str, ...]
    since_ms: int
    last_ms: int
    seen: int = 1
    over_at_ms: int | None = None
    defect: str | None = None


class ShadowStatus(msgspec.Struct, frozen=True):
    """What the shadow compared. ``writes`` and ``differences`` are counts by result and by field.

    ``trouble`` is why the document cannot be watched. ``last_write_ms`` is the time of the last
    write that was judged.
    """

    document: str
    trouble: str | None
    last_write_ms: int | None
    writes: dict[WriteResult, int]
    differences: dict[Field, int]
    reported: tuple[ReportedDifference, ...]


class AllocationStatus(msgspec.Struct, frozen=True):
    """The devices that ``pods`` have and those that are chosen for them, as the status page shows
    them.
    """

    pods: int
    used: tuple[str, ...]
    assigned: tuple[str, ...]


class HistoryForwarderStatus(msgspec.Struct, frozen=True):
    """How far the aggregator is behind the journal.

    ``behind``: unacknowledged rows of changes, the oldest of them from ``since_ms``.
    ``acknowledged``: the sequence up to which the aggregator has everything, ``None`` until it
    acknowledged one to this process. ``sent`` batches were sent, and ``repeats`` times sending
    began again.
    """

    behind: int
    since_ms: int | None
    acknowledged: int | None
    sent: int
    repeats: int
    trouble: str | None


class JournalStatus(msgspec.Struct, frozen=True):
    """The state of the journal, for metrics and the API. ``trouble`` is ``None`` while it works.

    ``changes_unacknowledged``: rows of changes that retention deleted before an aggregator
    acknowledged them.
    """

    trouble: str | None
    trouble_since_ms: int | None
    gaps: int
    rows_written: int
    rows_held: int
    rows_dropped: int
    unsynced: str | None
    changes_unacknowledged: int = 0


class EventsStatus(msgspec.Struct, frozen=True):
    """The state of the Events, for metrics and pages.

    ``trouble`` is ``None`` while they are accepted.
    """

    sent: int
    merged: int
    waiting: int
    refused: int
    trouble: str | None


class NodeObjectStatus(msgspec.Struct, frozen=True):
    """The state of the writer, for metrics and pages.

    ``conflicts``: keys that another program writes.
    """

    writes: int
    foreign_writes: int
    conflicts: tuple[str, ...]
    trouble: str | None


class SerialNumberStatus(msgspec.Struct, frozen=True):
    """The serial number for pages; ``None`` until the BMC has returned one."""

    number: str | None
    trouble: str | None


class FaultServiceStatus(msgspec.Struct, frozen=True):
    """The state of the client. ``refused`` are changes that ClusterD called invalid: our error."""

    clusterd: str
    waiting: int
    acknowledged: int
    refused: int
    trouble: str | None


class ChipStatus(msgspec.Struct, frozen=True):
    """One chip: its level and whether anything is known about it.

    ``health`` is the driver's word (0 healthy, 1 minor, 2 major, 3 critical), ``link_up`` what the
    tool shows; ``None`` where there is no answer. ``upgrades`` are the rules that raise a code of
    it, whether the code holds or not. Without ``was_read`` the driver never listed its codes, and
    the level is that of other sources. ``listed``: the driver lists the chip; ``answers``: its last
    calls were answered. A chip that is not listed is known from before.
    """

    chip: int
    device: str
    health: int | None
    link_up: bool | None
    was_read: bool
    level: str
    faults: int
    upgrades: tuple[Upgrade, ...]
    blind: tuple[BlindStatus, ...]
    listed: bool = True
    answers: bool = True


class HeldFaultStatus(msgspec.Struct, frozen=True):
    """One fault that holds now. ``severity`` is ``None`` where it is not known.

    ``subject`` is ``chip 3``, ``switch 2`` or ``host 1``; ``part`` the port of a switch
    (``port/peer device/peer port``) or what the BMC calls the part of the server (``Fan``).
    ``source`` reported it first, ``reported_by`` do so now; none while it may be over.
    ``chip`` and ``device`` are ``None`` for what is not a chip. ``level`` is empty for a code in no
    table: it is in no document.
    """

    chip: int | None
    device: str | None
    subject: str
    part: str
    code: str
    level: str
    severity: str | None
    device_fault: bool
    since_ms: int
    episode: str
    reason: str
    source: str
    reported_by: tuple[str, ...]
    once: bool


class DriverStatus(msgspec.Struct, frozen=True):
    """The driver; its identity is ``None`` until it has answered.

    ``trouble`` is why it does not answer, or which chips it does not show and why.
    ``polling_reason`` is why no events arrive; ``gaps`` counts the times some may have been lost.
    ``virtual_chips`` are cut into virtual devices: with one of them device-info is not written.
    """

    root: str
    library: str | None
    version: str | None
    family: str | None
    chip_name: str | None
    trouble: str | None
    polling_reason: str | None
    gaps: int
    stuck_calls: tuple[str, ...]
    virtual_chips: tuple[int, ...]


class PublicationStatus(msgspec.Struct, frozen=True):
    """One document on its way to the store; ``kind`` is ``device-info`` or ``node-info``.

    ``acknowledged_stamp`` is ``None`` also when what was acknowledged is that there is none.
    """

    kind: str
    document: str
    store: str
    acknowledged_at_ms: int | None
    acknowledged_stamp: int | None
    acknowledged_revision: int | None
    waiting_since_ms: int | None
    trouble: str | None
    trouble_since_ms: int | None
    conflict_since_ms: int | None
    conflict: str | None
    conflict_writer: str | None
    left_to: str | None
    left_to_writer: str | None
    watch_trouble: str | None
    watch_trouble_since_ms: int | None
    foreign_writes: int


class FaultDocumentStatus(msgspec.Struct, frozen=True):
    """One document of the fault configuration.

    ``source`` is where the text in force was found: ``configmap``, ``file`` or ``shipped``.
    ``kept``: what is there now cannot be used, or it is not known what is there.
    """

    document: str
    source: str
    kept: bool


class FaultProblemStatus(msgspec.Struct, frozen=True):
    """A part of a document, at the path ``where``, that has not the effect it seems to have."""

    document: str
    source: str
    where: str
    what: str


class FaultConfigurationStatus(msgspec.Struct, frozen=True):
    """The fault configuration in force. ``digest`` names it in the journal.

    ``problem_counts`` are by document, and ``problems`` the first hundred of all. ``trouble`` is
    why a change would not be noticed now.
    """

    digest: str
    documents: tuple[FaultDocumentStatus, ...]
    problem_counts: dict[str, int]
    problems: tuple[FaultProblemStatus, ...]
    trouble: str | None


class OldHeartbeatStatus(msgspec.Struct, frozen=True):
    """The heartbeat for readers of old releases.

    ``label`` is the problem of the label that they need. ``beaten_seconds`` and ``trouble`` are
    those of the heartbeat on the Node; that in node-info is in the publication of node-info.
    """

    generation: str
    label: str | None
    beaten_seconds: int | None
    trouble: str | None


class HeartbeatStatus(msgspec.Struct, frozen=True):
    """The heartbeat. ``standing`` is the claim of the node name; ``conflict`` names its rival.

    ``withheld`` names the stalled task that keeps the agent from beating. ``old`` is what is sent
    beside it for readers of old releases.
    """

    holder: str
    interval_seconds: float
    standing: str
    conflict: str | None
    beats: int
    failures: int
    beaten_at_ms: int | None
    trouble: str | None
    withheld: str | None
    old: OldHeartbeatStatus | None = None


class AgentStatus(msgspec.Struct, frozen=True):
    """The status of an agent and its node.

    ``not_ready`` has the reasons why the agent is not ready; empty when it is. ``answered`` and
    ``blind`` are the sources about the node as a whole, such as its BMC and the store for its pods.

    These are ``None`` where the agent does not do what they are about: ``usage`` of chips by pods,
    Kubernetes ``events``, ``node_object`` (labels and annotations of the Node), the
    ``serial_number`` of the server, ``shadow`` (its comparison), ``fault_service`` (storage faults
    sent to ClusterD over gRPC) and ``episodes`` (history acknowledged by an aggregator).

    ``own_node_only``: whether the API server refuses writes of this agent to other nodes, ``None``
    where that is not known. ``bmc_failed_readings`` counts unusable lists of the BMC, ``None``
    where it is not asked. ``list_period_seconds`` is the period of code lists of chips, ``None``
    before the first. ``kernel_log_gaps`` counts losses of kernel log records; ``kernel_log_pipe``
    is the pipe that is read in place of the kernel's device, else ``None``. ``missed_changes``
    of ``store`` were found by a listing and shown by no event, ``None`` where nothing lists.
    ``stream`` is the id of the newest event that this status contains. ``gauges`` are the readings
    that collectors declare, by name and chip. ``certificates`` shows when the certificate in each
    file ends. ``messages`` are the sentences that a verb can translate, by their English text.
    """

    node: str
    version: str
    at_ms: int
    started_at_ms: int
    revision: int
    not_ready: tuple[str, ...]
    stalled: dict[str, float]
    chips: tuple[ChipStatus, ...]
    faults: tuple[HeldFaultStatus, ...]
    answered: tuple[str, ...]
    blind: tuple[BlindStatus, ...]
    driver: DriverStatus
    publications: tuple[PublicationStatus, ...]
    fault_configuration: FaultConfigurationStatus
    heartbeat: HeartbeatStatus
    journal: JournalStatus
    usage: AllocationStatus | None
    events: EventsStatus | None = None
    node_object: NodeObjectStatus | None = None
    own_node_only: bool | None = None
    serial_number: SerialNumberStatus | None = None
    shadow: ShadowStatus | None = None
    fault_service: FaultServiceStatus | None = None
    list_period_seconds: float | None = None
    bmc_failed_readings: float | None = None
    kernel_log_gaps: int = 0
    kernel_log_pipe: str | None = None
    episodes: HistoryForwarderStatus | None = None
    store: str = ""
    missed_changes: int | None = None
    stream: str = ""
    gauges: dict[str, dict[str, float]] = {}
    certificates: dict[str, int] = {}
    messages: dict[str, PageMessage] = {}

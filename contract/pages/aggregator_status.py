"""The status of an aggregator, its nodes, stores, documents and jobs, as pages answer with it.

The aggregator fills it in, and the command line decodes it. Times are epoch milliseconds.
"""

from __future__ import annotations

import msgspec

from contract.pages.blind import BlindStatus
from contract.sentences import message

NODES_IN_STORE = message("nodes in {store}")
"""Name of a place in ``LivenessStatus``: the Nodes with heartbeats of old agents."""


class StaleDocument(msgspec.Struct, frozen=True):
    """A document of a node, and its age at the last heartbeat."""

    document: str
    age_seconds: float


class PersistentStateStatus(msgspec.Struct, frozen=True):
    """The documents of one plugin's state, and problems with reading or writing them."""

    name: str
    documents: int
    bytes: int
    writes: int
    problems: tuple[str, ...]


class RankFaultDevice(msgspec.Struct, frozen=True):
    """One fault of one device. ``time_ms`` is when it began by its source's clock.

    The last three are about switches only, ``switch_time`` in the unit that its writer chose.
    """

    device_id: str
    device_type: str
    code: str
    level: str
    time_ms: int = 0
    switch_chip: str = ""
    switch_port: str = ""
    switch_time: str = ""


class NodeHit(msgspec.Struct, frozen=True):
    """What hits a job on one node. ``health`` is that of its devices, ``since_ms`` wall time."""

    node: str
    ip: str
    health: str
    since_ms: int
    faults: tuple[RankFaultDevice, ...]


class HitJob(msgspec.Struct, frozen=True):
    """A job, its nodes that are hit, and since when (wall time, ``null`` where none is).
    ``health`` is upstream's ``HealthyState`` of it.
    """

    job: str
    namespace: str
    name: str
    health: str
    since_ms: int | None
    nodes: tuple[NodeHit, ...]


class RelationStatus(msgspec.Struct, frozen=True):
    """A relation fault: a code on a part of a node that waits for a failure of the job, or that
    something followed from (``result``: ``SubHealth``, ``Separate`` or nothing yet). ``subject`` is
    a chip or ``<chip>/<port>`` of a switch; ``closed``: what comes now does not count any more.
    """

    job: str
    node: str
    subject: str
    code: str
    since_ms: int
    result: str
    closed: bool


class ObjectsStatus(msgspec.Struct, frozen=True):
    """One ``kind`` of objects in one store: ``Nodes``, ``PodGroups``, or ``pods`` that use chips or
    belong to a job.

    ``followed``: the store has this kind at all. ``known``: all objects were listed once; known
    ones are kept during an interruption. ``interrupted``: why no changes arrive now. ``absent``:
    why the store has no such kind.
    """

    store: str
    kind: str
    followed: bool
    known: bool
    objects: int
    interrupted: str | None
    absent: str | None


class ClusterStateStatus(msgspec.Struct, frozen=True):
    """The known Nodes, pods and PodGroups. ``shared_serial_numbers`` name no node, because several
    have them (the first thousand, with the names of those nodes).
    """

    objects: tuple[ObjectsStatus, ...]
    jobs: int
    shared_serial_numbers: dict[str, tuple[str, ...]]


STATES = ("reported", "kept", "missing", "rejected", "earlier", "deleted", "unreported")


HEARTBEATS = ("alive", "silent", "lost", "unknown")


class RejectedStatus(msgspec.Struct, frozen=True):
    """A node's newest document of this kind was refused, in this store, for this reason."""

    store: str
    kind: str
    since_ms: int
    reason: str


class MissingStatus(msgspec.Struct, frozen=True):
    """A document of a node that this store had and lacks; its last state stays.

    ``deleted``: its deletion was shown; otherwise a list lacks it.
    """

    store: str
    document: str
    since_ms: int
    deleted: bool


class MissingCount(msgspec.Struct, frozen=True):
    """Of how many nodes a store lacks this document; ``held``: so many deletions are held back."""

    store: str
    document: str
    nodes: int
    held: int


class NodeStatus(msgspec.Struct, frozen=True):
    """One node.

    ``state``: ``reported`` (its newest document counts), ``kept`` (an older good one counts, the
    newest was refused), ``missing`` (the last one counts, and its store lacks it), ``rejected``
    (never a good one), ``earlier`` (published by an earlier run, not read yet), ``deleted``
    (published healthy, dropped soon), ``unreported`` (there is none). ``update_time`` is the
    published stamp in epoch seconds, ``reported_update_time`` the node's own. All that is about its
    device-info.

    ``heartbeat``: ``alive``, ``lost`` (silent for more than 3 intervals), ``silent`` (the same,
    held back by the silence alarm) or ``unknown``: it has none, or ``heartbeat_problem`` is since
    when and why it is not read. Its age is how long ago it changed. ``clock_skew_seconds`` is by
    how much its clock is ahead of the aggregator's, at least (or behind), as far as heartbeats in
    the store show.

    ``stale``: documents that are older than two of their periods while the node beats. They count
    as they were last known.

    ``switch_status`` and ``node_status`` are published words, ``null`` where there is no
    entry.

    ``blind``: the sources that give the node's agent no answer, about a chip or about the node;
    what is published of these is the last that was known. ``null``: not known, since the agent
    is of an earlier release, or there is none. ``blind_left_out`` counts those that the agent had
    no room for.
    """

    node: str
    state: str
    document: str | None
    update_time: int | None
    reported_update_time: int | None
    report_age_seconds: float | None
    faults: int
    faults_problem: str | None
    heartbeat: str
    heartbeat_age_seconds: float | None
    heartbeat_interval_seconds: float | None
    clock_skew_seconds: float | None
    switch_status: str | None
    node_status: str | None
    rejected: tuple[RejectedStatus, ...]
    blind: tuple[BlindStatus, ...] | None = None
    blind_left_out: int = 0
    heartbeat_problem: str | None = None
    stale: tuple[StaleDocument, ...] = ()
    missing: tuple[MissingStatus, ...] = ()


class SourceStatus(msgspec.Struct, frozen=True):
    """A store that is read.

    ``nodes`` that have a good device-info, ``switches`` that have a good switch part in it,
    ``servers`` that have a good node-info; ``pods`` that use chips, ``null`` where not known.
    ``missed_changes`` were found by a listing and shown by no event, ``null`` where nothing lists.
    ``replaced``: why the directory that is there is not the known one.
    """

    store: str
    listed: bool
    interrupted: str | None
    interruptions: int
    nodes: int
    switches: int
    servers: int
    rejected_nodes: int
    rejected_documents: int
    pods: int | None
    pods_interrupted: str | None
    missed_changes: int | None
    replaced: str | None = None


class DocumentStatus(msgspec.Struct, frozen=True):
    """A document in a store that is published to."""

    store: str
    document: str
    nodes: int
    bytes: int
    published: bool
    writes: int
    touches: int
    left_out_nodes: int
    foreign_writes: int
    refused_writes: int
    conflict: bool
    conflict_writer: str | None
    error: str | None
    lag_seconds: float


class LivenessStatus(msgspec.Struct, frozen=True):
    """The nodes that fell silent.

    ``alarm``: too many fell silent at once; ``held`` are those, and they are not published lost.
    ``problems``: where heartbeats, or the nodes with those of old releases, cannot be listed, and
    why; ``listed_seconds_ago``: when they were listed, by place. ``alive`` does not count nodes
    whose heartbeats were not read for long. ``wrong_clocks``: nodes whose clock is more than 2 s
    off.
    """

    alarm: bool
    published: bool
    alive: int
    lost: tuple[str, ...]
    held: tuple[str, ...]
    problems: dict[str, str]
    wrong_clocks: tuple[str, ...] = ()
    listed_seconds_ago: dict[str, float] = {}


class LeaderStatus(msgspec.Struct, frozen=True):
    """Which replica writes. ``role`` is ``leader``, ``follower of HOLDER``, or ``follower`` while
    none leads. ``elected_by``: the store with the election, ``null`` where there is none.
    ``taken``: how often this process began to lead.
    """

    role: str
    leads: bool
    holder: str
    elected_by: str | None
    taken: int


class MissedWritesStatus(msgspec.Struct, frozen=True):
    """Documents of nodes of a store that were read by name, because of a heartbeat, by result.

    ``unreadable`` is how many nodes have a key about writes that cannot be read.
    """

    store: str
    read: dict[str, int]
    unreadable: int


class Page(msgspec.Struct, frozen=True):
    """``at_ms`` is when the page, or its first row, was made (epoch milliseconds)."""

    at_ms: int


class NodesPage(Page, frozen=True):
    """Every node. ``stream`` and ``continue`` are those of ``FaultsPage``."""

    stream: str
    nodes: tuple[NodeStatus, ...]
    more: str | None = msgspec.field(default=None, name="continue")


class LivenessPage(Page, frozen=True):
    """The nodes that fell silent."""

    liveness: LivenessStatus
    stream: str = ""


class LeaderPage(Page, frozen=True):
    """Which of several aggregators writes, and the state that the next one will find."""

    leader: LeaderStatus
    kept: tuple[PersistentStateStatus, ...]
    stream: str = ""


class JobsPage(Page, frozen=True):
    """The jobs that are hit."""

    stream: str
    jobs: tuple[HitJob, ...]
    more: str | None = msgspec.field(default=None, name="continue")


class ClusterStatePage(Page, frozen=True):
    """What stores have of Nodes, pods and PodGroups."""

    cluster_state: ClusterStateStatus

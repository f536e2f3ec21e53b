"""The small interface that every store offers.

A store keeps documents: ConfigMap-shaped records under a namespace and a name. All methods raise
``StoreUnavailable`` when trying again makes sense and ``StoreRefused`` when it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from contract.documents.episodes import EpisodeEvent
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.cluster import Cluster
    from stores.device_taints import DeviceTaints
    from stores.refusals import Refusals


READ_SECONDS = 15.0
WRITE_SECONDS = 45.0
"""After these a store has answered or failed. An API server may take 30 s to accept a write, for as
long as admission webhooks may; the second attempt of a request begins up to 10 s after the first.
"""


class ObjectOwner(msgspec.Struct, frozen=True, rename="camel"):
    """An object of Kubernetes without which garbage collection deletes the document."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Document(msgspec.Struct, frozen=True, weakref=True):
    """One stored document. ``version`` is opaque and empty for one not read from a store.

    ``immutable``: the store refuses every other content. ``finalizers`` hold a document that was
    deleted: it ``is_deleting`` then, and readers have it as before. Only an API server has these
    and ``owners``.
    ``problem``: why this is not a valid document, see ``Selection``; it has no data then.
    """

    namespace: str
    name: str
    data: dict[str, str]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    version: str = ""
    immutable: bool = False
    problem: str = ""
    finalizers: tuple[str, ...] = ()
    owners: tuple[ObjectOwner, ...] = ()
    is_deleting: bool = False


class Selection(msgspec.Struct, frozen=True):
    """Which documents a list or a watch is about; ``None`` means any.

    ``has_label`` is one that they carry besides, whatever its value; no document of a node does.
    ``owned``: the watcher writes them. A malformed document is then shown as deleted, also when it
    is malformed again; for all other watchers the last good one stays.
    ``shows_malformed``: it is shown with its ``problem`` instead, and the watcher keeps the last
    good one.
    """

    namespace: str | None = None
    name: str | None = None
    label: tuple[str, str] | None = None
    has_label: str | None = None
    owned: bool = False
    shows_malformed: bool = False

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether a document with these labels is one of them as far as labels go."""
        if self.has_label is not None and self.has_label not in labels:
            return False
        return self.label is None or labels.get(self.label[0]) == self.label[1]


def malformed_document(
    place: tuple[str, str], problem: str, version: str, selection: Selection
) -> Document:
    """Make what a watch with ``selection`` shows in place of what is not a document."""
    labels = {} if selection.label is None else dict([selection.label])
    return Document(*place, {}, labels, version=version, problem=problem)


class DocumentsListed(msgspec.Struct, frozen=True):
    """Everything selected, now: at the start of a watch and after each interruption.

    What is not in here is gone; ``Store.absence_is_deletion`` shows whether it was deleted.
    """

    documents: tuple[Document, ...]


class ListedPage(msgspec.Struct, frozen=True):
    """A page of a list, before ``DocumentsListed``, which then has none of its documents.

    ``is_first``: the list begins, or begins again after an error.
    """

    documents: tuple[Document, ...]
    is_first: bool


class Changed(msgspec.Struct, frozen=True):
    """A document was created or replaced."""

    document: Document


class Deleted(msgspec.Struct, frozen=True):
    """A document was deleted.

    ``by_list``: a list lacks it, and nothing has shown its deletion.
    """

    namespace: str
    name: str
    by_list: bool = False


WatchEvent: TypeAlias = DocumentsListed | Changed | Deleted | Interrupted
PagedWatchEvent: TypeAlias = ListedPage | WatchEvent


class Beat(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Proof that the agent of ``node`` was alive and could write.

    ``holder`` names the host that beats, so that two agents with one node name are distinct; it
    is the same after a restart of the agent. ``beaten_at_ms`` is that host's clock: an
    observer of beats may only compare it with the one before (``noded#7.10``), never with a
    clock of its own. ``blind``: whether no chip of the node gives its agent an answer; ``None`` in
    a beat of an agent that does not report it (an earlier release). ``writes`` is the text of
    ``contract/documents/write_numbers.py`` as it was found, empty for none; its reader judges it.

    Three things only a store that receives beats as they come (MQTT) knows when it is asked:
    ``age_ms``, how long ago this process received it by its own steady clock; ``is_broken``: the
    broker reports by the last will that the connection it came over broke, and it came back since
    with no other beat; and ``is_retained``: the broker had kept it when this process subscribed
    last, so a connection broke at an unknown time, maybe because the broker ended.
    """

    node: str
    holder: str
    interval_seconds: float
    beaten_at_ms: int
    age_ms: int | None = None
    is_broken: bool = False
    is_retained: bool = False
    blind: bool | None = None
    writes: str = ""


class LastWriter(msgspec.Struct, frozen=True):
    """The program that wrote a document last and when (the store's clock, epoch milliseconds)."""

    name: str
    at_ms: int


class PodUsage(msgspec.Struct, frozen=True):
    """A pod that is neither done nor failed and uses chips of a node (``clusterd#1.8``).

    ``uid`` names it; ``chips`` are names of devices that it has, ``assigned`` of those that a
    scheduler chose for it. ``container`` is the one that asks for chips, if it is one.
    """

    uid: str
    node: str
    chips: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    namespace: str = ""
    name: str = ""
    container: str = ""


UsageEvent: TypeAlias = Snapshot[PodUsage] | Update[PodUsage] | Interrupted
"""Keys are uids of the pods that use chips or will."""


class Involved(msgspec.Struct, frozen=True):
    """The object that an event is about; ``uid`` where it is known."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = "v1"
    uid: str = ""


class KubernetesEvent(msgspec.Struct, frozen=True):
    """A Kubernetes Event (``docs/spec/device-plugin.md#6.1``).

    ``name`` is the object's own, unique one; ``normal`` is its type (Normal, else Warning).
    ``count`` is how many like it this one stands for, the first seen at ``first_ms``. ``instance``
    of ``component`` on ``host`` reports it.
    """

    namespace: str
    name: str
    involved: Involved
    normal: bool
    reason: str
    action: str
    message: str
    first_ms: int
    last_ms: int
    count: int = 1
    component: str = "npu-vigil"
    host: str = ""
    instance: str = ""


class NodeObject(msgspec.Struct, frozen=True):
    """The content of a Node object now; ``version`` is empty where there is no such Node."""

    labels: dict[str, str]
    annotations: dict[str, str]
    version: str = ""


NodesEvent: TypeAlias = Snapshot[NodeObject] | Update[NodeObject] | Interrupted
"""Keys are names of the Nodes that have the label."""


class ClusterObjects(Protocol):
    """What only Kubernetes has: Events, and the labels and annotations of Nodes."""

    async def record(self, event: KubernetesEvent) -> None:
        """Create an Event; one of that name that is there already is not an error."""

    async def get_node(self, node: str) -> NodeObject:
        """Read a Node; ``StoreRefused`` where there is none."""

    async def set_node(
        self,
        node: str,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str | None],
        *,
        expected: str | None = None,
    ) -> None:
        """Set these labels and annotations of a Node, ``None`` removes one; all others stay.

        With ``expected`` only while the Node has this version; else ``StoreConflict``.
        """

    async def commands(self, node: str) -> tuple[tuple[str, str, str], ...]:
        """Return pod, command line and account of each container of the pods of ``node``."""

    async def missing_owners(
        self, namespace: str, owners: tuple[ObjectOwner, ...]
    ) -> frozenset[str]:
        """Return the uids of those that are known not to exist, for a document in ``namespace``.

        One that may not be read counts as existing. Raises ``StoreError``.
        """

    async def is_own_node_only(self, node: str) -> bool | None:
        """Return whether this process may write only what belongs to ``node``, if that is known."""

    def watch_node(self, node: str) -> AsyncIterator[NodeObject | Interrupted]:
        """Follow the labels and annotations of a Node for ever, beginning with how they are."""

    def watch_nodes(self, label: tuple[str, str]) -> AsyncIterator[NodesEvent]:
        """Follow the labels and annotations of all Nodes with this label for ever.

        The first event is ``Snapshot`` or ``Interrupted``. A Node that gets the label comes, one
        that loses it goes; of the others nothing is reported. Of a Node nothing else is kept.
        """


class HistoryBatch(msgspec.Struct, frozen=True):
    """What happened to faults of ``node``, as its journal has it, sent to the aggregator.

    ``journal`` names the journal: sequences of another one (its file was lost) begin anew. The
    receiver must have everything up to ``after`` already, else it asks again by its ``HistoryAck``;
    ``upto`` is the sequence that it has afterwards. ``lost``: so many rows between the two are in
    no journal any more.
    """

    node: str
    journal: str
    after: int
    upto: int
    events: tuple[EpisodeEvent, ...]
    lost: int = 0


class HistoryAck(msgspec.Struct, frozen=True):
    """The aggregator keeps everything of this journal up to ``sequence`` for good (0: nothing)."""

    node: str
    journal: str
    sequence: int


class EventChannel(Protocol):
    """Carries the history of faults from the nodes to the aggregator, each row exactly once.

    The sender repeats until it receives a ``HistoryAck``: an acknowledgement of the broker proves
    nothing.
    """

    async def send(self, batch: HistoryBatch) -> None:
        """Send a batch to the broker. Raises ``StoreUnavailable``."""

    def acks(self, node: str) -> AsyncIterator[HistoryAck | Interrupted]:
        """Follow for ever what the aggregator keeps of ``node``, from its last acknowledgement on.

        After ``Interrupted`` something may have been lost on the way: send again.
        """

    def batches(self) -> AsyncIterator[HistoryBatch | Interrupted]:
        """Follow for ever the batches of all nodes."""

    async def acknowledge(self, acks: HistoryAck) -> None:
        """Publish to a node what is kept of it, retained for later subscribers."""


class LeaderElectionRecord(msgspec.Struct, frozen=True):
    """Which replica leads, as a store has it; none where ``holder`` is empty.

    ``version`` changes with each renewal, which is how others see that the holder lives: clocks of
    hosts are never compared. ``transitions``: how often it went from one holder to another.
    """

    holder: str
    duration_seconds: int
    transitions: int = 0
    version: str = ""


class LeaderLease(Protocol):
    """One of several writers leads for as long as it renews a Lease in time."""

    def watch(self) -> AsyncIterator[LeaderElectionRecord | Interrupted]:
        """Follow it for ever; without a Lease, ``holder`` and ``version`` are empty."""

    async def read(self) -> LeaderElectionRecord:
        """Return it as it is now."""

    async def write(self, record: LeaderElectionRecord) -> LeaderElectionRecord:
        """Take, renew or give up the Lease whose version is ``record.version``, as it is then.

        ``StoreConflict`` where it has another version.
        """


class LeaderLock(Protocol):
    """One of several writers on one host leads for as long as it holds a lock."""

    def take(self, holder: str) -> bool:
        """Return whether ``holder`` has the lock now. Does not wait."""

    def holder(self) -> str:
        """Return the holder that the lock names, empty where it names none."""

    def release(self) -> None:
        """Let others have it."""


class FoundMark(msgspec.Struct, frozen=True):
    """The mark that a store has: ``id`` is empty without one, or with one that cannot be read
    for the reason in ``problem``. ``replaces``: an operator put the store in the place of the one
    with that id.
    """

    id: str = ""
    replaces: str = ""
    problem: str | None = None


class StoreMark(Protocol):
    """Distinguishes one directory from another at the same path."""

    async def read(self) -> FoundMark:
        """Read the mark. Raises ``StoreUnavailable``."""

    async def replace(self, replaces: str) -> FoundMark:
        """Write that the store takes the place of the one with the id ``replaces``."""


class Store(Protocol):
    """Kubernetes, MQTT or a directory."""

    url: str
    """The store's address as the operator gave it."""

    refusals: Refusals
    """The refused heartbeats and messages. Documents are judged by their readers."""

    absence_is_deletion: bool
    """Whether what a list lacks was deleted (``docs/decisions/021``).

    An API server loses nothing that it acknowledged. A broker and a directory may come back
    without what they had.
    """

    @property
    def missed_changes(self) -> int | None:
        """How many changes a listing found that no event showed; ``None`` where nothing lists."""

    @property
    def largest_document(self) -> int | None:
        """How many bytes a document may have in the store; ``None``: none of ours is too large."""

    @property
    def certificate_ends_ms(self) -> Mapping[str, int]:
        """When the certificates of its credentials end (epoch ms), by the file that they are in.

        Files of settings, as those of a broker, are not among them.
        """
        return {}

    objects: ClusterObjects | None
    """Events and Nodes; ``None`` where a store has none."""

    cluster: Cluster | None
    """Nodes, pods and jobs; ``None`` where a store knows nothing of them."""

    device_taints: DeviceTaints | None = None
    """Devices of dynamic resource allocation and rules; ``None`` where a store has none."""

    channel: EventChannel | None
    """Carries episodes from nodes to the aggregator; ``None`` where a store does not."""

    leader_lease: LeaderLease | None
    """By which one of several aggregators leads; ``None`` where a store has no Leases."""

    leader_lock: LeaderLock | None
    """The same for those on one host; ``None`` where a store cannot lock."""

    mark: StoreMark | None
    """What distinguishes this store from another at its place; ``None`` where nothing does."""

    async def get(self, namespace: str, name: str) -> Document | None:
        """Read one document; ``None`` when there is none."""

    async def list(self, selection: Selection) -> tuple[Document, ...]:
        """Read all selected documents."""

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        """Create or replace a whole document and return its new version.

        ``expected``: ``None`` writes whatever is there; ``""`` demands that there is nothing;
        any other value demands that the stored version is this one. Otherwise
        ``StoreConflict``. ``document.version`` is ignored. Identical content may keep its version.
        One that was made immutable is deleted and created, for which the right to delete is
        needed.
        """

    async def put_shown(self, document: Document, *, expected: str | None = None) -> Document:
        """Put a document, and return it as the store has it then, with its new version.

        That may differ: an admission webhook of Kubernetes can change each write. The answer to the
        write shows it; nothing more is asked.
        """

    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        """Delete a document, if there is one.

        ``expected`` as with ``put``: another version than this one is a ``StoreConflict``.
        """

    def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """Follow the selected documents for ever.

        The first event is ``DocumentsListed`` or ``Interrupted``. After ``Interrupted`` the watch
        connects again by itself (backoff with jitter) and begins with ``DocumentsListed``. Own
        writes are shown too. ``StoreRefused`` ends it only when waiting cannot help.
        """

    def watch_by_page(self, selection: Selection) -> AsyncIterator[PagedWatchEvent]:
        """Follow the selected documents as ``watch`` does, with their lists by page.

        A store without pages lists them whole.
        """
        return self.watch(selection)

    def usage(self, node: str) -> AsyncIterator[UsageEvent] | None:
        """Follow which chips the pods of a node use, for ever.

        ``None`` where the store knows nothing of pods. The first event is ``Snapshot`` or
        ``Interrupted``.
        """

    async def beat(self, beat: Beat) -> None:
        """Create or renew the heartbeat of ``beat.node``, whichever process wrote it before.

        ``StoreConflict`` where another holder wrote it since our last one: only what has been seen
        is replaced. A broker and a directory cannot know.
        """

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        """Return the heartbeats of all nodes, or of one; cheap, and maybe a moment old.

        A store that is known to accept no new ones does not return the old ones of all nodes:
        ``StoreUnavailable``.
        One that cannot be read, or names another node than its place, changes nothing: the last
        good one of its node stays. See ``refusals``.
        """

    async def dry_run_beat(self, node: str) -> None:
        """Send a first heartbeat of ``node`` that is not stored; return when it is accepted.

        ``StoreUnavailable`` where it would not be accepted. Stores that accept all at once do
        nothing.
        """

    async def forget_beat(self, node: str) -> None:
        """Delete the heartbeat of a node that is no more, if there is one."""

    async def touch(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        """Make the watchers of a document see an event without a change of its data (M8).

        Sets the annotation ``npu-vigil/touched``. A document that is not there is not an error,
        nor is one whose version is known not to be ``expected`` any more: watchers have seen that.
        """

    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        """Return the last writer of a document's data; ``None`` where the store does not know."""

    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        """Return the last other program or person that changed what is in a document now, or its
        labels.

        ``None`` where the store does not know.
        """

    async def close(self) -> None:
        """Give connections back. The store is not usable afterwards."""

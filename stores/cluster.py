"""Nodes, pods and jobs of a cluster, as far as faults need them.

Sources: ``docs/spec/clusterd.md#1.8``, 3.3 and 6, ``docs/spec/consumers.md#1.15`` and 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from contract.record import Record
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from contract.kubernetes import KubernetesObject
    from contract.node_signals import NodeCondition, NodeSignals, NodeTaint

Texts = dict[str, str]

Value = TypeVar("Value")


class JobState(msgspec.Struct, frozen=True, gc=False):
    """A job: the PodGroup of it, where there is one, else only what its pods show.

    ``key`` is the uid of the controlling owner of its pods and of its PodGroup (clusterd#1.8),
    ``name`` that owner's name. ``annotations`` and ``labels`` are the PodGroup's, of which only
    those that mean something here are kept. ``created_at_ms`` is when the PodGroup was made, 0
    where that is not known. ``size`` is the number of pods that make it complete (``minMember`` of
    the PodGroup), 0 where that is not known.
    """

    key: str
    namespace: str = ""
    name: str = ""
    annotations: Texts = {}
    labels: Texts = {}
    created_at_ms: int = 0
    size: int = 0


class PodState(msgspec.Struct, frozen=True, gc=False):
    """A pod that is on a node, neither done nor failed, and has chips or belongs to a job.

    ``chips`` are the names that it uses (annotation ``huawei.com/AscendReal``). ``annotations``
    and ``labels`` are those that mean something here. ``job`` is the uid of the controlling owner,
    empty where it has none, ``job_name`` that owner's name. ``ip`` and ``host_ip`` are empty until
    its kubelet reports them.
    """

    uid: str
    node: str
    namespace: str = ""
    name: str = ""
    job: str = ""
    chips: tuple[str, ...] = ()
    annotations: Texts = {}
    labels: Texts = {}
    job_name: str = ""
    ip: str = ""
    host_ip: str = ""


class NodeState(msgspec.Struct, frozen=True, gc=False):
    """A Node object: ``ip`` is its first InternalIP, ``serial_number`` its annotation."""

    name: str
    ip: str = ""
    serial_number: str = ""
    is_ready: bool = True


class Snapshot(msgspec.Struct, Generic[Value], frozen=True):
    """All objects of a kind by key, at the start of a feed and after each interruption.

    Objects that are in neither are gone. For ``unreadable`` ones the last known value stays valid.
    """

    items: dict[str, Value]
    unreadable: frozenset[str] = frozenset()


class Update(msgspec.Struct, Generic[Value], frozen=True):
    """An object was created or changed; ``None``: it was deleted or means nothing here any more."""

    key: str
    value: Value | None


class KindUnavailable(msgspec.Struct, frozen=True):
    """The store has no objects of this kind now, and is asked again. That is not an error."""

    reason: str


PodsEvent: TypeAlias = Snapshot[PodState] | Update[PodState] | Interrupted
"""Keys are uids."""

NodeStatesEvent: TypeAlias = Snapshot[NodeState] | Update[NodeState] | Interrupted
"""Keys are names."""

JobsEvent: TypeAlias = Snapshot[JobState] | Update[JobState] | KindUnavailable | Interrupted
"""Keys are uids of PodGroups, of which a job may have several."""


class ObjectKind(Record, Generic[Value], frozen=True):
    """Objects of any kind, for a reader that knows what is in them.

    ``name`` is for people, a plural. ``path`` is that of all objects in the API, ``query`` selects
    some. ``read`` makes a value of one, ``None`` of one that means nothing to the reader; it raises
    ``ValueError`` where it cannot. ``by_name``: keys are names instead of uids,
    for objects of one namespace. ``pause_seconds``: after changes were read, further ones wait so
    long, so that many small ones cost little; the first after a quiet time is read at once.
    """

    name: str
    path: str
    read: Callable[[KubernetesObject], Value | None]
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    by_name: bool = False
    pause_seconds: float = 0.0


class SharedReader(Record, Generic[Value], frozen=True):
    """Another reader of the objects that a watch follows, so that each kind is watched once.

    ``kind`` is what it makes of them. The query of the watch is the widest of all readers.
    ``observe`` gets each event before the first reader gets its own. Interruptions concern all
    readers: only the first one gets them.
    """

    kind: ObjectKind[Value]
    observe: Callable[[Snapshot[Value] | Update[Value]], None]


class Cluster(Protocol):
    """Follows what runs in a cluster, for ever.

    The first event of each feed is a ``Snapshot``, ``Interrupted`` or ``KindUnavailable``; after an
    interruption it comes back by itself. An object that cannot be read is named in the log and
    changes nothing of what is known of it and of others. ``StoreRefused`` ends a feed.

    ``others`` read the same objects, too.
    """

    def pods(self, *others: SharedReader[Any], node: str | None = None) -> AsyncIterator[PodsEvent]:
        """Yield the pods that have chips or belong to a job, with ``node`` only those there."""

    def nodes(self, *others: SharedReader[Any]) -> AsyncIterator[NodeStatesEvent]:
        """Yield all Nodes. Most updates are heartbeats of kubelets without a change."""

    def jobs(self, *others: SharedReader[Any]) -> AsyncIterator[JobsEvent]:
        """Yield the PodGroups that have a controlling owner.

        ``KindUnavailable`` while Volcano is not installed; it is found within a minute when it is.
        """

    def objects(
        self, kind: ObjectKind[Value]
    ) -> AsyncIterator[Snapshot[Value] | Update[Value] | KindUnavailable | Interrupted]:
        """Yield all objects of a kind by key; ``KindUnavailable`` if the API has no such kind."""

    async def versions(self, kind: ObjectKind[Value]) -> dict[str, str]:
        """Return the resourceVersion of each object of a kind as it is stored now, by uid."""

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str | None], uid: str | None = None
    ) -> None:
        """Set these labels of a pod, ``None`` removes one; all others stay.

        ``StoreNotFound`` where there is no such pod, or where the one of this name has another uid.
        """

    async def node_signals(self, node: str) -> NodeSignals:
        """Read the conditions and taints of a Node; ``StoreNotFound`` where there is none."""

    async def set_conditions(
        self,
        node: str,
        seen: NodeSignals,
        conditions: Iterable[NodeCondition],
        removed: Iterable[str],
    ) -> NodeSignals:
        """Write these conditions, and remove those of types in ``removed``; all others stay.

        Returns the Node. ``StoreConflict`` where it is not the ``seen`` version any more.
        """

    async def set_taints(
        self, node: str, seen: NodeSignals, taints: Iterable[NodeTaint]
    ) -> NodeSignals:
        """Replace all taints of a Node by these; return the Node. See ``set_conditions``."""

    async def last_taint_manager(self, node: str) -> str | None:
        """Return the name of the program besides us that wrote the spec of a Node last, if known.

        ``StoreNotFound`` where there is no such Node.
        """

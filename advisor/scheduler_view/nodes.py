"""The plugin's view of each node in a session (``docs/spec/consumers.md#1.5`` to 1.8).

A view is built from the Node, its pods, cached documents and what is remembered of it. Faults of
the host, the switch and the heartbeat come before those of cards. In a later session only nodes are
built again that have changed, or that time alone may change.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

import msgspec

from advisor.layered_dict import layered
from advisor.options import Profile
from advisor.scheduler_view import document_entries
from advisor.scheduler_view.device_lists import DeviceLists, base_devices
from advisor.scheduler_view.document_entries import FAULT, NETWORK_UNHEALTHY, UNHEALTHY, CardFault
from advisor.snapshot import Amounts, SchedulerNode, SchedulerPod
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.cluster_cache import ClusterCache
    from advisor.scheduler_view.state import NodeMemory, SchedulerState
    from advisor.snapshot import ClusterSnapshot, LegacyHeartbeat
    from advisor.snapshot_index import SnapshotIndex

T = TypeVar("T")
HEALTHY_WORD = "Healthy"
UNHEALTHY_WORD = "UnHealthy"
PRE_SEPARATE_WORD = "PreSeparate"
SUB_HEALTHY_WORD = "SubHealthy"
SUB_HEALTH_HANDLING = "SubHealthFault"
HEARTBEAT_INTERVALS = 3
DEFAULT_HEARTBEAT_SECONDS = 5
# The range of V4, in which an interval makes sense (noded#7.5).
HEARTBEAT_RANGE = (1, 300)


class NodeHealthState:
    """The words of ``NodeHealthState`` (consumers#1.8)."""

    HEALTHY = "Healthy"
    NODE = "NodeUnhealthy"
    CARD = "CardUnhealthy"
    NETWORK = "CardNetworkUnhealthy"


class Since(Enum):
    """How the session before is related to the state with which the next one begins."""

    LAST = "it is the state after it"
    ASIDE = "it began with the same state, and came to nothing"
    UNKNOWN = "there is none"


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node in a session.

    ``is_in_map`` is whether the plugin has it, ``resource`` the chips' resource, empty where the
    node has none or no label ``accelerator`` names it. ``free`` and ``network_unhealthy`` are
    ``None`` without their key. ``idle`` is Kubernetes' own count. ``problems`` are the codes and
    texts of findings, ``divergences`` numbers of consumers#8 with what is done otherwise.
    """

    node: SchedulerNode
    is_in_map: bool
    is_npu: bool
    resource: str
    idle: Amounts
    free: tuple[str, ...] | None
    unhealthy: tuple[str, ...]
    network_unhealthy: tuple[str, ...] | None
    faults: tuple[CardFault, ...]
    state: str
    switch_sub_health: bool
    card_sub_health: bool
    switch_status: str
    host_status: str
    source: str = ""
    problems: tuple[tuple[str, str], ...] = ()
    divergences: tuple[tuple[int, str], ...] = ()

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def is_fault_node(self) -> bool:
        """Whether the node or a card of it is at fault."""
        return self.state != NodeHealthState.HEALTHY

    @property
    def is_in_table(self) -> bool:
        """Whether it is in the fault table: nodes with chips need the label (consumers#1.7).

        The table is made anew in each session. The faults of a node that has lost its label move no
        pod, and it takes none (``AddFaultNodeWithSession``, ``getTaskHealthStateByNode``).
        """
        return bool(self.resource) or not self.is_npu


class NodeViews:
    """The views of all nodes, updated from session to session of one profile.

    Of a node of which nothing is another only what time alone may change is looked at again.
    """

    def __init__(self) -> None:
        self.views: dict[str, NodeView] = {}
        self.memories: Mapping[str, NodeMemory] = {}
        self._unsteady: frozenset[str] = frozenset()
        self.looked_at: frozenset[str] = frozenset()
        self.remembered: set[str] = set()
        """Nodes of which more is in memory than documents and objects show now."""

    def update(
        self,
        index: SnapshotIndex,
        snapshot: ClusterSnapshot,
        cache: ClusterCache,
        state: SchedulerState,
        options: AdvisorOptions,
        *,
        since: Since,
        is_new: bool,
    ) -> frozenset[str]:
        """Update the views to a session; return the nodes that have changed since the last one.

        ``since`` is how that session is related to ``state``, ``is_new`` whether ``index`` has
        another snapshot now.
        """
        if since is Since.UNKNOWN:
            # Without a session before, every node is made anew.
            self.views = {}
            names = frozenset(index.nodes) | state.memories.keys()
        else:
            names = self._unsteady | cache.changed
            if is_new:
                names |= index.changes.nodes
            # The session before began with the same state: what it looked at is as it was before
            # that.
            if since is Since.ASIDE:
                names |= self.looked_at
        memories = layered(state.memories)
        unsteady, changed = set(), set()
        # Sorted, so that findings and states have one order.
        for name in sorted(names):
            before, view, memory = state.memories.get(name), None, None
            node = index.nodes.get(name)
            if node is not None:
                # Pods that have ended hold no chips any more.
                pods = [pod for pod in index.pods.get(name, ()) if pod.is_live]
                stamp = 0 if before is None else before.stamp
                builder = _Builder(
                    node, pods, before, state.session_at if stamp is None else stamp, options
                )
                view, memory = builder.view(cache, snapshot)
                # Such a node may change by time alone, so the next session looks at it again.
                if not builder.is_steady(snapshot):
                    unsteady.add(name)
            if memory is not None and not builder.lists.is_derived:
                self.remembered.add(name)
            else:
                self.remembered.discard(name)
            _put(memories, name, memory)
            # By value: only a node that is really another wakes jobs and placement.
            if view != self.views.get(name):
                changed.add(name)
            _put(self.views, name, view)
        self.memories = memories
        self._unsteady, self.looked_at = frozenset(unsteady), names
        return frozenset(changed)


def _put(book: MutableMapping[str, T], name: str, value: T | None) -> None:
    """Set the value of a node, or delete it for ``None``."""
    if value is None:
        book.pop(name, None)
    elif book.get(name) is not value:
        book[name] = value


class _Builder:
    def __init__(
        self,
        node: SchedulerNode,
        pods: Sequence[SchedulerPod],
        memory: NodeMemory | None,
        stamp: int,
        options: AdvisorOptions,
    ) -> None:
        self.node = node
        self.options = options
        self.corrected = options.profile is Profile.CORRECTED
        self.idle = _idle(node, pods)
        self.lists = DeviceLists(node, pods, self.idle, memory, stamp, options)

    def is_steady(self, snapshot: ClusterSnapshot) -> bool:
        """Whether the view would be the same in a later session, whenever that is."""
        # Silence is a matter of time, which no object shows.
        beats = self.corrected and self.options.heartbeat_check
        return self.lists.is_steady and not (beats and self.node.name in snapshot.heartbeats)

    def view(
        self, cache: ClusterCache, snapshot: ClusterSnapshot
    ) -> tuple[NodeView, NodeMemory | None]:
        node = self.node
        is_npu = any(key.startswith(scheduling.RESOURCE_DOMAIN) for key in node.capacity)
        # The plugin drops nodes that are not Ready, and so all that it kept of them.
        is_in_map = node.is_ready and not (is_npu and self._is_bad_950())
        kept_lists: dict[str, str] = {}
        memory = None
        if is_in_map and is_npu:
            memory = self.lists.take_entry(cache.devices.get(node.name), snapshot.now_ms // 1000)
            kept_lists = memory.kept
        kind = _accelerator(node) if is_npu else ""
        resource = f"{scheduling.RESOURCE_DOMAIN}{kind}" if kind else ""
        listed = (
            resource or f"{scheduling.RESOURCE_DOMAIN}{document_entries.device_type(kept_lists)}"
        )
        switch = cache.switches.get(node.name)
        switch_status = switch.NodeStatus if switch else ""
        host_status = self._host_status(cache)
        faults = self._faults(kept_lists.get(listed + FAULT))
        unhealthy = document_entries.names(kept_lists.get(listed + UNHEALTHY))
        network = _optional(kept_lists, listed + NETWORK_UNHEALTHY)
        free = _optional(kept_lists, listed)
        state, source, switch_sub, card_sub = NodeHealthState.HEALTHY, "", False, False
        is_in_table = bool(resource) or not is_npu
        if is_in_map and is_in_table:
            card_sub = any(fault.fault_handling == SUB_HEALTH_HANDLING for fault in faults)
            source = self._node_fault(host_status, switch_status, snapshot)
            if source:
                state = NodeHealthState.NODE
            else:
                # Only where the node is not unhealthy as a whole (consumers#1.8).
                switch_sub = switch_status == SUB_HEALTHY_WORD
                state = _by_cards(free or (), unhealthy, network or ())
        view = NodeView(
            node=node,
            is_in_map=is_in_map,
            is_npu=is_npu,
            resource=resource,
            idle=self.idle,
            free=free,
            unhealthy=unhealthy,
            network_unhealthy=network,
            faults=faults,
            state=state,
            switch_sub_health=switch_sub,
            card_sub_health=card_sub,
            switch_status=switch_status,
            host_status=host_status,
            source=source,
            problems=tuple(self.lists.problems),
            divergences=tuple(self.lists.divergences),
        )
        return view, memory

    def _is_bad_950(self) -> bool:
        """Whether an Ascend 950 node lacks a ``DeviceID``: the plugin drops it then.

        Source: docs/spec/consumers.md#1.6.
        """
        if not self.node.labels.get(scheduling.CHIP_NAME, "").startswith(scheduling.CHIP_NAME_950):
            return False
        base = base_devices(self.node.annotations.get(scheduling.BASE_DEVICE_INFOS))
        return base is None or not base.has_ids

    def _host_status(self, cache: ClusterCache) -> str:
        """Return ``NodeHealthyStatus``: the Node's own ``UnHealthy`` beats the document.

        Source: docs/spec/consumers.md#1.7.
        """
        own = self.node.annotations.get(scheduling.NODE_HEALTHY_STATUS, "")
        if own == UNHEALTHY_WORD:
            return own
        host = cache.nodes.get(self.node.name)
        return (host.NodeStatus if host else "") or HEALTHY_WORD

    def _node_fault(self, host_status: str, switch_status: str, snapshot: ClusterSnapshot) -> str:
        """Return what makes the whole node unhealthy; empty where nothing does.

        Source: docs/spec/consumers.md#1.8, R2.
        """
        if host_status == UNHEALTHY_WORD:
            return "host"
        if switch_status == UNHEALTHY_WORD:
            return "switch"
        if self.corrected and self.options.heartbeat_check:
            beat = snapshot.heartbeats.get(self.node.name)
            if beat is not None and is_silent(beat, snapshot.now_ms):
                text = sentence("its heartbeat is silent for more than three intervals")
                self.lists.divergences.append((24, text))
                return "heartbeat"
        return ""

    def _faults(self, text: str | None) -> tuple[CardFault, ...]:
        if not text or text == "[]":
            return ()
        faults = document_entries.read_faults(text)
        if faults is None:
            reason = sentence("Its -Fault text cannot be read: levels are not known")
            self.lists.problems.append(("FAULT_LIST_UNREADABLE", reason))
            return ()
        return faults


def _idle(node: SchedulerNode, pods: Sequence[SchedulerPod]) -> Amounts:
    """Return what the pods on a node leave of what it has to give."""
    idle = dict(node.allocatable)
    for pod in pods:
        for resource, value in pod.requests.items():
            idle[resource] = idle.get(resource, 0) - value
    # Kubernetes counts pods as a resource, too.
    if "pods" in idle:
        idle["pods"] -= len(pods)
    return idle


def is_silent(beat: LegacyHeartbeat, now_ms: int) -> bool:
    """Whether a heartbeat is older than three intervals (consumers#5.2)."""
    low, high = HEARTBEAT_RANGE
    interval = beat.interval_seconds
    if not low <= interval <= high:
        interval = DEFAULT_HEARTBEAT_SECONDS
    return now_ms - beat.changed_at_ms > interval * HEARTBEAT_INTERVALS * 1000


def _by_cards(free: Sequence[str], unhealthy: Sequence[str], network: Sequence[str]) -> str:
    """Return the state that the cards give; of several the last card's (consumers#1.8)."""
    # Reversed, since of several the last one decides: the first match here.
    for card in (*reversed(network), *reversed(unhealthy), *reversed(free)):
        if card in network:
            return NodeHealthState.NETWORK
        if card in unhealthy:
            return NodeHealthState.CARD
    return NodeHealthState.HEALTHY


def _optional(cached_lists: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    text = cached_lists.get(key)
    return None if text is None else document_entries.names(text)


def _accelerator(node: SchedulerNode) -> str:
    """Return the chip type that the label ``accelerator`` names; empty where it names none."""
    label = node.labels.get(scheduling.ACCELERATOR, "")
    parts = label.split("-")
    # The label is ``huawei-Ascend910``; another form names no chip.
    return parts[1] if len(parts) == 2 else ""

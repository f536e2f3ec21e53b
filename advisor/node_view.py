"""What the plugin knows of each node in a session (``spec/consumers.md`` 1.5 to 1.8).

Annotations are kept from session to session, a device entry passes a gate, and the list of free
cards is made from Kubernetes' own view where the scheduler maintains it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from advisor import entries
from advisor.entries import CardFault, DeviceEntry
from advisor.options import Profile
from advisor.snapshot import Amounts, Node, Pod
from advisor.state import NodeMemory
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.cluster_cache import ClusterCache
    from advisor.options import Options
    from advisor.snapshot import Heartbeat, Snapshot

UNHEALTHY = "-Unhealthy"
NETWORK_UNHEALTHY = "-NetworkUnhealthy"
RECOVERING = "-Recovering"
FAULT = "-Fault"
HEALTHY_WORD = "Healthy"
UNHEALTHY_WORD = "UnHealthy"
PRE_SEPARATE_WORD = "PreSeparate"
SUB_HEALTHY_WORD = "SubHealthy"
SUB_HEALTH_HANDLING = "SubHealthFault"
FORCE_UPDATE_SECONDS = 10
"""At most this old, the list before limits the new one (1.5-2)."""
MAX_CARDS_OF_POD = 100
_WITH_NETWORK = ("Ascend910", "npu")
HEARTBEAT_INTERVALS = 3
DEFAULT_HEARTBEAT_SECONDS = 5
HEARTBEAT_RANGE = (1, 300)


class NodeState:
    """The words of ``NodeHealthState`` (1.8)."""

    HEALTHY = "Healthy"
    NODE = "NodeUnhealthy"
    CARD = "CardUnhealthy"
    NETWORK = "CardNetworkUnhealthy"


class NodeView(msgspec.Struct, frozen=True):
    """A node in a session.

    ``is_in_map`` is whether the plugin has it, ``resource`` the chips' resource, empty where the
    node has none or no label ``accelerator`` names it. ``free`` and ``network_unhealthy`` are
    ``None`` without their key. ``idle`` is Kubernetes' own count, ``releasing`` what terminating
    pods give back. ``problems`` are the codes and texts of findings,
    ``divergences`` numbers of section 8 with what is done otherwise.
    """

    node: Node
    is_in_map: bool
    is_npu: bool
    resource: str
    pods: tuple[Pod, ...]
    idle: Amounts
    releasing: Amounts
    free: tuple[str, ...] | None
    unhealthy: tuple[str, ...]
    network_unhealthy: tuple[str, ...] | None
    faults: tuple[CardFault, ...]
    state: str
    is_fault_node: bool
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
    def is_in_table(self) -> bool:
        """Whether the fault table has it: nodes with chips need the label (1.7)."""
        return bool(self.resource) or not self.is_npu


class Nodes:
    """All nodes in a session, and what the plugin keeps of them."""

    def __init__(self, views: dict[str, NodeView], memories: dict[str, NodeMemory]) -> None:
        self.views = views
        self.memories = memories


def view_nodes(
    snapshot: Snapshot, cache: ClusterCache, before: Mapping[str, NodeMemory], options: Options
) -> Nodes:
    """Return the nodes of a session."""
    by_node: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node and pod.is_live:
            by_node.setdefault(pod.node, []).append(pod)
    views: dict[str, NodeView] = {}
    memories: dict[str, NodeMemory] = {}
    for node in snapshot.nodes:
        builder = _Builder(node, by_node.get(node.name, ()), before.get(node.name), options)
        view, memory = builder.view(cache, snapshot)
        views[node.name] = view
        if memory is not None:
            memories[node.name] = memory
    return Nodes(views, memories)


class _Builder:
    def __init__(
        self, node: Node, pods: Sequence[Pod], memory: NodeMemory | None, options: Options
    ) -> None:
        self.node = node
        self.pods = pods
        self.before = memory
        self.options = options
        self.corrected = options.profile is Profile.CORRECTED
        self.problems: list[tuple[str, str]] = []
        self.divergences: list[tuple[int, str]] = []
        self.idle: Amounts = dict(node.allocatable)
        self.releasing: Amounts = {}
        self._count()

    def diverges(self, section: int, text: str) -> None:
        """Note that the real program does otherwise, by the number in section 8."""
        self.divergences.append((section, text))

    def _count(self) -> None:
        idle, releasing = self.idle, self.releasing
        for pod in self.pods:
            for resource, value in pod.requests.items():
                idle[resource] = idle.get(resource, 0) - value
                if pod.is_terminating:
                    releasing[resource] = releasing.get(resource, 0) + value
        if "pods" in idle:
            idle["pods"] -= len(self.pods)

    def view(self, cache: ClusterCache, snapshot: Snapshot) -> tuple[NodeView, NodeMemory | None]:
        node = self.node
        is_npu = any(key.startswith(scheduling.RESOURCE_DOMAIN) for key in node.capacity)
        is_in_map = node.is_ready and not (is_npu and self._is_bad_950())
        kept: dict[str, str] = {}
        memory = None
        if is_in_map and is_npu:
            memory = self._remember(cache.devices.get(node.name), snapshot.now_ms // 1000)
            kept = memory.kept
        kind = _accelerator(node) if is_npu else ""
        resource = f"{scheduling.RESOURCE_DOMAIN}{kind}" if kind else ""
        listed = resource or f"{scheduling.RESOURCE_DOMAIN}{entries.device_type(kept)}"
        switch = cache.switches.get(node.name)
        switch_status = switch.NodeStatus if switch else ""
        host_status = self._host_status(cache)
        faults = self._faults(kept.get(listed + FAULT))
        unhealthy = entries.names(kept.get(listed + UNHEALTHY))
        network = _optional(kept, listed + NETWORK_UNHEALTHY)
        free = _optional(kept, listed)
        state, is_fault, switch_sub, card_sub, source = NodeState.HEALTHY, False, False, False, ""
        if is_in_map:
            card_sub = any(one.fault_handling == SUB_HEALTH_HANDLING for one in faults)
            source = self._node_fault(host_status, switch_status, snapshot)
            if source:
                state, is_fault = NodeState.NODE, True
            else:
                switch_sub = switch_status == SUB_HEALTHY_WORD
                if unhealthy or network:
                    state, is_fault = _by_cards(free or (), unhealthy, network or ())
        view = NodeView(
            node=node,
            is_in_map=is_in_map,
            is_npu=is_npu,
            resource=resource,
            pods=tuple(self.pods),
            idle=self.idle,
            releasing=self.releasing,
            free=free,
            unhealthy=unhealthy,
            network_unhealthy=network,
            faults=faults,
            state=state,
            is_fault_node=is_fault,
            switch_sub_health=switch_sub,
            card_sub_health=card_sub,
            switch_status=switch_status,
            host_status=host_status,
            source=source,
            problems=tuple(self.problems),
            divergences=tuple(self.divergences),
        )
        return view, memory

    def _is_bad_950(self) -> bool:
        """Whether an Ascend 950 node lacks a ``DeviceID``: the plugin drops it then (1.6)."""
        if not self.node.labels.get(scheduling.CHIP_NAME, "").startswith(scheduling.CHIP_NAME_950):
            return False
        base = _base(self.node.annotations.get(scheduling.BASE_DEVICE_INFOS))
        return base is None or not base.has_ids

    def _host_status(self, cache: ClusterCache) -> str:
        """Return ``NodeHealthyStatus``: the Node's own ``UnHealthy`` beats the document (1.7)."""
        own = self.node.annotations.get(scheduling.NODE_HEALTHY_STATUS, "")
        if own == UNHEALTHY_WORD:
            return own
        host = cache.nodes.get(self.node.name)
        return (host.NodeStatus if host else "") or HEALTHY_WORD

    def _node_fault(self, host_status: str, switch_status: str, snapshot: Snapshot) -> str:
        """Return what makes the whole node unhealthy (1.8, R2); empty where nothing does."""
        if host_status == UNHEALTHY_WORD:
            return "host"
        if switch_status == UNHEALTHY_WORD:
            return "switch"
        if self.corrected and self.options.heartbeat_check:
            beat = snapshot.heartbeats.get(self.node.name)
            if beat is not None and is_silent(beat, snapshot.now_ms):
                self.diverges(24, "its heartbeat is silent for more than three intervals")
                return "heartbeat"
        return ""

    def _faults(self, text: str | None) -> tuple[CardFault, ...]:
        if not text or text == "[]":
            return ()
        found = entries.read_faults(text)
        if found is None:
            self.problems.append(
                ("FAULT_LIST_UNREADABLE", "Its -Fault text cannot be read: levels are not known")
            )
            return ()
        return found

    def _remember(self, entry: DeviceEntry | None, now: int) -> NodeMemory:
        """Return what the plugin keeps of the node after it has looked at ``entry``."""
        before = self.before or NodeMemory()
        uids = tuple(pod.uid for pod in self.pods)
        kept = before.kept
        if self.before is not None and uids != before.pods:
            kept = self._without_new_pods(kept, frozenset(before.pods))
        if self.corrected and entry is None:
            kept = {}
        listed = self._maintained(entry, now)
        if listed is None or listed.DeviceList is None:
            return NodeMemory(before.stamp, kept, uids, before.link_down_at)
        if listed.UpdateTime <= before.stamp:
            if entry is not None and _differs(listed.DeviceList, kept):
                self.problems.append(
                    (
                        "UPDATE_LOST",
                        f"UpdateTime {listed.UpdateTime} is not above {before.stamp}, the last"
                        " one applied: the scheduler does not see this entry",
                    )
                )
            return NodeMemory(before.stamp, kept, uids, before.link_down_at)
        merged = dict(kept)
        is_quick = listed.UpdateTime - before.stamp <= FORCE_UPDATE_SECONDS
        for key, text in listed.DeviceList.items():
            if "-" not in key and is_quick:
                merged[key] = self._limited(key, kept, text)
            elif self.corrected and key.endswith(FAULT) and _is_worse(kept.get(key), text):
                self.diverges(16, "its -Fault text cannot be read: the last readable one counts")
            else:
                merged[key] = text
        self._report_omitted(listed.DeviceList, merged)
        if merged == kept:
            merged = kept
        return NodeMemory(listed.UpdateTime, merged, uids, before.link_down_at)

    def _report_omitted(self, listed: Mapping[str, str], merged: Mapping[str, str]) -> None:
        """Note the keys that an entry lacks (M5); old chips have neither network nor reset."""
        kind = entries.device_type(listed)
        network = (NETWORK_UNHEALTHY, RECOVERING) if kind in _WITH_NETWORK else ()
        for suffix in ("", UNHEALTHY, FAULT, *network):
            key = f"{scheduling.RESOURCE_DOMAIN}{kind}{suffix}"
            if key not in listed:
                what = "its last value stays in force" if key in merged else "it was never there"
                self.problems.append(("KEY_OMITTED", f"{key} is not in the entry: {what}"))

    def _without_new_pods(self, kept: dict[str, str], known: frozenset[str]) -> dict[str, str]:
        """Return ``kept`` without the cards of pods placed since the session before (1.6)."""
        found = dict(kept)
        for pod in self.pods:
            if pod.uid in known:
                continue
            for key in kept:
                cards = pod.annotations.get(key) if "-" not in key else None
                if cards:
                    taken = set(cards.split(","))
                    left = [name for name in entries.names(found[key]) if name not in taken]
                    found[key] = ",".join(left)
        return found

    def _maintained(self, entry: DeviceEntry | None, now: int) -> DeviceEntry | None:
        """Return ``entry`` with the free list that the scheduler makes itself (1.6)."""
        if entry is None or entry.DeviceList is None:
            return entry
        base = _base(self.node.annotations.get(scheduling.BASE_DEVICE_INFOS))
        if base is None:
            self.problems.append(
                (
                    "NODE_FROZEN",
                    "Its annotation baseDeviceInfos is missing or no JSON: nothing new is applied",
                )
            )
            if not self.corrected:
                return None
            self.diverges(5, "without baseDeviceInfos the reported list counts")
            return entry
        resource = scheduling.RESOURCE_DOMAIN + entries.device_type(entry.DeviceList)
        if (
            not self.options.self_maintain
            or resource not in entry.DeviceList
            or base.has_virtual
            or self.node.labels.get(scheduling.SOFT_SHARE) == "true"
        ):
            return entry
        taken = set(self._used(resource))
        taken.update(entries.names(entry.DeviceList.get(resource + UNHEALTHY)))
        taken.update(entries.names(entry.DeviceList.get(resource + RECOVERING)))
        free = ",".join(name for name in base.names if name not in taken)
        return DeviceEntry(
            {**entry.DeviceList, resource: free}, now, entry.SuperPodID, entry.RackID
        )

    def _used(self, resource: str) -> Iterable[str]:
        for pod in self.pods:
            cards = pod.annotations.get(scheduling.ASCEND_REAL, "")
            if not cards or cards.count(",") >= MAX_CARDS_OF_POD:
                cards = pod.annotations.get(resource, "")
            if cards:
                yield from cards.split(",")

    def _limited(self, key: str, kept: Mapping[str, str], text: str) -> str:
        """Return the free list as the ten-second merge leaves it (1.5-2)."""
        new = entries.names(text)
        old = entries.names(kept.get(key))
        idle = self.idle.get(key)
        if idle is None or idle != len(old) or idle == len(new):
            return text
        allowed = {*old, *entries.names(kept.get(key + UNHEALTHY))}
        return ",".join(name for name in new if name in allowed)


def _is_worse(before: str | None, now: str) -> bool:
    """Whether a ``-Fault`` text cannot be read where the one before could."""
    return (
        before is not None
        and entries.read_faults(now or "[]") is None
        and entries.read_faults(before or "[]") is not None
    )


def is_silent(beat: Heartbeat, now_ms: int) -> bool:
    """Whether a heartbeat is older than three intervals (5.2)."""
    low, high = HEARTBEAT_RANGE
    interval = beat.interval_seconds
    if not low <= interval <= high:
        interval = DEFAULT_HEARTBEAT_SECONDS
    return now_ms - beat.changed_at_ms > interval * HEARTBEAT_INTERVALS * 1000


def _differs(listed: Mapping[str, str], kept: Mapping[str, str]) -> bool:
    return any(kept.get(key) != text for key, text in listed.items() if "-" in key)


def _by_cards(
    free: Sequence[str], unhealthy: Sequence[str], network: Sequence[str]
) -> tuple[str, bool]:
    """Return the state that the cards give; of several the last card's (1.8)."""
    state, is_fault = NodeState.HEALTHY, False
    for card in (*free, *unhealthy, *network):
        if card in unhealthy:
            state, is_fault = NodeState.CARD, True
        if card in network:
            state, is_fault = NodeState.NETWORK, True
    return state, is_fault


def _optional(kept: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    text = kept.get(key)
    return None if text is None else entries.names(text)


def _accelerator(node: Node) -> str:
    """Return the chip type that the label ``accelerator`` names; empty where it names none."""
    label = node.labels.get(scheduling.ACCELERATOR, "")
    parts = label.split("-")
    return parts[1] if len(parts) == 2 else ""


class _Base(msgspec.Struct, frozen=True):
    """What ``baseDeviceInfos`` says: card names in order, and of which kind they are."""

    names: tuple[str, ...]
    has_virtual: bool
    has_ids: bool


_Uint32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Card(msgspec.Struct):
    ip: str | None = msgspec.field(default="", name="IP")
    super_device_id: _Uint32 | None = msgspec.field(default=0, name="SuperDeviceID")
    device_id: _Uint32 | None = msgspec.field(default=None, name="DeviceID")


_base_cards = msgspec.json.Decoder(dict[str, _Card | None])


@lru_cache(maxsize=32768)
def _base(text: str | None) -> _Base | None:
    """Return the cards of the annotation; ``None`` where it is missing or no JSON."""
    if text is None:
        return None
    try:
        found = _base_cards.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return _Base(
        tuple(sorted(name for name in found if name.count("-") == 1)),
        any(name.count("-") > 1 for name in found),
        all(card is not None and card.device_id is not None for card in found.values()),
    )

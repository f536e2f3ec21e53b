"""A snapshot with assumptions, as the agent and the aggregator would publish them.

Sources: ``consumers#1.10`` (levels and lists), 2.9 (pods that end), 7.1, M13, M15, S7.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from advisor.snapshot import Container
from advisor.what_if.assumptions import (
    Assumption,
    ChipAtLevel,
    ChipHasCode,
    NodeHealed,
    NodeIs,
    PodExits,
    SwitchIs,
)
from advisor.what_if.documents import AssumedDocuments
from contract import scheduling
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import is_network
from contract.codes.levels import (
    ChipLevel,
    NodeLevel,
    SwitchLevel,
    is_healthy,
    is_network_healthy,
    most_serious,
)
from contract.documents.cluster_device import CodeFault, healed, pre_separate_device
from contract.documents.cluster_info import (
    HEALTHY,
    healed_switch,
    lost_node,
    pre_separate_node,
    pre_separate_switch,
)
from contract.documents.device_info import CARD_NETWORK_UNHEALTHY, CARD_UNHEALTHY
from contract.documents.node_info import FaultDevice, NodeRecord
from contract.documents.switch_info import SwitchRecord
from contract.errors import ConfigurationError, DocumentError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.options import AdvisorOptions
    from advisor.snapshot import ClusterSnapshot, SchedulerNode, SchedulerPod
    from contract.documents.cluster_device import DeviceRecord

_SWITCH_LEVELS = {
    "UnHealthy": SwitchLevel.SEPARATE,
    "SubHealthy": SwitchLevel.SUB_HEALTH_FAULT,
    "PreSeparate": SwitchLevel.PRE_SEPARATE,
}
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU


def assume(
    snapshot: ClusterSnapshot, assumptions: Iterable[Assumption], options: AdvisorOptions
) -> ClusterSnapshot:
    """Return ``snapshot`` as it would be; raise ``ConfigurationError`` for what is not in it."""
    assumed = _Assumed(snapshot, cluster=options.use_cluster_info)
    for assumption in assumptions:
        try:
            assumed.take(assumption)
        except (LookupError, DocumentError) as error:
            problem = str(error.args[0]) if isinstance(error, LookupError) else str(error)
            raise ConfigurationError("--what-if", [Problem(_text(assumption), problem)]) from None
    return assumed.snapshot


def _text(assumption: Assumption) -> str:
    match assumption:
        case ChipAtLevel(node, chip, level):
            return f"chip {chip} of {node} {level}"
        case ChipHasCode(node, chip, code):
            return f"code {code} on chip {chip} of {node}"
        case SwitchIs(node, word):
            return f"switch of {node} {word}"
        case NodeHealed(node):
            return f"heal {node}"
        case PodExits(namespace, name, code):
            return f"pod {namespace}/{name} exits {code}"
        case NodeIs(node, word):
            return f"{node} {word}"


class _Assumed:
    """A snapshot that takes one assumption after the other."""

    def __init__(self, snapshot: ClusterSnapshot, *, cluster: bool) -> None:
        self._before = snapshot
        self._cluster = cluster
        self._documents = AssumedDocuments(snapshot, cluster=cluster)
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The snapshot as it is now."""
        return msgspec.structs.replace(
            self._before,
            nodes=tuple(self._nodes.values()),
            pods=tuple(self._pods.values()),
            configmaps=self._documents.configmaps,
        )

    def take(self, assumption: Assumption) -> None:
        """Change the snapshot. Raises ``LookupError`` where what it is about is not there."""
        match assumption:
            case PodExits(namespace, name, code):
                pod = self._pods.get((namespace, name))
                if pod is None:
                    raise LookupError("there is no such pod")
                self._pods[namespace, name] = _ended(pod, code)
            case ChipAtLevel(node, chip, level):
                self._require(node)
                self._fault(node, chip, code_at(level), level)
            case ChipHasCode(node, chip, code):
                self._require(node)
                catalogue = shipped()
                level = catalogue.level_of(code, catalogue.severity_of(code))
                self._fault(node, chip, code, level)
            case SwitchIs(node, word):
                self._require(node)
                self._switch(node, word)
            case NodeHealed(node):
                self._heal(self._require(node))
            case NodeIs(node, word):
                self._node(self._require(node), word)

    def _require(self, name: str) -> SchedulerNode:
        node = self._nodes.get(name)
        if node is None:
            raise LookupError(f"there is no Node {name}")
        return node

    def _used(self, node: str) -> frozenset[str]:
        """Return the chips that pods of the node hold (M15)."""
        return frozenset(
            name.strip()
            for pod in self._pods.values()
            if pod.node == node and pod.is_live
            for name in pod.annotations.get(scheduling.ASCEND_REAL, "").split(",")
            if name.strip()
        )

    def _device(self, node: str) -> DeviceRecord:
        record = self._documents.device(node)
        if record is None:
            raise LookupError(f"no document has the chips of {node}")
        return record

    def _fault(self, node: str, number: int, code: str, level: ChipLevel) -> None:
        record, used = self._device(node), self._used(node)
        chip = f"{record.chip_type}-{number}"
        chips = record.chips | used
        if chip not in chips:
            shown_chips = ", ".join(sorted(chips)) or "none"
            raise LookupError(f"{node} has no {chip}, its chips are {shown_chips}")
        kind = CARD_NETWORK_UNHEALTHY if is_network(code) else CARD_UNHEALTHY
        # A manual separation has no code, and -1 in the place of a time (``CodeFault``).
        now_ms = -1 if level is _MANUAL else self._before.now_ms
        faults = {*record.faults, CodeFault(kind, chip, level, code, now_ms, level)}
        record = _listed(msgspec.structs.replace(record, faults=tuple(sorted(faults))), chip, used)
        if self._cluster:
            record = pre_separate_device(record, used)
        self._documents.put_device(node, record)

    def _switch(self, node: str, word: str) -> None:
        before = self._documents.switch(node)
        if before is None:
            if not self._cluster:
                self._device(node)  # The switches are in the same ConfigMap.
            before = SwitchRecord((), "", 0, "", ())
        record = msgspec.structs.replace(before, level=_SWITCH_LEVELS[word], status=word)
        if self._cluster:
            record = pre_separate_switch(record, bool(self._used(node)))
        self._documents.put_switch(node, record)

    def _node(self, node: SchedulerNode, word: str) -> None:
        match word:
            case "gone":
                del self._nodes[node.name]
            case "NotReady":
                self._nodes[node.name] = msgspec.structs.replace(node, is_ready=False)
            case "silent":
                if self._cluster:  # An agent that is silent publishes nothing.
                    record = lost_node(self._documents.server(node.name))
                    self._documents.put_server(node.name, record)
            case _:
                level = (
                    NodeLevel.SEPARATE_FAULT
                    if word == "UnHealthy"
                    else NodeLevel.PRE_SEPARATE_FAULT
                )
                self._server(node.name, level, word)

    def _server(self, node: str, level: NodeLevel, status: str) -> None:
        before = self._documents.server(node) or NodeRecord((), HEALTHY, 0)
        part = FaultDevice("Other", 0, [_code_of_node(level)], level)
        # An assumption adds a fault, and heals none.
        if before.status == "UnHealthy":
            status = before.status
        record = msgspec.structs.replace(before, faults=(*before.faults, part), status=status)
        if self._cluster:
            record = pre_separate_node(record, bool(self._used(node)))
        self._documents.put_server(node, record)

    def _heal(self, node: SchedulerNode) -> None:
        name = node.name
        self._nodes[name] = msgspec.structs.replace(node, is_ready=True)
        record = self._documents.device(name)
        if record is not None:
            free = record.chips - self._used(name)
            record = msgspec.structs.replace(healed(record), available=tuple(sorted(free)))
            self._documents.put_device(name, record)
        switch = self._documents.switch(name)
        if switch is not None:
            self._documents.put_switch(name, healed_switch(switch))
        server = self._documents.server(name)
        if server is not None:
            server = msgspec.structs.replace(server, faults=(), status=HEALTHY)
            self._documents.put_server(name, server)


def _listed(record: DeviceRecord, chip: str, used: frozenset[str]) -> DeviceRecord:
    """``record`` with ``chip`` in the lists in which its faults put it."""
    levels: dict[bool, list[ChipLevel]] = {True: [], False: []}
    for fault in record.faults:
        if fault.chip == chip and fault.level in set(ChipLevel):
            levels[fault.fault_type == CARD_NETWORK_UNHEALTHY].append(ChipLevel(fault.level))
    own = most_serious(levels[False])
    unhealthy, network = set(record.unhealthy), set(record.network_unhealthy)
    available = set(record.available)
    if not is_healthy(own, chip in used):
        unhealthy.add(chip)
    if not is_network_healthy(most_serious(levels[True])):
        network.add(chip)
    # A pre-separated card is never free, also while a pod uses it (consumers#1.10).
    if chip in unhealthy or own is ChipLevel.PRE_SEPARATE_NPU:
        available.discard(chip)
    return msgspec.structs.replace(
        record,
        available=tuple(sorted(available)),
        unhealthy=tuple(sorted(unhealthy)),
        network_unhealthy=tuple(sorted(network)),
    )


@cache
def code_at(level: ChipLevel) -> str:
    """Return a chip's own code that the table has at ``level``; isolation by hand has none."""
    if level is _MANUAL:
        return level.value
    levels = shipped().chip_levels
    return min(
        code for code, code_level in levels.items() if code_level is level and not is_network(code)
    )


@cache
def _code_of_node(level: NodeLevel) -> str:
    return min(code for code, code_level in shipped().node_levels.items() if code_level is level)


def _ended(pod: SchedulerPod, code: int) -> SchedulerPod:
    """``pod`` after all its containers have ended with ``code``, as the kubelet shows it."""
    stays = pod.restart_policy == "Never" or (pod.restart_policy == "OnFailure" and code == 0)
    containers = pod.containers or (Container(""),)
    if stays:
        ended = tuple(
            msgspec.structs.replace(container, exit_code=code) for container in containers
        )
        phase = "Succeeded" if code == 0 else "Failed"
        return msgspec.structs.replace(pod, phase=phase, containers=ended)
    return msgspec.structs.replace(
        pod, containers=tuple(_restarted(container, code) for container in containers)
    )


def _restarted(container: Container, code: int) -> Container:
    return msgspec.structs.replace(
        container, exit_code=None, last_exit_code=code, restarts=container.restarts + 1
    )

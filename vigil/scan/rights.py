"""The rights that an agent needs in a cluster, and what for (as in docs/installation.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.bmc import BmcSection
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    HEARTBEAT_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    heartbeat_name,
    node_info_name,
)
from contract.operator_rules.fault_configuration import CONFIG_MAPS
from stores.kubernetes_api.access import Right

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import AgentConfiguration

_EVERYWHERE = ""
_CORE = ""
_LEASES = "coordination.k8s.io"


def rights_of(
    configuration: AgentConfiguration, *, deletes_device_info: bool = True
) -> dict[Right, str]:
    """Return every right that an agent with this configuration asks for, and what for.

    It may delete device-info only where own-node-only is in force.
    """
    return dict(_rights(configuration, deletes_device_info))


def _rights(
    configuration: AgentConfiguration, deletes_device_info: bool
) -> Iterator[tuple[Right, str]]:
    node, documents = configuration.node_name, configuration.documents
    writes = not configuration.shadow
    for config_map in CONFIG_MAPS:
        for verb in ("list", "watch"):
            right = Right(config_map.namespace, _CORE, "configmaps", verb, config_map.name)
            yield right, "the fault configuration"
    if "device-info" in documents:
        name = device_info_name(node)
        changes = ("update", "delete") if deletes_device_info else ("update",)
        yield from _document(DEVICE_INFO_NAMESPACE, name, "device-info", writes, changes)
        for verb in ("list", "watch"):
            yield Right(_EVERYWHERE, _CORE, "pods", verb), "chips in use"
        if writes:
            yield Right(DEVICE_INFO_NAMESPACE, _CORE, "events", "create"), "Events about chips"
            purpose = "Events about the node's fault configuration"
            yield Right(NODE_INFO_NAMESPACE, _CORE, "events", "create"), purpose
    if "node-info" in documents and writes:
        name = node_info_name(node)
        yield from _document(NODE_INFO_NAMESPACE, name, "node-info", writes, ("update", "delete"))
    if not writes:
        return
    beat = heartbeat_name(node)
    yield Right(HEARTBEAT_NAMESPACE, _LEASES, "leases", "create"), "the heartbeat"
    for verb in ("get", "patch"):
        yield Right(HEARTBEAT_NAMESPACE, _LEASES, "leases", verb, beat), "the heartbeat"
    serial_number = "node-info" in documents and configuration.settings_of(BmcSection).enabled
    keeps = configuration.node_labels.enabled and ("device-info" in documents or serial_number)
    generation = configuration.heartbeat.generation
    if keeps or generation != "lease":
        for verb in ("list", "watch"):
            yield Right(_EVERYWHERE, _CORE, "nodes", verb, node), "what its Node has"
    if keeps or generation == "annotation":
        purpose = "labels and annotations of the Node"
        yield Right(_EVERYWHERE, _CORE, "nodes/status", "patch", node), purpose


def _document(
    namespace: str, name: str, kind: str, writes: bool, changes: tuple[str, ...]
) -> Iterator[tuple[Right, str]]:
    reads = ("get", "list", "watch") if writes else ("list", "watch")
    for verb in (*reads, *(changes if writes else ())):
        yield Right(namespace, _CORE, "configmaps", verb, name), kind
    if writes:
        # Who creates has no name yet, by which it could be allowed.
        yield Right(namespace, _CORE, "configmaps", "create"), kind

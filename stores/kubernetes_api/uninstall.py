"""Requests to an API server that only an operator who removes NPU Vigil needs."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from contract.documents.elastic_job import LEASE as ELASTIC_LEASE
from contract.kubernetes import Member
from contract.names import LEADER_LEASE, LEADER_NAMESPACE
from contract.node_signals import TAINT_KEY, NodeSignals, node_signals
from stores.kubernetes_api import wire
from stores.kubernetes_api.node_signals import write_conditions, write_taints
from stores.kubernetes_api.pages import ObjectPages
from stores.kubernetes_api.watch import read_objects

_NODES = "/api/v1/nodes"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEADER_NAMESPACE}/leases"
_CHIPS = "huawei.com/"


class _AllocatableStatus(msgspec.Struct):
    allocatable: dict[str, str] = {}


_status = Member("status", _AllocatableStatus)


class UninstallRequests(ObjectPages):
    """Asks the API server that ``kubeconfig`` names, or this pod's. Raises ``StoreError``."""

    async def nodes_with_plugin(self) -> frozenset[str]:
        """Return the nodes whose kubelet has chips to give: a Device Plugin is registered there.

        The kubelet sets ``allocatable`` to 0 when the plugin is gone.
        """
        nodes: set[str] = set()
        async for page in self.pages(_NODES):
            nodes |= wire.decoded(_with_plugin, page, "the list of Nodes makes no sense")
        return frozenset(nodes)

    async def nodes_with_signals(self) -> dict[str, NodeSignals]:
        """Return the Nodes with conditions of our types or our taint, by name."""
        signals: dict[str, NodeSignals] = {}
        async for page in self.pages(_NODES):
            signals |= wire.decoded(_with_signals, page, "the list of Nodes makes no sense")
        return signals

    async def remove_signals(self, node: str, seen: NodeSignals) -> None:
        """Remove our conditions and our taint from the ``seen`` version of a Node.

        Raises ``StoreConflict`` where it is another version now.
        """
        if seen.conditions:
            types = [condition.type for condition in seen.conditions]
            seen = await write_conditions(self.connection, node, seen, (), types)
        if seen.fault_taints:
            others = [taint for taint in seen.taints if taint.key != TAINT_KEY]
            await write_taints(self.connection, node, seen, others)

    async def delete_leader_leases(self) -> None:
        """Delete the Leases of those that led; one that is absent is not an error."""
        for name in (LEADER_LEASE, ELASTIC_LEASE):
            answer = await self.connection.request("DELETE", f"{_LEASES}/{name}")
            wire.accepted(answer, f"delete Lease {LEADER_NAMESPACE}/{name}", HTTPStatus.NOT_FOUND)


def _with_plugin(page: bytes) -> set[str]:
    """Return the nodes in a page of a list that have chips to give."""
    return {
        node.metadata.name
        for node in read_objects(page).items or ()
        if any(
            name.startswith(_CHIPS) and number != "0"
            for name, number in _status(node).allocatable.items()
        )
    }


def _with_signals(page: bytes) -> dict[str, NodeSignals]:
    """Return the Nodes in a page of a list that have conditions or taints of ours."""
    nodes = {node.metadata.name: node_signals(node) for node in read_objects(page).items or ()}
    return {name: seen for name, seen in nodes.items() if seen.conditions or seen.fault_taints}

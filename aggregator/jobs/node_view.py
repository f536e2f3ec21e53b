"""What is wrong with each node, and with the cluster; jobs have no part in it.

Source: ``docs/spec/clusterd.md#5.4`` ("Cluster view").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.inputs.node_context import NodeState
from aggregator.jobs.cluster_message import cluster_info
from aggregator.jobs.interfaces import NOTHING
from aggregator.jobs.message_types import CLUSTER, FaultMsgSignal, NodeFaultInfo
from aggregator.jobs.messages import message
from aggregator.jobs.rank_faults import is_quiet
from contract.documents.cluster_node import is_only_silence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aggregator.jobs.interfaces import ClusterStateLookup, PublishedView


class ViewedNodes:
    """The nodes as they were looked at last."""

    def __init__(
        self, world: ClusterStateLookup, published: Callable[[str], PublishedView | None]
    ) -> None:
        self._world = world
        self._published = published
        self._known: dict[str, NodeState] = {}
        self._ill: dict[str, NodeFaultInfo] = {}
        self._cluster: FaultMsgSignal | None = None

    @property
    def names(self) -> Collection[str]:
        """All nodes of which something is known."""
        return self._known.keys()

    def about(self, node: str) -> NodeState:
        """The Node object as it was seen last: one that went keeps its address."""
        return self._known.get(node) or NodeState(node)

    def told(self, node: str) -> PublishedView:
        """What is published of it now."""
        return self._published(node) or NOTHING

    def is_up(self, node: str) -> bool:
        """Whether the Node is there and ready, as far as is known, and its agent not silent."""
        return self._is_up(node, self.told(node))

    def _is_up(self, node: str, told: PublishedView) -> bool:
        if told.node is not None and is_only_silence(told.node):
            return False
        if not self._world.nodes_known:
            return True
        state = self._world.node(node)
        return state is not None and state.is_ready

    def look(self, node: str) -> bool:
        """Look at a node again; returns whether nothing at all is wrong with it."""
        told, state = self.told(node), self._world.node(node)
        up = self._is_up(node, told)
        about = state or self.about(node)
        says_nothing = told.device is None and told.switch is None and told.node is None
        if says_nothing and state is None and not tuple(self._world.pods_on(node)):
            self._known.pop(node, None)
        else:
            self._known[node] = about
        quiet = is_quiet(told, ready=up)
        info = None
        if not quiet:
            info = cluster_info(node, about.ip, about.serial_number, told, ready=up)
        if self._ill.get(node) != info:
            self._cluster = None
            if info is None:
                del self._ill[node]
            else:
                self._ill[node] = info
        return quiet

    def cluster(self) -> FaultMsgSignal:
        """What is wrong in the whole cluster, whoever it hits."""
        if self._cluster is None:
            self._cluster = message(CLUSTER, self._ill.values())
        return self._cluster

"""What is wrong with each node, and with the cluster; jobs have no part in it.

Source: ``docs/spec/clusterd.md#5.4`` ("Cluster view").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aggregator.cluster_documents.published_node import PublishedNode
from aggregator.grpc.interfaces import CLUSTER, FaultMsgSignal, NodeFaultInfo
from aggregator.inputs.node_context import NodeState
from aggregator.jobs.messages import cluster_info, message
from aggregator.jobs.rank_faults import is_quiet
from contract.documents.cluster_info import is_only_silence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from aggregator.inputs.node_context import JobState, PodState


class ClusterStateLookup(Protocol):
    """Pods, jobs and Node objects as they are now. It is asked often: answers are looked up."""

    @property
    def pods_known(self) -> bool:
        """Whether pods were listed; before that nothing is reported of jobs."""

    @property
    def nodes_known(self) -> bool:
        """Whether Node objects were listed; before that none of them is missing."""

    def pods_on(self, node: str) -> Iterable[PodState]:
        """Return the pods of a node that are neither done nor failed."""

    def node(self, name: str) -> NodeState | None:
        """Return the Node object; ``None`` where there is none."""

    def jobs(self) -> Mapping[str, JobState]:
        """Return all jobs by key, those whose pods are on no node yet, too."""


_NOTHING = PublishedNode()
"""Of a node of which nothing is known."""


class ViewedNodes:
    """The faults of each node, updated with each change."""

    def __init__(
        self, cluster_state: ClusterStateLookup, published: Callable[[str], PublishedNode | None]
    ) -> None:
        self._cluster_state = cluster_state
        self._published = published
        self._known: dict[str, NodeState] = {}
        self._ill: dict[str, NodeFaultInfo] = {}
        self._cluster: FaultMsgSignal | None = None

    @property
    def names(self) -> Collection[str]:
        """All nodes of which something is known."""
        return self._known.keys()

    def about(self, node: str) -> NodeState:
        """Return the Node object as it was seen last: one that went keeps its address."""
        return self._known.get(node) or NodeState(node)

    def published(self, node: str) -> PublishedNode:
        """Return what is published of a node now."""
        return self._published(node) or _NOTHING

    def is_up(self, node: str) -> bool:
        """Return whether the Node is there and ready, as far as is known, and its agent
        not silent.
        """
        return self._is_up(node, self.published(node))

    def _is_up(self, node: str, published: PublishedNode) -> bool:
        if published.node is not None and is_only_silence(published.node):
            return False
        if not self._cluster_state.nodes_known:
            return True
        state = self._cluster_state.node(node)
        return state is not None and state.is_ready

    def update(self, node: str) -> bool:
        """Update a node; return whether nothing at all is wrong with it."""
        published, state = self.published(node), self._cluster_state.node(node)
        up = self._is_up(node, published)
        about = state or self.about(node)
        is_empty = published.device is None and published.switch is None and published.node is None
        if is_empty and state is None and not tuple(self._cluster_state.pods_on(node)):
            self._known.pop(node, None)
        else:
            self._known[node] = about
        quiet = is_quiet(published, ready=up)
        info = None
        if not quiet:
            info = cluster_info(node, about.ip, about.serial_number, published, ready=up)
        if self._ill.get(node) != info:
            self._cluster = None
            if info is None:
                del self._ill[node]
            else:
                self._ill[node] = info
        return quiet

    def cluster(self) -> FaultMsgSignal:
        """Return what is wrong in the whole cluster, of all jobs and none."""
        if self._cluster is None:
            self._cluster = message(CLUSTER, self._ill.values())
        return self._cluster

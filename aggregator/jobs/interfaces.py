"""What the job view needs to know from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.inputs.node_context import JobState, NodeState, PodState


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

"""What the aggregator knows of a node and of jobs besides the nodes' documents.

Sources: ``docs/spec/clusterd.md#1.8``, 3.3 and 3.8.
"""

from __future__ import annotations

import msgspec

from stores.cluster import JobState, NodeState, PodState, Texts

__all__ = ["JobState", "NodeContext", "NodeState", "PodState", "Texts"]


class NodeContext(msgspec.Struct, frozen=True):
    """What is known of one node, for the processors.

    ``used``: names of the chips that pods use, ``None`` where nobody knows. ``lost``: it fell
    silent. ``pods`` are those of this node, ``jobs`` the jobs of these pods by key.
    """

    used: frozenset[str] | None = None
    lost: bool = False
    pods: tuple[PodState, ...] = ()
    jobs: dict[str, JobState] = {}

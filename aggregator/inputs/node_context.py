"""What the aggregator knows of a node and of jobs besides the nodes' documents.

Sources: ``docs/spec/clusterd.md#1.8``, 3.3 and 3.8.
"""

from __future__ import annotations

import msgspec

from stores.cluster import JobState, NodeState, PodState, Texts

__all__ = ["JobState", "NodeContext", "NodeState", "PodState", "Texts"]


class NodeContext(msgspec.Struct, frozen=True):
    """What the processors need of one node besides its documents.

    ``used``: names of the chips that pods use, ``None`` where that is not known. ``lost``: it fell
    silent. ``pods`` are those of this node, ``jobs`` the jobs of these pods by key.
    """

    used: frozenset[str] | None = None
    lost: bool = False
    pods: tuple[PodState, ...] = ()
    jobs: dict[str, JobState] = {}

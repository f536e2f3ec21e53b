"""The heartbeat that is sent beside our own for readers of old releases (``noded#7.10``).

One of three: in annotations of the Node, or in node-info as releases 5.0.x or 6.0.RC had it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.heartbeat.annotations import NodeAnnotations
from agent.heartbeat.label import RequiredLabel
from agent.publishing.node_info_heartbeat import NodeInfoBeat
from contract.documents.node_info import Generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Store

log = logging.getLogger("agent.heartbeat")

_SHORTEST_RELAYED_SECONDS = 3


@dataclass(frozen=True)
class OldReaders:
    """What is done for them: nothing with generation ``lease``.

    ``label`` is ``None`` also where nothing has labels.
    """

    generation: str
    annotations: NodeAnnotations | None = None
    beating: NodeInfoBeat | None = None
    label: RequiredLabel | None = None


def old_readers(
    generation: str, interval_seconds: float, store: Store, node: str, stalled: Callable[[], object]
) -> OldReaders:
    """Return the parts that ``heartbeat.generation`` requires."""
    objects = store.objects
    if generation == "lease":
        return OldReaders(generation)
    annotations = beating = None
    if generation == "annotation":
        assert objects is not None, "the configuration asks for Kubernetes"
        annotations = NodeAnnotations(objects, node, interval_seconds)
    else:
        beating = NodeInfoBeat(Generation(generation), interval_seconds, lambda: bool(stalled()))
        if interval_seconds < _SHORTEST_RELAYED_SECONDS:
            log.warning(
                "heartbeat.interval_seconds is %g: a ClusterD of 6.0.RC relays heartbeats every 5 "
                "to 6 s, so it would report nodes as lost and found. Use 5; the least is 3",
                interval_seconds,
            )
    label = None if objects is None else RequiredLabel(objects, node)
    return OldReaders(generation, annotations, beating, label)

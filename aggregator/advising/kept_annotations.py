"""What is kept of the annotations of Nodes and pods: those that a decision reads.

All others would be most of what the aggregator needs for a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.inputs.kubernetes_objects import shared
from advisor.scheduler_view.base_devices import without_addresses
from contract import scheduling

if TYPE_CHECKING:
    from advisor.snapshot import SchedulerNode, SchedulerPod

_LONGEST = 4096
"""What decisions read of a pod is shorter."""
_OF_PODS = frozenset(
    {
        scheduling.GROUP_ANNOTATION,
        scheduling.RANK_INDEX,
        scheduling.NEED_VOLCANO_OPE,
        *scheduling.POD_TO_JOB_ANNOTATIONS,
    }
)
"""Beside those of chips (consumers#1.6, 1.15, 2.1)."""


def node_as_decided(one: SchedulerNode) -> SchedulerNode:
    """Return a Node with the annotations that decisions read (consumers#1.6, 1.7)."""
    kept = {}
    if (own := one.annotations.get(scheduling.NODE_HEALTHY_STATUS)) is not None:
        kept[scheduling.NODE_HEALTHY_STATUS] = own
    if (cards := one.annotations.get(scheduling.BASE_DEVICE_INFOS)) is not None:
        kept[scheduling.BASE_DEVICE_INFOS] = without_addresses(cards)
    return msgspec.structs.replace(one, annotations=shared(kept))


def pod_as_decided(one: SchedulerPod) -> SchedulerPod:
    """Return a pod with the annotations that decisions read."""
    kept = {
        key: text
        for key, text in one.annotations.items()
        if (key in _OF_PODS or key.startswith(scheduling.RESOURCE_DOMAIN)) and len(text) <= _LONGEST
    }
    return msgspec.structs.replace(one, annotations=kept)

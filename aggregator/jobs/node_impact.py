"""The faults of one node that hit one job, and the health that follows
(``docs/spec/clusterd.md#6``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.grpc.fault_messages import NodeFaultInfo
from aggregator.jobs.health import Health, health_of_status
from aggregator.jobs.messages import node_info
from aggregator.jobs.rank_faults import fault_devices, rank_faults
from aggregator.jobs.relation_inputs import relation_fault_devices
from aggregator.jobs.relation_tables import SEPARATE, SUB_HEALTH
from contract.pages.aggregator_status import RankFaultDevice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.inputs.node_context import NodeState
    from aggregator.jobs.relations import FaultPlace, Track

_BY_STRATEGY = {SUB_HEALTH: Health.SUB_HEALTHY, SEPARATE: Health.UNHEALTHY}
_MILD = frozenset({"NotHandleFault", "PreSeparate", "PreSeparateNPU"})
_SUB_HEALTH_FAULT = "SubHealthFault"


class NodeImpact(msgspec.Struct, frozen=True):
    """What hits a job on a node. ``since_ms`` is the wall time at which the first of it was
    received.
    """

    info: NodeFaultInfo
    faults: tuple[RankFaultDevice, ...]
    health: Health
    since_ms: int


def node_impact(
    node: NodeState,
    published: PublishedNode,
    chips: Collection[str],
    tracks: Mapping[FaultPlace, Track],
    *,
    ready: bool,
    now_ms: int,
) -> NodeImpact | None:
    """Return what hits a job that has these chips on ``node``; ``None`` where nothing does."""
    faults = fault_devices(published, chips, ready=ready)
    faults += relation_fault_devices(node.name, tracks)
    if not faults:
        return None
    info = node_info(node.name, node.ip, node.serial_number, faults)
    health = _health(published, chips, tracks, node.name, ready=ready)
    return NodeImpact(info, tuple(faults), health, _since_ms(published, chips, now_ms))


def _health(
    published: PublishedNode,
    chips: Collection[str],
    tracks: Mapping[FaultPlace, Track],
    node: str,
    *,
    ready: bool,
) -> Health:
    found = [_rank_health(one.level) for one in rank_faults(published, chips, ready=ready)]
    found += [
        _BY_STRATEGY[track.result]
        for place, track in tracks.items()
        if place.node == node and track.result
    ]
    if chips and published.switch is not None and published.switch.status != "PreSeparate":
        found.append(health_of_status(published.switch.status))
    return max(found, default=Health.HEALTHY)


def _rank_health(level: str) -> Health:
    """Return the health of a rank by a level: a pre-separation is healthy, an unknown
    level is not.
    """
    if level == _SUB_HEALTH_FAULT:
        return Health.SUB_HEALTHY
    return Health.HEALTHY if level in _MILD else Health.UNHEALTHY


def _since_ms(published: PublishedNode, chips: Collection[str], now_ms: int) -> int:
    received: Iterable[int | None] = (
        published.received_ms.get(fault.chip, {}).get(fault.code)
        for fault in (() if published.device is None else published.device.faults)
        if fault.chip in chips
    )
    return min((at_ms for at_ms in received if at_ms is not None), default=now_ms)

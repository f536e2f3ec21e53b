"""All Nodes of a cluster, of which only what faults need is kept (``clusterd#1.8``)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from contract.kubernetes import Member, decode_object
from stores.cluster import NodeState
from stores.kubernetes_api.feed import WatchedKind, check_lengths

if TYPE_CHECKING:
    from contract.kubernetes import KubernetesObject


class _NodeAnnotations(msgspec.Struct):
    serial_number: str = msgspec.field(default="", name="product-serial-number")


class _Address(msgspec.Struct):
    type: str = ""
    address: str = ""


class _NodeReadyCondition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _NodeReadyStatus(msgspec.Struct):
    addresses: list[_Address] = []
    conditions: list[_NodeReadyCondition] = []


_annotations = Member("metadata.annotations", _NodeAnnotations)
_status = Member("status", _NodeReadyStatus)


def _read(item: KubernetesObject) -> NodeState:
    serial_number, status = _annotations(item).serial_number, _status(item)
    check_lengths(serial_number)
    return NodeState(
        name=item.metadata.name,
        ip=next(
            (address.address for address in status.addresses if address.type == "InternalIP"), ""
        ),
        serial_number=serial_number,
        is_ready=any(
            condition.type == "Ready" and condition.status == "True"
            for condition in status.conditions
        ),
    )


def not_ready_since_ms(raw: bytes) -> int:
    """Return since when a Node is not Ready (wall); 0 where it is, or where that is not known.

    Raises ``msgspec.DecodeError``.
    """
    for condition in _status(decode_object(raw)).conditions:
        if (
            condition.type == "Ready"
            and condition.status != "True"
            and condition.last_transition_time is not None
        ):
            return int(condition.last_transition_time.timestamp() * 1000)
    return 0


NODES = WatchedKind[NodeState](
    name="nodes",
    path="/api/v1/nodes",
    query={},
    key=lambda metadata: metadata.name,
    read=_read,
)

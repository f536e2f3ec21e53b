"""All Nodes of a cluster, of which only what faults need is kept (``clusterd#1.8``)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from stores.cluster import NodeState
from stores.kubernetes_api.feed import WatchedKind, check_lengths
from stores.kubernetes_api.watch import ListPage
from stores.kubernetes_api.wire import Item, ObjectMetadata


class _Annotations(msgspec.Struct):
    serial_number: str = msgspec.field(default="", name="product-serial-number")


class _NodeMetadata(ObjectMetadata, rename="camel"):
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)


class _Address(msgspec.Struct):
    type: str = ""
    address: str = ""


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct):
    addresses: list[_Address] = []
    conditions: list[_Condition] = []


class _Node(Item):
    metadata: _NodeMetadata
    status: _Status = msgspec.field(default_factory=_Status)


def _read(item: _Node) -> NodeState:
    metadata, status = item.metadata, item.status
    serial_number = metadata.annotations.serial_number
    check_lengths(serial_number)
    return NodeState(
        name=metadata.name,
        ip=next(
            (address.address for address in status.addresses if address.type == "InternalIP"), ""
        ),
        serial_number=serial_number,
        is_ready=any(
            condition.type == "Ready" and condition.status == "True"
            for condition in status.conditions
        ),
    )


_nodes = msgspec.json.Decoder(_Node)


def not_ready_since_ms(raw: bytes) -> int:
    """Return since when a Node is not Ready (wall); 0 where it is, or where that is not known.

    Raises ``msgspec.DecodeError``.
    """
    for condition in _nodes.decode(raw).status.conditions:
        if (
            condition.type == "Ready"
            and condition.status != "True"
            and condition.last_transition_time is not None
        ):
            return int(condition.last_transition_time.timestamp() * 1000)
    return 0


NODES = WatchedKind[_Node, NodeState](
    name="nodes",
    path="/api/v1/nodes",
    query={},
    read_page=msgspec.json.Decoder(ListPage[_Node]).decode,
    read_item=_nodes.decode,
    key=lambda metadata: metadata.name,
    read=_read,
)

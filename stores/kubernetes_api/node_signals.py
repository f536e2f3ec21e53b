"""Reads and writes conditions and taints of Nodes.

Each write names the version and the uid of the Node that it was computed from: the API server
refuses one of a leader that was paused, and one about a Node that was made anew.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import StoreConflict
from contract.kubernetes import decode_object
from contract.node_signals import NodeSignals, condition_body, node_signals
from stores.document_names import check_node_name
from stores.kubernetes_api import wire
from stores.kubernetes_api.writers import decoder, newest_of_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.node_signals import NodeCondition, NodeTaint
    from stores.kubernetes_api.client.connection import ApiConnection

_STRATEGIC_MERGE_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
"""A list of conditions is merged by type, so those of others stay."""


async def read_node_signals(connection: ApiConnection, node: str) -> NodeSignals:
    """Read a Node. Raises ``StoreNotFound`` where there is none, else ``StoreError``."""
    answer = await connection.request("GET", _path(node))
    return _decoded(wire.accepted(answer, f"read node {node}"), node)


async def last_spec_manager(connection: ApiConnection, node: str) -> str | None:
    """Return the newest manager besides us of the spec of a Node; ``None`` where none is known.

    Raises as ``read_node_signals``.
    """
    answer = await connection.request("GET", _path(node), headers=wire.ONLY_METADATA)
    body = wire.accepted(answer, f"read node {node}")
    entries = wire.decoded(decoder.decode, body, f"the answer for node {node} is not a Node")
    writer = newest_of_spec(entries.metadata.managed_fields)
    return None if writer is None else writer.name


async def write_conditions(
    connection: ApiConnection,
    node: str,
    seen: NodeSignals,
    conditions: Iterable[NodeCondition],
    removed: Iterable[str],
) -> NodeSignals:
    """Write these conditions and remove those of types in ``removed``; return the Node.

    Raises ``StoreConflict`` where the Node is not the ``seen`` one any more, else ``StoreError``.
    """
    changes = [
        *map(condition_body, conditions),
        *({"$patch": "delete", "type": type_} for type_ in removed),
    ]
    return await _patch(
        connection,
        node,
        seen,
        "/status",
        {"status": {"conditions": changes}},
        _STRATEGIC_MERGE_PATCH,
        "conditions",
    )


async def write_taints(
    connection: ApiConnection,
    node: str,
    seen: NodeSignals,
    taints: Iterable[NodeTaint],
    manager: str = wire.FIELD_MANAGER,
) -> NodeSignals:
    """Replace all taints of a Node by these; return the Node. Raises as ``write_conditions``.

    The API has no other way: its list of taints cannot be merged. ``manager`` is the query that
    names the writer.
    """
    spec = {"taints": [msgspec.to_builtins(taint) for taint in taints] or None}
    return await _patch(
        connection, node, seen, "", {"spec": spec}, wire.MERGE_PATCH_HEADERS, "taints", manager
    )


async def _patch(
    connection: ApiConnection,
    node: str,
    seen: NodeSignals,
    subresource: str,
    changes: dict[str, Any],
    headers: dict[str, str],
    name: str,
    manager: str = wire.FIELD_MANAGER,
) -> NodeSignals:
    metadata = {"uid": seen.uid, "resourceVersion": seen.version}
    answer = await connection.request(
        "PATCH",
        f"{_path(node)}{subresource}?{manager}",
        msgspec.json.encode({"metadata": metadata} | changes),
        headers=headers,
    )
    # The uid of a Node cannot be changed: a patch with another one is refused as invalid.
    if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY and b'"metadata.uid"' in answer.body:
        raise StoreConflict(f"node {node} was made anew")
    return _decoded(wire.accepted(answer, f"write {name} of node {node}"), node)


def _decoded(body: bytes, node: str) -> NodeSignals:
    return wire.decoded(
        lambda content: node_signals(decode_object(content)),
        body,
        f"the answer for node {node} is not a Node",
    )


def _path(node: str) -> str:
    check_node_name(node)
    return wire.object_path("/api/v1", "nodes", None, node)

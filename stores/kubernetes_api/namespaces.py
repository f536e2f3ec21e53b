"""Makes a namespace that a write found missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreRefused
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from stores.kubernetes_api.client.connection import ApiConnection

_DONE = (200, 201, 409)
_FORBIDDEN = 403


async def create_namespace(connection: ApiConnection, namespace: str, what: str) -> None:
    """Create ``namespace``, without which one cannot ``what``; one that is there is no error."""
    body = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    status, answer = await connection.request("POST", "/api/v1/namespaces", body)
    if status in _DONE:
        return
    if status == _FORBIDDEN:
        raise StoreRefused(
            f"cannot {what}: there is no namespace {namespace} and it may not be created; "
            f"create it (kubectl create namespace {namespace})"
        )
    raise wire.refusal(status, answer, f"create namespace {namespace}")

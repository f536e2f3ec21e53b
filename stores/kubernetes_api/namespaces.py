"""Makes a namespace that a write found missing."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreRefused
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from stores.kubernetes_api.client.connection import ApiConnection


async def create_namespace(connection: ApiConnection, namespace: str, what: str) -> None:
    """Create ``namespace``, without which one cannot ``what``; one that is there is no error."""
    body = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    answer = await connection.request("POST", "/api/v1/namespaces", body)
    if answer.status == HTTPStatus.FORBIDDEN:
        raise StoreRefused(
            f"cannot {what}: there is no namespace {namespace} and it may not be created; "
            f"create it (kubectl create namespace {namespace})"
        )
    wire.accepted(answer, f"create namespace {namespace}", HTTPStatus.CONFLICT)

"""Creates an object, and its namespace where that is missing."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreRefused
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stores.kubernetes_api.client.attempts import ApiAnswer
    from stores.kubernetes_api.client.connection import ApiConnection


async def create(
    connection: ApiConnection,
    path: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    namespace: str,
    what: str,
) -> ApiAnswer:
    """Create an object in ``namespace``, which is created too where it is missing.

    Returns the answer. Raises ``StoreError``, where ``what`` is what could not be done.
    """
    answer = await connection.request("POST", path, body, headers, is_urgent=True)
    if answer.status == HTTPStatus.NOT_FOUND:
        await _create_namespace(connection, namespace, what)
        answer = await connection.request("POST", path, body, headers, is_urgent=True)
    return answer


async def _create_namespace(connection: ApiConnection, namespace: str, what: str) -> None:
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

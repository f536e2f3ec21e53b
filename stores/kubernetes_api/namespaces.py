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
    if answer.status != HTTPStatus.NOT_FOUND:
        return answer
    new = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    made = await connection.request("POST", "/api/v1/namespaces", msgspec.json.encode(new))
    if made.status == HTTPStatus.FORBIDDEN:
        raise StoreRefused(
            f"cannot {what}: there is no namespace {namespace} and it may not be created; "
            f"create it (kubectl create namespace {namespace})"
        )
    wire.accepted(made, f"create namespace {namespace}", HTTPStatus.CONFLICT)
    return await connection.request("POST", path, body, headers, is_urgent=True)

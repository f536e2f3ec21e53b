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


class _Details(msgspec.Struct):
    kind: str = ""


class _NotFound(msgspec.Struct):
    details: _Details = msgspec.field(default_factory=_Details)


_not_found = msgspec.json.Decoder(_NotFound)


def is_namespace_missing(answer: ApiAnswer) -> bool:
    """Return whether an update was refused because the namespace of its object is missing.

    Objects outlive a namespace whose finalizers were removed by force: they can be read, and every
    write of them is answered as if there were none.
    """
    if answer.status != HTTPStatus.NOT_FOUND:
        return False
    try:
        return _not_found.decode(answer.body).details.kind == "namespaces"
    except msgspec.DecodeError:
        return False


async def create(
    connection: ApiConnection,
    path: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    namespace: str,
    action: str,
) -> ApiAnswer:
    """Create an object in ``namespace``, which is created too where it is missing.

    Returns the answer. Raises ``StoreError``, where ``action`` is what could not be done.
    """
    answer = await connection.request("POST", path, body, headers, is_urgent=True)
    if answer.status != HTTPStatus.NOT_FOUND:
        return answer
    # A POST names no object, so what was not found is the namespace.
    await create_namespace(connection, namespace, action)
    return await connection.request("POST", path, body, headers, is_urgent=True)


async def create_namespace(
    connection: ApiConnection, namespace: str, action: str, *, has_objects: bool = False
) -> None:
    """Create a namespace. Raises ``StoreError``, where ``action`` is what could not be done.

    ``has_objects``: it was removed by force, see ``is_namespace_missing``.
    """
    new = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    answer = await connection.request("POST", "/api/v1/namespaces", msgspec.json.encode(new))
    if answer.status == HTTPStatus.FORBIDDEN:
        reason = (
            " any more: it was removed by force, and its objects remain;" if has_objects else " and"
        )
        raise StoreRefused(
            f"cannot {action}: there is no namespace {namespace}{reason} it may not be created; "
            f"create it (kubectl create namespace {namespace})"
        )
    # A conflict: another process has created it meanwhile.
    wire.accepted(answer, f"create namespace {namespace}", HTTPStatus.CONFLICT)

"""Whether the API server lets an agent write what belongs to other nodes.

The policy ``npu-vigil-agent-own-node-only`` (``daemonset/base``) forbids it. To read policies would
need a right of its own, so two writes that it must refuse are tried as dry runs. They show
whether it applies to this process. An API server that does not refuse them changes nothing.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from contract.names import NODE_INFO_NAMESPACE, node_info_name
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from stores.kubernetes_api.client.attempts import ApiAnswer
    from stores.kubernetes_api.client.connection import ApiConnection

POLICY = "npu-vigil-agent-own-node-only"

_REHEARSAL = f"dryRun=All&{wire.FIELD_MANAGER}"
_NO_KEY_OF_OURS = "npu-vigil/rehearsal"


def is_refused_by_policy(answer: ApiAnswer) -> bool:
    """Return whether it was the policy that refused a write of this process."""
    return answer.status == HTTPStatus.UNPROCESSABLE_ENTITY and POLICY.encode() in answer.body


async def is_own_node_only(connection: ApiConnection, node: str) -> bool | None:
    """Try as dry runs writes that the policy must refuse to the agent of ``node``.

    Returns ``False`` if one of them is let through, and ``None`` if no answer shows it: the agent
    may not write at all, or something else refuses the dry run. Raises ``StoreUnavailable``.
    """
    document = _is_refused(await _document_of_another(connection, node))
    if document is False:
        return False
    label = _is_refused(await _annotation_of_others(connection, node))
    return False if label is False else document


async def _document_of_another(connection: ApiConnection, node: str) -> ApiAnswer:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": node_info_name(f"not-{node}")},
    }
    path = f"/api/v1/namespaces/{NODE_INFO_NAMESPACE}/configmaps?{_REHEARSAL}"
    return await connection.request(
        "POST", path, msgspec.json.encode(body), headers=wire.ONLY_METADATA
    )


async def _annotation_of_others(connection: ApiConnection, node: str) -> ApiAnswer:
    """Try to write another node's annotation, which the first release of the policy allowed."""
    return await connection.request(
        "PATCH",
        f"/api/v1/nodes/{quote(node, safe='')}/status?{_REHEARSAL}",
        msgspec.json.encode({"metadata": {"annotations": {_NO_KEY_OF_OURS: "true"}}}),
        headers=wire.MERGE_PATCH_HEADERS | wire.ONLY_METADATA,
    )


def _is_refused(answer: ApiAnswer) -> bool | None:
    if is_refused_by_policy(answer):
        return True
    return False if answer.status in (*wire.SUCCESS, HTTPStatus.CONFLICT) else None

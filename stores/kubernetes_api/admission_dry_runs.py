"""Whether the API server lets an agent write what belongs to other nodes.

The policy ``npu-vigil-agent-own-node-only`` (``daemonset/base``) forbids it. To read policies would
need a right of its own, so two writes that it must refuse are tried as dry runs. They show
whether it applies to this process. An API server that does not refuse them changes nothing.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from contract.names import NODE_INFO_NAMESPACE, node_info_name
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from stores.kubernetes_api.client.attempts import ApiAnswer
    from stores.kubernetes_api.client.connection import ApiConnection

POLICY = "npu-vigil-agent-own-node-only"

_DRY_RUN = f"dryRun=All&{wire.FIELD_MANAGER}"
_NO_KEY_OF_OURS = "npu-vigil/rehearsal"


def is_refused_by_policy(answer: ApiAnswer) -> bool:
    """Return whether it was the policy that refused a write of this process."""
    return answer.status == HTTPStatus.UNPROCESSABLE_ENTITY and POLICY.encode() in answer.body


async def is_own_node_only(connection: ApiConnection, node: str) -> bool | None:
    """Try as dry runs writes that the policy must refuse to the agent of ``node``.

    Returns ``False`` if one of them is let through, and ``None`` if no answer shows it: the agent
    may not write at all, or something else refuses the dry run. Raises ``StoreUnavailable``.
    """
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": node_info_name(f"not-{node}")},
    }
    path = wire.object_path("/api/v1", "configmaps", NODE_INFO_NAMESPACE)
    of_another = await connection.request(
        "POST", f"{path}?{_DRY_RUN}", msgspec.json.encode(document), headers=wire.ONLY_METADATA
    )
    if _is_refused(of_another) is False:
        return False
    # An annotation that is not ours, which the first release of the policy allowed.
    annotation = await connection.request(
        "PATCH",
        f"{wire.object_path('/api/v1', 'nodes', None, node)}/status?{_DRY_RUN}",
        msgspec.json.encode({"metadata": {"annotations": {_NO_KEY_OF_OURS: "true"}}}),
        headers=wire.MERGE_PATCH_HEADERS | wire.ONLY_METADATA,
    )
    return False if _is_refused(annotation) is False else _is_refused(of_another)


def _is_refused(answer: ApiAnswer) -> bool | None:
    if is_refused_by_policy(answer):
        return True
    # Admission comes before the storage: a name that is taken was let through.
    return False if answer.status in (*wire.SUCCESS, HTTPStatus.CONFLICT) else None

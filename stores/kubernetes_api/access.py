"""What this process and others may do in a cluster, asked of the API server; changes nothing."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec

from stores.document_names import check_node_name
from stores.kubernetes_api import wire
from stores.kubernetes_api.admission_dry_runs import is_own_node_only, is_refused_by_policy
from stores.kubernetes_api.client.connection import ApiConnection
from stores.kubernetes_api.pods_with_chips import ALIVE, PATH
from stores.kubernetes_api.watch import read_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.kubernetes import KubernetesObject

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io/v1", "authorization.k8s.io/v1"


class Right(NamedTuple):
    """``verb`` on ``resource`` (``nodes/status``: a subresource) of ``group``, in ``namespace``;
    an empty one: everywhere. With ``name`` only on the object of that name."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f"{resource}/{self.name}" if self.name else resource
        return f"{self.verb} {named} {f'in {self.namespace}' if self.namespace else 'everywhere'}"


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict


class TokenUser(msgspec.Struct, frozen=True):
    """A user as a TokenReview states it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenVerdict(msgspec.Struct):
    authenticated: bool = False
    user: TokenUser = TokenUser()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct):
    status: _TokenVerdict


class _ServerVersion(msgspec.Struct, rename="camel"):
    git_version: str = ""


_version = msgspec.json.Decoder(_ServerVersion)
_review = msgspec.json.Decoder(_Review).decode
_token_review = msgspec.json.Decoder(_TokenReview).decode


class Access:
    """Asks the API server that ``kubeconfig`` names, or this pod's. Raises ``StoreError``."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._connection = ApiConnection(kubeconfig)

    async def pods_on(self, node: str) -> list[KubernetesObject]:
        """Return the pods of a node that are neither done nor failed."""
        check_node_name(node)
        selector = quote(f"{ALIVE}={node}", safe="")
        answer = await self._connection.request("GET", f"{PATH}?fieldSelector={selector}")
        body = wire.accepted(answer, f"read the pods of node {node}")
        return list(wire.decoded(read_objects, body, "the list of pods makes no sense").items or ())

    async def version(self) -> str:
        """Return which release the API server is of."""
        answer = await self._connection.request("GET", "/version")
        body = wire.accepted(answer, "read the version of the API server")
        return wire.decoded(
            _version.decode, body, "the program that answers is not an API server"
        ).git_version

    async def missing(self, rights: Iterable[Right]) -> tuple[Right, ...]:
        """Return those of ``rights`` that are not granted."""
        return tuple([right for right in rights if not await self._allowed(right)])

    async def has_namespace(self, namespace: str, free_name: str) -> bool | None:
        """Return whether a ConfigMap could be created in ``namespace``; ``None`` if it may not be
        asked.

        Reading namespaces is not a right of ours, so creating ``free_name`` is tried as a dry run.
        """
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": free_name}}
        path = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All&{wire.FIELD_MANAGER}"
        answer = await self._connection.request("POST", path, msgspec.json.encode(body))
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        # What the policy refuses would be in a namespace that is there.
        is_there = answer.status in (*wire.SUCCESS, HTTPStatus.CONFLICT)
        return True if is_there or is_refused_by_policy(answer) else None

    async def is_own_node_only(self, node: str) -> bool | None:
        """Return whether this process may write only what belongs to ``node``, if that is known."""
        return await is_own_node_only(self._connection, node)

    async def close(self) -> None:
        """Give the connection back."""
        await self._connection.close()

    async def _allowed(self, right: Right) -> bool:
        resource, _, below = right.resource.partition("/")
        attributes = {
            "group": right.group,
            "resource": resource,
            "verb": right.verb,
            **({"namespace": right.namespace} if right.namespace else {}),
            **({"subresource": below} if below else {}),
            **({"name": right.name} if right.name else {}),
        }
        spec = {"resourceAttributes": attributes}
        kind, action = "SelfSubjectAccessReview", "ask for our own rights"
        body = await _reviewed(self._connection, _AUTHORIZATION, kind, spec, action)
        return wire.decoded(_review, body, action).status.allowed


class TokenReviews:
    """Asks the API server that ``kubeconfig`` names, or this pod's, whose a token is and what its
    user may do. Each method raises ``StoreError``.

    It has a connection of its own: where the API server limits reviews, documents are still
    written.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        self._connection = ApiConnection(kubeconfig)

    async def authenticate(self, token: str, audience: str) -> TokenUser | None:
        """Return whose token it is; ``None`` for one that is not valid for ``audience``."""
        spec = {"token": token, "audiences": [audience]}
        action = "review a token"
        body = await _reviewed(self._connection, _AUTHENTICATION, "TokenReview", spec, action)
        status = wire.decoded(_token_review, body, action).status
        # Authenticators that know no audiences name none: such a token is for the API server alone.
        is_valid = status.authenticated and audience in status.audiences
        return status.user if is_valid else None

    async def may_get(self, user: TokenUser, path: str) -> bool:
        """Return whether a user may get a path that is none of a resource."""
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        kind, action = "SubjectAccessReview", "review the rights of a user"
        body = await _reviewed(self._connection, _AUTHORIZATION, kind, spec, action)
        return wire.decoded(_review, body, action).status.allowed

    async def close(self) -> None:
        """Give the connection back."""
        await self._connection.close()


async def _reviewed(
    connection: ApiConnection, group: str, kind: str, spec: Mapping[str, object], action: str
) -> bytes:
    """Return the body of the answer to a review of ``kind``."""
    body = msgspec.json.encode({"apiVersion": group, "kind": kind, "spec": spec})
    answer = await connection.request("POST", f"/apis/{group}/{kind.lower()}s", body)
    return wire.accepted(answer, action)

"""The few fields of ConfigMaps, lists, watch frames and statuses that the store reads and writes.

The official client's models decode some hundred times slower than these types.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec

from contract.errors import (
    StoreConflict,
    StoreError,
    StoreForbidden,
    StoreNotFound,
    StoreRefused,
    StoreUnavailable,
)
from contract.validation_texts import decode_text
from stores.base import Document, ObjectOwner
from stores.kubernetes_api import protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stores.kubernetes_api.client.attempts import ApiAnswer

T = TypeVar("T")


class ConfigMapMetadata(msgspec.Struct, rename="camel"):
    """``metadata`` of a ConfigMap; what lacks one of the first three is none."""

    name: str
    namespace: str
    resource_version: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[ObjectOwner, ...] = ()
    deletion_timestamp: str | None = None


class ConfigMap(msgspec.Struct):
    """A ConfigMap without ``binaryData``, which is not used here."""

    metadata: ConfigMapMetadata
    data: dict[str, str] = {}
    immutable: bool = False


class _HeldMetadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    finalizers: tuple[str, ...] = ()


class Mutability(msgspec.Struct):
    """Whether a ConfigMap can be changed, which one it is, and what holds it when it is deleted."""

    metadata: _HeldMetadata
    immutable: bool = False


class ListMetadata(msgspec.Struct, rename="camel"):
    """``metadata`` of a list. ``continue_token`` is empty on its last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Frame(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct, rename="camel"):
    resource_version: str


class Bookmark(msgspec.Struct):
    """How far a watch has come."""

    metadata: _BookmarkMetadata


class ApiStatus(msgspec.Struct):
    """The API server's answer when it does not do what was asked."""

    message: str = ""
    reason: str = ""
    code: int = 0


config_map_decoder = msgspec.json.Decoder(ConfigMap)
mutability_decoder = msgspec.json.Decoder(Mutability)
frame_decoder = msgspec.json.Decoder(Frame)
bookmark_decoder = msgspec.json.Decoder(Bookmark)
status_decoder = msgspec.json.Decoder(ApiStatus)

FIELD_MANAGER = "fieldManager=npu-vigil"
"""The query of every write: the name that the server records for each field that is set."""

OPERATOR_MANAGER = "fieldManager=npu-vigil-operator"
"""The query of edits that a person makes by a command of ours."""

TOUCH_MANAGER = "fieldManager=npu-vigil-touch"
"""The query of a touch: with the other name the data would seem to be written now."""

ONLY_METADATA = {
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}
"""Asks for an answer that does not repeat the data."""

LIST_ONLY_METADATA = {
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
}
"""Asks the same of a list."""

WHOLE_WRITE_HEADERS = {"Content-Type": "application/vnd.kubernetes.protobuf"}
"""What goes with a ``config_map_body`` whose answer is to have the data as they are stored."""

WRITE_HEADERS = WHOLE_WRITE_HEADERS | ONLY_METADATA
"""What goes with each other ``config_map_body``."""

MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}
"""What goes with a JSON merge patch."""

SUCCESS = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED)
# 410 belongs to them: a version or a page's token has expired, and a new list helps.
_TEMPORARY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.GONE)


def object_path(api: str, kind: str, namespace: str | None, name: str | None = None) -> str:
    """Return the path of an object, or without ``name`` of all; ``api`` is as ``/api/v1``.

    Without ``namespace`` those of all namespaces, or one that is in none, as a Node.
    """
    parts = [] if namespace is None else ["namespaces", namespace]
    parts += [kind] if name is None else [kind, name]
    return "/".join((api, *(quote(part, safe="") for part in parts)))


def document(config_map: ConfigMap) -> Document:
    """Return the ConfigMap as a document of ours."""
    metadata = config_map.metadata
    return Document(
        namespace=metadata.namespace,
        name=metadata.name,
        data=config_map.data,
        labels=metadata.labels,
        annotations=metadata.annotations,
        version=metadata.resource_version,
        immutable=config_map.immutable,
        finalizers=metadata.finalizers,
        owners=metadata.owner_references,
        is_deleting=metadata.deletion_timestamp is not None,
    )


def config_map_body(document: Document, version: str | None) -> bytes:
    """Return the body of a create or replace; ``version`` makes it conditional."""
    try:
        return protobuf.config_map(document, version)
    except UnicodeEncodeError as error:
        place = f"{document.namespace}/{document.name}"
        raise StoreRefused(f"{place} is not all Unicode text: {error}") from None


def status_text(status: int, body: bytes) -> str:
    """Return the server's message, for a person."""
    try:
        message = status_decoder.decode(body).message
    except msgspec.DecodeError:
        message = body[:200].decode(errors="replace").strip()
    return f"{message} (status {status})" if message else f"status {status}"


def refusal(status: int, body: bytes, action: str) -> StoreError:
    """Return the error for an answer without success; ``action`` is what could not be done."""
    text = f"cannot {action}: {status_text(status, body)}"
    if status == HTTPStatus.CONFLICT:
        return StoreConflict(text)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return StoreForbidden(text)
    if status == HTTPStatus.NOT_FOUND:
        return StoreNotFound(text)
    if status in _TEMPORARY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return StoreUnavailable(text)
    return StoreRefused(text)


def accepted(answer: ApiAnswer, action: str, *more: int) -> bytes:
    """Return the body of an answer with a status of success, or one of ``more``.

    Raises ``refusal`` for each other status; ``action`` is what could not be done then.
    """
    if answer.status not in (*SUCCESS, *more):
        raise refusal(answer.status, answer.body, action)
    return answer.body


def decoded(decode: Callable[[bytes], T], body: bytes, problem: str) -> T:
    """Decode the body of an answer; ``decode`` may raise what msgspec does.

    Raises ``StoreUnavailable`` for a malformed one; ``problem`` is the begin of its text.
    """
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StoreUnavailable(f"{problem}: {decode_text(error)}") from error


def altered(action: str, fields: Iterable[str]) -> StoreRefused:
    """Return the error for an API server that made something else of our own write."""
    return StoreRefused(
        f"the answer to our own write differs from what was written ({action}): "
        f"{', '.join(fields)}; an admission webhook or policy changes it"
    )

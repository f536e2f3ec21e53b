"""The store that is a Kubernetes API server: documents are its ConfigMaps.

A write is one request in the usual case.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.errors import StoreConflict, StoreForbidden, StoreRefused, StoreUnavailable
from contract.validation_texts import decode_text
from stores.base import (
    Changed,
    Deleted,
    Document,
    DocumentsListed,
    ListedPage,
    PagedWatchEvent,
    Selection,
    Store,
    WatchEvent,
)
from stores.document_names import check_names
from stores.kubernetes_api import wire, writers
from stores.kubernetes_api.beats import LeaseHeartbeats
from stores.kubernetes_api.client.connection import ApiConnection
from stores.kubernetes_api.cluster import KubernetesCluster
from stores.kubernetes_api.device_taints import KubernetesDeviceTaints
from stores.kubernetes_api.leader import KubernetesLeaderLease
from stores.kubernetes_api.namespaces import create, create_namespace, is_namespace_missing
from stores.kubernetes_api.objects import KubernetesObjects
from stores.kubernetes_api.pods_with_chips import follow_pods
from stores.kubernetes_api.watch import ListPage, listed, watched
from stores.touch import TOUCHED, touched_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from stores.base import Beat, LastWriter, UsageEvent
    from stores.kubernetes_api.client.attempts import ApiAnswer

_ATTEMPTS = 3

_log = logging.getLogger(__name__)

_read_page = msgspec.json.Decoder(ListPage[wire.ConfigMap]).decode


class KubernetesStore(Store):
    """ConfigMaps of the API server that ``kubeconfig`` names, or of this pod's."""

    absence_is_deletion = True
    missed_changes = None
    """An API server reports all changes."""
    largest_document = None
    """None of ours is too large."""
    channel = None
    """Events of Kubernetes are for people."""
    leader_lock = None
    mark = None
    """An API server has certificates."""

    def __init__(self, url: str, kubeconfig: str | None, *, by_operator: bool = False) -> None:
        self.url = url
        self._manager = wire.OPERATOR_MANAGER if by_operator else wire.FIELD_MANAGER
        self._connection = ApiConnection(kubeconfig)
        self._heartbeats = LeaseHeartbeats(self._connection)
        self.refusals = self._heartbeats.refusals
        self.objects = KubernetesObjects(self._connection)
        self.cluster = KubernetesCluster(self._connection, self._manager)
        self.device_taints = KubernetesDeviceTaints(self._connection)
        self.leader_lease = KubernetesLeaderLease(self._connection)

    @property
    @override
    def certificate_ends_ms(self) -> Mapping[str, int]:
        return self._connection.certificate_ends_ms

    @override
    async def get(self, namespace: str, name: str) -> Document | None:
        check_names(namespace, name)
        path = _path(namespace, name)
        answer = await self._connection.request("GET", path, is_urgent=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        body = wire.accepted(answer, f"read ConfigMap {namespace}/{name}")
        return _document(body, f"the answer for ConfigMap {namespace}/{name}")

    @override
    async def list(self, selection: Selection) -> tuple[Document, ...]:
        path, query = _path(selection.namespace), _query(selection)
        is_of_one = selection.name is not None and selection.namespace is not None
        items, _ = await listed(
            self._connection, path, query, _read_page, "ConfigMaps", is_of_one=is_of_one
        )
        return tuple(map(wire.document, items))

    @override
    async def put(self, document: Document, *, expected: str | None = None) -> str:
        """See ``Store``. A missing namespace is created."""
        return (await self._put(document, expected, wire.WRITE_HEADERS)).version

    @override
    async def put_shown(self, document: Document, *, expected: str | None = None) -> Document:
        """See ``Store``. A missing namespace is created."""
        return await self._put(document, expected, wire.WHOLE_WRITE_HEADERS)

    async def _put(
        self, document: Document, expected: str | None, headers: Mapping[str, str]
    ) -> Document:
        """Put a document; return the answer, with data only if ``headers`` ask for them."""
        namespace, name = document.namespace, document.name
        check_names(namespace, name)
        action = f"write ConfigMap {namespace}/{name}"
        body = wire.config_map_body(document, expected)
        for _ in range(_ATTEMPTS):
            # PUT first, because mostly the document is there: then a write is one request.
            if expected != "":
                path = f"{_path(namespace, name)}?{self._manager}"
                answer = await self._connection.request("PUT", path, body, headers, is_urgent=True)
                shown = await self._shown(answer, document, action)
                if shown is not None:
                    return shown
                if answer.status == HTTPStatus.CONFLICT and expected is None:
                    continue
                if is_namespace_missing(answer):
                    is_there = await self.get(namespace, name) is not None
                    await create_namespace(
                        self._connection, namespace, action, has_objects=is_there
                    )
                    continue
                is_invalid = answer.status == HTTPStatus.UNPROCESSABLE_ENTITY
                if is_invalid and await self._make_way(document, expected, action):
                    # An API server refuses to create an object that brings a version.
                    body = wire.config_map_body(document, "")
                elif answer.status != HTTPStatus.NOT_FOUND:
                    raise wire.refusal(answer.status, answer.body, action)
                elif expected is not None:
                    raise StoreConflict(f"cannot {action}: version {expected} was deleted")
            path = f"{_path(namespace)}?{self._manager}"
            answer = await create(
                self._connection, path, body, headers, namespace=namespace, action=action
            )
            shown = await self._shown(answer, document, action)
            if shown is not None:
                return shown
            is_conflict = answer.status == HTTPStatus.CONFLICT and expected is None
            if not is_conflict and answer.status != HTTPStatus.NOT_FOUND:
                raise wire.refusal(answer.status, answer.body, action)
        raise StoreUnavailable(f"cannot {action}: others write it all the time")

    async def _shown(self, answer: ApiAnswer, document: Document, action: str) -> Document | None:
        """Return what was written by this attempt, or by one before that got no answer."""
        if answer.status in wire.SUCCESS:
            return _document(answer.body, f"the answer to {action}")
        was_late = answer.status == HTTPStatus.CONFLICT and answer.was_repeated
        return await self._own(document) if was_late else None

    async def _own(self, document: Document) -> Document | None:
        """Return what is there, if an attempt of ours that got no answer wrote it.

        Its other attempt meets a document that is newer than the one it was to replace.
        """
        shown = await self.get(document.namespace, document.name)
        if shown is None:
            return None
        is_own = (shown.data, shown.labels, shown.annotations) == (
            document.data,
            document.labels,
            document.annotations,
        )
        return shown if is_own else None

    async def _make_way(self, document: Document, expected: str | None, action: str) -> bool:
        """Delete an immutable ConfigMap; return whether it was immutable.

        Its uid is demanded, so that no other one is deleted that was made meanwhile.
        """
        path = _path(document.namespace, document.name)
        answer = await self._connection.request("GET", path)
        if answer.status != HTTPStatus.OK:
            return answer.status == HTTPStatus.NOT_FOUND
        problem = f"the answer to {action} is not a ConfigMap"
        there = wire.decoded(wire.mutability_decoder.decode, answer.body, problem)
        if not there.immutable:
            return False
        if expected is not None and there.metadata.resource_version != expected:
            raise StoreConflict(f"cannot {action}: expected version {expected}")
        if there.metadata.finalizers:
            finalizers = ", ".join(there.metadata.finalizers)
            raise StoreRefused(
                f"cannot {action}: it was made immutable, and a deletion waits for finalizers of "
                f"others ({finalizers}); let their owners remove them"
            )
        only = {"uid": there.metadata.uid}
        if expected is not None:
            only["resourceVersion"] = expected
        options = msgspec.json.encode({"preconditions": only})
        answer = await self._connection.request("DELETE", path, options)
        if answer.status == HTTPStatus.FORBIDDEN:
            raise StoreForbidden(
                f"cannot {action}: it was made immutable, and we may not delete it; run kubectl "
                f"delete configmap -n {document.namespace} {document.name}"
            )
        action = f"{action}: it is immutable and cannot be deleted"
        wire.accepted(answer, action, HTTPStatus.NOT_FOUND)
        _log.warning(
            "ConfigMap %s/%s: it was made immutable; it is deleted and created again",
            document.namespace,
            document.name,
        )
        return True

    @override
    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        check_names(namespace, name)
        options = {"preconditions": {"resourceVersion": expected}}
        answer = await self._connection.request(
            "DELETE",
            _path(namespace, name),
            msgspec.json.encode(options) if expected else None,
            is_urgent=True,
        )
        wire.accepted(answer, f"delete ConfigMap {namespace}/{name}", HTTPStatus.NOT_FOUND)

    @override
    def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """See ``Store``. Missing rights are waited for: they may come, as tokens and roles do."""
        path, query = _path(selection.namespace), _query(selection)
        return watched(self._connection, path, query, _read_page, "ConfigMaps", _everything, _event)

    @override
    def watch_by_page(self, selection: Selection) -> AsyncIterator[PagedWatchEvent]:
        path, query = _path(selection.namespace), _query(selection)
        return watched(
            *(self._connection, path, query, _read_page, "ConfigMaps", _everything, _event),
            page_event=_documents_page,
        )

    @override
    def usage(self, node: str) -> AsyncIterator[UsageEvent]:
        return follow_pods(self._connection, node)

    @override
    async def beat(self, beat: Beat) -> None:
        await self._heartbeats.beat(beat)

    @override
    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        return await self._heartbeats.beats(node)

    @override
    async def dry_run_beat(self, node: str) -> None:
        await self._heartbeats.dry_run(node)

    @override
    async def forget_beat(self, node: str) -> None:
        await self._heartbeats.forget(node)

    @override
    async def touch(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        check_names(namespace, name)
        metadata: dict[str, object] = {"annotations": {TOUCHED: touched_now()}}
        if expected:
            metadata["resourceVersion"] = expected
        answer = await self._connection.request(
            "PATCH",
            f"{_path(namespace, name)}?{wire.TOUCH_MANAGER}",
            msgspec.json.encode({"metadata": metadata}),
            headers=wire.MERGE_PATCH_HEADERS | wire.ONLY_METADATA,
        )
        # Another version: its watchers have seen an event by now, which is all that a touch is for.
        if not expected or answer.status != HTTPStatus.CONFLICT:
            wire.accepted(answer, f"touch ConfigMap {namespace}/{name}", HTTPStatus.NOT_FOUND)

    @override
    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        return await self._writer(namespace, name, writers.newest_writer)

    @override
    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        return await self._writer(namespace, name, writers.newest_other)

    async def _writer(
        self,
        namespace: str,
        name: str,
        choose: Callable[[Iterable[writers.ManagedFields]], LastWriter | None],
    ) -> LastWriter | None:
        check_names(namespace, name)
        action = f"read who writes ConfigMap {namespace}/{name}"
        answer = await self._connection.request(
            "GET", _path(namespace, name), headers=wire.ONLY_METADATA
        )
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        body = wire.accepted(answer, action)
        try:
            return choose(writers.decoder.decode(body).metadata.managed_fields)
        except ValueError as error:
            raise StoreUnavailable(
                f"the answer to {action} makes no sense: {decode_text(error)}"
            ) from error

    @override
    async def close(self) -> None:
        await self._connection.close()


def _path(namespace: str | None, name: str | None = None) -> str:
    return wire.object_path("/api/v1", "configmaps", namespace, name)


def _query(selection: Selection) -> dict[str, str]:
    query = {}
    if selection.name is not None:
        query["fieldSelector"] = f"metadata.name={selection.name}"
    labels = [] if selection.label is None else ["=".join(selection.label)]
    if selection.has_label is not None:
        labels.append(selection.has_label)
    if labels:
        query["labelSelector"] = ",".join(labels)
    return query


def _document(body: bytes, action: str) -> Document:
    problem = f"{action} is not a ConfigMap"
    return wire.document(wire.decoded(wire.config_map_decoder.decode, body, problem))


def _everything(items: list[wire.ConfigMap]) -> WatchEvent:
    return DocumentsListed(tuple(map(wire.document, items)))


def _documents_page(items: list[wire.ConfigMap], is_first: bool) -> PagedWatchEvent:
    return ListedPage(tuple(map(wire.document, items)), is_first)


def _event(kind: str, content: msgspec.Raw) -> tuple[WatchEvent, str]:
    document = wire.document(wire.config_map_decoder.decode(content))
    if kind == "DELETED":
        return Deleted(document.namespace, document.name), document.version
    return Changed(document), document.version

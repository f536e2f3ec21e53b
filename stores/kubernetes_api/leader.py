"""The Lease by which one of several daemons leads: read, followed, and written by its version.

What it holds beside the holder is for people (``kubectl get lease``): its times are not compared.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from contract.names import LEADER_LEASE, LEADER_NAMESPACE
from stores.base import Tenure
from stores.kubernetes_api import wire
from stores.kubernetes_api.namespaces import create_namespace
from stores.kubernetes_api.watch import ListPage, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEADER_NAMESPACE}/leases"

NO_TENURE = Tenure("", 0)
"""The value where there is no Lease."""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: wire.LabelledMetadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_Lease)
_read_page = msgspec.json.Decoder(ListPage[_Lease]).decode


class KubernetesLeaderLease:
    """See ``LeaderLease``. ``name`` is that of the Lease."""

    def __init__(self, connection: ApiConnection, name: str = LEADER_LEASE) -> None:
        self._connection = connection
        self._name = name
        self._path = f"{_LEASES}/{name}"
        self._what = f"Lease {LEADER_NAMESPACE}/{name}"
        self._acquired: tuple[str, str] | None = None
        """Who acquired the Lease by us, and when."""
        self._added = wire.LabelledMetadata()
        """The labels and annotations of the Lease: all are other people's, and stay."""

    def watch(self) -> AsyncIterator[Tenure | Interrupted]:
        """See ``LeaderLease``."""
        query = {"fieldSelector": f"metadata.name={self._name}"}
        return watched(
            self._connection, _LEASES, query, _read_page, self._what, self._everything, self._one
        )

    async def read(self) -> Tenure:
        """See ``LeaderLease``."""
        answer = await self._connection.request("GET", self._path, is_urgent=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            return NO_TENURE
        what = f"read {self._what}"
        return self._decoded(wire.accepted(answer, what), what)

    async def write(self, tenure: Tenure) -> Tenure:
        """See ``LeaderLease``. A missing namespace is created."""
        what = f"write {self._what}"
        body = self._body(tenure)
        method, path = ("PUT", self._path) if tenure.version else ("POST", _LEASES)
        for _ in range(2):
            answer = await self._connection.request(
                method, f"{path}?{wire.FIELD_MANAGER}", body, is_urgent=True
            )
            if answer.status != HTTPStatus.NOT_FOUND:
                break
            if tenure.version:
                # It was deleted: the next candidate makes a new one.
                raise wire.refusal(HTTPStatus.CONFLICT, answer.body, what)
            await create_namespace(self._connection, LEADER_NAMESPACE, what)
        written = self._decoded(wire.accepted(answer, what), what)
        _check(tenure, written, what)
        return written

    def _body(self, tenure: Tenure) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        if self._acquired is None or self._acquired[0] != tenure.holder:
            self._acquired = (tenure.holder, now)
        metadata: dict[str, object] = {"name": self._name, "namespace": LEADER_NAMESPACE}
        if tenure.version:
            metadata["resourceVersion"] = tenure.version
            metadata["labels"] = self._added.labels
            metadata["annotations"] = self._added.annotations
        spec = {
            "holderIdentity": tenure.holder,
            "leaseDurationSeconds": tenure.duration_seconds,
            "leaseTransitions": tenure.transitions,
            "acquireTime": self._acquired[1],
            "renewTime": now,
        }
        api = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return msgspec.json.encode({**api, "metadata": metadata, "spec": spec})

    def _decoded(self, body: bytes, what: str) -> Tenure:
        return self._tenure(wire.decoded(_decoder, body, f"the answer to {what} is no Lease"))

    def _tenure(self, lease: _Lease) -> Tenure:
        self._added = lease.metadata
        spec = lease.spec
        return Tenure(
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            spec.lease_transitions or 0,
            lease.metadata.resource_version,
        )

    def _everything(self, found: list[_Lease]) -> Tenure:
        return self._tenure(found[0]) if found else NO_TENURE

    def _one(self, kind: str, content: msgspec.Raw) -> tuple[Tenure, str]:
        tenure = self._tenure(_decoder.decode(content))
        return NO_TENURE if kind == "DELETED" else tenure, tenure.version


def _check(wanted: Tenure, written: Tenure, what: str) -> None:
    """Raise ``StoreRefused`` where the API server made something else of our own write."""
    pairs = (
        ("holderIdentity", wanted.holder, written.holder),
        ("leaseDurationSeconds", wanted.duration_seconds, written.duration_seconds),
        ("leaseTransitions", wanted.transitions, written.transitions),
    )
    differing = [field for field, ours, there in pairs if ours != there]
    if differing:
        raise wire.altered(what, differing)

"""The Lease by which one of several daemons leads: read, followed, and written by its version.

What it holds beside the holder is for people (``kubectl get lease``): its times are not compared.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.names import LEADER_LEASE, LEADER_NAMESPACE
from stores.base import LeaderElectionRecord, LeaderLease
from stores.kubernetes_api import wire
from stores.kubernetes_api.leases import API, LeaseSpec
from stores.kubernetes_api.namespaces import create, create_namespace, is_namespace_missing
from stores.kubernetes_api.watch import ListPage, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection

_LEASES = wire.object_path(API, "leases", LEADER_NAMESPACE)

NO_RECORD = LeaderElectionRecord("", 0)
"""The value where there is not a Lease."""


class _LeaderMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[dict[str, object], ...] = ()


class _Lease(msgspec.Struct):
    metadata: _LeaderMetadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


_decoder = msgspec.json.Decoder(_Lease)
_read_page = msgspec.json.Decoder(ListPage[_Lease]).decode


class KubernetesLeaderLease(LeaderLease):
    """See ``LeaderLease``. ``name`` is that of the Lease."""

    def __init__(self, connection: ApiConnection, name: str = LEADER_LEASE) -> None:
        self._connection = connection
        self._name = name
        self._path = f"{_LEASES}/{name}"
        self._what = f"Lease {LEADER_NAMESPACE}/{name}"
        self._acquired: tuple[str, str] | None = None
        """Who acquired the Lease by us, and when."""
        self._added = _LeaderMetadata()
        """The metadata of the Lease that are other people's, and stay."""

    @override
    def watch(self) -> AsyncIterator[LeaderElectionRecord | Interrupted]:
        query = {"fieldSelector": f"metadata.name={self._name}"}
        return watched(
            self._connection, _LEASES, query, _read_page, self._what, self._everything, self._one
        )

    @override
    async def read(self) -> LeaderElectionRecord:
        answer = await self._connection.request("GET", self._path, is_urgent=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            return NO_RECORD
        action = f"read {self._what}"
        return self._decoded(wire.accepted(answer, action), action)

    @override
    async def write(self, record: LeaderElectionRecord) -> LeaderElectionRecord:
        """See ``LeaderLease``. A missing namespace is created."""
        action = f"write {self._what}"
        body = self._body(record)
        if record.version:
            path = f"{self._path}?{wire.FIELD_MANAGER}"
            answer = await self._connection.request("PUT", path, body, is_urgent=True)
            if is_namespace_missing(answer):
                await create_namespace(self._connection, LEADER_NAMESPACE, action, has_objects=True)
                answer = await self._connection.request("PUT", path, body, is_urgent=True)
            if answer.status == HTTPStatus.NOT_FOUND:
                # It was deleted: the next candidate makes a new one.
                raise wire.refusal(HTTPStatus.CONFLICT, answer.body, action)
        else:
            path = f"{_LEASES}?{wire.FIELD_MANAGER}"
            answer = await create(
                self._connection, path, body, namespace=LEADER_NAMESPACE, action=action
            )
        written = self._decoded(wire.accepted(answer, action), action)
        _check(record, written, action)
        return written

    def _body(self, record: LeaderElectionRecord) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        # As in client-go, ``acquireTime`` changes with the holder and not with each renewal.
        if self._acquired is None or self._acquired[0] != record.holder:
            self._acquired = (record.holder, now)
        metadata: dict[str, object] = {"name": self._name, "namespace": LEADER_NAMESPACE}
        if record.version:
            # A PUT replaces the whole object, so what others have added to it is written again.
            metadata["resourceVersion"] = record.version
            metadata["labels"] = self._added.labels
            metadata["annotations"] = self._added.annotations
            metadata["finalizers"] = self._added.finalizers
            metadata["ownerReferences"] = self._added.owner_references
        spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_seconds,
            "leaseTransitions": record.transitions,
            "acquireTime": self._acquired[1],
            "renewTime": now,
        }
        api = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return msgspec.json.encode({**api, "metadata": metadata, "spec": spec})

    def _decoded(self, body: bytes, action: str) -> LeaderElectionRecord:
        problem = f"the answer to {action} is not a Lease"
        return self._record_of(wire.decoded(_decoder.decode, body, problem))

    def _record_of(self, lease: _Lease) -> LeaderElectionRecord:
        self._added = lease.metadata
        spec = lease.spec
        return LeaderElectionRecord(
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            spec.lease_transitions or 0,
            lease.metadata.resource_version,
        )

    def _everything(self, leases: list[_Lease]) -> LeaderElectionRecord:
        return self._record_of(leases[0]) if leases else NO_RECORD

    def _one(self, kind: str, content: msgspec.Raw) -> tuple[LeaderElectionRecord, str]:
        record = self._record_of(_decoder.decode(content))
        # The frame of a deletion has the last state of the object, with a holder.
        return NO_RECORD if kind == "DELETED" else record, record.version


def _check(wanted: LeaderElectionRecord, written: LeaderElectionRecord, action: str) -> None:
    """Raise ``StoreRefused`` where the API server made something else of our own write."""
    pairs = (
        ("holderIdentity", wanted.holder, written.holder),
        ("leaseDurationSeconds", wanted.duration_seconds, written.duration_seconds),
        ("leaseTransitions", wanted.transitions, written.transitions),
    )
    differing = [field for field, ours, there in pairs if ours != there]
    if differing:
        # A Lease whose answer differs is an error of that write, not a foreign one (decision 13).
        raise wire.altered(action, differing)

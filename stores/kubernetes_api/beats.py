"""Heartbeats in a Kubernetes API server: one write per beat, one cheap list for all of them.

A list is asked for with ``resourceVersion=0``: the API server answers from its cache, in one piece,
without a question to etcd. It also does so while etcd is away and no beat can be written, so before
each list etcd is asked for something small.
"""

from __future__ import annotations

import functools
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import msgspec

from contract.errors import StoreConflict, StoreUnavailable
from contract.names import HEARTBEAT_NAMESPACE, heartbeat_name
from contract.refusal import Reason
from stores.base import Beat
from stores.document_names import check_node_name
from stores.kubernetes_api import leases, wire
from stores.kubernetes_api.namespaces import create, create_namespace, is_namespace_missing
from stores.refusals import Refusals

if TYPE_CHECKING:
    from stores.kubernetes_api.client.attempts import ApiAnswer
    from stores.kubernetes_api.client.connection import ApiConnection

_LEASES = wire.object_path(leases.API, "leases", HEARTBEAT_NAMESPACE)
_FROM_CACHE = "resourceVersion=0"
_LABELLED = urlencode({"labelSelector": "=".join(leases.LABEL)})
_ETCD = (
    f"/api/v1/namespaces/{HEARTBEAT_NAMESPACE}/configmaps"
    "?fieldSelector=metadata.name%3Dnpu-vigil&limit=1"
)
"""One object by its name, there or not; who lists heartbeats watches these, so has the right."""
_LIST_SECONDS = 30.0
_ATTEMPTS = 3
_DRY_RUN_HOLDER = "npu-vigil-rehearsal"
_DRY_RUN_SECONDS = 5.0


class _Held(NamedTuple):
    holder: str
    version: str


class LeaseHeartbeats:
    """The Leases of all nodes behind one connection."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._held: dict[str, _Held] = {}
        """By node, our last beat that was acknowledged."""
        self._altered: dict[str, tuple[str, Beat]] = {}
        """By node, our last beat and the version of the answer to it that was otherwise."""
        self.refusals = Refusals()
        self._good: dict[str, Beat] = {}
        """By name of the Lease, the last good heartbeat of each that was listed."""

    async def beat(self, beat: Beat) -> None:
        """Renew the Lease. The first beat of a holder also reads, to count changes of hands.

        Each one names the version that it follows: one that arrives late undoes none that came
        after it, of this holder or of another.
        """
        action = f"renew Lease {HEARTBEAT_NAMESPACE}/{heartbeat_name(beat.node)}"
        for is_again in (False, *(_ATTEMPTS - 1) * (True,)):
            own_lease = self._held.get(beat.node)
            if own_lease is not None and own_lease.holder == beat.holder:
                is_written = await self._renew(beat, own_lease.version, None, action)
            else:
                lease = await self._read(beat.node, "", action)
                if lease is not None and is_again and self._beat(lease) == beat:
                    self._remember(beat, lease)  # by an attempt of ours that got no answer
                    return
                if lease is None:
                    is_written = await self._create(beat, action)
                else:
                    is_taken = lease.holder != beat.holder
                    # As in leader election: counted, and acquired anew, only
                    # when the holder changes (docs/stores.md).
                    transitions = lease.transitions + 1 if is_taken else None
                    version = lease.metadata.resource_version
                    is_written = await self._renew(beat, version, transitions, action)
            if is_written:
                return
            # Another process wrote or deleted it, or it was an earlier attempt of ours.
            if self._held.pop(beat.node, None) is not None:
                await self._check_holder(beat, action)
        raise StoreUnavailable(f"cannot {action}: others write and delete it all the time")

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        """Return the heartbeats of all nodes, or of one from the API server's cache."""
        if node is None:
            good = {}
            for listed in await self._list():
                beat = self._beat(listed)
                if beat is not None:
                    good[listed.metadata.name] = beat
            self._good = good
            return tuple(good.values())
        action = f"read Lease {HEARTBEAT_NAMESPACE}/{heartbeat_name(node)}"
        lease = await self._read(node, _FROM_CACHE, action)
        version, own = self._altered.get(node, ("", None))
        if lease is not None and own is not None and lease.metadata.resource_version == version:
            return (own,)  # an admission webhook made another one of it
        beat = None if lease is None else self._beat(lease)
        return () if beat is None else (beat,)

    async def dry_run(self, node: str) -> None:
        """Create a Lease as a dry run. A conflict with an existing Lease is an answer, too."""
        beat = Beat(node, _DRY_RUN_HOLDER, _DRY_RUN_SECONDS, 0)
        answer = await self._connection.request(
            "POST",
            f"{_LEASES}?dryRun=All&{wire.FIELD_MANAGER}",
            msgspec.json.encode(leases.whole(beat)),
        )
        action = f"make a dry run of a heartbeat of node {node}"
        wire.accepted(answer, action, HTTPStatus.CONFLICT)

    async def forget(self, node: str) -> None:
        """Delete the Lease of ``node``; a missing one is not an error."""
        answer = await self._connection.request("DELETE", _path(node))
        action = f"delete Lease {HEARTBEAT_NAMESPACE}/{heartbeat_name(node)}"
        wire.accepted(answer, action, HTTPStatus.NOT_FOUND)
        self._held.pop(node, None)

    async def _check_holder(self, beat: Beat, action: str) -> None:
        """Raise ``StoreConflict`` if another holder has the Lease now."""
        lease = await self._read(beat.node, "", action)
        if lease is not None and lease.holder not in ("", beat.holder):
            # Not written over: decision 5 first settles whose the
            # name of the node is (decision 15).
            raise StoreConflict(f"cannot {action}: another holder has written it")

    async def _renew(self, beat: Beat, version: str, transitions: int | None, action: str) -> bool:
        """Write over ``version``; return whether that was there and is replaced."""
        answer = await self._connection.request(
            "PATCH",
            f"{_path(beat.node)}?{wire.FIELD_MANAGER}",
            msgspec.json.encode(leases.fields(beat, transitions, version)),
            # A merge patch, so that labels and annotations of others stay without a read.
            headers=wire.MERGE_PATCH_HEADERS,
            # A node must not fall silent because the API server asks for a pause (decision 15).
            is_urgent=True,
        )
        if is_namespace_missing(answer):
            await create_namespace(self._connection, HEARTBEAT_NAMESPACE, action, has_objects=True)
        return self._is_written(beat, answer, action)

    def _is_written(self, beat: Beat, answer: ApiAnswer, action: str) -> bool:
        if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            return False
        lease = _decoded(wire.accepted(answer, action), action)
        self._remember(beat, lease)
        self._check(beat, lease, action)
        return True

    def _remember(self, beat: Beat, lease: leases.Lease) -> None:
        self._held[beat.node] = _Held(beat.holder, lease.metadata.resource_version)

    def _check(self, beat: Beat, lease: leases.Lease, action: str) -> None:
        """Raise ``StoreRefused`` where the API server made something else of our own beat."""
        self._altered.pop(beat.node, None)
        stored = self._beat(lease)
        if stored == beat:
            return
        self._altered[beat.node] = (lease.metadata.resource_version, beat)
        fields = beat.__struct_fields__ if stored is not None else ()
        differing = [name for name in fields if getattr(stored, name) != getattr(beat, name)]
        raise wire.altered(action, differing or ["no heartbeat"])

    async def _create(self, beat: Beat, action: str) -> bool:
        """Create the first Lease of this node; return whether there was none."""
        body = msgspec.json.encode(leases.whole(beat))
        path = f"{_LEASES}?{wire.FIELD_MANAGER}"
        answer = await create(
            self._connection, path, body, namespace=HEARTBEAT_NAMESPACE, action=action
        )
        return self._is_written(beat, answer, action)

    async def _read(self, node: str, query: str, action: str) -> leases.Lease | None:
        path = f"{_path(node)}?{query}"
        answer = await self._connection.request("GET", path, is_urgent=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return _decoded(wire.accepted(answer, action), action)

    async def _list(self) -> list[leases.Lease]:
        wire.accepted(await self._connection.request("GET", _ETCD), "list Leases")
        path = f"{_LEASES}?{_LABELLED}&{_FROM_CACHE}"
        answer = await self._connection.list(path, _LIST_SECONDS)
        listed, problems = leases.decode_list(wire.accepted(answer, "list Leases"))
        places = {f"Lease in the list ({problem})" for problem in problems}
        for place in places:
            self.refusals.find(place, Reason.UNREADABLE, "it is not a valid heartbeat: malformed")
        # Mostly nothing is refused; then no set of 10,000 places is made for each list.
        if not self.refusals.is_empty:
            places.update(_place(lease.metadata.name) for lease in listed)
            self.refusals.keep(places.__contains__)
        return listed

    def _beat(self, lease: leases.Lease) -> Beat | None:
        """Return the beat of a Lease, or the last good one where the Lease is refused."""
        name = lease.metadata.name
        before = self._good.get(name)
        try:
            beat = leases.beat_of(lease, before)
        except leases.NoBeat as error:
            self.refusals.find(_place(name), error.reason, f"it is not a valid heartbeat: {error}")
            return before
        if not self.refusals.is_empty:
            self.refusals.accept(_place(name))
        return beat


def _place(name: str) -> str:
    return f"Lease {HEARTBEAT_NAMESPACE}/{name}"


@functools.lru_cache(maxsize=16)
def _path(node: str) -> str:
    # An agent asks for its own twice in each interval.
    check_node_name(node)
    return wire.object_path(leases.API, "leases", HEARTBEAT_NAMESPACE, heartbeat_name(node))


def _decoded(body: bytes, action: str) -> leases.Lease:
    return wire.decoded(leases.decoder.decode, body, f"the answer to {action} is not a Lease")

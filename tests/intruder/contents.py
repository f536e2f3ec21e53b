"""What an actor writes into its own documents about the nodes, resources and services of others.

Roles, policies and the broker's rights permit these writes. A real aggregator reads them and
refuses them by a check in its code or by a setting.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from contract.documents.episodes import EpisodeEvent
from contract.documents.public_fault import (
    DATA_KEY,
    Influence,
    PublicFault,
    PublicFaultEntry,
    encode_public_fault,
)
from contract.names import PUBLIC_FAULT_NAMESPACE, public_fault_name
from contract.observation import chip_subject
from contract.topics import events_topic
from stores.base import Beat, Document, HistoryBatch
from stores.kubernetes_api import leases
from tests.aggregator.daemon import Daemon, delete_documents, put_documents
from tests.aggregator.nodes import healthy, report
from tests.aggregator.rank_tables.rings import rings
from tests.intruder import without_checks
from tests.intruder.broker import Client
from tests.intruder.requests import LEASES, OTHER, PUBLIC_FAULT, TENANT
from tests.intruder.table import Actor, Content, Protection, Row, Thing, Verb
from tests.intruder.without_checks import REMOVALS
from tests.packaging.accounts import CREATED, NODE, OK
from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.intruder.api_server import ApiServer
    from tests.intruder.table import Attempt
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

_SERVED = "inference"
_CODE = "80E01801"
_SECONDS = 60.0
_SETTINGS = f'[public_faults]\nnamespaces = ["{PUBLIC_FAULT_NAMESPACE}"]\n'
_OWN, _OTHERS = (
    (PUBLIC_FAULT_NAMESPACE, public_fault_name(node, "dpcStorage")) for node in (NODE, OTHER)
)
_PLACES = {
    Content.HEARTBEAT: f"Lease mindx-dl/npu-vigil-{NODE}",
    Content.EPISODES: events_topic(NODE),
    Content.TENANTS_FAULT: TENANT,
}
"""The names of refused places; others are documents of public faults."""
_REASONS = {
    "other-node": Protection.OTHER_NODE,
    "other-resource": Protection.OTHER_RESOURCE,
    "namespace": Protection.FAULT_NAMESPACES,
}

_OF_A_NODE = (
    (Verb.WRITE, Content.FAULT, Protection.OTHER_NODE),
    (Verb.DELETE, Content.RECOVERY, Protection.OTHER_NODE),
    (Verb.WRITE, Content.RESOURCE, Protection.OTHER_RESOURCE),
)


def _row(actor: Actor, thing: Thing, verb: Verb, content: Content, protection: Protection) -> Row:
    return Row(actor, thing, verb, content.value, content, (protection,))


ON_BROKER: tuple[Row, ...] = (
    *(_row(Actor.CERTIFICATE, Thing.DOCUMENTS, *rest) for rest in _OF_A_NODE),
    _row(Actor.CERTIFICATE, Thing.TOPICS, Verb.WRITE, Content.EPISODES, Protection.OTHER_NODE),
)
ON_API_SERVER: tuple[Row, ...] = (
    *(_row(Actor.AGENT, Thing.DOCUMENTS, *rest) for rest in _OF_A_NODE),
    _row(Actor.AGENT, Thing.LEASES, Verb.WRITE, Content.HEARTBEAT, Protection.OTHER_NODE),
    _row(
        *(Actor.TENANT, Thing.DOCUMENTS, Verb.WRITE, Content.TENANTS_FAULT),
        Protection.FAULT_NAMESPACES,
    ),
    _row(
        *(Actor.TENANT, Thing.RANK_TABLES, Verb.WRITE, Content.RANK_TABLE),
        Protection.TABLE_OWNERS,
    ),
)


class Place(Protocol):
    """A store in which an administrator and actors write."""

    @property
    def options(self) -> tuple[str, ...]:
        """How the aggregator is started on it."""

    @property
    def store(self) -> ControlPlane | str:
        """The store of an administrator."""

    def write(self, actor: Actor, document: Document) -> None:
        """Write a document as an actor."""

    def write_other(self) -> None:
        """Write what is no document: a heartbeat or episodes."""


class OnBroker:
    """A broker with the shipped rights, and the certificate of one node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.options = ("--store", broker.url)
        self.store = broker.url

    def write(self, actor: Actor, document: Document) -> None:
        """Publish to the topic of the node's public faults."""
        assert actor is Actor.CERTIFICATE
        text = json.dumps({"labels": dict(document.labels), "data": dict(document.data)})
        self._publish(f"vigil/v1/nodes/{NODE}/dpc-fault", text.encode())

    def write_other(self) -> None:
        """Publish episodes of the other node."""
        now_ms = time.time_ns() // 1_000_000
        event = EpisodeEvent(1, 0, "abc", "began", chip_subject(3), _CODE, now_ms, None, "x")
        batch = HistoryBatch(OTHER, f"journal-of-{OTHER}", 0, 1, (event,))
        self._publish(events_topic(NODE), msgspec.json.encode(batch), retain=False)

    def _publish(self, topic: str, payload: bytes, *, retain: bool = True) -> None:
        client = Client(self._broker, NODE)
        try:
            assert client.publish(topic, payload, retain=retain)
        finally:
            client.close()


class OnApiServer:
    """An API server with the shipped roles and policies, and the accounts of the actors."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.options = ("--store", "kubernetes:", "--kubeconfig", str(server.plane.kubeconfig))
        self.store = server.plane

    def write(self, actor: Actor, document: Document) -> None:
        """Create the ConfigMap."""
        metadata = {"name": document.name, "labels": dict(document.labels)}
        path = f"/api/v1/namespaces/{document.namespace}/configmaps"
        self._ask(actor, "POST", path, {"metadata": metadata, "data": dict(document.data)})

    def write_other(self) -> None:
        """Name the other node in the heartbeat of the agent's node."""
        beat = Beat(OTHER, "me", 300.0, time.time_ns() // 1_000_000)
        self._ask(Actor.AGENT, "PATCH", f"{LEASES}/npu-vigil-{NODE}", leases.fields(beat, 0))

    def _ask(self, actor: Actor, method: str, path: str, body: Mapping[str, Any]) -> None:
        status, answer = self._server.accounts[actor].ask(method, path, body, is_kept=True)
        assert status in (OK, CREATED), answer


class Contents:
    """An aggregator on a store with documents of two nodes and the table of one service."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._place = place
        self._directory = directory
        self._removed: tuple[Protection, ...] = ()
        self._number = 0
        put_documents(
            place.store,
            *(report(node, healthy()) for node in (NODE, OTHER)),
            rings(job=_SERVED, namespace=PUBLIC_FAULT_NAMESPACE),
        )
        self.daemon = self._started()

    def _started(self) -> Daemon:
        settings = self._directory / "aggregator.toml"
        settings.write_text("" if Protection.FAULT_NAMESPACES in self._removed else _SETTINGS)
        daemon = Daemon(self._directory / "state", *self._place.options, "--config", str(settings))
        checks = [protection.name for protection in self._removed if protection in REMOVALS]
        if checks:
            daemon.program = without_checks.__name__
            daemon.environment[without_checks.VARIABLE] = ",".join(checks)
        daemon.start()
        return daemon

    def remove(self, actor: Actor, protections: tuple[Protection, ...]) -> None:
        """Remove these protections, and restore all others; the aggregator restarts."""
        del actor
        if protections != self._removed:
            self._removed = protections
            self.daemon.stop()
            self.daemon = self._started()

    def refusing(self, actor: Actor, attempt: Attempt) -> Protection | None:
        """Write something; return what refuses it, or ``None`` once it has an effect.

        What is refused has no effect, not even when something that was written later has one.
        """
        assert isinstance(attempt, Content)
        self._number += 1
        fault = f"public-fault-{self._number}"
        documents = []
        if attempt is Content.RECOVERY:
            documents.append(_public_fault(_OTHERS, _message(OTHER, fault)))
            put_documents(self._place.store, *documents)
            wait_until(lambda: self._has_fault(OTHER, fault), "the fault of the other node")
        document = _document(attempt, fault)
        if document is None:
            self._place.write_other()
        else:
            self._place.write(actor, document)
            documents.append(document)
        refusing: Protection | None = None

        def is_judged() -> bool:
            nonlocal refusing
            refusing = self._refusal(attempt)
            return refusing is not None or self._has_effect(attempt, fault)

        wait_until(is_judged, lambda: f"neither refused nor shown: {attempt.value}", _SECONDS)
        if refusing is not None:
            later = f"later-{self._number}"
            put_documents(self._place.store, report(later, healthy()))
            wait_until(lambda: self._has_node(later), "a node that came later")
            assert not self._has_effect(attempt, fault), f"refused, but shown: {attempt.value}"
        if documents:
            delete_documents(self._place.store, *documents)
            wait_until(lambda: self._refusal(attempt) is None, "nothing is refused any more")
        return refusing

    def _refusal(self, content: Content) -> Protection | None:
        if content is Content.RANK_TABLE:
            is_shared = _SERVED in self._rank_tables()["shared"]
            return Protection.TABLE_OWNERS if is_shared else None
        rows = self.daemon.ask("/api/v1/documents")[1]["refused"]
        reasons = {row["place"]: row["reason"] for row in rows}
        return _REASONS.get(reasons.get(_PLACES.get(content, "/".join(_OWN)), ""))

    def _has_effect(self, content: Content, fault: str) -> bool:
        if content is Content.RANK_TABLE:
            # Tables count while they are shared, too, but nothing is made of them then.
            page = self._rank_tables()
            return page["tables"] == 2 and _SERVED not in page["shared"]
        if content is Content.HEARTBEAT:
            return bool(self.daemon.node(OTHER)["heartbeat"] == "alive")
        if content is Content.EPISODES:
            return _CODE in json.dumps(self.daemon.ask(f"/api/v1/history?node={OTHER}")[1])
        has_fault = self._has_fault(NODE if content is Content.RESOURCE else OTHER, fault)
        return has_fault is not (content is Content.RECOVERY)

    def _has_node(self, name: str) -> bool:
        return any(node["node"] == name for node in self.daemon.ask("/api/v1/nodes")[1]["nodes"])

    def _has_fault(self, node: str, fault: str) -> bool:
        return json.dumps(fault) in json.dumps(self.daemon.ask(f"/api/v1/nodes/{node}")[1])

    def _rank_tables(self) -> dict[str, Any]:
        page: dict[str, Any] = self.daemon.ask("/api/v1/services")[1]["services"]["rank_tables"]
        return page


def _document(content: Content, fault: str) -> Document | None:
    """Return the document of an attempt; ``None`` where it is a heartbeat or episodes."""
    match content:
        case Content.FAULT:
            return _public_fault(_OWN, _message(OTHER, fault))
        case Content.RECOVERY:
            return _public_fault(_OWN, _message(OTHER, fault, assertion="recover"))
        case Content.RESOURCE:
            return _public_fault(_OWN, _message(NODE, fault, resource="CCAE"))
        case Content.TENANTS_FAULT:
            return _public_fault((TENANT, "any"), _message(OTHER, fault, resource="CCAE"))
        case Content.RANK_TABLE:
            return rings("taken", job=_SERVED, namespace=TENANT)
        case Content.HEARTBEAT | Content.EPISODES:
            return None


def _public_fault(place: tuple[str, str], text: str) -> Document:
    return Document(*place, {DATA_KEY: text}, PUBLIC_FAULT)


def _message(
    node: str, fault: str, *, resource: str = "dpcStorage", assertion: str = "occur"
) -> str:
    """Return a message that a chip of ``node`` must be isolated, or has recovered."""
    now_ms = time.time_ns() // 1_000_000
    influence = [Influence(node, "", [0])]
    entry = PublicFaultEntry(fault, "NPU", "220001001", now_ms, assertion, influence=influence)
    whole = PublicFault("message-1", now_ms, "1.0", resource, [entry])
    return encode_public_fault(whole)[DATA_KEY]


@contextmanager
def contents(place: Place, directory: Path) -> Iterator[Contents]:
    """Run an aggregator until the end of the block."""
    running = Contents(place, directory)
    try:
        yield running
    finally:
        running.daemon.stop()

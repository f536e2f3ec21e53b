"""The broker of the intruder's table: the shipped rights, and what actors try with topics, wills.

A node has the certificate of ``node-1``; an address of the pod network has none.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from contract.topics import ack_topic, beat_topic, echo_topic, events_topic
from tests.intruder.table import (
    Actor,
    Gap,
    Protection,
    Publication,
    Row,
    Subscription,
    Thing,
    Verb,
    Will,
)
from tests.parts.broker import AGGREGATOR, Broker
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.intruder.table import Attempt

_NODE, _OTHER = "node-1", "node-2"
_NODES = "vigil/v1/nodes"
_CLUSTER = "vigil/v1/cluster/cluster-info-node-cm"
_CONFIG = "vigil/v1/config/cluster-system/any"
_KINDS = ("device-info", "node-info", "dpc-fault", "dtfs-fault")
_ECHO = echo_topic(_NODE)
"""Who reads sends itself a message behind what the broker has retained."""
_ANSWER_SECONDS = 10.0
_RETAINED = (
    *(f"{_NODES}/{node}/{kind}" for node in (_NODE, _OTHER) for kind in (*_KINDS, "beat")),
    *(_CLUSTER, _CONFIG),
)
_REQUIRED = "require_certificate true\nuse_identity_as_username true"
_NOT_REQUIRED = "require_certificate false\nallow_anonymous true"
_ALL_RIGHTS = "topic readwrite #\npattern readwrite #\n"

_REFUSED = (Protection.BROKER_RIGHTS,)
_WITHOUT_CERTIFICATE = (Protection.BROKER_CERTIFICATE, Protection.BROKER_RIGHTS)
_MAY: tuple[Protection, ...] = ()


def _rows(
    actor: Actor,
    about: str,
    protections: tuple[Protection, ...],
    *attempts: tuple[Thing, Verb, Publication | Subscription | Will],
) -> Iterable[Row]:
    for thing, verb, attempt in attempts:
        yield Row(actor, thing, verb, about, attempt, protections)


def _foreign(actor: Actor, protections: tuple[Protection, ...]) -> Iterable[Row]:
    """Yield what no actor may do, whoever it is."""
    documents = (*(f"{_NODES}/{_OTHER}/{kind}" for kind in _KINDS), _CLUSTER, _CONFIG)
    topics = (
        *(f"{_NODES}/{_NODE}{end}" for end in ("", "/other", "/other/deeper")),
        *(f"{_NODES}/{_NODE}/device-info/deeper", ack_topic(_NODE), events_topic(_OTHER)),
        *(beat_topic(_OTHER), "vigil/v1/cluster/echo", "any"),
    )
    yield from _rows(
        actor,
        "of another node, the cluster or the configuration",
        protections,
        (Thing.DOCUMENTS, Verb.READ, Subscription(f"{_NODES}/{_OTHER}/device-info")),
        (Thing.DOCUMENTS, Verb.READ, Subscription(_CLUSTER)),
        *((Thing.DOCUMENTS, Verb.WRITE, Publication(topic)) for topic in documents),
        *((Thing.DOCUMENTS, Verb.DELETE, Publication(topic, b"")) for topic in documents),
        (Thing.DOCUMENTS, Verb.FLOOD, Publication("vigil/v1/config/cluster-system/1")),
        (Thing.TOPICS, Verb.READ, Subscription(f"{_NODES}/{_OTHER}/#")),
        (Thing.TOPICS, Verb.READ, Subscription(beat_topic(_OTHER))),
        *((Thing.TOPICS, Verb.WRITE, Publication(topic)) for topic in topics),
        (Thing.TOPICS, Verb.DELETE, Publication(beat_topic(_OTHER), b"")),
        (Thing.TOPICS, Verb.FLOOD, Publication(f"{_NODES}/{_NODE}/1")),
        *((Thing.WILLS, Verb.WRITE, Will(topic)) for topic in (beat_topic(_OTHER), _CLUSTER)),
        (Thing.WILLS, Verb.DELETE, Will(f"{_NODES}/{_OTHER}/device-info", b"")),
    )


ROWS: tuple[Row, ...] = (
    *_foreign(Actor.CERTIFICATE, _REFUSED),
    *_rows(
        Actor.CERTIFICATE,
        "of its own node",
        _MAY,
        (Thing.DOCUMENTS, Verb.READ, Subscription(f"{_NODES}/{_NODE}/device-info")),
        *((Thing.DOCUMENTS, Verb.WRITE, Publication(f"{_NODES}/{_NODE}/{k}")) for k in _KINDS),
        *(
            (Thing.DOCUMENTS, Verb.DELETE, Publication(f"{_NODES}/{_NODE}/{k}", b""))
            for k in _KINDS
        ),
        (Thing.TOPICS, Verb.READ, Subscription(beat_topic(_NODE))),
        (Thing.TOPICS, Verb.WRITE, Publication(beat_topic(_NODE))),
        (Thing.TOPICS, Verb.WRITE, Publication(events_topic(_NODE))),
        (Thing.TOPICS, Verb.DELETE, Publication(beat_topic(_NODE), b"")),
        (Thing.WILLS, Verb.WRITE, Will(beat_topic(_NODE))),
        (Thing.WILLS, Verb.DELETE, Will(beat_topic(_NODE), b"")),
    ),
    *_rows(
        Actor.CERTIFICATE,
        "the fault configuration and all else below vigil/v1/config",
        _MAY,
        (Thing.DOCUMENTS, Verb.READ, Subscription(_CONFIG)),
    ),
    *_foreign(Actor.ADDRESS, _WITHOUT_CERTIFICATE),
)

GAPS = (
    *(
        Gap(actor, (Thing.WILLS,), reason, (verb,))
        for actor in (Actor.CERTIFICATE, Actor.ADDRESS)
        for verb, reason in (
            (Verb.READ, "a will is read as the message of its topic"),
            (Verb.FLOOD, "a connection has one will"),
        )
    ),
    Gap(
        Actor.CERTIFICATE,
        (
            *(Thing.LABELS, Thing.EVENTS, Thing.LEASES, Thing.NODE_STATUS, Thing.PODS),
            Thing.RANK_TABLES,
        ),
        "only an API server has such objects, and it has another authority",
    ),
    Gap(
        Actor.CERTIFICATE,
        (Thing.SOCKETS, Thing.FILES),
        "a certificate opens no file; who has its key is root on the node",
    ),
)


class NoConnection(Exception):
    """The broker ended the connection before it accepted the client."""


class Client:
    """A client of the broker, connected until ``close``, with the certificate of ``user``."""

    def __init__(
        self, broker: Broker, user: str | None, name: str | None = None, will: Will | None = None
    ) -> None:
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._messages: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            name,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
        )
        self._client = client
        context = ssl.create_default_context(cafile=str(broker.directory / "ca.crt"))
        if user is not None:
            broker.certified(user)
            certificate = broker.directory / f"{user}.crt"
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        client.tls_set_context(context)
        # The reason code is the fourth argument of each of them.
        for event in ("on_connect", "on_disconnect", "on_publish", "on_subscribe"):
            setattr(client, event, lambda *arguments: self._answers.put(arguments[3]))
        client.on_message = lambda _, __, message: self._messages.put(
            (message.topic, bytes(message.payload))
        )
        if will is not None:
            client.will_set(will.topic, will.payload, 1, retain=True)
        client.connect("127.0.0.1", int(broker.tls_url.rpartition(":")[2]))
        client.loop_start()
        if self._answer().is_failure:
            self.close()
            raise NoConnection

    def close(self) -> None:
        """End the connection."""
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes, *, retain: bool = True) -> bool:
        """Publish a message; return whether the broker took it."""
        self._client.publish(topic, payload, 1, retain)
        return not self._answer().is_failure

    def read(self, topics: str) -> dict[str, bytes]:
        """Subscribe; return the retained messages that the broker sends.

        The broker accepts each subscription, and sends only what the client may read. So a message
        to itself follows.
        """
        for each in (_ECHO, topics):
            self._client.subscribe(each)
            self._answer()
        assert self.publish(_ECHO, b"end", retain=False)
        messages: dict[str, bytes] = {}
        while True:
            topic, payload = self._messages.get(timeout=patience(_ANSWER_SECONDS))
            if topic == _ECHO:
                return messages
            messages[topic] = payload

    def _answer(self) -> Any:
        answer = self._answers.get(timeout=patience(_ANSWER_SECONDS))
        return answer[0] if isinstance(answer, list) else answer


class RightsOfBroker:
    """A broker with the shipped rights, and a certificate for each actor that has one."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._configuration = broker.directory / "mosquitto.conf"
        self._shipped = {
            file: file.read_text() for file in (self._configuration, broker.directory / "rights")
        }
        self._removed: tuple[Protection, ...] = ()

    def refusing(self, actor: Actor, attempt: Attempt) -> Protection | None:
        """Try something; return what refuses it, or ``None``."""
        user = _NODE if actor is Actor.CERTIFICATE else None
        if not isinstance(attempt, Publication):
            self._retain()
        will = attempt if isinstance(attempt, Will) else None
        try:
            client = Client(self.broker, user, "intruder", will)
        except NoConnection:
            return Protection.BROKER_CERTIFICATE
        try:
            is_open = self._is_open(client, user, attempt)
        finally:
            client.close()
        return None if is_open else Protection.BROKER_RIGHTS

    def _is_open(self, client: Client, user: str | None, attempt: Attempt) -> bool:
        if isinstance(attempt, Publication):
            return client.publish(attempt.topic, attempt.payload)
        if isinstance(attempt, Subscription):
            return client.read(attempt.topics) != {}
        assert isinstance(attempt, Will)
        # A client with the same name: the broker ends the first one, and publishes its will before.
        Client(self.broker, user, "intruder").close()
        with self._aggregator() as aggregator:
            return aggregator.read(attempt.topic).get(attempt.topic, b"") == attempt.payload

    def _retain(self) -> None:
        with self._aggregator() as aggregator:
            for topic in _RETAINED:
                assert aggregator.publish(topic, b"retained")

    @contextmanager
    def _aggregator(self) -> Iterator[Client]:
        client = Client(self.broker, AGGREGATOR)
        try:
            yield client
        finally:
            client.close()

    def remove(self, actor: Actor, protections: tuple[Protection, ...]) -> None:
        """Remove these protections, and restore all others; the broker restarts."""
        del actor
        if protections == self._removed:
            return
        self._removed = protections
        for file, text in self._shipped.items():
            file.write_text(text)
        if Protection.BROKER_RIGHTS in protections:
            self.broker.grant(_ALL_RIGHTS)
        if Protection.BROKER_CERTIFICATE in protections:
            text = self._configuration.read_text()
            assert _REQUIRED in text
            self._configuration.write_text(text.replace(_REQUIRED, _NOT_REQUIRED))
        self.broker.stop()
        self.broker.start()


@contextmanager
def intruders_broker(directory: Path) -> Iterator[RightsOfBroker]:
    """Run a broker until the end of the block."""
    with Broker(directory) as broker:
        yield RightsOfBroker(broker)

"""The platform ``mqtt``: a real mosquitto, which is killed, and what a client of it receives.

It saves what is retained when it is stopped, and not when it is killed. So it comes back empty, as
a broker without persistence does.
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.end_to_end.mqtt_node import topic_of
from tests.parts.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.places import Place

_ALL = "vigil/v1/#"
_CONFIRMED_SECONDS = 5.0
_RETAINED_SECONDS = 0.2
"""A subscriber has what is retained so long after its subscription was confirmed."""


class BrokerPlace:
    """See ``tests.parts.places.Place``: the last message of each topic.

    A client that is not subscribed knows nothing. It is again up to a second after the broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._url = broker.url
        self._messages: dict[str, bytes] = {}
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._current_from = math.inf
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_disconnect = self._disconnected
        self._client.on_message = self._received
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    @property
    def options(self) -> list[str]:
        """Return the options of a daemon that uses the broker."""
        return ["--store", self._url]

    def read(self, name: str) -> dict[str, str] | None:
        """Return the data keys of a document; ``None`` where none was received.

        Raises ``OSError`` while messages are missed.
        """
        if time.monotonic() < self._current_from:
            raise OSError("not subscribed")
        message = self._messages.get(topic_of(name))
        if message is None:
            return None
        data: dict[str, str] = json.loads(message)["data"]
        return data

    def write(self, name: str, data: dict[str, str]) -> None:
        """Publish a document as a stranger would."""
        self._publish(name, json.dumps({"labels": {"mx-consumer-cim": "true"}, "data": data}))

    def delete(self, name: str) -> None:
        """Delete a document as a stranger would."""
        self._publish(name, "")

    def close(self) -> None:
        """End the connection."""
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, name: str, content: str) -> None:
        # A broker that is away at this moment gets nothing, as from any client that gives up.
        if self._client.is_connected():
            sent = self._client.publish(topic_of(name), content, qos=1, retain=True)
            sent.wait_for_publish(_CONFIRMED_SECONDS)

    def _connected(self, client: paho.Client, *_: Any) -> None:
        client.subscribe(_ALL, qos=1)

    def _subscribed(self, *_: Any) -> None:
        self._current_from = time.monotonic() + _RETAINED_SECONDS

    def _disconnected(self, *_: Any) -> None:
        self._current_from = math.inf

    def _received(self, _: paho.Client, __: Any, message: paho.MQTTMessage) -> None:
        if message.payload:
            self._messages[message.topic] = bytes(message.payload)
        else:
            self._messages.pop(message.topic, None)


class MqttPlatform:
    """See ``benchmarks.chaos.site.RealPlatform``."""

    def __init__(self, directory: Path) -> None:
        place = directory / "broker"
        place.mkdir()
        self.broker = Broker(place)
        self.broker.__enter__()
        self._client = BrokerPlace(self.broker)
        self.place: Place = self._client

    def take(self) -> None:
        """Kill the broker."""
        self.broker.kill()

    def give(self) -> None:
        """Start it, without anything that was retained."""
        self.broker.start()

    def leader(self) -> str:
        """Return nothing: a broker has no election, so its aggregator leads while it runs."""
        return ""

    def close(self) -> None:
        """End broker and client."""
        self._client.close()
        self.broker.stop()

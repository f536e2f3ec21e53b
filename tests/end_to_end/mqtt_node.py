"""A broker to which agents publish, read by mosquitto's own client; an aggregator on it."""

from __future__ import annotations

import json
import math
import subprocess
from typing import TYPE_CHECKING, Any

from tests.aggregator.daemon import Daemon
from tests.parts.broker import AGGREGATOR
from tests.parts.deadlines import patience
from tests.parts.processes import program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.broker import Broker

_TOPICS = {
    "mindx-dl-deviceinfo-": "device-info",
    "mindx-dl-nodeinfo-": "node-info",
}


def topic_of(name: str) -> str:
    """Return the topic of the document of this name, as in ``docs/packages/stores.md``."""
    for prefix, kind in _TOPICS.items():
        if name.startswith(prefix):
            return f"vigil/v1/nodes/{name.removeprefix(prefix)}/{kind}"
    return f"vigil/v1/cluster/{name}"


class OnBroker:
    """The store of one node: TLS, with its certificate."""

    def __init__(self, broker: Broker, user: str) -> None:
        self.broker = broker
        self._user = user
        mqtt = broker.certified(user)
        self.environment = {
            "VIGIL_MQTT_CA_FILE": str(mqtt.ca_file),
            "VIGIL_MQTT_CERTIFICATE_FILE": str(mqtt.certificate_file),
            "VIGIL_MQTT_KEY_FILE": str(mqtt.key_file),
        }

    @property
    def options(self) -> list[str]:
        return ["--store", self.broker.tls_url]

    def retained(self, topic: str) -> Any:
        """Return the decoded message that is retained at a topic; ``None`` if there is none."""
        arguments = ("-h", "127.0.0.1", "-p", str(self.broker.port), "-t", topic)
        # A message that comes later than this would count as none; the option takes whole seconds.
        seconds = str(math.ceil(patience(1)))
        shown = subprocess.run(
            [program("mosquitto_sub"), *arguments, "-C", "1", "-W", seconds, "--retained-only"],
            capture_output=True,
            check=False,
        )
        return json.loads(shown.stdout) if shown.stdout else None

    def read(self, name: str) -> dict[str, str] | None:
        found = self.retained(topic_of(name))
        if found is None:
            return None
        data: dict[str, str] = found["data"]
        return data

    def write(self, name: str, data: dict[str, str]) -> None:
        content = json.dumps({"labels": {"mx-consumer-cim": "true"}, "data": data})
        self._publish(topic_of(name), "-s", content.encode())

    def delete(self, name: str) -> None:
        self._publish(topic_of(name), "-n", b"")

    def spoil(self, name: str, content: bytes) -> None:
        """Overwrite a document with what is none."""
        self._publish(topic_of(name), "-s", content)

    def _publish(self, topic: str, how: str, content: bytes) -> None:
        arguments = ("-h", "127.0.0.1", "-p", str(self.broker.port), "-t", topic, "-r", "-q", "1")
        subprocess.run([program("mosquitto_pub"), *arguments, how], input=content, check=True)


def aggregator_on_broker(directory: Path, broker: Broker, *options: str) -> Daemon:
    """Return an aggregator with a certificate of the broker; it is not started."""
    mqtt = broker.certified(AGGREGATOR)
    directory.mkdir()
    (directory / "aggregator.toml").write_text(
        "[mqtt]\n"
        f'ca_file = "{mqtt.ca_file}"\n'
        f'certificate_file = "{mqtt.certificate_file}"\n'
        f'key_file = "{mqtt.key_file}"\n'
    )
    return Daemon(directory, "--config", str(directory / "aggregator.toml"), *options)

"""RabbitMQ and HiveMQ CE as parts of tests, on ports of their own (``make test-brokers``).

``tests/setup.sh brokers`` provides both. Each runs in a ``with`` block.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.parts.processes import Running, built_folder, free_ports, program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_HERE = Path(__file__).parent
_RABBITMQ = Path("/usr/lib/rabbitmq/lib")
_START_SECONDS = 240.0


class _Broker:
    """A broker whose process is started by ``_arguments`` and listens on ``_port``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._port, *self._more_ports = free_ports(3)
        self._running: Running | None = None

    def __enter__(self) -> Self:
        log = self._directory / "broker.log"
        self._running = Running(self._arguments(), log, self._environment())
        try:
            self._running.wait_until(self._answers, _START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.stop()

    @property
    def url(self) -> str:
        """Return the URL at which every client has all rights."""
        return f"mqtt://127.0.0.1:{self._port}"

    def _arguments(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()
        except OSError:
            return False
        return True


class RabbitMq(_Broker):
    """Debian's RabbitMQ with its MQTT plugin, which speaks 3.1.1 only."""

    @staticmethod
    def version() -> str:
        """Return the version that is installed."""
        (home,) = _RABBITMQ.glob("rabbitmq_server-*")
        return home.name.partition("-")[2]

    def __exit__(self, *stopped: object) -> None:
        super().__exit__(*stopped)
        # It starts a port mapper that would outlive it.
        subprocess.run(
            [program("epmd"), "-port", str(self._more_ports[0]), "-kill"],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _arguments(self) -> Sequence[str | Path]:
        (self._directory / "plugins").write_text("[rabbitmq_mqtt].")
        (self._directory / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nmqtt.listeners.tcp.default = 127.0.0.1:{self._port}\n"
        )
        (home,) = _RABBITMQ.glob("rabbitmq_server-*")
        return (home / "sbin/rabbitmq-server",)

    def _environment(self) -> dict[str, str]:
        where = self._directory
        return super()._environment() | {
            "HOME": str(where),
            "ERL_EPMD_PORT": str(self._more_ports[0]),
            "RABBITMQ_DIST_PORT": str(self._more_ports[1]),
            "RABBITMQ_NODENAME": f"vigil-{self._port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(where / "data"),
            "RABBITMQ_LOG_BASE": str(where / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(where / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(where / "rabbitmq.conf"),
        }


class HiveMq(_Broker):
    """HiveMQ CE of Maven Central, embedded in ``HiveMq.java``."""

    @staticmethod
    def version() -> str:
        """Return the version that ``jars.sha256`` pins."""
        name = "hivemq-community-edition-embedded-"
        (line,) = (one for one in _sums().splitlines() if name in one)
        return line.partition(name)[2].removesuffix(".jar")

    def _arguments(self) -> Sequence[str | Path]:
        for name in ("conf", "data", "extensions"):
            (self._directory / name).mkdir()
        (self._directory / "conf/config.xml").write_text(
            "<hivemq><listeners><tcp-listener>"
            f"<port>{self._port}</port><bind-address>127.0.0.1</bind-address>"
            "</tcp-listener></listeners><anonymous-usage-statistics><enabled>false</enabled>"
            "</anonymous-usage-statistics></hivemq>"
        )
        jars = built_folder("hivemq", [_HERE / "pom.xml", _HERE / "jars.sha256"])
        return (program("java"), "-cp", f"{jars}/*", _HERE / "HiveMq.java", self._directory)


def _sums() -> str:
    return (_HERE / "jars.sha256").read_text(encoding="utf-8")

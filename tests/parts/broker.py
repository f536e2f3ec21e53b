"""A real mosquitto with client certificates, rights by topic and a memory of its own.

    with Broker(directory) as broker:
        store = open_store(broker.tls_url, mqtt=broker.certified("node-1"), node="node-1")

Three ways in, each on a port of its own that stays the same over restarts:

* ``tls_url``: with a client certificate, whose common name is the user;
* ``password_url``: without TLS, with a user and a password;
* ``url``: whoever comes may do everything.

With the first two a user ``N`` has the rights that we ship for the agent of a node ``N``, and
``aggregator`` those for the aggregator (``systemd/mosquitto/rights``).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from stores.settings import Mqtt
from tests.parts.certificates import make_authority, make_client, make_server
from tests.parts.processes import Running, free_ports, program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

AGGREGATOR = "aggregator"

_RIGHTS = Path(__file__).parents[2] / "systemd/mosquitto/rights"
_START_SECONDS = 10.0
_OF_A_LISTENER = "max_qos"
"""Settings that mosquitto has for a listener; they are given to that of ``url``."""


class Broker:
    """Runs between ``start`` and ``stop``; ``settings`` are more lines of its configuration.

    What is retained survives ``stop``, and of ``kill`` what was saved before: nothing, unless
    ``settings`` configure more than mosquitto's defaults.
    """

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        self.directory = directory
        self._tls_port, self._password_port, self._port = free_ports(3)
        self._settings = settings
        self._running: Running | None = None
        self._passwords: dict[str, str] = {}

    def __enter__(self) -> Self:
        make_authority(self.directory)
        make_server(self.directory)
        self.grant(_RIGHTS.read_text().replace("user npu-vigil-aggregator", f"user {AGGREGATOR}"))
        self._write_passwords()
        (self.directory / "mosquitto.conf").write_text(self._configuration())
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return the URL at which every client has all rights."""
        return f"mqtt://127.0.0.1:{self._port}"

    @property
    def password_url(self) -> str:
        """Return the URL at which the broker requires a password."""
        return f"mqtt://127.0.0.1:{self._password_port}"

    @property
    def tls_url(self) -> str:
        """Return the URL at which the broker requires a client certificate."""
        return f"mqtts://127.0.0.1:{self._tls_port}"

    @property
    def port(self) -> int:
        """Return the port of ``url``."""
        return self._port

    @property
    def pid(self) -> int:
        """Return the broker's process id."""
        return self._started.pid

    @property
    def log(self) -> Path:
        """Return the path of the broker's log."""
        return self.directory / "mosquitto.log"

    def certified(self, user: str, protocol: str = "5") -> Mqtt:
        """Return the settings of ``user`` for ``tls_url``; make a certificate the first time."""
        if not (self.directory / f"{user}.crt").exists():
            make_client(self.directory, user, "npu-vigil")
        return msgspec.convert(
            {
                "protocol": protocol,
                "ca_file": self.directory / "ca.crt",
                "certificate_file": self.directory / f"{user}.crt",
                "key_file": self.directory / f"{user}.key",
            },
            Mqtt,
        )

    def with_password(self, user: str, protocol: str = "5") -> Mqtt:
        """Return the settings of ``user`` for ``password_url``.

        The first call makes a password; a running broker restarts for it.
        """
        file = self.directory / f"{user}.password"
        if user not in self._passwords:
            self._passwords[user] = f"secret of {user}"
            file.touch(0o600)
            file.write_text(self._passwords[user] + "\n")
            self._write_passwords()
            if self._running is not None and self._running.status is None:
                self.stop()
                self.start()
        return msgspec.convert({"protocol": protocol, "user": user, "password_file": file}, Mqtt)

    def configure(self, settings: Sequence[str]) -> None:
        """Start it again with these settings in place of those before."""
        self._settings = settings
        (self.directory / "mosquitto.conf").write_text(self._configuration())
        self.stop()
        self.start()

    def start(self) -> None:
        """Start it; comes back when it takes connections on all its ports."""
        configuration = self.directory / "mosquitto.conf"
        self._running = Running([program("mosquitto"), "-c", configuration], self.log)
        self._running.wait_until(self._listens, _START_SECONDS)

    def grant(self, rights: str) -> None:
        """Write who may do what, which is read by ``start``."""
        (self.directory / "rights").write_text(rights)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._started.kill()

    def stop(self) -> None:
        """Ask it to end; it saves what is retained and sends the wills of all who are connected."""
        self._started.stop()

    def freeze(self) -> None:
        """Stop it where it is: connections stay, nothing answers."""
        self._started.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._started.thaw()

    @property
    def _started(self) -> Running:
        assert self._running is not None
        return self._running

    def _listens(self) -> bool:
        try:
            connections = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        ports = {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
        return {self._port, self._password_port, self._tls_port} <= ports

    def _write_passwords(self) -> None:
        file = self.directory / "passwords"
        file.write_text("".join(f"{user}:{word}\n" for user, word in self._passwords.items()))
        if self._passwords:
            subprocess.run([program("mosquitto_passwd"), "-U", file], check=True)

    def _configuration(self) -> str:
        where = self.directory
        return "\n".join(
            (
                "user root",
                "per_listener_settings true",
                "persistence true",
                f"persistence_location {where}/",
                "log_dest stderr",
                "log_type error",
                "log_type warning",
                "log_type notice",
                *(one for one in self._settings if not one.startswith(_OF_A_LISTENER)),
                f"listener {self._port} 127.0.0.1",
                "allow_anonymous true",
                *(one for one in self._settings if one.startswith(_OF_A_LISTENER)),
                f"listener {self._password_port} 127.0.0.1",
                "allow_anonymous false",
                f"password_file {where}/passwords",
                f"acl_file {where}/rights",
                f"listener {self._tls_port} 127.0.0.1",
                f"cafile {where}/ca.crt",
                f"certfile {where}/server.crt",
                f"keyfile {where}/server.key",
                "require_certificate true",
                "use_identity_as_username true",
                f"acl_file {where}/rights",
                "",
            )
        )

"""The address of an MQTT broker."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

_PORTS = {"mqtt": 1883, "mqtts": 8883}


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.is_tls else 'mqtt'}://{host}:{self.port}"


def parse_address(url: str) -> BrokerAddress:
    """Parse ``mqtt[s]://HOST[:PORT]``; ports are 1883 and 8883. Raises ``ValueError`` with why."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user in it; give mqtt.user and mqtt.password_file instead")
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"is not {parts.scheme}://HOST:PORT")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("has a port that is none: 1 to 65535") from None
    if port == 0:
        raise ValueError("has a port that is none: 1 to 65535")
    return BrokerAddress(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts")

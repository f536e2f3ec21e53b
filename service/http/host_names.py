"""The names of a daemon that are allowed in ``Host`` over loopback.

A web page that a browser on this host shows can point a name of its own to 127.0.0.1 after it was
loaded (DNS rebinding). For the browser the daemon is then the page's server, so the page may read
every answer. The name is still in ``Host``, which the page cannot choose.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_LOCALHOST = "localhost"


def is_of_this_host(host: str, local_address: str, names: Collection[str]) -> bool:
    """Return whether a request to ``local_address`` with this ``Host`` may be answered.

    Over loopback the name is ``localhost``, an address, or one of ``names``, which are in lower
    case; elsewhere it is not looked at. RFC 9110, section 7.2 has the syntax.
    """
    local = _address(local_address)
    if local is None or not local.is_loopback:
        return True
    if host.startswith("["):
        literal, closed, rest = host[1:].partition("]")
        return bool(closed) and _is_port(rest) and _version(literal) == 6
    name, colon, port = host.partition(":")
    name = name.lower().removesuffix(".")
    if not _is_port(colon + port):
        return False
    return name == _LOCALHOST or name in names or _version(name) == 4


def _is_port(text: str) -> bool:
    digits = text.removeprefix(":")
    return not text or (text != digits and digits.isascii() and digits.isdecimal())


def _version(text: str) -> int | None:
    address = _address(text)
    return None if address is None else address.version


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None

"""The proxy that leads to a server, from an environment read as Go programs read theirs.

``kubectl`` and all components of Kubernetes read ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``
by the rules of Go's ``httpproxy`` (https://pkg.go.dev/golang.org/x/net/http/httpproxy). Libraries
for Python have other rules: none has networks of IPv6, ports and loopback addresses.
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Mapping

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# In this order, as Go's ``httpproxy`` reads them.
_VARIABLES = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}
_NO_PROXY = ("NO_PROXY", "no_proxy")
_MAX_NAME = 253
"""Characters of the longest name that DNS has (RFC 1035, section 2.3.4)."""
_MAPPED_BITS = 96
"""Bits in front of an IPv4 address that is written as one of IPv6."""


def proxy_for(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for the URL ``server``; ``None``: connect directly.

    The URL is as the environment has it, with ``http://`` in front where it names no protocol.
    """
    url = URL(server)
    proxy = _first(environment, _VARIABLES[url.scheme])
    if not proxy or is_direct(url.host or "", url.port or 0, _first(environment, _NO_PROXY)):
        return None
    protocol, separator, rest = proxy.partition("://")
    return proxy if protocol and separator and rest else f"http://{proxy}"


def is_direct(host: str, port: int, no_proxy: str) -> bool:
    """Return whether ``host`` (no brackets) at ``port`` is asked without a proxy.

    True for ``localhost`` and loopback addresses, and for what an entry of ``no_proxy`` covers:
    ``*``, a network, an address, or a domain; the last two also with a port. A domain covers its
    subdomains; one that begins with ``.`` or ``*.`` covers these only. Malformed entries cover
    nothing.
    """
    address = _address(host.partition("%")[0] if ":" in host else host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry for part in no_proxy.split(",") if (entry := part.strip().lower())]
    if "*" in entries:
        return True
    if address is not None:
        return any(_covers_address(entry, address, port) for entry in entries)
    name = _ascii(host)
    return any(_covers_name(entry, name, port) for entry in entries)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name))), "")


def _covers_address(entry: str, address: IpAddress, port: int) -> bool:
    network = _network(entry)
    if network is not None:
        return address in network
    host, only_port = _split(entry)
    return _address(host) == address and only_port in ("", str(port))


def _covers_name(entry: str, name: str, port: int) -> bool:
    host, only_port = _split(entry)
    if not host or _network(entry) is not None or only_port not in ("", str(port)):
        return False
    domain = _ascii(host[1:] if host.startswith("*.") else host)
    return name.endswith(domain if domain.startswith(".") else f".{domain}") or name == domain


class _HostPort(NamedTuple):
    host: str
    port: str
    """Empty where the entry names none."""


def _split(entry: str) -> _HostPort:
    """Split ``host:port`` or ``[address]:port``; what is neither is a host as a whole."""
    if entry.startswith("["):
        host, end, rest = entry[1:].partition("]")
        return _HostPort(host, rest[1:]) if end and rest.startswith(":") else _HostPort(entry, "")
    host, separator, port = entry.rpartition(":")
    return _HostPort(entry, "") if not separator or ":" in host else _HostPort(host, port)


def _address(text: str) -> IpAddress | None:
    """Read an address; one of IPv4 that is written as one of IPv6 is that of IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _network(entry: str) -> IpNetwork | None:
    """Read a network in CIDR notation, whatever the bits of its host."""
    address, separator, bits = entry.partition("/")
    if not separator or not (bits.isascii() and bits.isdecimal()) or "%" in address:
        return None
    try:
        network = ipaddress.ip_network(f"{address}/{int(bits)}", strict=False)
    except ValueError:
        return None
    if not isinstance(network, ipaddress.IPv6Network) or network.prefixlen < _MAPPED_BITS:
        return network
    mapped = network.network_address.ipv4_mapped
    return (
        ipaddress.ip_network(f"{mapped}/{network.prefixlen - _MAPPED_BITS}") if mapped else network
    )


def _ascii(name: str) -> str:
    """Return ``name`` in lower case, in the form that DNS has."""
    # A longer one is never shorter in ASCII, and to encode it costs 10 µs a character.
    if name.isascii() or len(name) > _MAX_NAME:
        return name.lower()
    with contextlib.suppress(ValueError):
        return URL.build(scheme="http", host=name).raw_host or name
    return name

"""The address of ``--listen``, and the names by which requests over loopback may address it.

The address is tried again until it is free, and written to a file. A web page that a browser on
this host shows can point a name of its own to 127.0.0.1 after it was loaded (DNS rebinding). For
the browser the daemon is then the page's server, so the page may read every answer. The name is
still in ``Host``, which the page cannot choose: only names of this host are accepted there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
from typing import TYPE_CHECKING

from service.files.atomic import replace
from service.http.server import BACKLOG

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from service.http.connections import ListenerLimits
    from service.http.server import HttpServer, OverTls

log = logging.getLogger("service.pages")

_RETRY_SECONDS = 5.0
_RESOLVE_SECONDS = 2.0


class ListenAddress:
    """The address of ``--listen``, which another program may have."""

    def __init__(
        self,
        server: HttpServer,
        limits: ListenerLimits,
        listen: str,
        note: Path,
        over_tls: OverTls | None,
    ) -> None:
        self._server = server
        self._limits = limits
        self._listen = listen
        self._note = note
        self._over_tls = over_tls
        self._failed = False

    async def attempt(self) -> bool:
        """Serve the address; return whether that succeeded."""
        counts = self._server.counts
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                listeners = await _bound(self._listen)
        # A name that cannot be encoded for a query is an error of its own.
        except (OSError, TimeoutError, UnicodeError) as error:
            if not self._failed:
                reason = getattr(error, "strerror", None) or "its name is not resolved"
                log.warning(
                    "no pages on --listen %s: %s; faults are reported all the same, and the "
                    "address is tried again every %g s",
                    *(self._listen, reason, _RETRY_SECONDS),
                )
                # An earlier run may have listened there.
                with contextlib.suppress(OSError):
                    self._note.unlink()
            self._failed, counts.listening = True, False
            return False
        counts.listening = True
        self._server.serve(listeners, self._limits, self._over_tls)
        host, port, *_ = listeners[-1].getsockname()
        scheme = "http" if self._over_tls is None else "https"
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        log.info("listening on %s", url)
        _note(self._note, f"{url}\n")
        return True

    async def keep_trying(self) -> None:
        """Try again until the address is served."""
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            if await self.attempt():
                return


async def _bound(listen: str) -> list[socket.socket]:
    """Return a socket for each address of ``listen``. Raises ``OSError``."""
    host, _, port = listen.rpartition(":")
    lacking = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    answers = await asyncio.get_running_loop().getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as bound:
        listeners = []
        for family, _, _, _, address in dict.fromkeys(answers):
            try:
                listener = bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
            except OSError as error:
                # A name may have addresses of a family that the kernel lacks.
                lacking = error
                continue
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listeners.append(listener)
        if not listeners:
            raise lacking
        bound.pop_all()
        return listeners


def _note(path: Path, text: str) -> None:
    try:
        replace(path, text.encode())
    except OSError as error:
        log.warning("%s is not written: %s", path, error)


_LOCALHOST = "localhost"


def is_of_this_host(host: str, local_address: str, names: Collection[str]) -> bool:
    """Return whether a request to ``local_address`` with this ``Host`` may be answered.

    Over loopback the name is ``localhost``, an address, or one of ``names``, which are in lower
    case; elsewhere it is not looked at.
    """
    local = _address(local_address)
    return local is None or not local.is_loopback or is_own_name(host, names)


def is_own_name(host: str, names: Collection[str]) -> bool:
    """Return whether ``Host`` is ``localhost``, an address, or one of ``names`` (in lower case).

    RFC 9110, section 7.2 has the syntax.
    """
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

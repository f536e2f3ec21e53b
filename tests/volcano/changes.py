"""Watches the API server as anybody can: what changed, in its own order, and when that was shown.

Revisions of all kinds have one order, so it can be judged what was written before what.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.parts.deadlines import wait_until
from tests.parts.volcano import COMMANDS, GROUPS, JOBS, PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.parts.controlplane import ControlPlane

_KINDS = {"job": JOBS, "pod": PODS, "group": GROUPS, "command": COMMANDS}


@dataclass(frozen=True)
class Change:
    """``how`` is ADDED, MODIFIED or DELETED; ``at`` when it was shown, on the steady clock."""

    at: float
    how: str
    kind: str
    revision: int
    item: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the name of the object."""
        found: str = self.item["metadata"]["name"]
        return found


class Changes:
    """All changes of jobs, pods, PodGroups and Commands in the block."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))
        self._tls.load_cert_chain(plane.directory / "admin.crt", plane.directory / "admin.key")
        self._found: list[Change] = []
        self._connections: list[http.client.HTTPSConnection] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._has_ended = threading.Event()

    def __enter__(self) -> Self:
        for kind, path in _KINDS.items():
            revision = self._plane.request("GET", path)["metadata"]["resourceVersion"]
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._plane.port, context=self._tls
            )
            connection.connect()
            self._sockets.append(connection.sock)
            connection.request("GET", f"{path}?watch=true&resourceVersion={revision}")
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            self._connections.append(connection)
            thread = threading.Thread(target=self._read, args=(kind, answer), name=f"watch {kind}")
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        for one in self._sockets:
            one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in self._connections:
            connection.close()

    def _read(self, kind: str, answer: http.client.HTTPResponse) -> None:
        text = b""
        while True:
            try:
                part = answer.read1(1 << 16)
            except (OSError, http.client.HTTPException):
                if self._has_ended.is_set():
                    return
                raise
            text += part
            *lines, text = text.split(b"\n")
            for line in lines:
                event = json.loads(line)
                revision = int(event["object"]["metadata"]["resourceVersion"])
                change = Change(time.monotonic(), event["type"], kind, revision, event["object"])
                self._found.append(change)

    def all(self, kind: str, how: str, fits: Callable[[Change], bool]) -> list[Change]:
        """Return changes of a kind, the oldest first."""
        found = list(self._found)
        return [one for one in found if one.kind == kind and one.how == how and fits(one)]

    def first(
        self, kind: str, how: str, fits: Callable[[Change], bool], seconds: float = 30
    ) -> Change:
        """Return the first such change, for which it waits."""
        return wait_until(lambda: self.all(kind, how, fits), f"{kind} {how}", seconds)[0]

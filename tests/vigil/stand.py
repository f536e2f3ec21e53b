"""A stand-in for a daemon, with the answers that a test gives it."""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from contract.pages.agent_status import AgentStatus
from tests.parts.deadlines import patience
from tests.parts.verbs import run_verb
from tests.vigil.answers import page, whole

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable, Iterator
    from pathlib import Path

AT_MS = 1_795_469_669_290
AGENT: dict[str, Any] = whole(
    AgentStatus,
    {
        "node": "node-1",
        "at_ms": AT_MS,
        "version": "9.9",
        "chips": [{"chip": 3, "device": "Ascend910-3", "level": "SeparateNPU", "blind": []}],
        "faults": [
            {
                "subject": "chip 3",
                "device": "Ascend910-3",
                "code": "80E18402",
                "level": "SeparateNPU",
                "since_ms": AT_MS - 200_000,
            }
        ],
        "driver": {},
        "publications": [],
        "heartbeat": {"interval_seconds": 5.0},
        "a_field_of_a_later_release": {"x": 1},
    },
)
LEADER = {"at_ms": AT_MS, "leader": {"role": "leader", "leads": True, "holder": "a"}}


class _Server(ThreadingHTTPServer):
    """A verb that gave up waiting is not an error."""

    def handle_error(self, *_: object) -> None:
        assert isinstance(sys.exception(), ConnectionError)


class _SocketServer(_Server):
    """Listens on a socket in a directory, as daemons do."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)  # has no name and no port


class Stand:
    """A server that gives one answer to everything, or with ``answers`` one for each path.

    ``answers`` are completed, see ``page``. It listens on the socket ``path``, else on a free port.
    An answer waits until ``pause`` is set; ``raw`` replaces it by bytes that may be no HTTP.
    ``asked`` are the paths so far, ``sent`` the headers of the last request. With ``events`` there
    is a stream, which sends what is put into it; ``None`` ends the stream. ``refused_tokens`` get
    401, after ``on_refusal`` was called.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.status, self.body = 200, b"{}"
        self.length: int | None = None
        self.answers: dict[str, Any] = {}
        self.pause = threading.Event()
        self.pause.set()
        self.raw: bytes | None = None
        self.asked: list[str] = []
        self.sent: Message = Message()
        self.refused_tokens: set[str] = set()
        self.on_refusal: Callable[[], object] = bool
        self.events: queue.SimpleQueue[bytes | None] | None = None
        stand = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand.asked.append(self.path)
                stand.sent = self.headers
                stand.pause.wait(patience(60))
                if self.headers.get("Authorization") in stand.refused_tokens:
                    stand.on_refusal()
                    self.send_error(401)
                    return
                if stand.raw is not None:
                    self.wfile.write(stand.raw)
                    self.close_connection = True
                    return
                if self.path.startswith("/api/v1/stream") and stand.events is not None:
                    self._send(stand.events)
                    return
                status, body = stand.status, stand.body
                if stand.answers:
                    found = stand.answers.get(self.path)
                    status, body = (
                        404 if found is None else 200,
                        json.dumps(page(self.path, found)).encode(),
                    )
                self.send_response(status)
                self.send_header("Content-Length", str(stand.length or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _send(self, events: queue.SimpleQueue[bytes | None]) -> None:
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(b"retry: 1000\n\n")
                while (event := events.get()) is not None:
                    self.wfile.write(event)

            def log_message(self, *_: object) -> None:
                pass

        if path is None:
            self.server: ThreadingHTTPServer = _Server(("127.0.0.1", 0), Handler)
            self.url = f"http://127.0.0.1:{self.server.server_port}"
        else:
            self.server = _SocketServer(str(path), Handler)  # type: ignore[arg-type]
            self.url = f"unix:{path}"

    @contextmanager
    def serving(self) -> Iterator[Stand]:
        """Serve in a thread."""
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self.pause.set()
            if self.events is not None:
                self.events.put(None)
            self.server.shutdown()
            thread.join()
            self.server.server_close()


def vigil(stand: Stand, *arguments: str, **environment: str) -> tuple[int, bytes, str]:
    """Run a verb that asks ``stand``; see ``run_verb``."""
    return run_verb(*arguments, "--server", stand.url, **environment)

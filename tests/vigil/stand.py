"""A stand-in for a daemon, with the answers that a test gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AT_MS = 1_795_469_669_290
AGENT: dict[str, Any] = {
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
}
LEADER = {"at_ms": AT_MS, "leader": {"role": "leader", "leads": True, "holder": "a"}}


class Stand:
    """A server that gives one answer to everything, or with ``answers`` one for each path."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.length: int | None = None
        self.answers: dict[str, Any] = {}
        stand = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = stand.status, stand.body
                if stand.answers:
                    found = stand.answers.get(self.path)
                    status, body = 404 if found is None else 200, json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(stand.length or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def vigil(stand: Stand, *arguments: str, **environment: str) -> tuple[int, bytes, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "LC_", "LANG"))}
    done = subprocess.run(
        [sys.executable, "-m", "vigil", *arguments, "--server", stand.url],
        capture_output=True,
        timeout=60,
        env=clean | {"LC_ALL": "C.UTF-8"} | environment,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr.decode()

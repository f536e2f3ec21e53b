"""An admission webhook that never answers: a real API server waits for it on each write."""

from __future__ import annotations

import base64
import contextlib
import http.server
import ssl
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    from tests.parts.controlplane import ControlPlane

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_NAME = "hangs.npu-vigil.example"
_GROUPS = {"configmaps": "", "leases": "coordination.k8s.io"}


class HangingWebhook:
    """Within the block each write of ``resources`` takes ``timeout_seconds`` longer."""

    def __init__(
        self,
        plane: ControlPlane,
        timeout_seconds: int,
        resources: tuple[str, ...] = ("configmaps", "leases"),
    ) -> None:
        self._plane = plane
        self._timeout_seconds = timeout_seconds
        self._resources = resources
        self._ends = ends = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                ends.wait()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(http.server.ThreadingHTTPServer):
            def finish_request(self, *arguments: object) -> None:
                # The API server breaks the connection when it has waited long enough.
                with contextlib.suppress(OSError):
                    super().finish_request(*arguments)  # type: ignore[arg-type]

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # Here each connection has a thread of its own before TLS begins.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.directory / "server.crt", plane.directory / "server.key")
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        authority = base64.b64encode((self._plane.directory / "ca.crt").read_bytes()).decode()
        url = f"https://127.0.0.1:{self._server.server_address[1]}/"
        hook = {
            "name": _NAME,
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": [
                {
                    "apiGroups": [_GROUPS[resource]],
                    "apiVersions": ["v1"],
                    "resources": [resource],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                }
                for resource in self._resources
            ],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "timeoutSeconds": self._timeout_seconds,
        }
        body = {"metadata": {"name": _NAME}, "webhooks": [hook]}
        self._plane.request("POST", _CONFIGURATIONS, body)
        return self

    def __exit__(self, *_: object) -> None:
        self._plane.request("DELETE", f"{_CONFIGURATIONS}/{_NAME}")
        self._ends.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

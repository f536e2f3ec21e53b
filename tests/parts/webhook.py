"""A mutating admission webhook: a small HTTPS server that a real API server asks on each write."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from tests.parts.controlplane import ControlPlane

    Object = dict[str, Any]

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_NAME = "tests.npu-vigil.example"
_RULES = (
    ("", "v1", ["configmaps", "nodes", "nodes/status"]),
    ("coordination.k8s.io", "v1", ["leases"]),
)


class Webhook:
    """``change`` gets each object that is created or updated, and changes it in place.

    Within the block the API server asks it; a failure of it refuses the write.
    """

    def __init__(self, plane: ControlPlane, change: Callable[[Object], None]) -> None:
        self.change = change
        self._plane = plane
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                answer = webhook.review(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.directory / "server.crt", plane.directory / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def review(self, review: Object) -> Object:
        """The answer to an AdmissionReview: the metadata and everything else as it is to be."""
        request = review["request"]
        before = request["object"]
        after = json.loads(json.dumps(before))
        self.change(after)
        patch = [
            {"op": "add", "path": f"/{part}", "value": content}
            for part, content in after.items()
            if before.get(part) != content
        ]
        response = {"uid": request["uid"], "allowed": True}
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        return {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        authority = base64.b64encode((self._plane.directory / "ca.crt").read_bytes()).decode()
        url = f"https://127.0.0.1:{self._server.server_address[1]}/"
        hook = {
            "name": _NAME,
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": [
                {
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "resources": resources,
                    "operations": ["CREATE", "UPDATE"],
                }
                for group, version, resources in _RULES
            ],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
        }
        body = {"metadata": {"name": _NAME}, "webhooks": [hook]}
        self._plane.request("POST", _CONFIGURATIONS, body)
        return self

    def __exit__(self, *_: object) -> None:
        self._plane.request("DELETE", f"{_CONFIGURATIONS}/{_NAME}")
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

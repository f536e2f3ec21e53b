"""Admission webhooks: small HTTPS servers that a real API server asks on each write."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from tests.parts.controlplane import ControlPlane

    Object = dict[str, Any]

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_GROUPS = {"configmaps": "", "nodes": "", "nodes/status": "", "leases": "coordination.k8s.io"}


def _rule(resource: str, *operations: str) -> Object:
    return {
        "apiGroups": [_GROUPS[resource]],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": operations,
    }


class _Admission:
    """Within the block the API server asks ``answer`` about what ``hook`` selects.

    ``configurations`` is the resource of such webhooks. ``answer`` gets the body of a review.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        configurations: str,
        hook: Mapping[str, object],
        answer: Callable[[bytes], bytes],
    ) -> None:
        self._plane = plane
        self._name = name
        self._path = f"{_CONFIGURATIONS}/{configurations}"
        self._hook = hook

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                answered = answer(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(answered)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        class Server(http.server.ThreadingHTTPServer):
            def finish_request(self, *arguments: object) -> None:
                # The API server breaks a connection when it has waited long enough.
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
            "name": self._name,
            "clientConfig": {"url": url, "caBundle": authority},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            **self._hook,
        }
        self._plane.request(
            "POST", self._path, {"metadata": {"name": self._name}, "webhooks": [hook]}
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._plane.request("DELETE", f"{self._path}/{self._name}")
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Webhook(_Admission):
    """``change`` gets each object that is created or updated, and changes it in place.

    A failure of it refuses the write.
    """

    def __init__(self, plane: ControlPlane, change: Callable[[Object], None]) -> None:
        self.change = change
        hook = {
            "rules": [_rule(resource, "CREATE", "UPDATE") for resource in _GROUPS],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
        }
        name = "tests.npu-vigil.example"
        super().__init__(plane, name, "mutatingwebhookconfigurations", hook, self._review)

    def _review(self, body: bytes) -> bytes:
        """Return the answer to an AdmissionReview: a patch to the changed object."""
        request = json.loads(body)["request"]
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
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return json.dumps({**answer, "response": response}).encode()


class HangingWebhook(_Admission):
    """Each write of ``resources`` takes ``timeout_seconds`` longer: it never answers."""

    def __init__(
        self,
        plane: ControlPlane,
        timeout_seconds: int,
        resources: tuple[str, ...] = ("configmaps", "leases"),
    ) -> None:
        self._ends = threading.Event()
        hook = {
            "rules": [_rule(resource, "CREATE", "UPDATE", "DELETE") for resource in resources],
            "failurePolicy": "Ignore",
            "timeoutSeconds": timeout_seconds,
        }
        name = "hangs.npu-vigil.example"
        super().__init__(plane, name, "validatingwebhookconfigurations", hook, self._hang)

    def _hang(self, _: bytes) -> bytes:
        self._ends.wait()
        return b""

    def __exit__(self, *how: object) -> None:
        self._ends.set()
        super().__exit__(*how)

"""Volcano's job controller and webhooks as processes, as ``build.sh`` made them."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.parts.processes import Running, free_ports
from tests.parts.volcano import GROUPS, JOBS, QUEUES, set_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.parts.controlplane import ControlPlane

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_UP_SECONDS = 30.0


def build() -> Path:
    """Return the folder with the program and the definitions of its kinds."""
    script = Path(__file__).with_name("build.sh")
    done = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def install(plane: ControlPlane, built: Path) -> None:
    """Make the API server take Volcano's kinds, and open the default queue."""
    for file in sorted(built.glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            if one is not None:
                plane.request("POST", _DEFINITIONS, one)
    until = time.monotonic() + _UP_SECONDS
    for path in (JOBS, GROUPS, QUEUES):
        while plane.ask("GET", path)[0] != 200:
            assert time.monotonic() < until, f"{path} is not served"
            time.sleep(0.1)
    api = "scheduling.volcano.sh/v1beta1"
    queue = {"apiVersion": api, "kind": "Queue", "metadata": {"name": "default"}}
    plane.request("POST", QUEUES, queue | {"spec": {"weight": 1, "reclaimable": True}})
    set_queue(plane, "Open")


@contextlib.contextmanager
def controllers(plane: ControlPlane, built: Path) -> Iterator[None]:
    """Run the job controller for the length of the block."""
    running = Running(
        [
            built / "volcano",
            "controllers",
            f"--kubeconfig={plane.kubeconfig}",
            "--enable-healthz=false",
        ],
        plane.directory / "controllers.log",
    )
    try:
        yield
    finally:
        running.stop()


@contextlib.contextmanager
def webhooks(plane: ControlPlane, built: Path) -> Iterator[None]:
    """Run the webhooks that check each job within the block."""
    here = plane.directory
    (port,) = free_ports(1)
    bundle = base64.b64encode((here / "ca.crt").read_bytes()).decode()
    for kind, path, operations in (
        ("Mutating", "/jobs/mutate", ["CREATE"]),
        ("Validating", "/jobs/validate", ["CREATE", "UPDATE"]),
    ):
        body = _webhook(path, operations, f"https://127.0.0.1:{port}{path}", bundle)
        plane.request("POST", f"{_ADMISSION}/{kind.lower()}webhookconfigurations", body)
    running = Running(
        [
            built / "volcano",
            "webhooks",
            f"--kubeconfig={plane.kubeconfig}",
            f"--tls-cert-file={here / 'server.crt'}",
            f"--tls-private-key-file={here / 'server.key'}",
            f"--ca-cert-file={here / 'ca.crt'}",
            "--enabled-admission=/jobs/mutate,/jobs/validate",
            "--webhook-url=https://127.0.0.1",
            "--listen-address=127.0.0.1",
            f"--port={port}",
            "--graceful-shutdown-time=1s",
        ],
        here / "webhooks.log",
    )
    try:
        running.wait_until(lambda: _listens(port), _UP_SECONDS)
        yield
    finally:
        running.stop()


def _webhook(path: str, operations: list[str], url: str, bundle: str) -> dict[str, Any]:
    """Return a configuration as Volcano's manifests have it, but for the address."""
    rule = {
        "apiGroups": ["batch.volcano.sh"],
        "apiVersions": ["v1alpha1"],
        "operations": operations,
        "resources": ["jobs"],
    }
    webhook = {
        "name": f"{path.rpartition('/')[2]}job.volcano.sh",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url, "caBundle": bundle},
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "rules": [rule],
    }
    name = f"volcano-admission-service{path.replace('/', '-')}"
    return {"metadata": {"name": name}, "webhooks": [webhook]}


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0

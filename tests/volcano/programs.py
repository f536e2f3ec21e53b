"""Real controllers and webhooks as processes, as ``build.sh`` made them."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.parts.deadlines import wait_until
from tests.parts.processes import Running, free_ports
from tests.parts.volcano import QUEUES, set_queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.parts.controlplane import ControlPlane

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_LWS_WEBHOOK = "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
_UP_SECONDS = 30.0


def build(name: str = "volcano") -> Path:
    """Return the folder with a program and the definitions of its kinds."""
    script = Path(__file__).with_name("build.sh")
    done = subprocess.run([script, name], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def install_kinds(plane: ControlPlane, built: Path) -> None:
    """Make the API server take the kinds of a program."""
    paths = []
    for file in sorted(built.glob("*.yaml")):
        # Definitions have up to 260 KB, for which the parser in Python takes seconds.
        for definition in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):
            if definition is not None:
                plane.request("POST", _DEFINITIONS, definition)
                spec = definition["spec"]
                version = next(each["name"] for each in spec["versions"] if each["served"])
                paths.append(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
    missing = set(paths)

    def are_served() -> bool:
        missing.difference_update([path for path in missing if plane.ask("GET", path)[0] == 200])
        return not missing

    wait_until(are_served, lambda: f"not served: {missing}", _UP_SECONDS, 0.1)


def install(plane: ControlPlane, built: Path) -> None:
    """Make the API server take Volcano's kinds, and open the default queue."""
    install_kinds(plane, built)
    api = "scheduling.volcano.sh/v1beta1"
    queue = {"apiVersion": api, "kind": "Queue", "metadata": {"name": "default"}}
    plane.request("POST", QUEUES, queue | {"spec": {"weight": 1, "reclaimable": True}})
    set_queue(plane, "Open")


def controllers(
    plane: ControlPlane, built: Path, names: str = "gc,job,queue"
) -> AbstractContextManager[None]:
    """Run these controllers of Volcano for the length of the block."""
    chosen = ",".join(f"+{name}-controller" for name in names.split(","))
    options = [f"--controllers={chosen}", "--enable-healthz=false"]
    return _program(plane, [built / "volcano", "controllers", *options], "controllers")


def workloads(plane: ControlPlane, built: Path) -> AbstractContextManager[None]:
    """Run the controllers of Kubernetes that make pods; ``built`` is Volcano's folder."""
    return _program(plane, [built / "volcano", "workloads"], "workloads")


def aibrix(plane: ControlPlane, built: Path) -> AbstractContextManager[None]:
    """Run the controllers of StormServices, RoleSets and PodSets."""
    return _program(plane, [built / "aibrix"], "aibrix")


@contextlib.contextmanager
def _program(plane: ControlPlane, command: list[str | Path], name: str) -> Iterator[None]:
    command.append(f"--kubeconfig={plane.kubeconfig}")
    running = Running(command, plane.directory / f"{name}.log")
    try:
        yield
    finally:
        running.stop()


@contextlib.contextmanager
def leader_worker_sets(plane: ControlPlane, built: Path, *, gang: bool) -> Iterator[None]:
    """Run the controller of LeaderWorkerSets with its webhooks; ``gang``: with Volcano's gangs."""
    here = plane.directory / "lws"
    here.mkdir(exist_ok=True)
    for name, end in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
        (here / end).write_bytes((plane.directory / name).read_bytes())
    (port,) = free_ports(1)
    configuration: dict[str, Any] = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(here)},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "internalCertManagement": {"enable": False},
    }
    if gang:
        configuration["gangSchedulingManagement"] = {"schedulerProvider": "volcano"}
    (here / "configuration.yaml").write_text(yaml.safe_dump(configuration))
    bundle = base64.b64encode((plane.directory / "ca.crt").read_bytes()).decode()
    webhooks = []
    for group, version, plural, path in (
        ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", _LWS_WEBHOOK),
        ("", "v1", "pods", "/mutate--v1-pod"),
    ):
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": [plural]}
        webhooks.append(
            {
                "name": f"{plural}.lws.x-k8s.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "rules": [rule | {"operations": ["CREATE"]}],
            }
        )
    path = f"{_ADMISSION}/mutatingwebhookconfigurations"
    plane.request("POST", path, {"metadata": {"name": "lws"}, "webhooks": webhooks})
    command: list[str | Path] = [built / "lws", f"--config={here / 'configuration.yaml'}"]
    try:
        with _program(plane, command, "lws"):
            log = plane.directory / "lws.log"
            wait_until(lambda: _listens(port), log.read_text, _UP_SECONDS, 0.1)
            yield
    finally:
        plane.request("DELETE", f"{path}/lws")


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

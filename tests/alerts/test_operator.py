"""The Prometheus operator's objects on a real API server; the example for Alertmanager."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.alerts.files import MONITORING, PROMETHEUS_RULE
from tests.parts.controlplane import path_of
from tests.parts.deadlines import wait_until
from tests.parts.kustomize import build_with
from tests.parts.processes import built_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.parts.controlplane import ControlPlane

MAX_BYTES = 100_000
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
POD_MONITORS = MONITORING / "pod-monitors.yaml"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}}
_MODULE = Path(__file__).parents[1] / "operator"


def definitions() -> list[dict[str, Any]]:
    """Return the operator's definitions of its resources, which ``tests/setup.sh`` provides."""
    folder = built_folder("prometheus-operator", [_MODULE / "go.mod", _MODULE / "go.sum"])
    files = sorted(folder.glob("*.yaml"))
    assert len(files) == 2, f"{folder}: run tests/setup.sh"
    return [yaml.safe_load(file.read_text()) for file in files]


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield an API server that has the operator's resources."""
    control_plane.apply(NAMESPACE)
    items = definitions()
    for item in items:
        control_plane.apply(item)
    for item in items:

        def is_served(path: str = path_of(item)) -> bool:
            conditions = control_plane.request("GET", path)["status"].get("conditions") or []
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        wait_until(is_served, f"{item['metadata']['name']} is served", 20, 0.1)
    yield control_plane
    for item in items:
        control_plane.request("DELETE", path_of(item))
    for item in items:

        def is_gone(path: str = path_of(item)) -> bool:
            return control_plane.ask("GET", path)[0] == 404

        wait_until(is_gone, f"{item['metadata']['name']} is deleted", 20, 0.1)


def applied(item: dict[str, Any]) -> dict[str, Any]:
    """Return ``item`` as ``kubectl apply`` sends it: with its own text in an annotation."""
    text = json.dumps(item, separators=(",", ":")) + "\n"
    metadata = item["metadata"] | {"annotations": {LAST_APPLIED: text}}
    return item | {"metadata": metadata}


@pytest.mark.apiserver
def test_the_operators_resources_accept_the_objects(plane: ControlPlane) -> None:
    objects = [
        item
        for file in (PROMETHEUS_RULE, POD_MONITORS)
        for item in yaml.safe_load_all(file.read_text())
    ]
    assert [item["kind"] for item in objects] == ["PrometheusRule", *["PodMonitor"] * 3]
    for item in objects:
        sent = applied(item)
        assert len(sent["metadata"]["annotations"][LAST_APPLIED].encode()) <= MAX_BYTES
        # A second application is a merge patch of what has changed.
        collection = path_of(item).rpartition("/")[0]
        status, answer = plane.ask("POST", f"{collection}?fieldValidation=Strict", sent)
        assert status == 201, answer
        status, answer = plane.ask(
            "PATCH",
            f"{path_of(item)}?fieldValidation=Strict",
            {"metadata": {"annotations": sent["metadata"]["annotations"]}, "spec": item["spec"]},
            content_type="application/merge-patch+json",
        )
        assert status == 200, answer


@pytest.mark.server
def test_each_daemon_of_the_manifests_is_scraped(tmp_path: Path) -> None:
    pods = [
        item["spec"]["template"]
        for item in build_with(tmp_path, "base", "elastic", "advice")
        if item["kind"] in ("DaemonSet", "Deployment")
    ]
    monitors = {
        item["metadata"]["name"]: item["spec"]
        for item in yaml.safe_load_all(POD_MONITORS.read_text())
    }
    for pod in pods:
        labels = pod["metadata"]["labels"]
        monitor = monitors.pop(f"npu-vigil-{labels['app.kubernetes.io/component']}")
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert {end["port"] for end in monitor["podMetricsEndpoints"]} <= ports
    assert monitors == {}
    example = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    jobs = {job["job_name"] for job in example["scrape_configs"]}
    assert jobs == {f"npu-vigil-{name}" for name in ("agent", "aggregator", "elastic")}


@pytest.mark.apiserver
def test_the_operators_resources_refuse_what_is_wrong(plane: ControlPlane) -> None:
    (rule,) = yaml.safe_load_all(PROMETHEUS_RULE.read_text())
    rule["spec"]["groups"][0]["rules"][-1]["for"] = "soon"
    collection = path_of(rule).rpartition("/")[0]
    status, answer = plane.ask("POST", f"{collection}?fieldValidation=Strict", applied(rule))
    assert status == 422, answer
    assert "for" in answer["message"]


@pytest.mark.server
def test_alertmanager_accepts_the_example(tmp_path: Path) -> None:
    assert checked(MONITORING / "alertmanager.yml") == 0
    wrong = tmp_path / "wrong.yml"
    text = (MONITORING / "alertmanager.yml").read_text()
    wrong.write_text(text.replace("receiver: platform", "receiver: nobody"))
    assert checked(wrong) == 1


def checked(file: Path) -> int:
    """Return the exit status of ``amtool check-config``."""
    command = ["amtool", "check-config", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode

"""The chart on a real API server: installed, changed, rolled back, removed, in place of kustomize.

No kubelet runs here, so no pod starts. A stand-in reports the phase of the pod of ``helm test``;
``test_chart.py`` runs what this pod does.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.packaging.chart_files import FULLEST, Identity, built, identity, values_of
from tests.parts.controlplane import ControlPlane, path_of
from tests.parts.deadlines import wait_until
from tests.parts.definitions import Definition
from tests.parts.helm import CHART, VERSIONS, helm, rendered
from tests.parts.kustomize import apply, take_back

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.server

RELEASE = "npu-vigil"
NAMESPACES = ("mindx-dl", "cluster-system")
OF_OPERATOR = [
    Definition("monitoring.coreos.com", "v1", kind) for kind in ("PodMonitor", "PrometheusRule")
]

TAKE_OVER = {
    "helm3": ("--take-ownership",),
    # It applies on the server's side, where another program owns fields that the API server fills.
    "helm4": ("--take-ownership", "--force-conflicts"),
}
"""Options by which Helm takes over objects that exist already."""


class Release:
    """A release on an API server, by one version of Helm."""

    def __init__(self, version: str, plane: ControlPlane) -> None:
        self.version = version
        self.plane = plane

    def ask(
        self, verb: str, *options: str | Path, values: Mapping[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Helm; return what it printed and its status."""
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        return helm(self.version, verb, RELEASE, kubeconfig, *options, values=values)

    def run(self, verb: str, *options: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Run a command of Helm that must not fail; return what it printed."""
        done = self.ask(verb, *options, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, values: Mapping[str, Any], chart: Path = CHART) -> dict[Identity, str]:
        """Return the path of each object that values make; hooks are no part of a release."""
        return {
            identity(item): path_of(item)
            for item in rendered(self.version, values, chart)
            if "helm.sh/hook" not in item["metadata"].get("annotations", {})
        }

    def missing(self, values: Mapping[str, Any]) -> set[Identity]:
        """Return the objects of these values that the API server has not."""
        paths = self.objects(values)
        return {key for key, path in paths.items() if self.plane.ask("GET", path)[0] == 404}


@pytest.fixture(params=VERSIONS)
def release(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Release]:
    """Yield a release that is not installed yet, by each version; it is removed afterwards."""
    release = Release(request.param, control_plane)
    yield release
    release.run("uninstall", "--ignore-not-found")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ControlPlane]:
    """Yield an API server of its own: other tests leave the namespaces."""
    with ControlPlane(tmp_path) as plane:
        yield plane


@pytest.mark.timeout(120)
def test_install_upgrade_rollback_and_uninstall(fresh: ControlPlane, tmp_path: Path) -> None:
    """The second version comes to a cluster whose namespaces the first has left."""
    plane, before = fresh, previous_chart(tmp_path)
    settings = {"agent": {"settings": {"heartbeat": {"interval_seconds": 15}}}}
    base, other = values_of(FULLEST) | settings, values_of("overlays/shadow")
    more = values_of(FULLEST, ("advice", "elastic", "elastic-dead-nodes", "grpc-plaintext"))
    for version in VERSIONS:
        release = Release(version, plane)
        old, new = release.objects(base, before), release.objects(more)
        assert old.keys() - new.keys() == {identity(DROPPED)}
        assert POLICY in new.keys() - old.keys()
        notes = release.run("install", before, "--create-namespace", values=base)
        assert f"helm test {RELEASE} --namespace mindx-dl" in notes
        assert "Pod Security" not in notes
        assert "WARNING" not in notes
        first = state(plane, old | new)
        assert first.there == old.keys()
        release.run("upgrade", CHART, values=more)
        second = state(plane, old | new)
        assert second.there == new.keys()
        assert (first.version, second.version) == ("0.0.9", "0.1.0")
        assert first.rules != second.rules
        assert first.agent != second.agent
        release.run("rollback")
        assert state(plane, old | new) == first
        release.run("rollback", "2")
        assert state(plane, old | new) == second
        release.run("upgrade", CHART, values=other)
        assert release.missing(other) == set()
        assert release.missing(more) == new.keys() - release.objects(other).keys()
        release.run("uninstall")
        assert release.missing(more) == new.keys() - {("Namespace", "", "cluster-system")}
        for name in NAMESPACES:
            namespace = plane.request("GET", f"/api/v1/namespaces/{name}")
            assert namespace["status"]["phase"] == "Active"


class State(NamedTuple):
    """Which objects are there, what the aggregator may, the agent's pod, and the version."""

    there: set[Identity]
    rules: Any
    agent: Any
    version: str


def state(plane: ControlPlane, paths: Mapping[Identity, str]) -> State:
    """Return the state of a release that may have the objects at these paths."""
    there = {key for key, path in paths.items() if plane.ask("GET", path)[0] == 200}
    role = plane.request("GET", paths["ClusterRole", "", "npu-vigil-aggregator-pods"])
    agent = plane.request("GET", paths["DaemonSet", "mindx-dl", "npu-vigil-agent"])
    version: str = agent["metadata"]["labels"]["app.kubernetes.io/version"]
    return State(there, role["rules"], agent["spec"]["template"], version)


def previous_chart(folder: Path) -> Path:
    """Return the chart of a release before: other rules, without one policy, with one object more.

    Its version is lower. No release has a chart yet, so there is no real one.
    """
    chart = shutil.copytree(CHART, folder / "chart")
    about = chart / "Chart.yaml"
    about.write_text(about.read_text().replace("0.1.0", "0.0.9"))
    (chart / "templates/own-node-only.yaml").unlink()
    (chart / "templates/dropped.yaml").write_text(json.dumps(DROPPED))
    role = chart / "templates/aggregator-rbac.yaml"
    text = role.read_text()
    assert text.count("podgroups") == 1
    role.write_text(text.replace("podgroups", "queues"))
    return chart


DROPPED = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "npu-vigil-dropped", "namespace": "mindx-dl"},
}
POLICY = ("ValidatingAdmissionPolicy", "", "npu-vigil-agent-own-node-only")


@pytest.mark.apiserver
def test_helm_test_has_the_result_of_its_pod(release: Release) -> None:
    """A stand-in reports the phase of the pod, as a kubelet would once its container has ended."""
    plane = release.plane
    apply_namespaces(plane)
    release.run("install", CHART)
    pod = "/api/v1/namespaces/mindx-dl/pods/npu-vigil-test-ready"
    before = ""

    def pod_of_run() -> str:
        """Return the uid of the pod of this run; empty before it is there."""
        status, answer = plane.ask("GET", pod)
        uid = str(answer["metadata"]["uid"]) if status == 200 else ""
        return "" if uid == before else uid

    # A pod that failed stays with its log, until the next run replaces it.
    for phase, expected, afterwards in (("Failed", 1, 200), ("Succeeded", 0, 404)):
        with ThreadPoolExecutor() as executor:
            running = executor.submit(release.ask, "test", "--timeout=60s")
            before = wait_until(pod_of_run, "the pod of helm test")
            plane.request("PATCH", f"{pod}/status", {"status": {"phase": phase}})
            done = running.result()
        assert done.returncode == expected, done.stderr
        assert f"Phase:          {phase}" in done.stdout
        assert plane.ask("GET", pod)[0] == afterwards


OF_OTHERS = (
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "site", "namespace": "mindx-dl"},
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "npu-vigil-of-a-site"},
    },
    {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "site", "namespace": "mindx-dl"},
    },
)

ROLE_OF_PLUGIN: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "pods-node-ascend-device-plugin-role"},
    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]}],
}


@pytest.mark.apiserver
def test_uninstall_removes_policies_and_custom_resources_and_nothing_of_others(
    release: Release,
) -> None:
    """Roles of the plugin, which the release narrows, stay as well."""
    plane = release.plane
    apply_namespaces(plane)
    signals = ("node-conditions", "node-taints", "device-taints")
    values = values_of(FULLEST, (*signals, "device-plugin-roles", "without-own-node-only"))
    values["monitoring"] = {name: {"enabled": True} for name in ("podMonitors", "rules")}
    objects = release.objects(values)
    of_plugin = {key for key in objects if key[2].startswith(ROLE_OF_PLUGIN["metadata"]["name"])}
    assert len(of_plugin) == 5
    try:
        for definition in OF_OPERATOR:
            definition.install(plane)
        for item in (*OF_OTHERS, ROLE_OF_PLUGIN):
            plane.apply(item)
        release.run("install", CHART, *TAKE_OVER[release.version], values=values)
        assert {"ValidatingAdmissionPolicy", "PodMonitor", "PrometheusRule"} <= {
            kind for kind, _, _ in objects
        }
        assert release.missing(values) == set()
        rules = plane.request("GET", path_of(ROLE_OF_PLUGIN))["rules"]
        of_documents = [rule["verbs"] for rule in rules if "configmaps" in rule["resources"]]
        assert of_documents == [["get", "list", "watch"]]
        release.run("uninstall")
        left = {("Namespace", "", "cluster-system"), *of_plugin}
        assert release.missing(values) == objects.keys() - left
        assert plane.request("GET", path_of(ROLE_OF_PLUGIN))["rules"] == rules
        for item in OF_OTHERS:
            assert plane.ask("GET", path_of(item))[0] == 200
        namespace = plane.request("GET", "/api/v1/namespaces/mindx-dl")
        assert namespace["status"]["phase"] == "Active"
    finally:
        plugins = (item for item in rendered("helm4", values) if "plugin" in path_of(item))
        take_back(plane, [*OF_OTHERS, *plugins])
        for definition in OF_OPERATOR:
            definition.uninstall(plane)


@pytest.mark.apiserver
def test_helm_takes_over_what_kustomize_applied(release: Release) -> None:
    """No pod restarts for it."""
    plane = release.plane

    def pods() -> list[Any]:
        workloads = (item for item in items if item["kind"] in ("DaemonSet", "Deployment"))
        return [plane.request("GET", path_of(item))["spec"]["template"] for item in workloads]

    items = apply(plane, FULLEST)
    try:
        before = pods()
        assert len(before) == 2
        done = release.ask("install", CHART)
        assert done.returncode == 1
        assert "invalid ownership metadata" in done.stderr
        release.run("install", CHART, *TAKE_OVER[release.version])
        assert pods() == before
        release.run("uninstall")
        of_both = {identity(item) for item in items if item["kind"] != "Namespace"}
        assert release.missing({}) == of_both
    finally:
        take_back(plane, items)


@pytest.mark.apiserver
@pytest.mark.parametrize("release", ["helm4"], indirect=True)
def test_notes_warn_of_a_namespace_that_refuses_agents_and_of_an_open_port(
    release: Release,
) -> None:
    plane = release.plane
    apply_namespaces(plane)
    path = "/api/v1/namespaces/mindx-dl"
    label = "pod-security.kubernetes.io/enforce"
    plane.request("PATCH", path, {"metadata": {"labels": {label: "baseline"}}})
    try:
        values = {"grpc": {"mode": "plaintext"}, "networkPolicy": {"create": "never"}}
        notes = release.run("install", CHART, values=values)
    finally:
        plane.request("PATCH", path, {"metadata": {"labels": {label: "privileged"}}})
    assert 'admits "baseline" pods, so no agent starts' in notes
    assert f"kubectl label namespace mindx-dl --overwrite {label}=privileged" in notes
    assert "WARNING: every pod that reaches port 8899" in notes


def apply_namespaces(plane: ControlPlane) -> None:
    """Apply the namespaces, as other tests do."""
    for item in built("base").values():
        if item["kind"] == "Namespace":
            plane.apply(item)

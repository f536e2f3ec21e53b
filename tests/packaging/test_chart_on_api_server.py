"""The chart on a real API server: installed, changed, removed, and in place of kustomize.

No kubelet runs here, so no pod starts; ``test_chart.py`` runs what ``helm test`` would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.packaging.chart_files import FULLEST, Identity, built, identity, values_of
from tests.parts.controlplane import ControlPlane, path_of
from tests.parts.helm import CHART, VERSIONS, helm, rendered
from tests.parts.kustomize import apply, take_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.server

RELEASE = "npu-vigil"
NAMESPACES = ("mindx-dl", "cluster-system")
OF_THE_PLUGIN = (
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/pods-node-ascend-device-plugin-role"
)


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

    def run(self, verb: str, *options: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Run a command of Helm that must not fail; return what it printed."""
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        done = helm(self.version, verb, RELEASE, kubeconfig, *options, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, values: Mapping[str, Any]) -> dict[Identity, str]:
        """Return the path of each object that values make; hooks are no part of a release."""
        return {
            identity(item): path_of(item)
            for item in rendered(self.version, values)
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
def test_install_upgrade_and_uninstall(fresh: ControlPlane) -> None:
    """The second version comes to a cluster whose namespaces the first has left."""
    base, other = values_of(FULLEST), values_of("overlays/shadow")
    more = values_of(FULLEST, ("advice", "elastic", "elastic-dead-nodes", "grpc-plaintext"))
    for version in VERSIONS:
        release = Release(version, fresh)
        every = release.objects(more).keys()
        notes = release.run("install", CHART, "--create-namespace", values=base)
        assert f"helm test {RELEASE} --namespace mindx-dl" in notes
        assert "Pod Security" not in notes
        assert "WARNING" not in notes
        assert release.missing(more) == every - release.objects(base).keys()
        release.run("upgrade", CHART, values=more)
        assert release.missing(more) == set()
        release.run("upgrade", CHART, values=other)
        assert release.missing(other) == set()
        assert release.missing(more) == every - release.objects(other).keys()
        release.run("uninstall")
        assert release.missing(more) == every - {("Namespace", "", "cluster-system")}
        for name in NAMESPACES:
            state = fresh.request("GET", f"/api/v1/namespaces/{name}")
            assert state["status"]["phase"] == "Active"


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
        done = helm(release.version, "install", RELEASE, CHART, f"--kubeconfig={plane.kubeconfig}")
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
def test_roles_of_the_plugin_stay_when_the_release_goes(release: Release) -> None:
    plane = release.plane
    apply_namespaces(plane)
    plane.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": OF_THE_PLUGIN.rpartition("/")[2]},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]}],
        }
    )
    values = values_of(FULLEST, ("device-plugin-roles", "without-own-node-only"))
    release.run("install", CHART, *TAKE_OVER[release.version], values=values)
    rules = plane.request("GET", OF_THE_PLUGIN)["rules"]
    of_documents = [rule["verbs"] for rule in rules if "configmaps" in rule["resources"]]
    assert of_documents == [["get", "list", "watch"]]
    release.run("uninstall")
    assert plane.request("GET", OF_THE_PLUGIN)["rules"] == rules
    take_back(plane, [item for item in rendered("helm4", values) if "plugin" in path_of(item)])


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

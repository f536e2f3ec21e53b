"""The Helm chart: it renders what kustomize does, and refuses values that do not fit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from agent.config import load_agent
from aggregator.config import load_aggregator
from elastic.config import load_elastic
from tests.aggregator.daemon import Daemon
from tests.packaging.chart_files import (
    COMPONENTS,
    FULLEST,
    MONITORING,
    NEEDS,
    OVERLAYS,
    SCHEMA,
    built,
    files,
    identity,
    values_of,
)
from tests.parts.helm import CHART, VERSIONS, lint, rendered, template
from tests.parts.kustomize import MANIFESTS
from tests.parts.processes import free_ports
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.packaging.chart_files import Identity

pytestmark = pytest.mark.server

OF_HELM = {
    *("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"),
    *("helm.sh/chart", "helm.sh/resource-policy"),
}
"""Labels and annotations that objects of a chart have beside those of kustomize."""

OF_THE_RELEASE = ("Namespace", "", "mindx-dl")
"""Helm makes the namespace of a release by itself."""

ALL = (
    "advice",
    "agent-tls",
    "agent-users",
    "aggregator-network-policy",
    "aggregator-tls",
    "aggregator-tokens",
    "aggregator-users",
    "elastic",
    "elastic-login",
    "elastic-network-faults",
    "elastic-dead-nodes",
    "grpc",
    "mounted-driver",
    "node-conditions",
    "node-taints",
    "device-taints",
    "without-privileged",
)
CASES = [
    *((overlay, ()) for overlay in OVERLAYS),
    *((FULLEST, (*NEEDS.get(component, ()), component)) for component in COMPONENTS),
    (FULLEST, (*ALL, "dpc-storage", "dtfs-storage")),
    (FULLEST, ("grpc-plaintext", "aggregator-network-policy")),
    (FULLEST, ("without-own-node-only", "device-plugin-roles")),
]


def comparable(items: Iterable[dict[str, Any]]) -> dict[Identity, dict[str, Any]]:
    """Return objects without what only Helm adds, and with lists in which order has no meaning."""
    kept = {}
    for item in items:
        metadata = item["metadata"]
        if "helm.sh/hook" in metadata.get("annotations", {}) or identity(item) == OF_THE_RELEASE:
            continue
        for field in ("labels", "annotations"):
            texts = metadata.pop(field, {})
            if others := {key: text for key, text in texts.items() if key not in OF_HELM}:
                metadata[field] = others
        if item["kind"] in ("DaemonSet", "Deployment"):
            pod = item["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            for place, fields in ((pod, ("volumes",)), (container, _UNORDERED)):
                for field in fields:
                    if field in place:
                        place[field].sort(key=lambda part: json.dumps(part, sort_keys=True))
        assert identity(item) not in kept, "an object is there twice"
        kept[identity(item)] = item
    return kept


_UNORDERED = ("args", "env", "ports", "volumeMounts")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("overlay", "components"),
    CASES,
    ids=lambda part: part if isinstance(part, str) else "+".join(part) or "alone",
)
def test_chart_renders_what_kustomize_does(
    version: str, overlay: str, components: tuple[str, ...]
) -> None:
    of_kustomize = comparable(json.loads(json.dumps([*built(overlay, *components).values()])))
    of_chart = comparable(rendered(version, values_of(overlay, components)))
    assert of_chart.keys() == of_kustomize.keys()
    for key, item in of_kustomize.items():
        assert of_chart[key] == item, key


def test_every_component_and_overlay_has_its_value() -> None:
    components = {folder.name for folder in (MANIFESTS / "components").iterdir()}
    assert components == COMPONENTS.keys(), "COMPONENTS of chart_files.py describes what it needs"
    overlays = {f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir()}
    assert {"base", *overlays} == OVERLAYS.keys(), "add a row to OVERLAYS of chart_files.py"
    assert {name for _, components in CASES for name in components} == COMPONENTS.keys()


def test_guide_names_the_value_of_each_component_and_overlay() -> None:
    text = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    components = {f"components/{name}": value for name, value in COMPONENTS.items()}
    for name, value in (components | OVERLAYS).items():
        setting = f"{value.key}: {yaml.safe_dump(value.value).split()[0]}"
        assert re.search(rf"^\| `{name}` \| .*`{setting}`", text, re.MULTILINE), name


def test_defaults_are_the_overlay_of_the_readme() -> None:
    assert rendered("helm4", {}) == rendered("helm4", values_of(FULLEST, ()))
    assert f"kubectl apply -k daemonset/{FULLEST}" in (ROOT / "README.md").read_text()


def test_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_generated_files_are_those_of_their_sources() -> None:
    old = [
        str(path.relative_to(ROOT))
        for path, text in files().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert old == [], "run python -m tests.packaging.chart_files"


def test_every_file_of_the_chart_is_generated_or_written_by_hand() -> None:
    """A template whose source is gone would stay."""
    generated = "Generated by python -m tests.packaging.chart_files"
    marked = {path for path in CHART.rglob("*.yaml") if generated in path.read_text()}
    assert marked == {path for path in files() if path.parent == CHART / "templates"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [{}, values_of(FULLEST, ALL)], ids=["defaults", "all"])
def test_lint_finds_nothing(version: str, values: Mapping[str, Any]) -> None:
    done = lint(version, values)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "1 chart(s) linted, 0 chart(s) failed" in output
    assert not [line for line in output.splitlines() if "WARNING" in line or "ERROR" in line]


def test_each_value_has_a_default_and_a_schema() -> None:
    """The schema refuses a key that it does not have; settings have no defaults of their own."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))

    def keys(node: Mapping[str, Any], above: str = "") -> Iterable[str]:
        reference = node.get("$ref", "").removeprefix("#/$defs/")
        node = schema["$defs"].get(reference, node)
        if node.get("additionalProperties") is not False or reference.endswith("Settings"):
            assert node.get("properties") is None or reference, above
            yield above
            return
        for key, below in node["properties"].items():
            yield from keys(below, f"{above}.{key}")

    def has_default(path: str) -> bool:
        value = defaults
        for key in path.split(".")[1:]:
            if key not in value:
                return False
            value = value[key]
        return True

    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert [path for path in keys(schema) if not has_default(path)] == [".global"]


def pod_of(items: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the template of the pods of a workload."""
    (template_,) = (
        item["spec"]["template"]
        for item in items
        if item["kind"] in ("DaemonSet", "Deployment") and item["metadata"]["name"] == name
    )
    return dict(template_)


def environment_of(items: Iterable[dict[str, Any]], name: str) -> dict[str, str]:
    """Return the variables of a workload that have a value."""
    (container,) = pod_of(items, name)["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def test_settings_reach_the_daemons() -> None:
    values = values_of(FULLEST, ("advice", "elastic"))
    values["agent"] = {
        "settings": {
            "hang": {"enabled": False},
            "heartbeat": {"interval_seconds": 15},
            "chip_faults": {"list_period_seconds": 0.5},
            "pages": {"host_names": ["a.example", "b.example"]},
            "log_format": "json",
        }
    }
    chips = "mlx5_0=0 1,mlx5_1="
    values["aggregator"] = {"settings": {"dpu_faults": {"chips": chips, "publish": True}}}
    values["elastic"]["settings"] = {"lease_seconds": 20}
    items = rendered("helm4", values)
    environment = environment_of(items, "npu-vigil-agent") | {"NODE_NAME": "n"}
    agent = msgspec.to_builtins(load_agent(None, environment, {}), enc_hook=str)
    assert agent["hang"]["enabled"] is False
    assert agent["heartbeat"]["interval_seconds"] == 15
    assert agent["heartbeat"]["absence_seconds"] == 300, "a default stays beside what is set"
    assert agent["chip_faults"]["list_period_seconds"] == 0.5
    assert agent["pages"]["host_names"] == ("a.example", "b.example")
    assert agent["log_format"] == "json"
    aggregator = load_aggregator(None, environment_of(items, "npu-vigil-aggregator"), {})
    assert aggregator.dpu_faults.publish
    assert aggregator.dpu_faults.chips == {"mlx5_0": (0, 1), "mlx5_1": ()}
    assert aggregator.public_faults.namespaces == ("mindx-dl", "cluster-system")
    elastic = load_elastic(None, environment_of(items, "npu-vigil-elastic"), {})
    assert elastic.lease_seconds == 20


SIGNALS = {
    "nodeConditions": "node_conditions",
    "nodeTaints": "node_taints",
    "deviceTaints": "device_taints",
}


@pytest.mark.parametrize("value", SIGNALS)
def test_option_is_off_and_its_rights_stay_until_all_is_removed(value: str) -> None:
    def objects(items: list[dict[str, Any]]) -> set[Identity]:
        return {identity(item) for item in items}

    without = rendered("helm4", {})
    written = rendered("helm4", {value: {"enabled": True}})
    removing = rendered("helm4", {value: {"enabled": True, "remove": True}})
    for items, expected in ((without, False), (written, True), (removing, False)):
        environment = environment_of(items, "npu-vigil-aggregator")
        options = load_aggregator(None, environment, {})
        enabled = {option: getattr(options, option).enabled for option in SIGNALS.values()}
        assert enabled == {option: expected and key == value for key, option in SIGNALS.items()}
    assert objects(removing) == objects(written) > objects(without)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_site_names_its_registry_and_marks_everything(version: str) -> None:
    digest = f"sha256:{'0' * 64}"
    values = values_of(FULLEST, ALL) | {
        "image": {"repository": "registry.example/a/npu-vigil", "digest": digest},
        "imagePullSecrets": [{"name": "registry"}],
        "commonLabels": {"example/team": "npu"},
        "commonAnnotations": {"example/cost": "7", "prometheus.io/scrape": "false"},
        "monitoring": {
            "labels": {"release": "prometheus"},
            "podMonitors": {"enabled": True},
            "rules": {"enabled": True},
            "dashboards": {"enabled": True},
        },
    }
    items = rendered(version, values)
    pods = [item for item in items if item["kind"] == "Pod"]
    pods += [item["spec"]["template"] for item in items if "template" in item.get("spec", {})]
    assert len(pods) == 4
    for pod in pods:
        spec = pod["spec"]
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        images = {container["image"] for container in spec["containers"]}
        assert images == {f"registry.example/a/npu-vigil@{digest}"}
    for item in (*items, *pods):
        assert item["metadata"]["labels"]["example/team"] == "npu"
        assert item["metadata"]["annotations"]["example/cost"] == "7"
    workloads = [pod for pod in pods if "kind" not in pod]
    assert {pod["metadata"]["annotations"]["prometheus.io/scrape"] for pod in workloads} == {
        "false"
    }
    of_operator = [item for item in items if item["apiVersion"].startswith("monitoring.coreos")]
    assert {item["metadata"]["labels"]["release"] for item in of_operator} == {"prometheus"}


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_of_monitoring_are_those_of_its_folder(version: str) -> None:
    switches = {name: {"enabled": True} for name in ("podMonitors", "rules", "dashboards")}
    items = comparable(rendered(version, {"monitoring": switches}))
    for name in ("pod-monitors.yaml", "prometheus-rule.yaml", "dashboards.yaml"):
        text = (MONITORING / name).read_text(encoding="utf-8")
        expected = comparable(yaml.safe_load_all(text))
        assert expected
        assert {key: items.pop(key) for key in expected} == expected
    assert items == comparable(rendered(version, {})), "monitoring is off by default"


def test_pod_monitors_and_helm_test_use_tls_where_daemons_do() -> None:
    login = {"basicAuth": {"username": {"name": "scraper", "key": "user"}}}
    switches = {"podMonitors": {"enabled": True, "login": login}}
    values = {"aggregator": {"tls": {"enabled": True}}, "monitoring": switches}
    items = rendered("helm4", values)
    endpoints = {
        item["metadata"]["name"]: item["spec"]["podMetricsEndpoints"][0]
        for item in items
        if item["kind"] == "PodMonitor"
    }
    assert endpoints["npu-vigil-aggregator"].items() >= {"scheme": "https", **login}.items()
    assert "scheme" not in endpoints["npu-vigil-agent"]
    (pod,) = (item for item in items if item["kind"] == "Pod")
    services = pod["spec"]["containers"][0]["command"][3:]
    assert [service.partition(":")[0] for service in services] == ["http", "https"]


PAGES = {"restricted": True}


def policy_of(**values: Any) -> dict[str, Any] | None:
    """Return the specification of the network policy that values make."""
    items = rendered("helm4", values)
    specifications = [item["spec"] for item in items if item["kind"] == "NetworkPolicy"]
    return specifications[0] if specifications else None


def test_network_policy_is_a_switch() -> None:
    assert policy_of() is None
    assert policy_of(grpc={"mode": "tls"}) is None
    assert policy_of(grpc={"mode": "plaintext"}, networkPolicy={"create": "never"}) is None
    block = {"ipBlock": {"cidr": "192.0.2.0/24"}}
    policy = policy_of(grpc={"mode": "tls"}, networkPolicy={"create": "always", "from": [block]})
    assert policy is not None
    assert policy["ingress"][0]["from"][-1] == block
    closed = policy_of(networkPolicy={"create": "always"})
    assert closed is not None
    assert [port["port"] for rule in closed["ingress"] for port in rule["ports"]] == ["http"]
    pages = policy_of(networkPolicy={"create": "always", "pages": PAGES | {"from": [block]}})
    assert pages is not None
    assert pages["ingress"][0]["from"][-1] == block
    assert all(rule["from"] for rule in pages["ingress"])


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a key that no value has": ({"agnet": {}}, "agnet"),
    "an option that no daemon has": ({"agent": {"settings": {"hang": {"on": True}}}}, "'on'"),
    "an option that goes with rights": (
        {"aggregator": {"settings": {"advice": {"enabled": True}}}},
        "'enabled'",
    ),
    "a table as a map": (
        {"aggregator": {"settings": {"dpu_faults": {"chips": {"mlx5_0": "0"}}}}},
        "chips",
    ),
    "a label by which pods are selected": (
        {"commonLabels": {"app.kubernetes.io/name": "x"}},
        "commonLabels",
    ),
    "a profile that is not there": ({"profile": "with-clusterd-clients"}, "profile"),
    "hang detection without processes": ({"agent": {"hostPID": False}}, "hang.enabled must be"),
    "elastic training without advice": ({"elastic": {"enabled": True}}, "needs advice.enabled"),
    "a part of elastic training alone": ({"elastic": {"act": True}}, "need elastic.enabled"),
    "a login of elastic training without tokens": (
        {"advice": {"enabled": True}, "elastic": {"enabled": True, "login": {"enabled": True}}},
        "elastic.login.enabled needs elastic.enabled and aggregator.tokens.enabled",
    ),
    "a component of the aggregator in shadow": (
        {"profile": "shadow", "advice": {"enabled": True}},
        "shadow has no aggregator",
    ),
    "users without TLS": (
        {"agent": {"users": {"enabled": True}}},
        "users and tokens of agent need agent.tls.enabled",
    ),
    "tokens without TLS": (
        {"aggregator": {"tokens": {"enabled": True}}},
        "users and tokens of aggregator need aggregator.tls.enabled",
    ),
    "TLS of the aggregator in shadow": (
        {"profile": "shadow", "aggregator": {"tls": {"enabled": True}}},
        "networkPolicy.pages.restricted must be false",
    ),
    "a signal to schedulers in shadow": (
        {"profile": "shadow", "deviceTaints": {"enabled": True}},
        "deviceTaints.enabled must be false",
    ),
    "what was written is removed without rights": (
        {"nodeTaints": {"remove": True}},
        "nodeTaints.remove needs nodeTaints.enabled",
    ),
    "roles of the plugin in another profile": (
        {"profile": "base", "devicePluginRoles": {"enabled": True}},
        "devicePluginRoles.enabled is for",
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_values_that_do_not_fit_are_refused(version: str, wrong: str) -> None:
    values, text = WRONG[wrong]
    done = template(version, values)
    assert done.returncode == 1, done.stdout
    assert text in done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--namespace=default", "add --namespace mindx-dl --create-namespace"),
        ("--kube-version=1.29.3", "ownNodeOnly.enabled needs Kubernetes 1.30, this is v1.29.3"),
    ],
)
def test_another_namespace_and_an_old_cluster_are_refused(
    version: str, option: str, text: str
) -> None:
    done = template(version, {}, option)
    assert done.returncode == 1, done.stdout
    assert text in done.stderr


def test_helm_test_asks_what_runs() -> None:
    (pod,) = (item for item in rendered("helm4", {}) if item["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    *interpreter, script, agents, aggregators = container["command"]
    assert interpreter == ["/opt/npu-vigil/bin/python3", "-c"]
    assert script == (CHART / "files/ready.py").read_text(encoding="utf-8")
    services = {
        f"http://{item['metadata']['name']}.mindx-dl:{port['port']}"
        for item in rendered("helm4", {})
        if item["kind"] == "Service"
        for port in item["spec"]["ports"]
    }
    assert {agents, aggregators} == services
    (shadow,) = (item for item in rendered("helm4", {"profile": "shadow"}) if item["kind"] == "Pod")
    (container,) = shadow["spec"]["containers"]
    assert container["command"][2:] == [script, agents], "there is no aggregator"


@pytest.mark.daemon
def test_helm_test_names_who_is_not_ready_and_why(tmp_path: Path) -> None:
    def ready(*services: str) -> tuple[int, str]:
        command = [sys.executable, str(CHART / "files/ready.py"), *services]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    (nowhere,) = free_ports(1)
    broker = f"mqtt://127.0.0.1:{nowhere}"
    runs = Daemon(tmp_path / "runs", "--store", f"directory:{tmp_path / 'store'}")
    waits = Daemon(tmp_path / "waits", "--store", broker, "--publish", f"directory:{tmp_path}")
    try:
        runs.start()
        waits.spawn()
        address, other, silence = runs.url, waits.url, f"http://127.0.0.1:{nowhere}"
        assert ready(address) == (0, "")
        status, text = ready(silence, other, address)
        assert status == 1
        silent, unready = text.splitlines()
        assert silent.startswith(f"{silence} does not answer: ")
        assert unready.startswith(f"{other} is not ready: ")
        assert broker in unready
    finally:
        runs.stop()
        waits.stop()
    status, text = ready("http://no-such-service.invalid:9820")
    assert (status, text.partition(" has no address")[0]) == (1, "no-such-service.invalid")

"""TLS, users and tokens of the pages in a cluster: Secrets, probes, rights, Prometheus."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from agent.config import load_agent
from aggregator.config import AggregatorPagesSection, load_aggregator
from elastic.config import load_elastic
from service.login.tokens import TokenChecks
from stores.kubernetes_api.access import TokenReviews
from tests.packaging.chart_files import NEEDS
from tests.parts.certificates import make_pki
from tests.parts.controlplane import path_of
from tests.parts.deadlines import until
from tests.parts.kustomize import build_with, object_of, take_back
from tests.parts.prometheus import Prometheus
from tests.parts.rights import RBAC
from tests.parts.tree import ROOT
from tests.service.tls.tls_site import private_copy, tls_site

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

OVERLAY = "overlays/beside-device-plugin"
COMPONENTS = (
    *("agent-tls", "agent-users"),
    *("aggregator-tls", "aggregator-users", "aggregator-tokens"),
)


@pytest.fixture
def items(tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "kustomization"
    folder.mkdir()
    return build_with(folder, OVERLAY, *COMPONENTS)


def pod_of(items: list[dict[str, Any]], daemon: str) -> dict[str, Any]:
    """Return the specification of the pods of a daemon."""
    kind = "DaemonSet" if daemon == "agent" else "Deployment"
    workload = object_of(items, kind, f"npu-vigil-{daemon}")
    return dict(workload["spec"]["template"]["spec"])


@pytest.mark.server
@pytest.mark.parametrize("daemon", ["agent", "aggregator"])
def test_settings_name_files_of_mounted_secrets(items: list[dict[str, Any]], daemon: str) -> None:
    pod = pod_of(items, daemon)
    [container] = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    if daemon == "agent":
        pages: Any = load_agent(None, environment | {"NODE_NAME": "n"}, {}).pages
    else:
        pages = load_aggregator(None, environment, {}).pages
        assert pages.tokens
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for file, key in (
        (pages.certificate_file, "tls.crt"),
        (pages.key_file, "tls.key"),
        (pages.users_file, "users"),
    ):
        assert file.name == key
        # A key that all users can read is refused.
        assert volumes[mounts[str(file.parent)]]["secret"]["defaultMode"] == 0o440
    probes = [probe for name, probe in container.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["scheme"] for probe in probes} == {"HTTPS"}
    assert len(probes) == (3 if daemon == "agent" else 2)


@pytest.mark.apiserver
async def test_prometheus_reads_metrics_with_a_token_and_the_rights_of_the_manifests(
    control_plane: ControlPlane, items: list[dict[str, Any]], tmp_path: Path
) -> None:
    plane, accounts = control_plane, "/api/v1/namespaces/default/serviceaccounts"
    make_pki(tmp_path)
    binding = {
        "metadata": {"name": "prometheus-of-tests"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "prometheus"}],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "npu-vigil-metrics-reader",
        },
    }
    reviews = prometheus = None
    try:
        for item in items:
            plane.apply(item)
        stored = plane.request("GET", path_of(object_of(items, "DaemonSet", "npu-vigil-agent")))
        [container] = stored["spec"]["template"]["spec"]["containers"]
        assert container["startupProbe"]["httpGet"]["scheme"] == "HTTPS"
        plane.request("POST", accounts, {"metadata": {"name": "prometheus"}})
        plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
        (tmp_path / "token").write_text(plane.token_for("default", "prometheus", "npu-vigil"))
        reviews = TokenReviews(str(plane.service_account("mindx-dl", "npu-vigil-aggregator")))
        tokens = TokenChecks(reviews, "npu-vigil")
        async with tls_site(tmp_path, private_copy(tmp_path, tmp_path), tokens=tokens) as site:
            configuration = _shipped(tmp_path, f"localhost:{site.port}")
            prometheus = Prometheus(tmp_path, yaml.safe_dump(configuration))

            query = 'npu_vigil_http_connections{job="npu-vigil-aggregator"}'

            async def has_scraped() -> bool:
                answer = await asyncio.to_thread(prometheus.ask, "query", query=query)
                return bool(answer is not None and answer["result"])

            await until(has_scraped, seconds=30.0)
    finally:
        if prometheus is not None:
            prometheus.stop()
        if reviews is not None:
            await reviews.close()
        plane.ask("DELETE", f"{RBAC}/clusterrolebindings/prometheus-of-tests")
        plane.ask("DELETE", f"{accounts}/prometheus")
        take_back(plane, items)


def _shipped(place: Path, address: str) -> dict[str, Any]:
    """Return the shipped configuration with files of ``place``, for a daemon on this host."""
    text = (ROOT / "monitoring/prometheus-with-token.yml").read_text(encoding="utf-8")
    configuration: dict[str, Any] = yaml.safe_load(text)
    [job] = configuration["scrape_configs"]
    job["authorization"]["credentials_file"] = str(place / "token")
    job["tls_config"] |= {"ca_file": str(place / "ca.crt"), "server_name": "localhost"}
    # Prometheus finds no pods without a cluster.
    del job["kubernetes_sd_configs"], job["relabel_configs"]
    job["static_configs"] = [{"targets": [address]}]
    return configuration | {"global": {"scrape_interval": "1s"}}


@pytest.mark.server
def test_elastic_training_logs_in_with_files_of_its_volume(tmp_path: Path) -> None:
    items = build_with(tmp_path, OVERLAY, *NEEDS["elastic-login"], "elastic-login")
    pod = pod_of(items, "elastic")
    [container] = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    configuration = load_elastic(None, environment, {})
    service = object_of(items, "Service", "npu-vigil-aggregator")
    names = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    assert configuration.aggregator == f"https://{names}:{service['spec']['ports'][0]['port']}"
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "login"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "login"]
    token, authority = volume["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == AggregatorPagesSection().token_audience
    login = configuration.login
    assert login.token_file == Path(mount["mountPath"]) / token["serviceAccountToken"]["path"]
    [item] = authority["secret"]["items"]
    assert login.ca_file == Path(mount["mountPath"]) / item["path"]

"""ClusterD's gRPC services in a cluster: over mutual TLS, or in plain text behind a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aggregator.config import load_aggregator
from aggregator.grpc.endpoint import TlsFiles, endpoint_of
from tests.parts.configuration_keys import flags
from tests.parts.controlplane import path_of
from tests.parts.kustomize import aggregator_container, build, build_with, object_of, take_back
from vigil.aggregator import aggregator

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane


def configured(items: list[dict[str, Any]]) -> Any:
    """Return what the aggregator makes of its arguments and its environment."""
    output = aggregator_container(items)
    options = [argument.partition("=") for argument in output["args"][1:]]
    assert {name for name, _, _ in options} <= flags(aggregator)
    environment = {variable["name"]: variable["value"] for variable in output.get("env", [])}
    given = {name.removeprefix("--"): value or "true" for name, _, value in options}
    names = {"grpc-listen": "grpc.listen", "grpc-plaintext": "grpc.plaintext"}
    here = {name: given[option] for option, name in names.items() if option in given}
    return endpoint_of(load_aggregator(None, environment, here).grpc)


@pytest.fixture
def over_tls(tmp_path: Path) -> list[dict[str, Any]]:
    return build_with(tmp_path, "overlays/beside-device-plugin", "grpc")


def check_service(items: list[dict[str, Any]]) -> None:
    """Return the address that ClusterD's clients know, and behind it the aggregator's port."""
    service = object_of(items, "Service", "clusterd-grpc-svc")
    assert service["metadata"]["namespace"] == "mindx-dl"
    [port] = service["spec"]["ports"]
    assert (port["port"], port.get("protocol", "TCP")) == (8899, "TCP")
    deployment = object_of(items, "Deployment", "npu-vigil-aggregator")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    ports = {port["name"]: port["containerPort"] for port in aggregator_container(items)["ports"]}
    endpoint = configured(items)
    assert endpoint.listen == f"0.0.0.0:{ports[port['targetPort']]}"


@pytest.mark.server
def test_in_plain_text_it_stands_behind_a_policy() -> None:
    items = build("overlays/with-clusterd-clients")
    check_service(items)
    assert configured(items).tls is None
    policy = object_of(items, "NetworkPolicy", "npu-vigil-aggregator")["spec"]
    deployment = object_of(items, "Deployment", "npu-vigil-aggregator")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    grpc, http = policy["ingress"]
    assert [port["port"] for port in grpc["ports"]] == ["grpc"]
    assert all(peer.get("namespaceSelector", {}).get("matchLabels") for peer in grpc["from"])
    assert ([port["port"] for port in http["ports"]], "from" in http) == (["http"], False)


@pytest.mark.server
def test_over_tls_the_files_are_where_the_secret_is(over_tls: list[dict[str, Any]]) -> None:
    check_service(over_tls)
    files = configured(over_tls).tls
    assert isinstance(files, TlsFiles)
    mounts = {
        mount["name"]: mount["mountPath"]
        for mount in aggregator_container(over_tls)["volumeMounts"]
    }
    for path in (files.certificate, files.key, files.client_ca):
        assert str(path.parent) == mounts["grpc"]
    assert {files.certificate.name, files.key.name} == {"tls.crt", "tls.key"}
    assert [item for item in over_tls if item["kind"] == "NetworkPolicy"] == []


@pytest.mark.apiserver
def test_the_api_server_takes_the_objects_over_tls(
    control_plane: ControlPlane, over_tls: list[dict[str, Any]]
) -> None:
    try:
        for item in over_tls:
            control_plane.apply(item)
        deployment = control_plane.request(
            "GET", path_of(object_of(over_tls, "Deployment", "npu-vigil-aggregator"))
        )
        volumes = {
            volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]
        }
        assert volumes["grpc"]["secret"]["defaultMode"] == 0o440
    finally:
        take_back(control_plane, over_tls)


@pytest.mark.apiserver
def test_pages_are_open_to_chosen_namespaces_alone(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    components = ("grpc-plaintext", "aggregator-network-policy")
    items = build_with(tmp_path, "overlays/beside-device-plugin", *components)
    policies = [item for item in items if item["kind"] == "NetworkPolicy"]
    namespaces = [item for item in items if item["kind"] == "Namespace"]
    admitted: dict[str, set[str]] = {"http": set(), "grpc": set()}
    try:
        for item in (*namespaces, *policies):
            control_plane.apply(item)
        stored = [control_plane.request("GET", path_of(policy)) for policy in policies]
    finally:
        take_back(control_plane, policies)
    # Policies add up, so no rule of any of them may be open.
    for rule in (rule for policy in stored for rule in policy["spec"]["ingress"]):
        for peer in rule["from"]:
            [(label, _)] = peer["namespaceSelector"]["matchLabels"].items()
            for port in rule["ports"]:
                admitted[port["port"]].add(label)
    assert admitted == {
        "http": {"kubernetes.io/metadata.name", "npu-vigil/page-readers"},
        "grpc": {"kubernetes.io/metadata.name", "npu-vigil/clusterd-clients"},
    }
    labels = object_of(items, "Deployment", "npu-vigil-aggregator")["spec"]["template"]["metadata"]
    for policy in stored:
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels["labels"].items()

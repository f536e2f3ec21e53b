"""The Service of the aggregator on an API server without kubelet and controllers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from contract.names import AGGREGATOR_NAMESPACE, AGGREGATOR_PORT, AGGREGATOR_SERVICE

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

_SOMEWHERE = ("192.0.2.1", 9)


def host_address() -> str:
    """Return an address of this host that an API server takes for an endpoint: no loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(_SOMEWHERE)  # sends nothing
        address: str = asked.getsockname()[0]
    return address


def endpoint(url: str) -> tuple[str, int]:
    """Return address and port of ``url``."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def remove_service(plane: ControlPlane) -> None:
    """Remove what ``make_service`` made, where it is there."""
    namespace = f"namespaces/{AGGREGATOR_NAMESPACE}"
    for path in (
        f"/api/v1/{namespace}/services/{AGGREGATOR_SERVICE}",
        f"/api/v1/{namespace}/endpoints/{AGGREGATOR_SERVICE}",
        f"/api/v1/{namespace}/pods/{AGGREGATOR_SERVICE}?gracePeriodSeconds=0",
    ):
        plane.ask("DELETE", path)


def make_service(plane: ControlPlane, address: str, port: int) -> None:
    """Make the Service as ``daemonset/base`` does, with one endpoint."""
    names = {"namespace": AGGREGATOR_NAMESPACE, "name": AGGREGATOR_SERVICE}
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names["namespace"]}})
    namespace = f"/api/v1/namespaces/{AGGREGATOR_NAMESPACE}"
    ports = [{"name": "http", "port": AGGREGATOR_PORT, "targetPort": port}]
    plane.request("POST", f"{namespace}/services", {"metadata": names, "spec": {"ports": ports}})
    pod = names | {"labels": {"app.kubernetes.io/component": "aggregator"}}
    spec = {"nodeName": "somewhere", "containers": [{"name": "one", "image": "any"}]}
    plane.request("POST", f"{namespace}/pods", {"metadata": pod, "spec": spec})
    # The API server forwards to addresses of pods only.
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    plane.request("PATCH", f"{namespace}/pods/{AGGREGATOR_SERVICE}/status", {"status": status})
    target = {"kind": "Pod"} | names
    plane.request(
        "POST",
        f"{namespace}/endpoints",
        {
            "metadata": names,
            "subsets": [
                {
                    "addresses": [{"ip": address, "targetRef": target}],
                    "ports": [{"name": "http", "port": port}],
                }
            ],
        },
    )

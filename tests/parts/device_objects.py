"""Objects of dynamic resource allocation as drivers, schedulers and controllers make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.parts.controlplane import ControlPlane

API = "/apis/resource.k8s.io/v1"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
DRIVER = "npu.huawei.com"


def publish(
    plane: ControlPlane,
    node: str,
    chips: Mapping[str, int],
    *,
    driver: str = DRIVER,
    attribute: str = "physicId",
    generation: int = 1,
) -> str:
    """Make the one slice of a pool with these devices, as a driver on ``node`` does."""
    name = f"{node}-{driver.partition('.')[0]}-{generation}"
    devices = [
        {"name": device, "attributes": {attribute: {"int": chip}}} for device, chip in chips.items()
    ]
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
        "devices": devices,
    }
    plane.request("POST", f"{API}/resourceslices", {"metadata": {"name": name}, "spec": spec})
    return name


def claim(plane: ControlPlane, name: str, pods: Iterable[str], devices: Iterable[str]) -> None:
    """Make a claim that has devices of node ``n1`` and is reserved for pods, all in one step."""
    request = {"name": "npu", "exactly": {"deviceClassName": "npu"}}
    path = f"{API}/namespaces/default/resourceclaims"
    body: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }
    made = plane.request("POST", path, body)
    made["status"] = {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "npu", "driver": DRIVER, "pool": "n1", "device": device}
                    for device in devices
                ]
            }
        },
        "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
    }
    plane.request("PUT", f"{path}/{name}/status", made)


def answer(plane: ControlPlane, rule: str, pods: int | None) -> None:
    """Answer a rule as kube-controller-manager does: ``None`` where the rule has an effect."""
    stored = plane.request("GET", f"{RULES}/{rule}")
    text = (
        "Eviction only happens for the NoExecute effect."
        if pods is None
        else f"1 published device selected. {pods} pods would be evicted in 1 namespace if the "
        "effect was NoExecute."
    )
    condition = {
        "type": "EvictionInProgress",
        "status": "False",
        "reason": "NoEffect",
        "message": text,
        "observedGeneration": stored["metadata"]["generation"],
        "lastTransitionTime": "2026-11-29T00:00:00Z",
    }
    status = {"status": {"conditions": [condition]}}
    plane.request("PATCH", f"{RULES}/{rule}/status", status)


def clean(plane: ControlPlane) -> None:
    """Delete all of them."""
    for path in (RULES, f"{API}/resourceslices", f"{API}/namespaces/default/resourceclaims"):
        plane.request("DELETE", path)

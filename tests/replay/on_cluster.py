"""What only an API server has, for recordings that are played for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stores.base import Involved, KubernetesEvent
from tests.parts import pods
from tests.replay.noded import SERIAL_NUMBER

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

ONLY_THERE = frozenset({"pod", "node", "api-server"})
"""Steps that a directory cannot have."""


def do(plane: ControlPlane, step: dict[str, Any], node: str) -> None:
    """Do a step about pods, the Node or the API server now."""
    match step["do"], step["action"]:
        case "pod", "delete":
            pods.delete(plane, step["name"])
        case "pod", _:
            pods.make(plane, step["name"], node, annotations=dict(step["annotations"]))
        case "node", "create":
            metadata = {"name": node, "annotations": step.get("annotations") or {}}
            plane.ask("POST", "/api/v1/nodes", {"metadata": metadata})
        case "node", "patch":
            plane.request("PATCH", f"/api/v1/nodes/{node}", step["patch"])
        case "node", _:
            metadata = {key: step[key] for key in ("labels", "annotations") if key in step}
            plane.request("PATCH", f"/api/v1/nodes/{node}", {"metadata": metadata})
        case "api-server", "stop":
            plane.stop_apiserver()
        case "api-server", "pause":
            plane.pause_apiserver()
        case "api-server", "resume":
            plane.resume_apiserver()
        case "api-server", _:
            plane.start_apiserver()


def serial_number_on(plane: ControlPlane, node: str) -> str | None:
    """Return the server's serial number in the Node's annotation; ``None`` if there is none."""
    _, found = plane.ask("GET", f"/api/v1/nodes/{node}")
    value: str | None = found["metadata"].get("annotations", {}).get(SERIAL_NUMBER)
    return value


def events_of(plane: ControlPlane, node: str) -> list[KubernetesEvent]:
    """Return the Events of one node, limited to the compared fields."""
    items = plane.request("GET", "/api/v1/namespaces/kube-system/events")["items"]
    return [
        KubernetesEvent(
            namespace="kube-system",
            name=item["metadata"]["name"],
            involved=Involved(item["involvedObject"]["kind"], item["involvedObject"]["name"]),
            normal=item["type"] == "Normal",
            reason=item["reason"],
            action=item["action"],
            message=item["message"],
            first_ms=0,
            last_ms=0,
            count=item.get("count") or 1,
        )
        for item in items
        if item["source"].get("host") == node
    ]

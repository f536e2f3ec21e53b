"""What a step of a recording does to a cluster, in memory or real: both are asked the same way."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACES = ("mindx-dl", "cluster-system")
"""What upstream's installation makes."""
_COUNTER = "NNNN"
_MANY_FAULTS = re.compile(
    r"messages (\d+) to (\d+) of (\d+) faults each, .* on chip NNNN mod (\d+)"
)
_RANGE = re.compile(r"\S*?(\d{4}) to \S*?(\d{4})")

_WHERE = {
    "configmap": "/api/v1/namespaces/{namespace}/configmaps",
    "output": "/api/v1/namespaces/{namespace}/configmaps",
    "lease": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
    "pod": "/api/v1/namespaces/{namespace}/pods",
    "node": "/api/v1/nodes",
    "podgroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups",
    "job": "/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs",
}
_VERSIONS = {
    "podgroup": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "job": ("batch.volcano.sh/v1alpha1", "Job"),
    "lease": ("coordination.k8s.io/v1", "Lease"),
}


class CannotPlay(Exception):
    """A recording has a step that the player does not know."""


class Plane(Protocol):
    """A cluster, in memory or real."""

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request; return the status and the decoded answer."""


def objects_of(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a step: one, or one for each repetition."""
    thing = step.get("object", {})
    if "repeat" not in step:
        yield thing
        return
    note = step.get("note", "")
    if found := _MANY_FAULTS.search(note):
        yield from _messages(thing, *map(int, found.groups()))
        return
    text = json.dumps(thing)
    if _COUNTER not in text:
        raise CannotPlay(f"a repetition without {_COUNTER}: {note}")
    first = int(found[1]) if (found := _RANGE.search(note)) else 0
    for number in range(first, first + step["repeat"]):
        yield json.loads(text.replace(_COUNTER, f"{number:04}"))


def _messages(
    first: dict[str, Any], begin: int, end: int, each: int, chips: int
) -> Iterator[dict[str, Any]]:
    """Yield many messages about public faults, in the form of the recorded ones."""
    shown = first["faults"][0]
    prefix = first["id"].rpartition("-")[0]
    for number in range(begin, end + 1):
        yield first | {
            "id": f"{prefix}-{number:04}",
            "faults": [
                shown
                | {
                    "faultId": f"fault-{fault:04}",
                    "influence": [shown["influence"][0] | {"deviceIds": [fault % chips]}],
                }
                for fault in range(number * each, (number + 1) * each)
            ],
        }


def prepare(plane: Plane) -> None:
    """Create the namespaces that exist before the first step."""
    for namespace in NAMESPACES:
        plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})


def changes_cluster(step: dict[str, Any]) -> bool:
    """Return whether the step changes an object, which ``do`` can play."""
    verb, _, kind = step["do"].partition("-")
    return kind in _WHERE and verb in ("put", "delete", "edit")


def do(plane: Plane, step: dict[str, Any]) -> None:
    """Put or delete what the step is about."""
    verb, _, kind = step["do"].partition("-")
    for thing in objects_of(step):
        where = _WHERE[kind].format(namespace=thing.get("namespace"))
        if verb == "delete" or thing.get("delete") or step.get("delete"):
            grace = "?gracePeriodSeconds=0" if kind == "pod" else ""
            status, answer = plane.ask("DELETE", f"{where}/{thing['name']}{grace}")
            assert status in (200, 202, 404), answer
        else:
            _put(plane, kind, where, thing)


def _put(plane: Plane, kind: str, where: str, thing: dict[str, Any]) -> None:
    path = f"{where}/{thing['name']}"
    body = _body(kind, thing)
    status, there = plane.ask("GET", path)
    if status == 404:
        _expect(plane.ask("POST", where, body))
    elif kind == "pod":
        _bind(plane, path, there, thing)
        _expect(plane.ask("PATCH", path, {"metadata": _replacing(there, body)}))
    else:
        if kind in _VERSIONS:
            body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        _expect(plane.ask("PUT", path, body))
    if "status" in thing and kind not in _VERSIONS:
        _expect(plane.ask("PATCH", f"{path}/status", {"status": thing["status"]}))


def _body(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(thing.get("metadata", {})) | {"name": thing["name"]}
    if "namespace" in thing:
        metadata["namespace"] = thing["namespace"]
    for key in ("labels", "annotations"):
        if key in thing:
            metadata[key] = thing[key]
    body: dict[str, Any] = {"metadata": metadata}
    if kind in _VERSIONS:
        body["apiVersion"], body["kind"] = _VERSIONS[kind]
        body |= {key: thing[key] for key in ("status",) if key in thing}
    for key in ("data", "spec", "immutable"):
        if key in thing:
            body[key] = thing[key]
    if kind == "pod":
        body.setdefault("spec", {}).setdefault("containers", [{"name": "c", "image": "x"}])
    return body


def _replacing(there: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return a merge patch that removes all old labels and annotations except our own label."""
    patch: dict[str, Any] = {}
    for key in ("labels", "annotations"):
        old, new = there["metadata"].get(key) or {}, body["metadata"].get(key) or {}
        patch[key] = {name: None for name in old if name != "fault-type"} | new
    return patch


def _bind(plane: Plane, path: str, there: dict[str, Any], thing: dict[str, Any]) -> None:
    node = thing.get("spec", {}).get("nodeName")
    if node and not there.get("spec", {}).get("nodeName"):
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": thing["name"]}, "target": target}
        _expect(plane.ask("POST", f"{path}/binding", body))


def _expect(answered: tuple[int, Any]) -> None:
    status, answer = answered
    assert status // 100 == 2, answer

"""Objects of a cluster on which the aggregator advises, in memory and on an API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from advisor.inputs import kubernetes_objects
from advisor.options import Profile
from aggregator.advising.cluster_objects import KINDS, AdvisedObjects
from stores.cluster import Snapshot as Listed
from stores.cluster import Update
from tests.parts.kubernetes_object import made_of
from tests.vigil.advise import cluster

if TYPE_CHECKING:
    from aggregator.advising.sessions import Sessions
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

NOW_MS = cluster.UPDATED * 1000 + 10_000
_READ = {
    "nodes": ("Node", kubernetes_objects.node),
    "pods": ("Pod", kubernetes_objects.pod),
    "podgroups": ("PodGroup", kubernetes_objects.pod_group),
    "documents": ("ConfigMap", kubernetes_objects.configmap),
}


def filled(items: list[cluster.Object]) -> AdvisedObjects:
    """Return all kinds listed, with these objects."""
    found = AdvisedObjects()
    for name in KINDS:
        kind, read = _READ.get(name, ("", kubernetes_objects.node))
        values = {
            one["metadata"]["uid"]: read(made_of(one)) for one in items if one["kind"] == kind
        }
        found.observe_objects(name, Listed(values), NOW_MS)
    return found


def ill(found: AdvisedObjects, at_ms: int) -> bool:
    """Let a card of n2 fail."""
    entries = {f"mindx-dl-deviceinfo-n{number}": cluster.device_entry([]) for number in (1, 2, 3)}
    entries["mindx-dl-deviceinfo-n2"]["DeviceList"]["huawei.com/Ascend910-Unhealthy"] = (
        "Ascend910-3"
    )
    entries["mindx-dl-deviceinfo-n2"]["UpdateTime"] += 100
    raw = cluster.configmap("mindx-dl", "cluster-info-device-0", json.dumps(entries), 20)
    one = kubernetes_objects.configmap(made_of(raw))
    return found.observe_objects("documents", Update(one.uid, one), at_ms)


def decided(sessions: Sessions) -> list[tuple[str, int]]:
    """Return actions and numbers of deleted pods in ``upstream``."""
    (report,) = (one for one in sessions.reports if one.profile is Profile.UPSTREAM)
    return [(one.action.value, len(one.pods)) for one in report.decisions]


def post(plane: ControlPlane, path: str, item: dict[str, Any]) -> None:
    """Make an object, with its status where that is written apart."""
    item["metadata"].pop("uid", None)
    for container in item.get("spec", {}).get("containers", ()):
        container["image"] = "x"
        resources = container.get("resources", {})
        resources["limits"] = resources.get("requests", {})
    plane.request("POST", path, item)
    status = item.get("status")
    if status and not path.startswith("/apis"):
        place = f"{path}/{item['metadata']['name']}/status"
        for one in status.get("containerStatuses", ()):
            one |= {"image": "x", "imageID": "", "ready": True}
        plane.request("PATCH", place, {"status": status})


def reports(daemon: Daemon) -> dict[str, dict[str, Any]]:
    status, answer = daemon.ask("/api/v1/advice")
    assert (status, answer["enabled"]) == (200, True)
    return {one["profile"]: one for one in answer["advice"]["reports"]}


def waiting(daemon: Daemon) -> list[str]:
    """Return the jobs on which the scheduler has acted."""
    decisions = reports(daemon)["upstream"]["decisions"]
    return [one["job"] for one in decisions if one["action"] == "WAIT_COMPLETION"]

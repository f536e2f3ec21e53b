"""Objects that have a label or an annotation at a place."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tests.vigil.lint.manifests import (
    Object,
    ascendjob,
    deployment,
    inference_service,
    leader_worker_set,
    runner,
    runtime,
    storm_service,
    template,
    vcjob,
)

if TYPE_CHECKING:
    from advisor.lint.reach import MetadataPlace

RETRIES = {"fault-retry-times": "3"}
ON = {"fault-scheduling": "grace"}
_AIBRIX = "orchestration.aibrix.ai/v1alpha1"


def _made(version: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def stateful(kind: str, version: str = "apps/v1") -> Object:
    return _made(version, kind, {"template": template(dict(RETRIES), restartPolicy="Never")})


def _storm(kind: str) -> Object:
    made = storm_service(2, dict(RETRIES), restartPolicy="Never")
    roles = made["spec"]["template"]["spec"]
    return made if kind == "StormService" else _made(_AIBRIX, kind, roles)


def _group_of_both() -> Object:
    made = leader_worker_set(dict(RETRIES))
    inside = made["spec"]["leaderWorkerTemplate"]
    inside["leaderTemplate"] = deepcopy(inside["workerTemplate"])
    return made


def _services() -> list[Object]:
    engine = {"labels": dict(RETRIES), "minReplicas": 1}
    return [inference_service(engine, "r"), runtime({}, None, **runner())]


OBJECTS: dict[str, list[Object]] = {
    "Job (batch.volcano.sh)": [vcjob(dict(RETRIES))],
    "AscendJob": [ascendjob(dict(RETRIES))],
    "Deployment": [deployment(dict(RETRIES), {"huawei.com/schedule_minAvailable": "1"})],
    "ReplicaSet": [stateful("ReplicaSet")],
    "StatefulSet": [stateful("StatefulSet")],
    "Job (batch)": [stateful("Job", "batch/v1")],
    "Pod": [{"apiVersion": "v1", "kind": "Pod", **template(dict(RETRIES))}],
    "LeaderWorkerSet": [_group_of_both()],
    "StormService": [_storm("StormService")],
    "RoleSet": [_storm("RoleSet")],
    "PodSet": [_made(_AIBRIX, "PodSet", {"podGroupSize": 2, "template": template(dict(RETRIES))})],
    "InferenceService": _services(),
    "runtime of OME": _services(),
}


"""A workload of each kind that asks Volcano for chips, without ``fault-scheduling``."""


def metadata_at(item: Object, path: str) -> list[Object]:
    """Return the metadata at ``path``, as the table writes it; ``[]`` and ``*`` are all of them."""
    found: list[Any] = [item]
    for name in path.split("."):
        key = name.removesuffix("[]")
        if key == "*":
            found = [one for above in found for one in above.values()]
        else:
            found = [above.setdefault(key, {}) for above in found]
        if name.endswith("[]"):
            found = [one for above in found for one in above]
    return found


def place(row: MetadataPlace, labels: Object) -> list[Object]:
    """Return the objects of a kind with labels at the places of a row."""
    objects = deepcopy(OBJECTS[row.kind])
    item = objects[-1] if row.kind == "runtime of OME" else objects[0]
    # Of the components of a service, only the engine is there.
    for one in metadata_at(item, row.path.partition(", ")[0]):
        one["labels"] = {**one.get("labels", {}), **labels}
    return objects

"""The advisor, given a wrong file and its correction with the same fault, decides differently.

The pods of a scene are made of the files of ``cases``, as the controllers would make them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from advisor.snapshot import Container, ControllingOwner
from tests.advisor.scene import Chips, Scene, deleted, fault
from tests.vigil.lint.case_files import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOB = "job"
_RANK_0, _RANK_1 = "n1", "n2"


def load(name: str) -> dict[str, Any]:
    """Return the first object of a case, and what the service after it gets of its runtime."""
    documents = [*yaml.safe_load_all((CASES / name).read_text())]
    made: dict[str, Any] = documents[0]
    if made["kind"] == "InferenceService":
        engine = documents[1]["spec"]["engineConfig"]
        labels = {**engine["labels"], "ome.io/inferenceservice": made["metadata"]["name"]}
        template = {"metadata": {**engine, "labels": labels}, "spec": {}}
        made = {"kind": "Deployment", "metadata": {}, "spec": {"replicas": 2, "template": template}}
    return made


def templates(made: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the pod templates of a workload, and how many pods of one PodGroup each makes."""
    spec = made["spec"]
    match made["kind"]:
        case "Job":
            for task in spec["tasks"]:
                yield task["replicas"], task["template"]
        case "AscendJob":
            for replica in spec["replicaSpecs"].values():
                yield replica["replicas"], replica["template"]
        case "StormService":
            for role in spec["template"]["spec"]["roles"]:
                yield role["replicas"], role["template"]
        case "Deployment":
            yield spec["replicas"], spec["template"]


def scene_of(name: str) -> Scene:
    """Return a scene in which the workload of a case runs, one pod on a node, ranks from 0."""
    made = load(name)
    scene = Scene(count=6)
    metadata = made["metadata"] if made["kind"] in ("Job", "AscendJob") else {}
    kinds = {"Deployment": "ReplicaSet", "StormService": "RoleSet"}
    owner = ControllingOwner(kinds.get(made["kind"], made["kind"]), JOB, f"uid-of-{JOB}")
    found = [template for count, template in templates(made) for _ in range(count)]
    nodes = [f"n{number}" for number in range(1, len(found) + 1)]
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    scene.add(JOB, nodes, labels, annotations=annotations, owner=owner)
    for index, template in enumerate(found):
        pod = template.get("metadata", {})
        own = scene.pods[f"{JOB}-{index}"]
        seconds = template["spec"].get("terminationGracePeriodSeconds", 30)
        scene.change(
            f"{JOB}-{index}",
            labels=pod.get("labels", {}),
            annotations=own.annotations | pod.get("annotations", {}),
            termination_grace_seconds=seconds,
        )
    scene.session()
    return scene


def hit(scene: Scene, node: str, *, level: str = "SeparateNPU") -> dict[str, int]:
    """Return what a fault of a chip deletes."""
    unhealthy = () if level == "SubHealthFault" else (3,)
    scene.chips[node] = Chips(unhealthy=unhealthy, faults=[fault(3, level)])
    return deleted(scene.session())


def chip_of_rank_0(scene: Scene) -> dict[str, int]:
    return hit(scene, _RANK_0)


def chip_of_rank_1(scene: Scene) -> dict[str, int]:
    return hit(scene, _RANK_1)


def chip_that_is_sub_healthy(scene: Scene) -> dict[str, int]:
    return hit(scene, _RANK_1, level="SubHealthFault")


def process_that_fails(scene: Scene) -> dict[str, int]:
    ended = (Container("c", exit_code=137),)
    scene.change(f"{JOB}-1", phase="Failed", containers=ended)
    return deleted(scene.session())


def two_faults(scene: Scene) -> dict[str, int]:
    """Return what a second fault deletes, once the pod of the first one runs again."""
    assert hit(scene, _RANK_1) == {f"{JOB}-1": 0}
    scene.replace(f"{JOB}-1", "n6")
    scene.sessions(20)
    return hit(scene, _RANK_0)


def pods_that_take_their_time(scene: Scene) -> dict[str, int]:
    """Return what is deleted a second time, by force, while pods use their grace."""
    assert hit(scene, _RANK_1)
    graces = {name: pod.termination_grace_seconds or 30 for name, pod in scene.pods.items()}
    scene.session(901)
    for name, seconds in graces.items():
        if seconds <= 901:
            del scene.pods[name]
    return deleted(scene.session())


BOTH, ONE = {f"{JOB}-0": 0, f"{JOB}-1": 0}, {f"{JOB}-1": 0}
ALL = {f"{JOB}-{index}": 0 for index in range(3)}
EVICTED = {f"{JOB}-{index}": 600 for index in range(2)}
SUB_HEALTHY = {f"{JOB}-{index}": 30 for index in range(2)}

CHECKED: dict[str, tuple[Callable[[Scene], dict[str, int]], dict[str, int], dict[str, int]]] = {
    "FAULT_SCHEDULING_UNSUPPORTED": (chip_of_rank_1, {}, BOTH),
    "LABEL_CONFLICT": (chip_of_rank_1, {}, EVICTED),
    "LABEL_CONFLICT-roles": (chip_of_rank_1, {}, ONE),
    "LABEL_TYPO": (chip_of_rank_1, {}, EVICTED),
    "LABEL_TYPO-dash": (process_that_fails, {}, BOTH),
    "DUPLICATE_KEY": (chip_of_rank_1, {}, EVICTED),
    "SUBHEALTH_TYPO": (chip_that_is_sub_healthy, {}, SUB_HEALTHY),
    "SUBHEALTH_UNSUPPORTED": (chip_that_is_sub_healthy, {}, SUB_HEALTHY),
    "MISPLACED_KEY": (chip_that_is_sub_healthy, {}, SUB_HEALTHY),
    "RETRIES_NOT_NUMBER": (process_that_fails, {}, BOTH),
    "RESCHEDULING_OFF": (chip_of_rank_1, {}, EVICTED),
    "WITHOUT_FAULT_SCHEDULING": (chip_of_rank_1, {}, {f"{JOB}-1": 600}),
    "PROCESS_FAULT_NOT_HANDLED": (process_that_fails, {}, EVICTED | {f"{JOB}-1": 0}),
    "RETRIES_NEGATIVE": (process_that_fails, {}, BOTH),
    "FORCE_WITH_CHECKPOINT": (chip_of_rank_1, BOTH, EVICTED),
    "GRACE_SHORTER_THAN_TERMINATION": (pods_that_take_their_time, BOTH, {}),
    "RECOVER_PATH_UNSUPPORTED": (chip_of_rank_0, ALL, {f"{JOB}-0": 0}),
    "SHARED_PG_WITHOUT_RECOVER_PATH": (chip_of_rank_0, ALL, {f"{JOB}-0": 0}),
    "SHARED_PG_WITHOUT_POD_RESCHEDULING": (chip_of_rank_1, ALL, ONE),
    "LIMIT_WITHOUT_POD_RESCHEDULING": (two_faults, {}, {f"{JOB}-0": 0}),
    "OME_WITHOUT_POD_RESCHEDULING": (two_faults, {}, {f"{JOB}-0": 0}),
}


@pytest.mark.parametrize("name", CHECKED)
def test_wrong_and_corrected_are_decided_differently(name: str) -> None:
    happens, wrong, right = CHECKED[name]
    assert happens(scene_of(f"{name}.wrong.yaml")) == wrong
    assert happens(scene_of(f"{name}.right.yaml")) == right
    assert wrong != right

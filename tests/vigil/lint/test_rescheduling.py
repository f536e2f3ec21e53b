"""Whether rescheduling is on, and what a process that fails gets in each kind of workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from advisor.lint.reach import PLACES, Reach
from tests.vigil.lint.case_files import DOES_WITHOUT
from tests.vigil.lint.manifests import (
    Object,
    ascendjob,
    deployment,
    inference_service,
    leader_worker_set,
    runner,
    runtime,
    storm_service,
    vcjob,
)
from tests.vigil.lint.placed_labels import OBJECTS, ON, RETRIES, place
from vigil.lint.reading import File
from vigil.lint.run import LintReport, lint

if TYPE_CHECKING:
    from advisor.lint.finding import LintFinding

NEVER: Object = {"restartPolicy": "Never"}
ONE = {"huawei.com/schedule_minAvailable": "1"}
STAYS, IN_PLACE, GROUP = (
    "stays Failed",
    "restarts its container in place",
    "deletes its whole group",
)


def judged(*objects: Object) -> LintReport:
    """Judge the objects of one file."""
    return lint([File("x.yaml", yaml.safe_dump_all(objects))])


def infos(*objects: Object) -> list[LintFinding]:
    """Return what the objects do without at a fault."""
    return [one for one in judged(*objects).findings if one.rule.code in DOES_WITHOUT]


def _restarted(policy: str | None) -> Object:
    made = leader_worker_set(dict(ON))
    if policy is not None:
        made["spec"]["leaderWorkerTemplate"]["restartPolicy"] = policy
    return made


def _service(**component: object) -> list[Object]:
    service = inference_service({"minReplicas": 1}, "r")
    return [service, runtime(ON | {"pod-rescheduling": "on"}, None, **component)]


def _with_policy(event: str) -> Object:
    return vcjob(ON, policies=[{"event": event, "action": "RestartJob"}])


def _kind(kind: str) -> list[Object]:
    """Return a workload of Kubernetes that is on and has no retries."""
    (row,) = [row for row in PLACES if row.kind == kind and row.reach is Reach.PODS]
    return place(row, ON | {"fault-retry-times": "0"})


@pytest.mark.parametrize(
    ("objects", "gets"),
    [
        ([vcjob(ON)], STAYS),
        ([vcjob(ON | {"fault-retry-times": "0"})], STAYS),
        ([vcjob(ON, template={"restartPolicy": "OnFailure"})], IN_PLACE),
        ([_with_policy("PodFailed")], "RestartJob"),
        ([_with_policy("*")], "RestartJob"),
        ([_with_policy("PodEvicted")], STAYS),
        ([ascendjob(ON)], "Ascend Operator ends the job as Failed"),
        ([deployment(ON, ONE)], IN_PLACE),
        ([storm_service(2, ON, **NEVER)], STAYS),
        ([storm_service(2, ON)], IN_PLACE),
        ([storm_service(1, ON, **NEVER)], "makes a new one"),
        ([storm_service(1, ON)], IN_PLACE),
        ([_restarted(None)], GROUP),
        ([_restarted("RecreateGroupOnPodRestart")], GROUP),
        ([_restarted("RecreateGroupAfterStart")], "unless a pod of the group is still pending"),
        ([_restarted("None")], IN_PLACE),
        ([_restarted("Default")], IN_PLACE),
        (_service(**runner()), IN_PLACE),
        (_service(leader=runner(), worker={"size": 1, **runner()}), GROUP),
        (_kind("StatefulSet"), IN_PLACE),
        (_kind("ReplicaSet"), IN_PLACE),
        (_kind("Job (batch)"), "makes a new pod"),
        (_kind("Pod"), IN_PLACE),
    ],
)
def test_what_a_process_that_fails_gets(objects: list[Object], gets: str) -> None:
    (one,) = infos(*objects)
    assert one.rule.code == "PROCESS_FAULT_NOT_HANDLED"
    assert gets in one.happens


def test_one_info_for_a_workload_that_lacks_everything() -> None:
    """It has both what a chip fault ends in and what a process gets."""
    for kind, objects in OBJECTS.items():
        report = judged(*objects)
        assert [one.rule.code for one in report.findings].count("RESCHEDULING_OFF") == 1, kind
    (one,) = infos(storm_service(2, {}, **NEVER))
    assert "no pod is deleted" in one.happens
    assert STAYS in one.happens


@pytest.mark.parametrize("value", ["off", ""])
def test_off_is_off(value: str) -> None:
    (one,) = infos(vcjob(RETRIES | {"fault-scheduling": value}))
    assert "fault-scheduling is off" in one.happens


def test_an_info_never_counts_for_strict() -> None:
    report = judged(vcjob({}))
    assert infos(vcjob({}))
    assert report.exit_status(strict=True) == 0
    warned = judged(vcjob({"pod-rescheduling": "on"}))
    assert (warned.exit_status(strict=False), warned.exit_status(strict=True)) == (0, 1)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "other"])
def test_who_asks_for_no_chips_or_another_scheduler_gets_none(scheduler: str) -> None:
    assert infos(vcjob({}, template={"cards": 0, **NEVER})) == []
    assert infos(deployment({}, ONE) | _of_scheduler(scheduler)) == []


def _of_scheduler(name: str) -> Object:
    made = deployment({}, ONE)
    made["spec"]["template"]["spec"]["schedulerName"] = name
    return made


def test_roles_that_are_off_beside_roles_that_are_on() -> None:
    made = storm_service(2, RETRIES | ON, **NEVER)
    made["spec"]["template"]["spec"]["roles"][1]["template"]["metadata"]["labels"] = {}
    (one,) = infos(made)
    assert "of decode" in one.happens


@pytest.mark.parametrize(
    ("labels", "annotations", "keys"),
    [
        ({"pod-rescheduling": "on"}, {}, ["pod-rescheduling"]),
        ({"fault-retry-times": "3"}, {}, ["fault-retry-times"]),
        ({"pod-rescheduling": "off", "fault-retry-times": "0"}, {}, []),
        ({}, {"ProcessRecoverStrategy": "pod"}, ["ProcessRecoverStrategy"]),
        ({}, {"recover-strategy": "recover"}, ["recover-strategy"]),
        ({}, {"minReplicas": "1"}, ["minReplicas"]),
        (ON, {"recover-strategy": "recover", "ProcessRecoverStrategy": "pod"}, []),
        (ON | {"pod-rescheduling": "on", "fault-retry-times": "3"}, {}, []),
    ],
)
def test_what_does_nothing_without_fault_scheduling(
    labels: Object, annotations: Object, keys: list[str]
) -> None:
    report = judged(vcjob(labels, annotations))
    found = [one for one in report.findings if one.rule.code == "WITHOUT_FAULT_SCHEDULING"]
    assert [one.happens.partition(" ")[0] for one in found] == keys


def test_labels_that_may_be_elsewhere_are_not_missing() -> None:
    """In a runtime that is not given, in a service, or where an operator makes the PodGroup."""
    assert infos(inference_service(runner(), "r")) == []
    assert infos(inference_service(runner())) == []
    assert infos(runtime({}, None, **runner())) == []
    made = deployment(dict(RETRIES), ONE)
    made["metadata"]["labels"] = ON
    assert infos(made) == []
    made = deployment(dict(ON), ONE)
    made["metadata"] |= {"labels": RETRIES, "annotations": {"ProcessRecoverStrategy": "pod"}}
    codes = [one.rule.code for one in judged(made).findings]
    assert codes == ["PLACE_DEPENDS"]
    del made["metadata"]["labels"]
    assert [one.rule.code for one in judged(made).findings] == ["PROCESS_FAULT_NOT_HANDLED"]


@pytest.mark.parametrize(
    "key", ["Fault-scheduling", "fault_scheduling", "fault-schedulling", "huawei.com/fault-x"]
)
def test_a_misspelled_label_is_not_missing_besides(key: str) -> None:
    found = infos(vcjob(RETRIES | {key: "grace"}))
    assert bool(found) is (key == "huawei.com/fault-x")


@pytest.mark.parametrize("scheduler", [None, "hami-scheduler"])
def test_chips_that_another_scheduler_gives_are_not_judged(scheduler: str | None) -> None:
    """Webhooks of other schedulers fill theirs in, and three chips of a node are right there."""
    limits = {"huawei.com/Ascend910": 3}
    spec: Object = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    assert judged(pod).findings == []
    spec["schedulerName"] = "volcano"
    codes = [one.rule.code for one in judged(pod).findings]
    assert sorted(codes) == ["CARDS_PER_POD", "RESCHEDULING_OFF"]

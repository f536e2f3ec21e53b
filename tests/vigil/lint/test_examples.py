"""The completed examples of ``docs/spec/consumers.md``: each raises what it deserves, no more."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import yaml

from tests.vigil.lint.case_files import DOES_WITHOUT
from tests.vigil.lint.manifests import (
    A3,
    Object,
    ascendjob,
    deployment,
    inference_service,
    leader_worker_set,
    rule,
    runner,
    runtime,
    scheduler,
    storm_service,
    vcjob,
)
from vigil.lint.reading import File
from vigil.lint.run import lint

FORCE, GRACE = {"fault-scheduling": "force"}, {"fault-scheduling": "grace"}
ON = {"pod-rescheduling": "on"}
POD = {"huawei.com/recover_policy_path": "pod"}
OME = {"ome.io/inferenceservice": "qwen"}
ONE = {"huawei.com/schedule_minAvailable": "1"}
SERVER = FORCE | {"app": "mindie-ms-server", "jobID": "service", "fault-retry-times": "100000000"}
SCALED = {"mind-cluster/scaling-rule": "rule", "mind-cluster/group-name": "group0"}
RING = {"ring-controller.atlas": "ascend-910"}
ELASTIC = GRACE | RING | {"elastic-scheduling": "on"}
S = ({"group0": (2, 2), "group1": (1, 2)}, {"group0": (1, 2), "group1": (1, 2)})
T = ({"group0": (3, 2), "group1": (1, 2)}, *S)


class Row(NamedTuple):
    """An example; ``why`` it raises what it raises."""

    objects: list[Object]
    codes: list[str]
    why: str = "it is right as it stands"


def _super_pod(block: str) -> Object:
    pod = {"cards": 16, "node": A3}
    return ascendjob(FORCE | ON, {"sp-block": block}, workers=3, template=pod)


def _elastic(**members: object) -> Object:
    return vcjob(ELASTIC, {"minReplicas": "1"}, **({"maxRetry": 0} | members))


def _tool(kind: str, inside: Object) -> Object:
    return {"app_name": "my-test", kind: inside}


_PREFILL: Object = {"replicas": 2, "podGroupSize": 1, "npu_num": 16, "image": "vllm:1"}
_SHIPPED = """
app_name: my-test
storm_service:
  prefill:
    replicas: 1
    npu_num: 16
    labels:
      fault-scheduling: "force"
      subHeathyStrategy: "forceExit"
      fault-scheduling: "force"
  decode:
    replicas: 1
    npu_num: 16
    labels:
      fault-scheduling: "force"
      subHeathyStrategy: "forceExit"
  routing:
    replicas: 1
    labels:
      fault-scheduling: "force"
    annotations:
      sp-block: "1"
"""

ROWS: dict[str, Row] = {
    "E1": Row([vcjob(FORCE)], []),
    "E2": Row(
        [vcjob(GRACE, template={"restartPolicy": "Never", "terminationGracePeriodSeconds": 600})],
        [],
    ),
    "E3": Row([vcjob({})], []),
    "E4": Row(
        [vcjob({"fault-scheduling": "Force"})],
        ["FAULT_SCHEDULING_UNSUPPORTED"],
        "nothing is deleted, and the job blocks itself for 1200 s",
    ),
    "E5": Row([ascendjob(FORCE | ON)], []),
    "E8": Row([ascendjob(FORCE | ON | {"process-recover-enable": "on"})], []),
    "E9": Row([_super_pod("32")], []),
    "2.2 sp-block of all": Row([_super_pod("64")], []),
    "E11": Row([deployment(FORCE | ON | OME, ONE)], []),
    "E13": Row([deployment(FORCE | ON | OME | {"fault-retry-times": "3"}, ONE)], []),
    "E14": Row([leader_worker_set(GRACE | ON | OME)], []),
    "E15": Row([storm_service(2, FORCE)], []),
    "E16": Row(
        [storm_service(1, FORCE | ON)],
        ["SHARED_PG_WITHOUT_RECOVER_PATH"] * 2,
        "rank 0 and a replacement without a place take every instance",
    ),
    "E18": Row([storm_service(1, FORCE | ON, POD)], []),
    "E19": Row([storm_service(2, FORCE | {"fault-retry-times": "10"}, restartPolicy="Never")], []),
    "2.4 note a": Row(
        [storm_service(2, FORCE | {"fault-retry-times": "10"})],
        ["RESTART_POLICY_HIDES_FAILURE"] * 2,
        "with the default Always the pod never becomes Failed",
    ),
    "E20": Row(
        [ascendjob(SERVER, workers=1, backoffLimit=3)],
        ["RETRY_VS_BACKOFF"],
        "the fourth wave fails the job",
    ),
    "E20 without limit": Row([ascendjob(SERVER, workers=1)], []),
    "E21": Row(
        [
            ascendjob(
                FORCE | ON | {"app": "mindie-ms-controller", "jobID": "service"},
                workers=1,
                template={"cards": 0},
            )
        ],
        [],
    ),
    **{
        f"E22 {strategy}": Row([vcjob(FORCE | {"subHealthyStrategy": strategy})], [])
        for strategy in ("ignore", "graceExit", "forceExit", "hotSwitch")
    },
    "E28": Row(
        [vcjob(GRACE, template={"labels": FORCE, "restartPolicy": "Never"})],
        ["LABEL_CONFLICT"],
        "joined, the value is none that is supported",
    ),
    "2.2 external": Row([vcjob({"fault-scheduling": "external-grace"})], []),
    "3.7 S": Row([rule(*S)], []),
    "3.7 T": Row([rule(*T)], []),
    "3.7 U": Row([rule({"group0": (1, 2), "group1": (1, 2)})], []),
    "X12": Row([rule({"p": (4, 1), "d": (2, 1)}, {"p": (2, 1), "d": (1, 1)})], []),
    "X13": Row(
        [rule({"p": (2, 1), "d": (1, 1)}, {"p": (1, 1)})],
        ["SCALING_RULE_GROUP_MISSING"],
        "a job of the missing group crashes the operator",
    ),
    "X14": Row([rule({"a": (1, 1)}, {"a": (2, 1)})], ["SCALING_RULE_GROWS"], "the rule is refused"),
    "3.2 job and rule": Row([ascendjob(SERVER | SCALED, workers=1), rule(*S)], []),
    "4.1 seed": Row(
        [ascendjob(SERVER | {"app": "mindeie-ms-server"}, workers=1)],
        ["APP_TYPO"],
        "ClusterD does not recognise it",
    ),
    "4.1 deploy-server": Row([ascendjob(SERVER | {"grt-group/deploy-server": "0"})], []),
    "5.3": Row([_elastic()], []),
    "2.9 no policy": Row(
        [_elastic(policies=[])], ["ELASTIC_POLICY"], "pods are made anew at the full size"
    ),
    "2.9 TerminateJob": Row(
        [_elastic(policies=[{"event": "PodEvicted", "action": "TerminateJob"}], maxRetry=3)], []
    ),
    "5.4 pangu": Row([vcjob(GRACE, template={"terminationGracePeriodSeconds": 900})], []),
    "5.4 resnet50": Row([vcjob(GRACE, template={"terminationGracePeriodSeconds": 360})], []),
    "6.2 service": Row(
        [inference_service(runner() | {"labels": FORCE | ON, "annotations": ONE})], []
    ),
    "6.2 service and runtime": Row(
        [inference_service({"minReplicas": 1}, "r"), runtime(FORCE | ON, ONE, **runner())], []
    ),
    "6.2 group": Row(
        [
            inference_service(
                {
                    "labels": FORCE | ON,
                    "minReplicas": 1,
                    "leader": runner(),
                    "worker": runner() | {"size": 1},
                }
            )
        ],
        [],
    ),
    "6.2 runtime alone": Row([runtime(FORCE | ON | {"fault-retry-times": "3"}, **runner())], []),
    "6.2 configuration": Row(
        [
            _tool(
                "inference_service",
                {
                    "model_name": "m",
                    "engine": {"min_replicas": 1, "max_replicas": 1, "pod_num": 2, "npu_num": 8},
                },
            )
        ],
        [],
        "what the tool itself writes cannot be corrected in its configuration",
    ),
    "6.3 configuration": Row(
        [_tool("storm_service", {"prefill": _PREFILL, "decode": _PREFILL})], []
    ),
    "1.1": Row([scheduler(grace_over_time="900", useClusterInfoManager="true")], []),
}


def codes(text: str) -> list[str]:
    """Return the codes that a text raises."""
    found = [one.rule.code for one in lint([File("x.yaml", text)]).findings]
    return [code for code in found if code not in DOES_WITHOUT]


@pytest.mark.parametrize("name", ROWS)
def test_examples_raise_what_they_deserve(name: str) -> None:
    row = ROWS[name]
    assert codes(yaml.safe_dump_all(row.objects)) == row.codes, row.why


def test_the_shipped_configuration_of_aibrix() -> None:
    """consumers#6.3: a misspelled strategy on both roles, a label twice, a router without chips."""
    assert codes(_SHIPPED) == ["SUBHEALTH_TYPO", "REPEATED_KEY", "SUBHEALTH_TYPO"]


def _located(files: list[File]) -> list[tuple[str, str]]:
    found = [(one.place.file, one.rule.code) for one in lint(files).findings]
    return [one for one in found if one[1] not in DOES_WITHOUT]


def test_files_of_one_call_are_one_set() -> None:
    """The runtime, the rule and the scheduler's configuration stand in files of their own."""
    service = inference_service({"minReplicas": 1}, "r")
    job = ascendjob(SERVER | SCALED | {"mind-cluster/group-name": "group7"}, workers=1)
    graceful = vcjob(
        GRACE, template={"restartPolicy": "Never", "terminationGracePeriodSeconds": 600}
    )
    objects = {
        "job.yaml": [job, graceful],
        "service.yaml": [service],
        "runtime.yaml": [runtime(FORCE, ONE, **runner())],
        "rule.yaml": [rule(*S)],
        "scheduler.yaml": [scheduler(grace_over_time="300")],
    }
    files = [File(name, yaml.safe_dump_all(made)) for name, made in objects.items()]
    found = _located(files)
    assert found == [
        ("job.yaml", "SCALING_GROUP_NOT_IN_RULE"),
        ("job.yaml", "GRACE_SHORTER_THAN_TERMINATION"),
        ("runtime.yaml", "OME_WITHOUT_POD_RESCHEDULING"),
    ]
    found = _located(files[:2])
    assert found == [
        ("job.yaml", "SCALING_RULE_NOT_GIVEN"),
        ("service.yaml", "RUNTIME_NOT_GIVEN"),
    ]

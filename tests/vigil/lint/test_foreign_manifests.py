"""Manifests of other people: which errors each must have, and that it has no other.

Nothing of them is copied. Each row is an object of the same shape, written here, with the
repository and path whose shape it has; ``COMMITS`` has the commit and the licence. The errors were
written down before the lint ran over these objects. A row with ``changed`` has one value that
differs from the origin.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import pytest
import yaml

from tests.vigil.lint.manifests import (
    Object,
    ascendjob,
    deployment,
    inference_service,
    leader_worker_set,
    runtime,
    storm_service,
    vcjob,
)
from vigil.lint.reading import File
from vigil.lint.run import lint

COMMITS = {
    "vllm-project/aibrix": ("e3e10f9e4aebe9aac5e7d992fb87d2648e01628b", "Apache-2.0"),
    "sgl-project/ome": ("17b77edad23bae262e0c9adb7f12039397a5d33d", "Apache-2.0"),
    "kubernetes-sigs/lws": ("060ab4da17eea1f0865fcbd3236bb1075e2cea32", "Apache-2.0"),
    "volcano-sh/volcano": ("ed72c7c815a9fd547a787134676f73d42e9d049c", "Apache-2.0"),
    "Project-HAMi/HAMi": ("4707fb02c91c545bc7343ce26dba4c32919f9a3e", "Apache-2.0"),
    "Ascend/MindIE-Motor": ("5dfb024e45feec2e947f12d0af72b79b24edff53", "MulanPSL-2.0"),
    "Ascend/mindcluster-deploy": ("7d97fe3454ca56670ac80f817f5355d37cc49a7c", "Apache-2.0"),
}


class Row(NamedTuple):
    """An object with its origin, and the codes of its errors."""

    origin: str
    made: Object | str
    errors: frozenset[str] = frozenset()
    is_changed: bool = False


def without_chips(made: Object) -> Object:
    """Return an object whose pods ask for no chips and name no scheduler."""
    made = deepcopy(made)
    stack: list[object] = [made]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if "containers" in one:
                for key in ("schedulerName", "nodeSelector"):
                    one.pop(key, None)
            one.pop("resources", None)
            stack += one.values()
        elif isinstance(one, list):
            stack += one
    return made


def plain_job(**spec: object) -> Object:
    """Return a Job of Volcano without chips, as its examples are."""
    made = without_chips(vcjob({}))
    made["spec"] |= {"schedulerName": "volcano", "maxRetry": 5} | spec
    return made


def plain_pods(kind: str, version: str) -> Object:
    """Return an object that makes pods without chips."""
    inside = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": inside}


def pod_of_hami(resource: str) -> Object:
    """Return a Pod that asks for parts of a card."""
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: 1}}}
    made = plain_pods("Pod", "v1")
    return made | {"spec": {"containers": [container]}}


def a300t() -> Object:
    """Return a Deployment that asks for eight cards of a node with two."""
    made = deployment({"ring-controller.atlas": "ascend-910"}, replicas=1)
    inside = made["spec"]["template"]
    inside["metadata"]["annotations"]["huawei.com/schedule_policy"] = "chip1-node2"
    inside["spec"].pop("nodeSelector")
    return made


def without_scheduler() -> Object:
    """Return a Deployment of a MindIE server that names no scheduler."""
    made = deployment({"app": "mindie-server"}, replicas=1)
    made["spec"]["template"]["spec"].pop("schedulerName")
    return made


def with_labels(made: Object, **labels: object) -> Object:
    """Return an object with more labels."""
    made = deepcopy(made)
    made["metadata"].setdefault("labels", {}).update(
        {key.replace("_", "-"): value for key, value in labels.items()}
    )
    return made


def storm_configuration(label: str, cards: int = 16) -> str:
    """Return a configuration of the deploy tool for a StormService."""
    roles = {
        name: {
            "replicas": 2,
            "podGroupSize": 1,
            "npu_num": cards,
            "labels": {"fault-scheduling": "force", label: "forceExit"},
            "nodeSelector": {"accelerator-type": "module-a3-16-super-pod"},
            "annotations": {"sp-block": "16"},
        }
        for name in ("prefill", "decode")
    }
    content = {"app_name": "x", "storm_service": {"model_name": "m"} | roles}
    return str(yaml.safe_dump(content))


def ome_configuration(cards: int) -> str:
    """Return a configuration of the deploy tool for an InferenceService."""
    part = {"min_replicas": 1, "max_replicas": 1, "pod_num": 1, "npu_num": cards}
    inside = {"model_name": "m", "runtime_name": "r", "engine": part}
    return str(yaml.safe_dump({"app_name": "x", "inference_service": inside}))


GPU = without_chips(leader_worker_set({}))
STORM = without_chips(storm_service(1, {}))
RUNTIME = runtime({}, runner={"name": "ome-container", "image": "i"})
SERVICE = inference_service({"minReplicas": 1, "maxReplicas": 1})
FRAMEWORK = {"framework": "pytorch", "ring-controller.atlas": "ascend-910b"}
TRAINING = ascendjob(FRAMEWORK)
TWICE = yaml.safe_dump(STORM) + "metadata: {name: other}\n"

_AIBRIX, _OME = "vllm-project/aibrix:", "sgl-project/ome:config/"
_LWS = "kubernetes-sigs/lws:"
_VOLCANO, _HAMI = "volcano-sh/volcano:example/", "Project-HAMi/HAMi:examples/"
_MOTOR = "Ascend/MindIE-Motor:mindie_motor/src/example/deploy_scripts/deployment/"
_DEPLOY = "Ascend/mindcluster-deploy:"
_TRAIN = f"{_DEPLOY}samples/train/"

ROWS = (
    Row(f"{_AIBRIX}config/samples/orchestration_v1alpha1_stormservice.yaml", STORM),
    Row(f"{_AIBRIX}samples/disaggregation/sglang/tp-1p1d.yaml", STORM),
    Row(
        f"{_AIBRIX}samples/disaggregation/sglang/pd-bucketing.yaml",
        without_chips(storm_service(2, {})),
    ),
    Row(f"{_AIBRIX}development/app/config/mock/vllm-pd-config.yaml", STORM),
    Row(f"{_AIBRIX}development/app/config/mock/sglang-pd-config.yaml", STORM),
    Row(
        f"{_AIBRIX}samples/adapter/adapter-s3-example.yaml",
        TWICE,
        frozenset({"DUPLICATE_KEY"}),
    ),
    Row(
        f"{_AIBRIX}samples/disaggregation/neuron/pool.yaml",
        with_labels(STORM, fault_retry_times=3),
        frozenset({"LABEL_NOT_STRING", "PLACE_WITHOUT_EFFECT"}),
        is_changed=True,
    ),
    Row(f"{_OME}runtimes/srt/e5-mistral-7b-instruct-rt.yaml", RUNTIME),
    Row(f"{_OME}runtimes/srt/baidu/ernie-4-5-21b-a3b-pt-rt.yaml", RUNTIME),
    Row(f"{_OME}runtimes/srt/inclusionAI/ling-lite-rt.yaml", RUNTIME),
    Row(f"{_OME}samples/isvc/intfloat/e5-mistral-7b-instruct.yaml", SERVICE),
    Row(f"{_OME}samples/isvc/databricks/dolly-v2-12b.yaml", SERVICE),
    Row(f"{_OME}samples/isvc/adept/persimmon-8b-chat.yaml", SERVICE),
    Row(
        f"{_OME}samples/benchmark/e5-mistral-7b-instruct.yaml",
        plain_pods("BenchmarkJob", "ome.io/v1beta1"),
    ),
    Row(f"{_LWS}config/samples/leaderworkerset_v1_leaderworkerset.yaml", GPU),
    Row(f"{_LWS}config/samples/leaderworkerset_tpu.yaml", GPU),
    Row(f"{_LWS}docs/examples/tensorrt-llm/lws.yaml", GPU),
    Row(f"{_LWS}docs/examples/sample/lws-restart-policy.yaml", GPU),
    Row(f"{_LWS}docs/examples/sample/lws-exclusive-placement.yaml", GPU),
    Row(
        f"{_LWS}docs/examples/sample/horizontal-pod-autoscaler.yaml",
        plain_pods("HorizontalPodAutoscaler", "autoscaling/v2"),
    ),
    Row(
        f"{_LWS}docs/examples/sample/lws-rollout-strategy.yaml",
        with_labels(leader_worker_set({"fault-schedule": "grace"})),
        frozenset({"LABEL_TYPO"}),
        is_changed=True,
    ),
    Row(f"{_VOLCANO}kubecon-2019-china/tf-sample/tf-example.yaml", plain_job()),
    Row(f"{_VOLCANO}kubecon-2019-china/mpi-sample/mpi-example.yaml", plain_job(minAvailable=3)),
    Row(f"{_VOLCANO}kubecon-2019-china/gang/mpi-example.yaml", plain_job(queue="default")),
    Row(f"{_VOLCANO}kubecon-2019-china/task-priority/elastic-job.yaml", plain_job(minAvailable=1)),
    Row(
        f"{_VOLCANO}task-start-dependency/mpi.yaml",
        plain_job(plugins={"ssh": [], "svc": []}),
    ),
    Row(
        f"{_VOLCANO}integrations/argo/10-job-step.yaml",
        plain_pods("Workflow", "argoproj.io/v1alpha1"),
    ),
    Row(
        f"{_VOLCANO}kubecon-2019-china/horovod-sample/lm-horovod-tf-mnist-v0.5.yaml",
        with_labels(plain_job(), fault_scheduling="Grace"),
        frozenset({"FAULT_SCHEDULING_UNSUPPORTED"}),
        is_changed=True,
    ),
    Row(f"{_HAMI}ascend/job-910A.yaml", pod_of_hami("huawei.com/Ascend910A")),
    Row(f"{_HAMI}ascend/job-910B3.yaml", pod_of_hami("huawei.com/Ascend910B3")),
    Row(f"{_HAMI}ascend/job-910C.yaml", pod_of_hami("huawei.com/Ascend910C")),
    Row(f"{_HAMI}ascend/job-310P.yaml", pod_of_hami("huawei.com/Ascend310P")),
    Row(f"{_HAMI}enflame/gcu_use.yaml", pod_of_hami("enflame.com/gcu")),
    Row(f"{_HAMI}hygon/default_use.yaml", pod_of_hami("hygon.com/dcunum")),
    Row(f"{_MOTOR}mindie_ms_coordinator.yaml", without_chips(deployment({}))),
    Row(f"{_MOTOR}mindie_server.yaml", without_scheduler(), frozenset({"SCHEDULER_MISSING"})),
    Row(
        f"{_MOTOR}mindie_server_heterogeneous.yaml",
        without_scheduler(),
        frozenset({"SCHEDULER_MISSING"}),
    ),
    Row(
        f"{_MOTOR}mindie_service_single_container.yaml",
        without_scheduler(),
        frozenset({"SCHEDULER_MISSING"}),
    ),
    Row(
        f"{_MOTOR}server_init.yaml",
        ascendjob(FRAMEWORK | {"grt-group/deploy-server": 0}),
        frozenset({"LABEL_NOT_STRING"}),
    ),
    Row(
        f"{_MOTOR}controller_init.yaml",
        with_labels(TRAINING, app="mindie-ms-controler", jobID="x"),
        frozenset({"APP_TYPO"}),
        is_changed=True,
    ),
    Row(f"{_DEPLOY}k8s-deploy-tool/config/isvc-config.yaml", ome_configuration(8)),
    Row(
        f"{_DEPLOY}k8s-deploy-tool/config/isvc-config.yaml, with one card",
        ome_configuration(1),
        frozenset({"OME_WHOLE_MACHINE"}),
    ),
    Row(
        f"{_DEPLOY}k8s-deploy-tool/config/stormservice-config.yaml",
        storm_configuration("subHeathyStrategy"),
        frozenset({"SUBHEALTH_TYPO"}),
    ),
    Row(
        f"{_TRAIN}basic-training/ranktable/yaml/910/a300t_pytorch_deployment.yaml",
        a300t(),
        frozenset({"CARDS_PER_POD"}),
    ),
    Row(
        f"{_TRAIN}resumable-training/fault-rescheduling/withRanktable/pytorch/resnet50/yamls/910/"
        "a300t_pytorch_deployment.yaml",
        a300t(),
        frozenset({"CARDS_PER_POD"}),
    ),
    Row(
        f"{_TRAIN}basic-training/without-ranktable/pytorch/pytorch_multinodes_acjob_910b.yaml",
        TRAINING,
    ),
    Row(
        f"{_TRAIN}basic-training/without-ranktable/pytorch/pytorch_standalone_acjob_910b.yaml",
        ascendjob(FRAMEWORK, workers=0),
    ),
    Row(
        f"{_TRAIN}basic-training/without-ranktable/mindspore/mindspore_multinodes_acjob_910b.yaml",
        with_labels(TRAINING, fault_retry="3"),
        frozenset({"LABEL_TYPO"}),
        is_changed=True,
    ),
    Row(
        f"{_TRAIN}resumable-training/fault-rescheduling/withRanktable/pytorch/gpt-3/yamls/910B/"
        "pytorch_vcjob_910b.yaml",
        with_labels(vcjob({"fault-scheduling": "grace"}), fault_retry_times="ten"),
        frozenset({"RETRIES_NOT_NUMBER"}),
        is_changed=True,
    ),
    Row(
        f"{_DEPLOY}samples/inference/volcano/infer-deploy.yaml",
        deployment({"pod-reschedule": "on"}, replicas=1),
        frozenset({"LABEL_TYPO"}),
        is_changed=True,
    ),
)


def test_there_are_fifty_of_seven_repositories_with_fifteen_errors() -> None:
    assert len(ROWS) == 50
    assert {row.origin.partition(":")[0] for row in ROWS} == COMMITS.keys()
    assert sum(bool(row.errors) for row in ROWS) >= 15
    assert len({(row.origin, row.errors) for row in ROWS}) == 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.origin.rpartition("/")[2])
def test_manifest_has_its_errors_and_no_other(row: Row) -> None:
    text = row.made if isinstance(row.made, str) else yaml.safe_dump(row.made)
    report = lint([File("x.yaml", text)])
    errors = {one.rule.code for one in report.findings if one.rule.severity == "error"}
    assert errors == row.errors

"""Manifests of other people: which errors each must have, and that it has no other.

Nothing of them is copied. Each row is an object of the same shape, written here, with the
repository and path whose shape it has; ``COMMITS`` has the commit and the licence. The errors were
written down before the lint ran over these objects. A row with ``is_changed`` has one value that
differs from the origin.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import pytest
import yaml

from tests.vigil.lint.manifests import (
    A3,
    RESOURCE,
    Object,
    ascendjob,
    deployment,
    inference_service,
    leader_worker_set,
    rule,
    runner,
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
    "Ascend/mind-cluster": ("22bb3d987bc0208c3eb7395e222b661276133c58", "Apache-2.0"),
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


def a300t(mode: str | None = None) -> Object:
    """Return a Deployment that asks for eight cards of a node with two."""
    labels = {"ring-controller.atlas": "ascend-910"}
    made = deployment(labels if mode is None else labels | {"fault-scheduling": mode}, replicas=1)
    inside = made["spec"]["template"]
    inside["metadata"]["annotations"]["huawei.com/schedule_policy"] = "chip1-node2"
    inside["spec"].pop("nodeSelector")
    return made


def without_scheduler() -> Object:
    """Return a Deployment of a MindIE server that names no scheduler."""
    made = deployment({"app": "mindie-server"}, replicas=1)
    made["spec"]["template"]["spec"].pop("schedulerName")
    return made


def server_of_motor() -> Object:
    """Return an AscendJob of MindIE servers on nodes of A2, with the size of a super pod of A3."""
    labels = {"app": "mindie-ms-server", "jobID": "x", "grt-group/deploy-server": 1}
    return ascendjob(FRAMEWORK | RESCHEDULED | labels, {"sp-block": "384"}, workers=0)


def a3_server() -> Object:
    """Return a Deployment of a MindIE server whose own annotation is ``sp-block``."""
    made = deployment({"app": "d"}, replicas=1)
    made["metadata"]["annotations"] = {"sp-block": "16"}
    inside = made["spec"]["template"]["spec"]
    inside["nodeSelector"]["accelerator-type"] = "module-a3-16"
    inside["containers"][0]["resources"] = {"limits": {RESOURCE: 16}}
    return made


def job_of_950(cards: int, workers: int) -> Object:
    """Return an AscendJob for nodes of Ascend 950 with blocks of eight cards."""
    blocks = {"sp-block": "8", "ra-block": "8"}
    policy = {"huawei.com/schedule_policy": "chip8-node8-ra64-sp"}
    made = ascendjob({"framework": "mindspore"}, blocks | policy, template={"node": ""})
    replica = made["spec"]["replicaSpecs"].pop("Master") | {"replicas": workers}
    container = replica["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"huawei.com/npu": cards}}
    made["spec"]["replicaSpecs"] = {"Worker": replica}
    return made


def job_of_super_pod(cards: int, workers: int, block: int, **labels: str) -> Object:
    """Return an AscendJob with a master without chips, and workers in a super pod of A3."""
    annotations = {"sp-block": str(block)}
    parts = {"cards": cards, "node": ""}
    made = ascendjob(FRAMEWORK | labels, annotations, workers=workers, template=parts)
    replicas = made["spec"]["replicaSpecs"]
    replicas["Master"]["template"] = deepcopy(replicas["Master"]["template"])
    replicas["Master"]["template"]["spec"]["containers"][0].pop("resources")
    return made


def soft_share() -> Object:
    """Return an AscendJob that asks for half of a card, which it writes as 50."""
    policy = {"huawei.com/schedule_policy": "chip1-softShareDev"}
    return ascendjob(FRAMEWORK | RESCHEDULED, policy, template={"cards": 50})


def storm_of_a3() -> Object:
    """Return a StormService whose pods ask for one card of A3, in quotes."""
    made = storm_service(1, {"model.aibrix.ai/engine": "vllm"}, node="module-a3-16")
    for role in made["spec"]["template"]["spec"]["roles"]:
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: "1"}}
    return made


def stateful_set_of_page() -> Object:
    """Return a StatefulSet with all keys of affinity and rescheduling at its template."""
    annotations = {
        "sp-block": "128",
        "huawei.com/schedule_policy": "chip2-node16-sp",
        "huawei.com/recover_policy_path": "pod",
        "huawei.com/schedule_minAvailable": "16",
        "huawei.com/skip-ascend-plugin": "enabled",
    }
    labels = RESCHEDULED | {"pod-rescheduling": "on", "tor-affinity": "large-model-schema"}
    made = deployment(labels, annotations, replicas=16) | {"kind": "StatefulSet"}
    made["spec"] |= {"podManagementPolicy": "Parallel", "serviceName": "s"}
    inside = made["spec"]["template"]["spec"]
    inside["nodeSelector"] = {}
    inside["containers"][0]["resources"] = {"limits": {RESOURCE: 16}}
    return made


def storm_of_page() -> str:
    """Return a StormService as a page has it: one colon has the width of a Chinese letter."""
    annotations = {"huawei.com/recover_policy_path": "pod"}
    labels = {"fault-scheduling": "force", "pod-rescheduling": "on"}
    text = str(yaml.safe_dump(storm_service(1, labels, annotations, cards=16, node=A3)))
    return text.replace("pod-rescheduling: 'on'", 'pod-rescheduling\uff1a"on"', 1)


def runtime_of_page() -> Object:
    """Return a runtime whose keys of rescheduling are its own labels and annotations."""
    made = runtime({}, runner={"name": "ome-container", "image": "i"})
    labels = {"fault-scheduling": "force", "pod-rescheduling": "on", "fault-retry-times": "3"}
    made["metadata"] |= {"labels": labels, "annotations": {"sp-block": "16"}}
    return made


def decoder_of_page() -> Object:
    """Return a runtime with a decoder that has the scheduler below ``nodeSelector``."""
    annotations = {
        "huawei.com/schedule_policy": "chip2-node16-sp",
        "sp-block": "16",
        "huawei.com/schedule_minAvailable": "2",
        "huawei.com/recover_policy_path": "pod",
    }
    leader = runner(16) | {"nodeSelector": {"schedulerName": "volcano"}}
    leader.pop("schedulerName")
    made = runtime({})
    made["spec"] = {"decoderConfig": {"annotations": annotations, "leader": leader}}
    return made


def rule_with_comments(*, hides_a_brace: bool) -> Object:
    """Return a scaling rule with comments, of which one may have a bracket of the rule in it."""
    made = rule({"group0": (2, 2), "group1": (1, 2)}, {"group0": (1, 2), "group1": (1, 2)})
    text = made["data"]["elastic_scaling.json"].replace('"1.0",', '"1.0",    # fixed')
    if hides_a_brace:
        before, bracket, behind = text.partition('{\n          "group_name"')
        assert bracket
        text = f"{before.rstrip()}    # may run      {bracket}{behind}"
    made["data"]["elastic_scaling.json"] = text
    return made


def group_of(resource: str, **members: object) -> Object:
    """Return a LeaderWorkerSet that asks for chips of another maker."""
    made = without_chips(leader_worker_set({}, size=4))
    inside = made["spec"]["leaderWorkerTemplate"]
    container = inside["workerTemplate"]["spec"]["containers"][0]
    container["resources"] = {"limits": {resource: 4}}
    inside |= members
    return made


def storm_with_router() -> Object:
    """Return a StormService with a router, and instances of two pods."""
    made = without_chips(storm_service(2, {"model.aibrix.ai/engine": "sglang"}))
    router = {"name": "routing", "replicas": 1, "stateful": True}
    pods = {"spec": {"containers": [{"name": "lb", "image": "i"}]}}
    made["spec"]["template"]["spec"]["roles"].insert(0, router | {"template": pods})
    return made


def storm_of_mock() -> Object:
    """Return a StormService of two replicas, whose labels and annotations are AIBrix' own."""
    made = without_chips(storm_service(1, {"adapter.model.aibrix.ai/enabled": "true"}))
    made["metadata"]["labels"] = {"model.aibrix.ai/port": "8000"}
    own = {"annotations": {"model.aibrix.ai/config": '{"defaultProfile": "pd"}\n'}}
    made["spec"] |= {"replicas": 2, "updateStrategy": {"type": "InPlaceUpdate"}}
    made["spec"]["template"]["metadata"] = own
    return made


def runtime_for_gpus(cards: int) -> Object:
    """Return a runtime for GPUs, whose engine has labels and annotations of other programs."""
    limits = {"cpu": 10 * cards, "nvidia.com/gpu": cards}
    container = {"name": "ome-container", "image": "i", "resources": {"limits": limits}}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    return runtime({"logging-forward": "enabled"}, annotations, runner=container)


def with_labels(made: Object, **labels: object) -> Object:
    """Return an object with more labels."""
    made = deepcopy(made)
    made["metadata"].setdefault("labels", {}).update(
        {key.replace("_", "-"): value for key, value in labels.items()}
    )
    return made


def storm_configuration(label: str) -> str:
    """Return a configuration of the deploy tool for a StormService."""
    roles: Object = {}
    for name, replicas, size in (("prefill", 2, 1), ("decode", 1, 2)):
        roles[name] = {
            "replicas": replicas,
            "podGroupSize": size,
            "npu_num": 16,
            "labels": {"fault-scheduling": "force", label: "forceExit"},
            "nodeSelector": {"accelerator-type": A3},
            "annotations": {"sp-block": str(16 * size)},
        }
    roles["routing"] = {
        "replicas": 1,
        "annotations": {"sp-block": "1"},
        "labels": {"fault-scheduling": "force"},
        "nodeSelector": {"accelerator-type": A3},
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
RESCHEDULED = {"fault-scheduling": "force", "fault-retry-times": "10000"}
TRAINING = ascendjob(FRAMEWORK)
TWICE = yaml.safe_dump(STORM) + "metadata: {name: other}\n"

_AIBRIX, _OME = "vllm-project/aibrix:", "sgl-project/ome:config/"
_LWS = "kubernetes-sigs/lws:"
_VOLCANO, _HAMI = "volcano-sh/volcano:example/", "Project-HAMi/HAMi:examples/"
_MOTOR = "Ascend/MindIE-Motor:mindie_motor/src/example/deploy_scripts/deployment/"
_PAGES = "Ascend/mind-cluster:docs/en/scheduling/usage/"
_DEPLOY = "Ascend/mindcluster-deploy:"
_TRAIN = f"{_DEPLOY}samples/train/"

ROWS = (
    Row(f"{_AIBRIX}config/samples/orchestration_v1alpha1_stormservice.yaml", STORM),
    Row(f"{_AIBRIX}samples/disaggregation/sglang/tp-1p1d.yaml", storm_with_router()),
    Row(f"{_AIBRIX}samples/vllm-ascend/job.yaml", storm_of_a3()),
    Row(
        f"{_AIBRIX}samples/disaggregation/sglang/pd-bucketing.yaml",
        without_chips(storm_service(2, {})),
    ),
    Row(f"{_AIBRIX}development/app/config/mock/vllm-pd-config.yaml", storm_of_mock()),
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
    Row(f"{_OME}runtimes/srt/baidu/ernie-4-5-21b-a3b-pt-rt.yaml", runtime_for_gpus(2)),
    Row(f"{_OME}runtimes/srt/inclusionAI/ling-lite-rt.yaml", runtime_for_gpus(1)),
    Row(f"{_OME}samples/isvc/intfloat/e5-mistral-7b-instruct.yaml", SERVICE),
    Row(
        f"{_OME}samples/isvc/databricks/dolly-v2-12b.yaml",
        inference_service({"minReplicas": 1, "maxReplicas": 1}, "srt-dolly-v2-12b"),
    ),
    Row(f"{_OME}samples/isvc/adept/persimmon-8b-chat.yaml", SERVICE),
    Row(
        f"{_OME}samples/benchmark/e5-mistral-7b-instruct.yaml",
        plain_pods("BenchmarkJob", "ome.io/v1beta1"),
    ),
    Row(f"{_LWS}config/samples/leaderworkerset_v1_leaderworkerset.yaml", GPU),
    Row(f"{_LWS}config/samples/leaderworkerset_tpu.yaml", group_of("google.com/tpu")),
    Row(f"{_LWS}docs/examples/tensorrt-llm/lws.yaml", group_of("nvidia.com/gpu", size=2)),
    Row(
        f"{_LWS}docs/examples/sample/lws-restart-policy.yaml",
        group_of("cpu", restartPolicy="RecreateGroupOnPodRestart"),
    ),
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
    Row(f"{_MOTOR}mindie_service_single_container_base_A3.yaml", a3_server()),
    Row(
        f"{_MOTOR}server_init.yaml",
        server_of_motor(),
        frozenset({"LABEL_NOT_STRING", "SUPER_POD_BLOCK_WITHOUT_SUPER_POD"}),
    ),
    Row(
        f"{_MOTOR}controller_init.yaml",
        with_labels(TRAINING, app="mindie-ms-controler", jobID="x"),
        frozenset({"APP_TYPO"}),
        is_changed=True,
    ),
    Row(
        f"{_PAGES}vllm_best_practice/01_deploying_vllm_inference_job.md",
        storm_of_page(),
        frozenset({"UNREADABLE"}),
    ),
    Row(
        f"{_PAGES}sglang_best_practice/02_rescheduling_inference_job_instance.md",
        runtime_of_page(),
        frozenset({"PLACE_WITHOUT_EFFECT"}),
    ),
    Row(
        f"{_PAGES}sglang_best_practice/01_deploying_ome_sglang_inference_job.md",
        decoder_of_page(),
        frozenset({"MIN_AVAILABLE_TOO_LARGE", "SCHEDULER_IN_NODE_SELECTOR"}),
    ),
    Row(
        f"{_PAGES}mindie_motor_best_practice/04_configuring_elastic_scaling_for_inference_job.md, "
        "first rule",
        rule_with_comments(hides_a_brace=True),
        frozenset({"SCALING_RULE_NO_JSON"}),
    ),
    Row(
        f"{_PAGES}mindie_motor_best_practice/04_configuring_elastic_scaling_for_inference_job.md, "
        "second rule",
        rule_with_comments(hides_a_brace=False),
        frozenset({"SCALING_RULE_NO_JSON"}),
    ),
    Row(
        f"{_PAGES}mindie_motor_best_practice/02_rescheduling_inference_job.md",
        ascendjob(
            FRAMEWORK
            | {"app": "mindie-ms-coordinator", "jobID": "x"}
            | {"fault-scheduling": "force", "pod-rescheduling": "on"},
            workers=1,
            template={"cards": 0},
        ),
    ),
    Row(
        f"{_PAGES}vllm_best_practice/02_rescheduling_inference_job_instance.md",
        storm_service(2, {"fault-scheduling": "force", "fault-retry-times": "10"}),
    ),
    Row(
        f"{_PAGES}basic_scheduling/01_affinity_scheduling/"
        "01_affinity_scheduling_interconnection.md",
        stateful_set_of_page(),
    ),
    Row(
        f"{_DEPLOY}k8s-deploy-tool/config/isvc-config.yaml",
        ome_configuration(1),
        frozenset({"OME_WHOLE_MACHINE"}),
    ),
    Row(
        f"{_DEPLOY}k8s-deploy-tool/config/isvc-config.yaml",
        ome_configuration(8),
        is_changed=True,
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
        a300t("force"),
        frozenset({"CARDS_PER_POD"}),
    ),
    Row(
        f"{_TRAIN}resumable-training/fault-tolerance/ranktable/pytorch/resnet50/yamls/910/"
        "a300t_pytorch_deployment.yaml",
        a300t("force"),
        frozenset({"CARDS_PER_POD"}),
    ),
    Row(
        f"{_TRAIN}basic-training/without-ranktable/mindspore/mindspore_standalone_acjob_950.yaml",
        job_of_950(cards=1, workers=1),
        frozenset({"SUPER_POD_BLOCK"}),
    ),
    Row(
        f"{_TRAIN}basic-training/without-ranktable/mindspore/mindspore_multinodes_acjob_950.yaml",
        job_of_950(cards=8, workers=2),
    ),
    Row(
        f"{_TRAIN}resumable-training/fault-tolerance/without-ranktable/pytorch/verl/grpo/"
        "verl-grpo.yaml",
        job_of_super_pod(cards=16, workers=2, block=32, **RESCHEDULED),
    ),
    Row(
        f"{_DEPLOY}samples/inference/volcano/pytorch_acjob_infer_910b_softsharedev.yaml",
        soft_share(),
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


def test_there_are_fifty_of_eight_repositories_with_fifteen_real_errors() -> None:
    assert len(ROWS) >= 50
    assert {row.origin.partition(":")[0] for row in ROWS} == COMMITS.keys()
    assert sum(bool(row.errors) and not row.is_changed for row in ROWS) >= 15
    assert len({(row.origin, row.errors) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.origin.rpartition("/")[2])
def test_manifest_has_its_errors_and_no_other(row: Row) -> None:
    text = row.made if isinstance(row.made, str) else yaml.safe_dump(row.made)
    report = lint([File("x.yaml", text)])
    errors = {one.rule.code for one in report.findings if one.rule.severity == "error"}
    assert errors == row.errors

"""Labels, annotations and words by which jobs ask for rescheduling and schedulers read them.

The names are upstream's. Sources: ``consumers#1.1``, 1.2, 1.7, 1.11, 1.15, 2.1, 2.2, 4.1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Where the scheduler finds its own configuration and writes what it did (consumers#1.1, 1.14).
SCHEDULER_NAMESPACE = "volcano-system"
SCHEDULER_CONFIGMAP = "volcano-scheduler-configmap"
SCHEDULER_CONFIG_KEY = "volcano-scheduler.conf"
INIT_PARAMS = "init-params"
"""The entry of ``configurations`` whose ``arguments`` are the switches of consumers#1.1."""
USE_CLUSTER_INFO = "useClusterInfoManager"
SELF_MAINTAIN = "self-maintain-available-card"
GRACE_OVER_TIME = "grace-over-time"
FAULT_CONFIGMAP = "vcjob-fault-npu-cm"
"""In ``SCHEDULER_NAMESPACE``: fault nodes and remaining retries."""
REMAIN_RETRY_KEY = "remain-retry-times"
RESCHEDULE_NAMESPACE = "mindx-dl"
RESCHEDULE_CONFIGMAP = "job-reschedule-reason"
RESCHEDULE_KEY = "recent-reschedule-records"

# Which PodGroup a pod is in, and what made it.
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
RESOURCE_DOMAIN = "huawei.com/"
"""Resources and DeviceList keys of chips begin with it."""

# Labels of jobs and of their pods (consumers#2.2).
FAULT_SCHEDULING = "fault-scheduling"
FAULT_SCHEDULING_GRACE = "grace"
FAULT_SCHEDULING_FORCE = "force"
FAULT_SCHEDULING_EXTERNAL = ("external-force", "external-grace")
FAULT_SCHEDULING_OFF = "off"
FAULT_SCHEDULING_VALUES = (
    FAULT_SCHEDULING_GRACE,
    FAULT_SCHEDULING_FORCE,
    *FAULT_SCHEDULING_EXTERNAL,
    FAULT_SCHEDULING_OFF,
)
POD_RESCHEDULING = "pod-rescheduling"
POD_RESCHEDULING_VALUES = ("on", "off")
FAULT_RETRY_TIMES = "fault-retry-times"
PROCESS_RECOVER = "process-recover-enable"
PROCESS_RECOVER_VALUES = ("on", "off", "pause")
SUB_HEALTH_STRATEGY = "subHealthyStrategy"
SUB_HEALTH_IGNORE = "ignore"
SUB_HEALTH_GRACE_EXIT = "graceExit"
SUB_HEALTH_FORCE_EXIT = "forceExit"
SUB_HEALTH_HOT_SWITCH = "hotSwitch"
SUB_HEALTH_STRATEGIES = (
    SUB_HEALTH_IGNORE,
    SUB_HEALTH_GRACE_EXIT,
    SUB_HEALTH_FORCE_EXIT,
    SUB_HEALTH_HOT_SWITCH,
)
FAULT_TYPE = "fault-type"
"""Label of a pod, written by ClusterD or a platform."""
FAULT_TYPE_SEPARATE = "Separate"
FAULT_TYPE_SUB_HEALTH = "SubHealth"
FAULT_TYPE_SOFTWARE = "software"
ELASTIC_SCHEDULING = "elastic-scheduling"
ELASTIC_SCHEDULING_VALUES = ("on", "off")
TOR_AFFINITY = "tor-affinity"
TOR_AFFINITY_VALUES = ("large-model-schema", "normal-schema", "null")
APP = "app"
MINDIE_CONTROLLER = "mindie-ms-controller"
MINDIE_COORDINATOR = "mindie-ms-coordinator"
MINDIE_SERVER = "mindie-ms-server"
MINDIE_APPS = (MINDIE_CONTROLLER, MINDIE_COORDINATOR, MINDIE_SERVER)
MINDIE_CONTROL_APPS = (MINDIE_CONTROLLER, MINDIE_COORDINATOR)
"""Those whose rescheduling is limited to the pods at fault."""
OME_SERVICE = "ome.io/inferenceservice"
LWS_LABEL_PREFIX = "leaderworkerset.sigs.k8s.io/"
LWS_NAME = f"{LWS_LABEL_PREFIX}name"
LWS_GROUP_INDEX = f"{LWS_LABEL_PREFIX}group-index"
LWS_WORKER_INDEX = f"{LWS_LABEL_PREFIX}worker-index"
LWS_AFTER_START_ANNOTATION = f"{LWS_LABEL_PREFIX}experimental-recreate-group-after-start"
LWS_RECREATE_ON_RESTART = "RecreateGroupOnPodRestart"
"""The ``restartPolicy`` of a LeaderWorkerSet that has none."""
LWS_RECREATE_AFTER_START = "RecreateGroupAfterStart"
LWS_NONE = "None"
LWS_NONE_BEFORE = "Default"
"""The old name of ``None``."""
POD_SET_REPLACE = "ReplaceUnhealthy"
"""The ``recoveryPolicy`` of a PodSet that has none."""
POD_SET_RECREATE = "Recreate"
POD_TEMPLATE_HASH = "pod-template-hash"
STORM_SERVICE = "storm-service-name"
STORM_ROLE = "role-name"
STORM_LABEL_PREFIX = "stormservice."
INFER_OPERATOR = "infer.huawei.com/ascend-infer-operator"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_TYPE_WORKER = "worker"
VERSION_LABEL = "version"

# Annotations of jobs (consumers#2.1, 2.2).
PROCESS_RECOVER_STRATEGY = "ProcessRecoverStrategy"
RECOVER_STRATEGY = "recover-strategy"
"""What ClusterD may do inside a training job; the operator then sets ``PROCESS_RECOVER``."""
SCHEDULE_MIN_AVAILABLE = "huawei.com/schedule_minAvailable"
RECOVER_POLICY_PATH = "huawei.com/recover_policy_path"
RECOVER_POLICY_POD = "pod"
SCHEDULE_PLUGIN = "volcano.sh/schedule.plugin"
SUPER_POD_BLOCK = "sp-block"
RACK_BLOCK = "ra-block"
SUPER_POD_FIT = "sp-fit"
SCHEDULE_POLICY = "huawei.com/schedule_policy"
SUPER_POD_POLICIES = ("chip2-node16-sp", "chip2-node8-sp", "chip8-node8-sp", "chip8-node8-ra64-sp")
RACK_POLICY = "chip8-node8-ra64-sp"
"""The Ascend 950 policy with rules of its own (consumers#2.6)."""
MULTILEVEL_POLICY = "multilevel"
"""Jobs are placed by a tree of blocks, which ``AFFINITY_CONFIG`` gives (consumers#2.6)."""
INFER_SERVICE_SCHEDULE = "huawei.com/infer_service_schedule"
AFFINITY_CONFIG = "huawei.com/affinity-config"
MIN_REPLICAS = "minReplicas"
FILTER_FAULT_CODE = "huawei.com/schedule.filter.faultCode"
FILTER_FAULT_LEVEL = "huawei.com/schedule.filter.faultLevel"
POD_TO_JOB_ANNOTATIONS = (
    SUPER_POD_BLOCK,
    RACK_BLOCK,
    SCHEDULE_POLICY,
    SUPER_POD_FIT,
    SCHEDULE_MIN_AVAILABLE,
    RECOVER_POLICY_PATH,
    INFER_SERVICE_SCHEDULE,
    AFFINITY_CONFIG,
)
"""What a PodGroup without the key gets from one of its pods (consumers#2.1)."""

# Annotations of pods (consumers#1.15).
ASCEND_REAL = "huawei.com/AscendReal"
RANK_INDEX = "hccl/rankIndex"
POD_STATUS = "huawei.com/pod-status"
NEED_VOLCANO_OPE = "needVolcanoOpe"
NEED_VOLCANO_DELETE = "delete"
TASK_INDEX_ENV = "VC_TASK_INDEX"

# Nodes (consumers#1.7).
ACCELERATOR = "accelerator"
ACCELERATOR_TYPE = "accelerator-type"
SUPER_POD_ACCELERATOR_TYPES = ("module-a3-16-super-pod", "module-a3-8-super-pod")
CHIP_NAME = "node.kubernetes.io/npu.chip.name"
CHIP_NAME_950 = "Ascend950"
SOFT_SHARE = "huawei.com/scheduler.chip1softsharedev.enable"
BASE_DEVICE_INFOS = "baseDeviceInfos"
NODE_HEALTHY_STATUS = "NodeHealthyStatus"

# Elastic scaling of MindIE Motor (consumers#3.1, 3.2, 4.1).
SCALING_RULE = "mind-cluster/scaling-rule"
SCALING_GROUP = "mind-cluster/group-name"
SCALING_KEY = "elastic_scaling.json"
JOB_ID = "jobID"
DEPLOY_SERVER_LABELS = ("grt-group/deploy-server", "grt-server/deploy-server")

# Leading zeros are outside of the group, whose length bounds the value.
_INTEGER = re.compile(r"[+-]?0*([0-9]+)", re.ASCII)


def go_integer(text: str) -> int | None:
    """Return the integer that Go's ``strconv.Atoi`` reads from ``text``; ``None`` for an error.

    It has no blanks, no underscores and only ASCII digits, and it fits 64 bit.
    """
    match = _INTEGER.fullmatch(text)
    # Checked before the conversion: 2**63 has 19 digits, and a long text is costly to convert.
    if match is None or len(match[1]) > 19:
        return None
    value = -int(match[1]) if text.startswith("-") else int(match[1])
    return value if -(2**63) <= value < 2**63 else None


def is_super_pod_job(policy: str, selected: Iterable[str | None], *, has_block: bool) -> bool:
    """Return whether the plugin places a job by logical super pods (consumers#2.1).

    ``selected`` are the values of ``accelerator-type`` that its pods select, ``has_block`` whether
    it has ``sp-block``.
    """
    if policy in SUPER_POD_POLICIES or has_block:
        return True
    return any(accelerator in SUPER_POD_ACCELERATOR_TYPES for accelerator in selected)

"""Everything that the lint can find: its code, how serious it is, what will happen, what to write.

``docs/findings.md`` is this table. Words in braces are filled in for each finding. Sources are
sections of ``docs/spec/consumers.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingSeverity(StrEnum):
    """``ERROR``: the object is refused or never placed, or a setting does not do what it is for.

    ``WARNING``: it does, but a named case goes otherwise. ``INFO``: what was given does not suffice
    to judge it, or the job is right and does without something; it never counts.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    code: str
    severity: FindingSeverity
    happens: str
    write: str
    source: str


def _error(code: str, happens: str, write: str, source: str) -> Rule:
    return Rule(code, FindingSeverity.ERROR, happens, write, source)


def _warning(code: str, happens: str, write: str, source: str) -> Rule:
    return Rule(code, FindingSeverity.WARNING, happens, write, source)


def _info(code: str, happens: str, write: str, source: str) -> Rule:
    return Rule(code, FindingSeverity.INFO, happens, write, source)


RULES = (
    # Files
    _error(
        "UNREADABLE",
        "The file is not read here: {why}.",
        "Correct the text; kubectl refuses it too.",
        "-",
    ),
    _error(
        "NOT_JUDGED",
        "A defect of vigil lint ends the check of this: {why}. The rest is judged.",
        "Report the defect with this file, and check the file by hand.",
        "-",
    ),
    _warning(
        "NOT_YAML",
        "What is in {lines} is not YAML, or ends a document in its middle. kubectl refuses the "
        "text or reads a part of it. The rest is judged, and a document with ... by its labels "
        "and annotations alone.",
        "Remove lines between documents, and write what ... stands for.",
        "-",
    ),
    _info(
        "TEMPLATE",
        "This is a template of Helm or Jinja2, whose values are not known, so it is not judged.",
        "Render it first and check the result: helm template ... | vigil lint -",
        "-",
    ),
    _info(
        "UNKNOWN_KIND",
        "Objects of the kind {kind} are not known here, so this one is not judged.",
        "Nothing, unless the kind is misspelled.",
        "-",
    ),
    _info(
        "UNKNOWN_VERSION",
        "{kind} is known here as {known}, not as {given}, so this object is not judged.",
        "Use apiVersion {known}, or check the object by hand.",
        "-",
    ),
    _error(
        "DUPLICATE_KEY",
        "{key} is here twice (first in line {first}) with different values: the later one wins.",
        "Remove the one that is not meant.",
        "6.2",
    ),
    _warning(
        "REPEATED_KEY",
        "{key} is here twice (first in line {first}) with the same value: who edits only the "
        "first one changes nothing.",
        "Remove one of them.",
        "6.3",
    ),
    # Labels and annotations
    _error(
        "LABEL_NOT_STRING",
        "{key} is a {type} and not a text: the API server refuses the object.",
        'Put it in quotes: {key}: "{value}"',
        "2.2",
    ),
    _error(
        "METADATA_NOT_MAP",
        "{key} is not a map: the API server refuses the object.",
        "Write each key with its value below {key}.",
        "2.2",
    ),
    _error(
        "LABEL_TYPO",
        "No program reads the key {key}, so it has no effect.",
        "Write {known}.",
        "2.2",
    ),
    _error(
        "SUBHEALTH_TYPO",
        "No program reads {key}: the strategy stays ignore, and pods stay on sub-healthy chips.",
        "Write subHealthyStrategy.",
        "1.11, 6.3",
    ),
    _error(
        "SUBHEALTH_UNSUPPORTED",
        "{value} is not a valid strategy: it counts as ignore, and pods stay on sub-healthy chips.",
        "Write one of {legal}.",
        "1.11",
    ),
    _error(
        "APP_TYPO",
        "{value} is not {known}: ClusterD does not recognise the job, so it is missing in the "
        "global rank table.",
        "Write app: {known}.",
        "4.1, R53",
    ),
    _error(
        "MISPLACED_KEY",
        "{key} is read as {right} only; as {wrong} it has no effect.",
        "Move it to the {right}s.",
        "2.2",
    ),
    _error(
        "FAULT_SCHEDULING_UNSUPPORTED",
        "{value} is not a valid value of fault-scheduling: at a fault nothing is deleted, and the "
        "job is blocked for up to 1200 s.",
        "Write one of {legal}.",
        "2.2, E4",
    ),
    _error(
        "LABEL_CONFLICT",
        "{key} is {value} here and {other} in {where}, for pods of one PodGroup: the joined value "
        "{joined} is none that is supported.",
        "Give all of them the same value.",
        "2.1, E28",
    ),
    _error(
        "VALUE_UNSUPPORTED",
        "{value} is not a valid value of {key}: it counts as {counts}.",
        "Write one of {legal}.",
        "2.2",
    ),
    _error(
        "RECOVER_PATH_UNSUPPORTED",
        "Only the value pod has an effect: with {value} a fault may remove the whole PodGroup.",
        "Write huawei.com/recover_policy_path: pod",
        "8-19",
    ),
    # Where labels and annotations stand: advisor/lint/reach.py
    _error(
        "PLACE_WITHOUT_EFFECT",
        "From {path} of a {kind}, {key} reaches no pod and no PodGroup, so it has no effect.",
        "{instead}",
        "2.1",
    ),
    _info(
        "PLACE_REPEATED",
        "From {path}, {key} reaches no pod and no PodGroup; the same value stands where it counts.",
        "Remove it here, so that no change is made here without effect.",
        "2.1",
    ),
    _info(
        "PLACE_DEPENDS",
        "{keys}: from here labels and annotations reach a PodGroup only where Ascend Operator with "
        "enableGangScheduling makes it. The PodGroups of Volcano have none of them.",
        "Write them to {where}, from where they always count.",
        "2.1",
    ),
    # Whether rescheduling is on
    _info(
        "RESCHEDULING_OFF",
        "A chip fault ends in nothing: fault-scheduling {what}, so no pod is deleted. A "
        "process that fails: {gets}.",
        "Write the label fault-scheduling with grace or force, or leave it so.",
        "2.2, 2.5",
    ),
    _warning(
        "WITHOUT_FAULT_SCHEDULING",
        "{key} does nothing, because fault-scheduling is off for these pods.",
        "Write the label fault-scheduling with grace or force too, or remove {key}.",
        "2.5",
    ),
    _info(
        "PROCESS_FAULT_NOT_HANDLED",
        "Without fault-retry-times Volcano does nothing about a process that fails: {gets}.",
        'Write the label fault-retry-times, such as "3", or leave it so.',
        "2.4, 2.9",
    ),
    _warning(
        "MOTOR_WITHOUT_RETRIES",
        "A job with a scaling rule needs fault-retry-times. Without it Volcano does nothing about "
        "a process that fails: {gets}.",
        'Write the label fault-retry-times: "100000000"',
        "2.9, 3.6",
    ),
    # Retries
    _error(
        "RETRIES_NOT_NUMBER",
        "{value} is not a number: no process fault is handled, and the operator gives up on an "
        "AscendJob.",
        'Write a whole number in quotes, such as fault-retry-times: "3"',
        "2.2, 3.6",
    ),
    _error(
        "RETRIES_NEGATIVE",
        "{value} is negative: process faults are looked for and never handled.",
        'Write a number from 1, or "0" for none.',
        "2.2",
    ),
    _warning(
        "RETRY_VS_BACKOFF",
        "fault-retry-times allows {retries} times, but wave {next} of restarts fails the job, "
        "because backoffLimit is {limit}. Waves after faults of hardware count, too.",
        "Remove backoffLimit, or make it as large as fault-retry-times.",
        "3.6, E20",
    ),
    _warning(
        "RESTART_POLICY_HIDES_FAILURE",
        "With restartPolicy {policy} the kubelet restarts the container in place. The pod "
        "never becomes Failed, and fault-retry-times and policies of the job wait for that.",
        "Write restartPolicy: Never",
        "2.9",
    ),
    # Grace
    _warning(
        "FORCE_WITH_CHECKPOINT",
        "{value} deletes pods with no grace, so at a fault {what} does not happen: the last "
        "checkpoint is missing.",
        "Write fault-scheduling: {instead}, or remove the checkpoint at the end.",
        "5.4",
    ),
    _warning(
        "GRACE_SHORTER_THAN_TERMINATION",
        "After {grace} s (grace-over-time) the pods are deleted by force, {seconds} s were meant: "
        "a checkpoint that takes longer is cut off.",
        "Raise grace-over-time of the scheduler, or lower terminationGracePeriodSeconds.",
        "2.7, 5.4",
    ),
    _error(
        "GRACE_OVER_TIME_INVALID",
        "{value} is not a whole number from 2 to 3600: 900 s count.",
        'Write a number from 2 to 3600, such as grace-over-time: "1800"',
        "1.1",
    ),
    _error(
        "SCHEDULER_CONFIGURATION",
        "{key}: {why}.",
        "{instead}",
        "1.1",
    ),
    _warning(
        "PRE_STOP_WITHIN_DEFAULT",
        "preStop has {seconds} s, the default of terminationGracePeriodSeconds. A checkpoint that "
        "takes longer is cut off.",
        "Write terminationGracePeriodSeconds with the seconds that a checkpoint takes.",
        "2.7, 5.4",
    ),
    # Gangs and scopes
    _error(
        "MIN_AVAILABLE_NOT_NUMBER",
        "{value} is not a number: the scheduler finds the job invalid and never places it.",
        'Write a whole number in quotes, such as huawei.com/schedule_minAvailable: "2"',
        "2.1",
    ),
    _error(
        "MIN_AVAILABLE_WITHOUT_EFFECT",
        "It counts only where the PodGroup has minMember 1, which is {members} here: {value} is "
        "ignored.",
        "Remove it; {members} pods are placed together.",
        "2.1, 6.2",
    ),
    _error(
        "MIN_AVAILABLE_TOO_LARGE",
        "{value} pods are to be placed together, and the PodGroup has {pods}: none is ever placed.",
        'Write a number up to {pods}, such as huawei.com/schedule_minAvailable: "{pods}"',
        "2.1",
    ),
    _info(
        "MIN_AVAILABLE_OF_LWS",
        "With gang scheduling LWS gives the PodGroup minMember {members}, and {value} is ignored. "
        "Without it minMember is 1, and {value} counts.",
        "Remove it, or write the size of the group.",
        "2.1, 6.2",
    ),
    _warning(
        "LWS_WITHOUT_GANG",
        "Gang scheduling of LWS is off: Volcano made {group} for a StatefulSet. Pods of a group "
        "start singly, and the leaders of all groups share one PodGroup.",
        "Set gangSchedulingManagement.schedulerProvider: volcano in the configuration of LWS.",
        "2.9",
    ),
    _warning(
        "OPERATOR_WITHOUT_GANG",
        "Ascend Operator makes no PodGroup for {job} ({count} with schedulerName in all). Labels "
        "of the job reach no scheduler, and pods start singly.",
        "Write --enableGangScheduling=true.",
        "2.9, 3.5",
    ),
    _info(
        "OPERATOR_GANG_NOT_GIVEN",
        "Whether Ascend Operator makes a PodGroup for {job} ({count} with schedulerName in all) "
        "depends on its release: today's do by default.",
        "Write --enableGangScheduling=true.",
        "2.9, 3.5",
    ),
    _warning(
        "MIN_AVAILABLE_MISSING",
        "All {replicas} replicas form one gang: none of them starts before all have a place.",
        'Write the annotation huawei.com/schedule_minAvailable: "1" into the template.',
        "2.1, 2.9",
    ),
    _warning(
        "OME_WITHOUT_POD_RESCHEDULING",
        "After the first fault the job waits for pods that no program restarts: for 1200 s no "
        "further fault is handled.",
        'Write pod-rescheduling: "on" beside fault-scheduling.',
        "2.8",
    ),
    _warning(
        "LIMIT_WITHOUT_POD_RESCHEDULING",
        "Only the pods at fault are deleted. Then the job waits for its other pods to be "
        "restarted: for 1200 s no further fault is handled.",
        'Write pod-rescheduling: "on" beside fault-scheduling.',
        "2.8",
    ),
    _warning(
        "SHARED_PG_WITHOUT_POD_RESCHEDULING",
        "All roles with podGroupSize 1 share one PodGroup: a fault of one pod deletes all {pods} "
        "pods, of every role.",
        'Write pod-rescheduling: "on" into the labels of the role.',
        "2.9, E16",
    ),
    _warning(
        "SHARED_PG_WITHOUT_RECOVER_PATH",
        "All roles with podGroupSize 1 share one PodGroup. A fault of rank 0 deletes all "
        "{pods} pods at once. So does any fault whose pod finds no place within 12 s.",
        "Write the annotation huawei.com/recover_policy_path: pod",
        "2.9, E17, E18",
    ),
    # Placement
    _error(
        "SUPER_POD_BLOCK",
        "sp-block {value} {why}: the job is never placed.",
        "{instead}",
        "2.2",
    ),
    _error(
        "SUPER_POD_BLOCK_WITHOUT_SUPER_POD",
        "sp-block needs nodes of a super pod, and {nodes}: it has no effect, or the job is never "
        "placed.",
        "Select accelerator-type module-a3-16-super-pod, or remove sp-block.",
        "2.1, 2.2",
    ),
    _error(
        "CARDS_PER_POD",
        "{count} cards for a pod: {why}, so it is never placed.",
        "{instead}",
        "1.7, 2.2",
    ),
    _error(
        "OME_WHOLE_MACHINE",
        "OME takes whole machines: {count} cards for a pod are not the {cards} of a machine.",
        "Ask for {cards} cards.",
        "6.2",
    ),
    _error(
        "HOST_ARCH",
        "No node has host-arch {value}: the pods are never placed.",
        "Write host-arch: huawei-arm or huawei-x86.",
        "1.7",
    ),
    _error(
        "ACCELERATOR_TYPE_TYPO",
        "No node has accelerator-type {value}: the pods are never placed.",
        "Write accelerator-type: {known}",
        "1.7",
    ),
    _error(
        "VISIBLE_DEVICES_OTHER_RESOURCE",
        "ASCEND_VISIBLE_DEVICES is read from {named}, but {requested} is requested: the container "
        "gets no chip.",
        "Read it from metadata.annotations['{requested}'].",
        "1.15",
    ),
    _error(
        "VISIBLE_DEVICES_OF_VNPU",
        "Static vNPUs ({requested}) do not support ASCEND_VISIBLE_DEVICES: the container may "
        "get no chip.",
        "Remove the variable ASCEND_VISIBLE_DEVICES.",
        "1.15",
    ),
    _warning(
        "ARCHITECTURES_DIFFER",
        "Pods of {role} are placed on {arch}, those of {other} on {other_arch}. All pods of an "
        "instance need one architecture.",
        "Write the same host-arch for both.",
        "1.7",
    ),
    _error(
        "SCHEDULER_MISSING",
        "The default scheduler takes the pods{unless}: no chips are given to them, and no fault is "
        "handled.",
        "Write schedulerName: volcano {where}.",
        "6.3",
    ),
    _info(
        "SCHEDULER_FILLED_IN",
        "The default scheduler takes the pods, unless {who} fills the scheduler in.",
        "Write schedulerName: volcano {where}, so that it does not depend on that.",
        "2.9, 6.3",
    ),
    _error(
        "SCHEDULER_OTHER",
        "Volcano does not see pods of the scheduler {value}: no fault is handled.",
        "Write schedulerName: volcano",
        "6.3",
    ),
    _error(
        "SCHEDULER_IN_NODE_SELECTOR",
        "Below nodeSelector it asks for nodes with the label schedulerName: the pods are never "
        "placed.",
        "Move schedulerName beside nodeSelector.",
        "6.3",
    ),
    # Elastic training
    _error(
        "ELASTIC_CONDITION",
        "Elastic training does not happen: {why}.",
        "{instead}",
        "5.3, R60",
    ),
    _error(
        "ELASTIC_MIN_REPLICAS",
        "Elastic training does not happen: minReplicas {why}.",
        "Write the annotation minReplicas with a number from 1 to {replicas}.",
        "5.3, R60",
    ),
    _error(
        "ELASTIC_MAX_RETRY",
        "{given} the job starts again at its full size: elastic training does not happen.",
        "Write maxRetry: 0",
        "2.9, 5.3",
    ),
    _error(
        "ELASTIC_POLICY",
        "{why}: elastic training does not happen.",
        "Write the policy event: PodEvicted, action: TerminateJob",
        "2.9, 5.3",
    ),
    _warning(
        "ELASTIC_SWITCH_MISSING",
        "minReplicas has no effect without the label elastic-scheduling: elastic training does "
        "not happen.",
        'Write the label elastic-scheduling: "on", or remove minReplicas.',
        "5.3, R60",
    ),
    _warning(
        "ELASTIC_MAX_RETRY_LOST",
        "The job controller gives the claim a name and writes the job again. This turns "
        "maxRetry 0 into 3, so the job starts again at its full size.",
        "Give the volume a volumeClaimName that exists.",
        "2.9",
    ),
    _warning(
        "ELASTIC_ONE_REPLICA",
        "A job of one replica cannot lose one: on a fault only the cards of its pod become fewer.",
        "Use two replicas or more, or expect 8, 4, 2 or 1 card.",
        "R60",
    ),
    _warning(
        "ELASTIC_OFF",
        "Elastic training does not happen: the annotation npu-vigil/elastic is off.",
        "Remove the annotation: vigil elastic on {job}",
        "5.3",
    ),
    _warning(
        "ELASTIC_NETWORK_FAULT",
        "A network fault ends no pod of this job: {why}.",
        "Add the component elastic-network-faults to a daemon with --act, or end such a job by "
        "hand.",
        "2.4, E24",
    ),
    _warning(
        "ELASTIC_DEAD_NODE",
        "Pods on a dead node never end, and the job waits for them: {why}.",
        "Once its host is off, give such a Node the taint node.kubernetes.io/out-of-service, or "
        "add the component elastic-dead-nodes.",
        "2.7, 2.9",
    ),
    _info(
        "ELASTIC_NFS",
        "All pods write their checkpoints to NFS ({server}) at once; whether that takes less than "
        "{grace} s (grace-over-time) is not known.",
        "Measure it, and write the annotations npu-vigil/checkpoint-bytes and "
        "npu-vigil/storage-bytes-per-second.",
        "5.3",
    ),
    _warning(
        "CHECKPOINT_SLOWER_THAN_TERMINATION",
        "A checkpoint of {size} takes {seconds} s at {rate}, which is more than {grace} s "
        "(terminationGracePeriodSeconds): it is cut off.",
        "Write terminationGracePeriodSeconds: {seconds} or more.",
        "5.3, 5.4",
    ),
    _warning(
        "CHECKPOINT_SLOWER_THAN_GRACE",
        "A checkpoint of {size} takes {seconds} s at {rate}, which is more than {grace} s "
        "(grace-over-time): it is cut off.",
        "Use quicker storage, or raise grace-over-time.",
        "5.3",
    ),
    # Scaling rules and MindIE
    _error(
        "SCALING_RULE_NO_JSON",
        "The rule {why}: every job that names it waits for ever.",
        "Write plain JSON.",
        "3.2",
    ),
    _error(
        "SCALING_RULE_KEY",
        "The operator reads elastic_scaling.json and not {key}: every job that names the rule "
        "waits for ever.",
        "Name the key elastic_scaling.json.",
        "3.1",
    ),
    _error(
        "SCALING_RULE_NO_STRING",
        "{key} is not a text: the rule cannot be decoded, and every job that names it waits for "
        "ever.",
        'Write {key} as a number in quotes, such as "{value}".',
        "3.1",
    ),
    _error(
        "SCALING_RULE_NO_NUMBER",
        "{key} {value} is not a whole number from 1: the rule is refused or never satisfied.",
        'Write a number from 1 in quotes, such as "2".',
        "3.2, R50",
    ),
    _error(
        "SCALING_RULE_GROWS",
        "{key} of {group} grows from {before} to {value}: the rule is refused, and every job that "
        "names it waits for ever.",
        "Begin with the largest entry; no number may grow in a later one.",
        "3.2, X14",
    ),
    _warning(
        "SCALING_RULE_UNLIKE_SERVERS",
        "server_num_per_group of {group} was {before} and is {value} here; the operator accepts "
        "it, and instances of this size do not exist.",
        "Write the same number in all entries.",
        "3.2",
    ),
    _info(
        "SCALING_RULE_OTHER_SERVERS",
        "server_num_per_group of {group} is {servers}, and {job} has {pods}. The operator does "
        "not compare them.",
        "Write the number of pods of a job of this group.",
        "3.2",
    ),
    _error(
        "SCALING_RULE_GROUP_MISSING",
        "{group} is missing in this entry: once it is the target, a job of {group} crashes the "
        "operator.",
        'Add {group} with group_num "1" at least.',
        "3.4, X13",
    ),
    _error(
        "SCALING_RULE_GROUP_UNKNOWN",
        "{group} is not in the entry before: the rule is refused, and every job that names it "
        "waits for ever.",
        "Add {group} to all entries before this one.",
        "3.2",
    ),
    _error(
        "SCALING_RULE_GROUP_TWICE",
        "{group} is twice in one entry: the later one wins.",
        "Remove one of them.",
        "3.2",
    ),
    _error(
        "SCALING_RULE_EMPTY",
        "The rule has {what}: no job that names it is ever created.",
        "Write at least one entry with its groups.",
        "3.4",
    ),
    _warning(
        "SCALING_RULE_VERSION",
        "version {why}; the operator does not look, a later one may.",
        'Write "version": "1.0"',
        "3.2",
    ),
    _error(
        "SCALING_RULE_NAMESPACE",
        "{job} is in the namespace {wanted}, the rule in {given}: the operator does not find it, "
        "and the job waits for ever.",
        "Write namespace: {wanted}",
        "3.1",
    ),
    _error(
        "SCALING_RULE_NAME",
        "No job names this rule; {job} names {wanted}, which is not there: it waits for ever.",
        "Write name: {wanted}",
        "3.1",
    ),
    _error(
        "SCALING_GROUP_NOT_IN_RULE",
        "{group} is in no entry of the rule {rule} ({where}): the job is never created, or crashes "
        "the operator.",
        "Write one of {groups}.",
        "3.4, R53",
    ),
    _info(
        "SCALING_RULE_NOT_GIVEN",
        "The rule {rule} is in no file that was given, so its groups are not judged.",
        "Give the file of the rule, too.",
        "R53",
    ),
    _error(
        "SCALING_LABEL_MISSING",
        "With mind-cluster/scaling-rule the operator wants the label {key}: without it the job "
        "fails with InvalidScalingConfig.",
        "Add the label {key}.",
        "3.2",
    ),
    _error(
        "JOB_ID_MISSING",
        "A MindIE job without the label jobID belongs to no service: it is missing in the global "
        "rank table.",
        "Add the label jobID, the same for all jobs of the service.",
        "4.1, R53",
    ),
    _error(
        "DEPLOY_SERVER_TWICE",
        "Of {keys} there may be one only: with both no global rank table of the whole service is "
        "made.",
        "Remove one of them.",
        "4.1",
    ),
    # What only a running cluster shows
    _warning(
        "NO_ASCENDREAL",
        "{text}",
        "Check the Device Plugin of the node: it writes huawei.com/AscendReal at allocation.",
        "2.1, M19",
    ),
    _warning(
        "STALE_INPUT",
        "{text}",
        "Check the aggregator: each document is written or touched once a minute at least.",
        "1.5, R4",
    ),
    _warning(
        "GHOST_ENTRY",
        "{text}",
        "Write the entry once more, healthy, before it is left out.",
        "1.4, M9",
    ),
    _warning(
        "UPSTREAM_DIVERGES",
        "{text}",
        "See vigil advise for what both profiles decide.",
        "7.2, 8",
    ),
    # Files that belong together
    _info(
        "OME_MODE_NOT_KNOWN",
        "What makes the pods of a service in the mode {mode} is not known here, nor which labels "
        "reach them. It is not judged.",
        "Check the labels of its pods.",
        "2.9",
    ),
    _info(
        "RUNTIME_NOT_GIVEN",
        "{missing} may stand in the runtime {runtime}, which is in no file that was given.",
        "Give the file of the runtime, too.",
        "6.2",
    ),
    _info(
        "RUNTIME_NOT_NAMED",
        "{missing} may stand in the runtime that OME chooses, because the service names none.",
        "Write spec.runtime.name, and give the file of the runtime, too.",
        "6.2",
    ),
    _error(
        "DEPLOY_TOOL_REFUSES",
        "The deploy tool ends with an error: {why}.",
        "{instead}",
        "6.2, 6.3",
    ),
)
LIVE_CODES = ("NO_ASCENDREAL", "STALE_INPUT", "GHOST_ENTRY", "UPSTREAM_DIVERGES")
"""Those that only a running cluster shows; ``advisor/advise.py`` finds them."""
BY_CODE = {rule.code: rule for rule in RULES}
assert len(BY_CODE) == len(RULES)

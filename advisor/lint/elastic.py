"""Elastic training: everything that has to hold at once (``consumers#2.9``, 5.3, R60)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import PlacedText, finding, in_words
from advisor.lint.gangs import takes_part
from advisor.lint.grace import DEFAULT_TERMINATION_SECONDS
from advisor.lint.labels import RING_CONTROLLER
from advisor.lint.model import Sequence, empty
from advisor.lint.pods import asks_for_chips, text_of
from advisor.lint.workload import Elastic, WorkloadForm
from contract.documents.elastic_job import (
    END_ACTIONS,
    EVICTED_EVENTS,
    MIN_TTL_SECONDS,
    OFF,
    RESTART_ACTION,
    SWITCH,
)
from contract.scheduling import (
    ELASTIC_SCHEDULING,
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_GRACE,
    MIN_REPLICAS,
    PROCESS_RECOVER,
    PROCESS_RECOVER_STRATEGY,
    go_integer,
)
from contract.sentences import counted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.model import Mapping
    from advisor.lint.workload import ElasticDaemon, Role, Workload

ELASTIC_DAEMON = "npu-vigil-elastic"
"""The Deployment and the ClusterRole of ``vigil elastic``; those of its parts begin so."""
_NETWORK_FAULTS, _DEAD_NODES = ELASTIC_PARTS = ("network-faults", "dead-nodes")
"""Its optional components, and their options."""
_RING_VALUE = "ascend-910"
CHECKPOINT_BYTES = "npu-vigil/checkpoint-bytes"
STORAGE_RATE = "npu-vigil/storage-bytes-per-second"


def read_elastic(root: Mapping, spec: Mapping, roles: list[Role], place: FindingPlace) -> Elastic:
    """Return what decides about elastic training in a vcjob."""
    tasks = [*spec.sequence("tasks")]
    vnpu = next(
        (
            PlacedText(resource, role.cards_line, role.file)
            for role in roles
            for resource in role.cards
            # Virtual chips have a dash in the name behind the slash.
            if "-" in resource.partition("/")[2]
        ),
        None,
    )
    claim = next(
        (
            PlacedText("volumeClaim", volume.line_of("volumeClaim"), place.file)
            for volume in spec.sequence("volumes")
            # A claim that the job controller generates goes with the job; a named one stays.
            if volume.get("volumeClaim") is not None and not volume.text("volumeClaimName")
        ),
        None,
    )
    metadata = root.mapping("metadata") or empty(root.line)
    owner = next(metadata.sequence("ownerReferences"), None)
    partition = next((task for task in tasks if task.mapping("partitionPolicy")), None)
    annotations = metadata.mapping("annotations")
    sizes = None
    if annotations is not None:
        size = text_of(annotations.scalar(CHECKPOINT_BYTES), place.file)
        rate = text_of(annotations.scalar(STORAGE_RATE), place.file)
        sizes = (size, rate) if size and rate else None
    counts = [role.pods for role in roles]
    return Elastic(
        root.line_of("spec"),
        text_of(spec.scalar("maxRetry"), place.file),
        action_after(spec, EVICTED_EVENTS, place),
        spec.line_of("policies", root.line_of("spec")),
        # One count that a template fills in leaves the sum unknown.
        None if None in counts else sum(count or 0 for count in counts),
        vnpu,
        claim,
        None if owner is None else PlacedText(owner.text("kind"), owner.line, place.file),
        text_of(spec.scalar("minSuccess"), place.file),
        text_of(spec.scalar("ttlSecondsAfterFinished"), place.file),
        None
        if partition is None
        else PlacedText(partition.text("name"), partition.line_of("partitionPolicy"), place.file),
        _second_container(tasks, place),
        _nfs(tasks, place),
        sizes,
    )


def action_after(spec: Mapping, wanted: tuple[str, ...], place: FindingPlace) -> PlacedText | None:
    """Return what the policies of a vcjob do after an event; ``None`` where none names it."""
    # Policies of a task go before those of the job.
    policies = [policy for task in spec.sequence("tasks") for policy in task.sequence("policies")]
    for policy in (*policies, *spec.sequence("policies")):
        # Volcano takes both forms: ``event``, and ``events`` as a list.
        events = policy.get("events")
        named = [policy.get("event"), *(events if isinstance(events, Sequence) else ())]
        texts = {getattr(event, "text", "") for event in named}
        action = text_of(policy.scalar("action"), place.file)
        if action is not None and not texts.isdisjoint(wanted):
            return action
    return None


def _second_container(tasks: list[Mapping], place: FindingPlace) -> PlacedText | None:
    for task in tasks:
        asking = [
            container
            for container in task.sequence("template", "spec", "containers")
            if asks_for_chips(container)
        ]
        if len(asking) > 1:
            return PlacedText(asking[1].text("name"), asking[1].line, place.file)
    return None


def _nfs(tasks: list[Mapping], place: FindingPlace) -> PlacedText | None:
    for task in tasks:
        for volume in task.sequence("template", "spec", "volumes"):
            if volume.mapping("nfs") is not None:
                return PlacedText(volume.text("nfs", "server"), volume.line_of("nfs"), place.file)
    return None


def judge(workload: Workload, grace_over_time: int) -> Iterator[LintFinding]:
    """Return each condition of elastic training that does not hold."""
    switch = workload.labels.get(ELASTIC_SCHEDULING)
    minimum = workload.annotations.get(MIN_REPLICAS)
    is_vcjob = workload.form is WorkloadForm.VCJOB
    # Without fault-scheduling neither of them has an effect, which is a finding by itself.
    if is_vcjob and switch is None and minimum is not None and takes_part(workload.groups[0]):
        yield finding("ELASTIC_SWITCH_MISSING", workload.place.at_text(minimum))
    # Volcano and Ascend Operator copy the labels of a job to its PodGroup: the job is judged.
    is_copy = workload.form is WorkloadForm.POD_GROUP and workload.controller is not None
    if switch is None or switch.value != "on" or is_copy:
        return
    here = workload.place.at_text(switch)
    if workload.form is not WorkloadForm.VCJOB or workload.elastic is None:
        reason = sentence("only Jobs of Volcano can be trained elastically")
        yield _condition(here, reason, sentence("Use a Job of batch.volcano.sh/v1alpha1."))
        return
    elastic = workload.elastic
    yield from _judge_labels(workload)
    yield from _judge_minimum(workload, elastic)
    yield from _judge_restart(workload, elastic)
    yield from _judge_pods(workload, elastic)
    yield from _judge_others(workload, elastic)
    yield from _judge_storage(workload, elastic, grace_over_time)


def judge_parts(workload: Workload, daemon: ElasticDaemon) -> Iterator[LintFinding]:
    """Return for which faults no program ends the pods of an elastic job (consumers#E24, 2.7)."""
    switch, elastic = workload.labels.get(ELASTIC_SCHEDULING), workload.elastic
    is_known = daemon.is_cluster or daemon.arguments is not None
    if switch is None or switch.value != "on" or elastic is None or not is_known:
        return
    place = workload.place.at_text(switch)
    # Only jobs of several pods are ended for a link (decision 36).
    if elastic.replicas != 1 and (reason := _why_off(daemon, _NETWORK_FAULTS)):
        yield finding("ELASTIC_NETWORK_FAULT", place, why=reason)
    if reason := _why_off(daemon, _DEAD_NODES):
        yield finding("ELASTIC_DEAD_NODE", place, why=reason)


def _why_off(daemon: ElasticDaemon, part: str) -> str:
    """Return why an optional part of the daemon does nothing; empty where it does."""
    arguments = daemon.arguments
    if arguments is None:
        return sentence("vigil elastic is not installed")
    for option in (f"--{part}", "--act"):
        if option not in arguments:
            return sentence("vigil elastic has no {option}", option=option)
    role = f"{ELASTIC_DAEMON}-{part}"
    # Rights in another file are not missing.
    if ELASTIC_DAEMON in daemon.roles and role not in daemon.roles:
        return sentence("there is no ClusterRole {role}", role=role)
    return ""


def _judge_pods(workload: Workload, elastic: Elastic) -> Iterator[LintFinding]:
    """Judge what keeps the number of pods or of their chips from being another one."""
    roles, place = workload.roles(), workload.place
    if len(roles) > 1:
        where = place.at(roles[1].line)
        yield _condition(
            where,
            sentence("it has {roles} tasks", roles=len(roles)),
            sentence("Write one task with all pods."),
        )
    if elastic.vnpu is not None:
        reason = sentence("{value} is a part of a chip", value=elastic.vnpu.value)
        instead = sentence("Ask for whole chips, such as huawei.com/Ascend910.")
        yield _condition(place.at_text(elastic.vnpu), reason, instead)
    # Without a spec the pods are in another file, and nothing is known of them.
    for role in roles:
        if role.has_spec and len(role.cards) != 1:
            reason = sentence("its pods ask for no chips")
            if role.cards:
                reason = sentence("its pods ask for {cards}", cards=in_words(role.cards))
            where = place.at(role.cards_line or role.spec_line)
            yield _condition(
                where, reason, sentence("Ask for one kind of chips: huawei.com/Ascend910.")
            )
    if elastic.replicas == 1 and roles:
        yield from _judge_single(workload, elastic, roles[0])
    if elastic.partition is not None:
        reason = sentence("partitionPolicy fixes the number of pods")
        yield _condition(
            place.at_text(elastic.partition), reason, sentence("Remove partitionPolicy.")
        )
    success = elastic.min_success
    number = None if success is None else go_integer(success.value)
    most = elastic.replicas
    if success is not None and number is not None and most is not None and number > most:
        reason = counted(
            most,
            "minSuccess {number} is more than its {count} pod",
            "minSuccess {number} is more than its {count} pods",
            number=number,
        )
        yield _condition(
            place.at_text(success), reason, sentence("Write minSuccess: {most} or less.", most=most)
        )


def _judge_single(workload: Workload, elastic: Elastic, role: Role) -> Iterator[LintFinding]:
    """Judge a job of one pod, of which only the chips can become fewer."""
    place = workload.place
    if elastic.second_container is not None:
        reason = sentence("several containers of its only pod ask for chips")
        instead = sentence("Ask for them in one container.")
        yield _condition(place.at_text(elastic.second_container), reason, instead)
    if len(role.cards) == 1 and role.count() == 1:
        reason = sentence("it has one pod with one chip")
        yield _condition(
            place.at(role.cards_line), reason, sentence("Ask for two pods or two chips.")
        )
    else:
        switch = workload.labels[ELASTIC_SCHEDULING]
        yield finding("ELASTIC_ONE_REPLICA", place.at_text(switch))


def _judge_others(workload: Workload, elastic: Elastic) -> Iterator[LintFinding]:
    """Who else would start the job or delete it, and whether it is switched off."""
    place = workload.place
    switch = workload.annotations.get(SWITCH)
    if switch is not None and switch.value == OFF:
        job = f"{workload.namespace}/{workload.name}"
        yield finding("ELASTIC_OFF", place.at_text(switch), job=job)
    if elastic.owner is not None:
        reason = sentence(
            "a {value} owns the job and would start it, too", value=elastic.owner.value
        )
        yield _condition(
            place.at_text(elastic.owner), reason, sentence("Create the job without an owner.")
        )
    recovery = workload.labels.get(PROCESS_RECOVER)
    if recovery is not None and recovery.value != "off":
        reason = sentence(
            "{recover} is {value}, so others recover the job",
            recover=PROCESS_RECOVER,
            value=recovery.value,
        )
        yield _condition(
            place.at_text(recovery),
            reason,
            sentence("Remove the label {recover}.", recover=PROCESS_RECOVER),
        )
    strategy = workload.annotations.get(PROCESS_RECOVER_STRATEGY)
    if strategy is not None:
        reason = sentence(
            "with {strategy} others recover the job", strategy=PROCESS_RECOVER_STRATEGY
        )
        instead = sentence("Remove the annotation {strategy}.", strategy=PROCESS_RECOVER_STRATEGY)
        yield _condition(place.at_text(strategy), reason, instead)
    lifetime = elastic.lifetime
    seconds = None if lifetime is None else go_integer(lifetime.value)
    if lifetime is not None and seconds is not None and seconds < MIN_TTL_SECONDS:
        reason = sentence(
            "ttlSecondsAfterFinished {seconds} may delete the job before it is started again",
            seconds=seconds,
        )
        instead = sentence("Remove it, or write {seconds} or more.", seconds=MIN_TTL_SECONDS)
        yield _condition(place.at_text(lifetime), reason, instead)


def _judge_labels(workload: Workload) -> Iterator[LintFinding]:
    labels, place = workload.labels, workload.place.at(workload.labels_line)
    mode = labels.get(FAULT_SCHEDULING)
    if mode is None or mode.value != FAULT_SCHEDULING_GRACE:
        where = place if mode is None else place.at_text(mode)
        shown = sentence("is missing")
        if mode is not None:
            shown = sentence("is {value}", value=mode.value)
        reason = sentence(
            "{scheduling} {shown}, and it has to be grace", scheduling=FAULT_SCHEDULING, shown=shown
        )
        yield _condition(
            where, reason, sentence('Write {scheduling}: "grace"', scheduling=FAULT_SCHEDULING)
        )
    # The operator of MindCluster 26 asks only whether the label is there.
    if RING_CONTROLLER not in labels:
        reason = sentence(
            "{controller} is missing, so no rank table is made", controller=RING_CONTROLLER
        )
        yield _condition(
            place,
            reason,
            sentence("Write {controller}: {value}", controller=RING_CONTROLLER, value=_RING_VALUE),
        )


def _judge_minimum(workload: Workload, elastic: Elastic) -> Iterator[LintFinding]:
    most = elastic.replicas
    shown = sentence("the number of replicas") if most is None else most
    minimum = workload.annotations.get(MIN_REPLICAS)
    if minimum is None:
        place = workload.place.at(workload.annotations_line)
        yield finding("ELASTIC_MIN_REPLICAS", place, why=sentence("is missing"), replicas=shown)
        return
    value = go_integer(minimum.value)
    if value is None or value < 1 or (most is not None and value > most):
        place = workload.place.at_text(minimum)
        reason = sentence(
            "{value} is not a number from 1 to {shown}",
            value=minimum.value or sentence("(empty)"),
            shown=shown,
        )
        yield finding("ELASTIC_MIN_REPLICAS", place, why=reason, replicas=shown)


def _judge_restart(workload: Workload, elastic: Elastic) -> Iterator[LintFinding]:
    """Judge what the job controller does once the pods are deleted (consumers#2.9)."""
    action = elastic.evicted
    policies = workload.place.at(elastic.policies_line)
    if action is None or action.value not in (RESTART_ACTION, *END_ACTIONS):
        reason = (
            sentence(
                "Without a policy for PodEvicted the job controller makes each pod anew at "
                "once, at the full size"
            )
            if action is None
            else sentence("{value} does not end the job", value=action.value)
        )
        place = policies if action is None else workload.place.at_text(action)
        yield finding("ELASTIC_POLICY", place, why=reason)
        return
    retry = elastic.max_retry
    if action.value == RESTART_ACTION and (retry is None or go_integer(retry.value) != 0):
        place = workload.place.at(elastic.spec_line if retry is None else retry.line)
        given = sentence("With maxRetry missing, which is 3,")
        if retry is not None:
            given = sentence("With maxRetry {value}", value=retry.value)
        yield finding("ELASTIC_MAX_RETRY", place, given=given)
    elif action.value == RESTART_ACTION and elastic.generated_claim is not None:
        place = workload.place.at_text(elastic.generated_claim)
        yield finding("ELASTIC_MAX_RETRY_LOST", place)


def _judge_storage(workload: Workload, elastic: Elastic, grace: int) -> Iterator[LintFinding]:
    """Whether a checkpoint is written before its pods are killed (consumers#5.3, 5.4)."""
    if elastic.sizes is not None:
        yield from _judge_speed(workload, *elastic.sizes, grace)
    elif elastic.nfs is not None:
        place = workload.place.at_text(elastic.nfs)
        yield finding("ELASTIC_NFS", place, server=elastic.nfs.value, grace=grace)


def _judge_speed(
    workload: Workload, size: PlacedText, rate: PlacedText, grace: int
) -> Iterator[LintFinding]:
    amount, speed = go_integer(size.value), go_integer(rate.value)
    if amount is None or speed is None or speed <= 0:
        return
    words = {
        "size": sentence("{count} bytes", count=amount),
        # Rounded up: the last part of a checkpoint needs its time, too.
        "seconds": -(-amount // speed),
        "rate": sentence("{count} bytes a second", count=speed),
    }
    place = workload.place
    if amount > speed * grace:
        yield finding("CHECKPOINT_SLOWER_THAN_GRACE", place.at_text(size), **words, grace=grace)
        return
    for role in workload.roles():
        if not role.has_spec:
            continue
        # Kubernetes' default of 30 s where the pod has no ``terminationGracePeriodSeconds``.
        text, seconds = role.termination, DEFAULT_TERMINATION_SECONDS
        if text is not None:
            seconds = go_integer(text.value) or 0
        if amount > speed * seconds:
            where = place.at(role.spec_line if text is None else text.line, role.file)
            yield finding("CHECKPOINT_SLOWER_THAN_TERMINATION", where, **words, grace=seconds)


def _condition(place: FindingPlace, reason: str, instead: str) -> LintFinding:
    return finding("ELASTIC_CONDITION", place, why=reason, instead=instead)

"""Whether rescheduling is on: what reaches nothing, and what a job does without.

Sources: ``docs/spec/consumers.md#2.1``, 2.2, 2.4, 2.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding, in_words
from advisor.lint.reach import GROUP_ANNOTATIONS, OBJECT_KEYS, Reach
from advisor.lint.workload import WorkloadForm
from contract.scheduling import (
    ELASTIC_SCHEDULING,
    FAULT_RETRY_TIMES,
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_OFF,
    MIN_REPLICAS,
    POD_RESCHEDULING,
    PROCESS_RECOVER_STRATEGY,
    RECOVER_STRATEGY,
    SCALING_RULE,
    go_integer,
)
from contract.sentences import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from advisor.lint.finding import FindingPlace, LintFinding, PlacedText
    from advisor.lint.reach import UnreadKey
    from advisor.lint.workload import Role, Workload, WorkloadGroup

_IDLE = {POD_RESCHEDULING: "off", FAULT_RETRY_TIMES: "0"}
"""Values by which people switch a part of rescheduling off."""
_RECREATED = sentence("the LWS controller deletes its whole group and makes it anew")
_IN_PLACE = sentence("the kubelet restarts its container in place")
_ALONE = sentence("{gets}, and the other pods of its group stay", gets=_IN_PLACE)
_AFTER_FAILURE_OF_LWS = {
    "RecreateGroupOnPodRestart": _RECREATED,
    "RecreateGroupAfterStart": sentence(
        "{gets}, unless a pod of the group is still pending", gets=_RECREATED
    ),
    "None": _ALONE,
    "Default": _ALONE,
}
_REPLACED = sentence("the RoleSet controller deletes its pod and makes a new one")
_STAYS_FAILED = sentence("its pod stays Failed, and no controller makes it anew")
_AFTER_FAILURE = {
    WorkloadForm.ASCENDJOB: sentence("Ascend Operator ends the job as Failed"),
    WorkloadForm.BATCH_JOB: sentence("the Job controller makes a new pod, up to backoffLimit"),
}
_ALWAYS = (WorkloadForm.DEPLOYMENT, WorkloadForm.STATEFUL_SET, WorkloadForm.OME)
"""Their pods have restartPolicy Always."""


def judge_places(
    unread: Iterable[UnreadKey], groups: Iterable[WorkloadGroup]
) -> Iterator[LintFinding]:
    """Return a finding for each key that has no effect where it stands.

    Where the same value stands at the right place too, the job is right, so that is an ``info``.
    """
    depending = []
    for unread_key in unread:
        elsewhere = _elsewhere(unread_key, groups)
        place = unread_key.place.at_text(unread_key.text)
        if unread_key.source.reach is Reach.DEPENDS:
            if not elsewhere and unread_key.key not in GROUP_ANNOTATIONS:
                depending.append(unread_key)
        elif elsewhere:
            if unread_key.key in OBJECT_KEYS:
                continue  # The samples for elastic training have them in the template, too.
            yield finding("PLACE_REPEATED", place, key=unread_key.key, path=unread_key.source.path)
        else:
            words = {
                "key": unread_key.key,
                "path": unread_key.source.path,
                "kind": unread_key.source.kind,
            }
            yield finding("PLACE_WITHOUT_EFFECT", place, **words, instead=_instead(unread_key))
    if depending:
        first = depending[0]
        keys = joined("{before}, {part}", (unread_key.key for unread_key in depending))
        where = first.source.write
        yield finding("PLACE_DEPENDS", first.place.at_text(first.text), keys=keys, where=where)


def judge_rank_table(
    keys: Iterable[UnreadKey], groups: Iterable[WorkloadGroup]
) -> Iterator[LintFinding]:
    """Return the labels at a ConfigMap that its job lacks: it was read there in old releases."""
    lacking = [key for key in keys if all(group.label(key.key) is None for group in groups)]
    return judge_places(lacking, groups)


def _elsewhere(unread_key: UnreadKey, groups: Iterable[WorkloadGroup]) -> bool:
    """Return whether all pods with chips get the same value from where it counts."""
    groups = [*groups]
    asking = [group for group in groups if any(role.asks_for_chips() for role in group.roles)]
    texts = [
        group.label(unread_key.key) if unread_key.is_label else group.annotation(unread_key.key)
        for group in asking or groups
    ]
    return bool(texts) and all(
        text is not None and text.value == unread_key.text.value for text in texts
    )


def _instead(unread_key: UnreadKey) -> str:
    where = unread_key.source.write
    if not where or (unread_key.key in GROUP_ANNOTATIONS and where != "metadata"):
        kind = unread_key.source.kind
        return sentence("Remove it; no place of a {kind} reaches the PodGroup.", kind=kind)
    if unread_key.is_label:
        return sentence("Write it to the labels of {where}.", where=where)
    return sentence("Write it to the annotations of {where}.", where=where)


def judge(workload: Workload) -> Iterator[LintFinding]:
    """Return what a workload with chips does without at a fault: one ``info``, and warnings."""
    if workload.is_partial:
        return
    groups = [group for group in workload.groups if group.asks_volcano_for_chips()]
    groups = [group for group in groups if not _may_be_elsewhere(workload, FAULT_SCHEDULING, group)]
    off = [group for group in groups if _is_off(group)]
    if off:
        yield _off(workload, off)
        for group in off:
            yield from _idle(workload, group)
    without = [group for group in groups if _is_without_retries(workload, group)]
    if without and workload.form is WorkloadForm.ASCENDJOB and SCALING_RULE in workload.labels:
        place = workload.place.at_text(workload.labels[SCALING_RULE])
        yield finding("MOTOR_WITHOUT_RETRIES", place, gets=_gets(workload, without[0]))
    elif without and not off:
        place = _place(workload, without[0], FAULT_RETRY_TIMES)
        yield finding("PROCESS_FAULT_NOT_HANDLED", place, gets=_gets(workload, without[0]))


def _may_be_elsewhere(workload: Workload, key: str, group: WorkloadGroup) -> bool:
    """Whether a label may reach the PodGroup from where it depends on what is installed."""
    keys = {
        unread_key.key for unread_key in workload.unread if unread_key.source.reach is Reach.DEPENDS
    }
    return key in keys and group.label(key) is None


def _is_off(group: WorkloadGroup) -> bool:
    label = group.label(FAULT_SCHEDULING)
    return label is None or label.value in ("", FAULT_SCHEDULING_OFF)


def _is_without_retries(workload: Workload, group: WorkloadGroup) -> bool:
    """Whether it has no retries; a value that is not a number is a finding by itself."""
    label = group.label(FAULT_RETRY_TIMES)
    if label is None:
        return not _may_be_elsewhere(workload, FAULT_RETRY_TIMES, group)
    return go_integer(label.value) == 0


def _place(workload: Workload, group: WorkloadGroup, key: str) -> FindingPlace:
    """Return the line of a label, or that of the labels to which it can be added."""
    text = group.label(key)
    if text is not None:
        return workload.place.at_text(text)
    role = group.roles[0]
    if workload.form in (WorkloadForm.VCJOB, WorkloadForm.ASCENDJOB):
        return workload.place.at(workload.labels_line)
    return workload.place.at(role.labels_line or role.line, role.file)


def _off(workload: Workload, off: list[WorkloadGroup]) -> LintFinding:
    label = off[0].label(FAULT_SCHEDULING)
    state = sentence("is off") if label is not None else sentence("reaches no pod")
    if len(off) != len(workload.groups):
        state = sentence("{state} of {roles}", state=state, roles=in_words(_names(off)))
    words = {"what": state, "gets": _gets(workload, off[0])}
    return finding("RESCHEDULING_OFF", _place(workload, off[0], FAULT_SCHEDULING), **words)


def _names(groups: list[WorkloadGroup]) -> list[str]:
    return list(dict.fromkeys(role.name for group in groups for role in group.roles))


def _idle(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Return what stands there and does nothing, because fault-scheduling is off."""
    idle: list[tuple[str, PlacedText]] = []
    for key in (POD_RESCHEDULING, FAULT_RETRY_TIMES):
        idle += [(key, source[key]) for source in group.label_sources() if key in source]
    # An elastic job without fault-scheduling is an error by itself.
    if workload.form is WorkloadForm.VCJOB and ELASTIC_SCHEDULING not in workload.labels:
        text = workload.annotations.get(MIN_REPLICAS)
        idle += [] if text is None else [(MIN_REPLICAS, text)]
    for key in (RECOVER_STRATEGY, PROCESS_RECOVER_STRATEGY):
        text = group.annotations.get(key)
        idle += [] if text is None else [(key, text)]
    for key, text in idle:
        if text.value != _IDLE.get(key):
            yield finding("WITHOUT_FAULT_SCHEDULING", workload.place.at_text(text), key=key)


def _gets(workload: Workload, group: WorkloadGroup) -> str:
    """Return what happens to a process that fails, by pods where these differ."""
    by_words: dict[str, list[str]] = {}
    for role in group.roles:
        if role.asks_volcano_for_chips():
            by_words.setdefault(_gets_role(workload, group, role), []).append(role.name)
    if len(by_words) == 1:
        return next(iter(by_words))
    parts = (
        sentence("{roles}: {gets}", roles=in_words(names), gets=words)
        for words, names in by_words.items()
    )
    return joined("{before}; {part}", parts)


def _gets_role(workload: Workload, group: WorkloadGroup, role: Role) -> str:
    form = workload.form
    is_group = form is WorkloadForm.LWS or (form is WorkloadForm.OME and not group.is_shared)
    if is_group:
        written = workload.after_failure
        policy = "RecreateGroupOnPodRestart" if written is None else written.value
        return _AFTER_FAILURE_OF_LWS.get(policy, _RECREATED)
    default = "Never" if form is WorkloadForm.ASCENDJOB else "Always"
    policy = role.restart.value if role.restart is not None else default
    if form in _ALWAYS or policy in ("Always", "OnFailure"):
        return _IN_PLACE
    if form is WorkloadForm.STORM and group.is_shared:
        # A PodSet keeps a failed pod, whose name it would use again; a RoleSet does not.
        return _REPLACED
    if form is WorkloadForm.VCJOB and workload.after_failure is not None:
        return sentence(
            "the job controller answers with {action}", action=workload.after_failure.value
        )
    return _AFTER_FAILURE.get(form, _STAYS_FAILED)

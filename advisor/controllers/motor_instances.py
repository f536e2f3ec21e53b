"""Whether the Ascend Operator makes the missing pods of a MindIE Motor instance.

Rules R50 to R52. Sources: ``docs/spec/consumers.md#3.2`` to 3.6, 7.5, 8-25 to 8-28, 8-30.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from advisor.controllers.motor_jobs import MotorJob, motor_jobs
from advisor.controllers.motor_scaling_rule import ScalingRule, rule_of, target_index
from advisor.options import Profile
from advisor.report import CreateAdvice, Finding
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from advisor.options import AdvisorOptions
    from advisor.snapshot import ClusterSnapshot, PodGroup, StoredConfigMap

ALLOW, HOLD, CRASH = "ALLOW", "HOLD", "CRASH"


@dataclass(frozen=True)
class _Service:
    """Instances by group that belong to one rule and one ``jobID`` (consumers#3.3).

    ``starting`` are PodGroups that hold pods and do not run yet. ``nameless`` is a PodGroup
    without a group name, which makes the operator give up.
    """

    running: Counter[str]
    starting: Counter[str]
    nameless: str | None


def creation_advice(
    snapshot: ClusterSnapshot, options: AdvisorOptions, leaving: Collection[str] = ()
) -> tuple[CreateAdvice, ...]:
    """Return the answer for each AscendJob with a scaling rule that misses pods (R50).

    ``leaving``: UIDs of pods that are deleted in this session. They count as gone.
    """
    if not snapshot.ascend_jobs:
        return ()
    strict = options.profile is Profile.CORRECTED
    # Pods that go in this session count as gone, since the operator will see them so.
    jobs = motor_jobs(snapshot, frozenset(leaving))
    maps = {
        (config_map.namespace, config_map.name): config_map for config_map in snapshot.configmaps
    }
    services = _services(snapshot.podgroups, jobs, strict=strict)
    allowed: Counter[tuple[str, str, str, str]] = Counter()
    advice = []
    # Jobs that have pods come first (R51), so that instances are completed before new ones begin.
    for job in sorted((job for job in jobs if job.missing), key=lambda job: job.sort_key):
        service = services.get(job.service) or _Service(Counter(), Counter(), None)
        answer = _answer(job, service, maps, allowed, strict=strict)
        if answer.verdict == ALLOW and not job.holds_slot:
            # What was allowed counts for the jobs after it, or each would get the last free place.
            allowed[(*job.service, job.group)] += 1
        advice.append(answer)
    return tuple(sorted(advice, key=lambda advice: (advice.namespace, advice.name)))


_PARTIAL_LOSS = 28
_SECTIONS = {"RULE_INVALID": 26, "GROUP_SATISFIED": 27}
"""By the corrected reason: which defect of consumers#8 makes the operator answer otherwise."""


def creation_divergences(
    snapshot: ClusterSnapshot, options: AdvisorOptions, leaving: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return for ``corrected`` where the operator answers otherwise."""
    if options.profile is not Profile.CORRECTED or not snapshot.ascend_jobs:
        return ()
    # The same computation for the other profile: only its verdicts are compared.
    real = msgspec.structs.replace(options, profile=Profile.UPSTREAM)
    return tuple(
        Finding.divergence(
            f"AscendJob {before.namespace}/{before.name}",
            sentence(
                "the operator answers {answer}, and should answer {right}",
                answer=f"{other.verdict} {other.reason}".rstrip(),
                right=f"{before.verdict} {before.reason}".rstrip(),
            ),
            # A crash is defect 25 of consumers#8, whatever the reason of the corrected answer is.
            25 if other.verdict == CRASH else _SECTIONS.get(before.reason, _PARTIAL_LOSS),
        )
        for before, other in zip(
            creation_advice(snapshot, options, leaving),
            creation_advice(snapshot, real, leaving),
            strict=True,
        )
        if before.verdict != other.verdict
    )


def _services(
    groups: Collection[PodGroup], jobs: Collection[MotorJob], *, strict: bool
) -> Mapping[tuple[str, str, str], _Service]:
    """Count the PodGroups of each service.

    ``strict``: an instance that misses pods does not run, and one that starts has its place
    (R51, consumers#8-28).
    """
    by_group = {job.podgroup.key: job for job in jobs if job.podgroup is not None}
    services: dict[tuple[str, str, str], _Service] = defaultdict(
        lambda: _Service(Counter(), Counter(), None)
    )
    # Sorted, so that of several PodGroups without a name always the last one is reported.
    for group in sorted(groups, key=lambda job: job.key):
        rule = group.labels.get(scheduling.SCALING_RULE)
        if rule is None:
            continue
        key = (group.namespace, rule, group.labels.get(scheduling.JOB_ID, ""))
        service, job = services[key], by_group.get(group.key)
        name = group.labels.get(scheduling.SCALING_GROUP, "")
        if not name:
            services[key] = _Service(service.running, service.starting, group.name)
        elif strict and job is not None and job.missing:
            # It lacks pods, so it does not run, and its other pods keep its place (R51).
            service.starting[name] += job.holds_slot
        elif group.phase == "Running" and not (job is not None and job.is_leaving):
            service.running[name] += 1
        elif strict and job is not None and job.holds_slot:
            service.starting[name] += 1
    return services


def _answer(
    job: MotorJob,
    service: _Service,
    maps: Mapping[tuple[str, str], StoredConfigMap],
    allowed: Counter[tuple[str, str, str, str]],
    *,
    strict: bool,
) -> CreateAdvice:
    def answer(
        verdict: str,
        reason: str,
        text: str,
        index: int | None = None,
        rule: ScalingRule | None = None,
    ) -> CreateAdvice:
        groups = sorted({*service.running, *(rule.groups if rule else ())})
        current = {group: service.running[group] for group in groups}
        return CreateAdvice(job.namespace, job.name, verdict, reason, index, current, text)

    refusal = _refusal(job)
    if refusal is not None:
        return answer(HOLD, *refusal)
    rule, problem = rule_of(job.namespace, job.service[1], maps, strict=strict)
    index = None if rule is None else target_index(rule, service.running)
    # The operator asks for the PodGroup before it reads the rule (consumers#3.5).
    if job.podgroup is None or job.podgroup.phase in ("", "Pending"):
        return answer(HOLD, "PG_PENDING", _pending(job.podgroup), index, rule)
    if rule is None:
        return answer(HOLD, *problem)
    if service.nameless is not None:
        return answer(
            HOLD,
            "PG_WITHOUT_GROUP",
            sentence(
                "PodGroup {name} has no label {label}",
                name=service.nameless,
                label=scheduling.SCALING_GROUP,
            ),
            index,
            rule,
        )
    if index is None:
        text = sentence("every entry of the rule is reached")
        return answer(HOLD, "AT_TARGET", text, index, rule)
    size = rule.entries[index].get(job.group)
    if size is None:
        text = sentence("entry {index} has no group {group}", index=index, group=job.group)
        if not strict:
            text = sentence("{reason}: the operator dereferences nil", reason=text)
        return answer(HOLD if strict else CRASH, "GROUP_NOT_IN_TARGET", text, index, rule)
    taken = service.running[job.group]
    # Instances that start will run, and so take a place of the target (R51).
    if strict:
        taken += service.starting[job.group] - job.holds_slot
        taken += allowed[(*job.service, job.group)]
    if size.instances > taken:
        text = sentence(
            "entry {index} wants {count} of {group}, {there} are there",
            index=index,
            count=size.instances,
            group=job.group,
            there=taken,
        )
        return answer(ALLOW, "", text, index, rule)
    text = sentence(
        "entry {index} wants {count} of {group}, and {there} are there",
        index=index,
        count=size.instances,
        group=job.group,
        there=taken,
    )
    return answer(HOLD, "GROUP_SATISFIED", text, index, rule)


def _pending(group: PodGroup | None) -> str:
    if group is None:
        return sentence("its PodGroup is absent")
    if not group.phase:
        return sentence("its PodGroup is without a phase")
    return sentence("its PodGroup is {phase}", phase=group.phase)


def _refusal(job: MotorJob) -> tuple[str, str] | None:
    """Reason and text where the job alone keeps the operator from creating; ``None`` otherwise."""
    if not job.group or not job.service[2]:
        lacks = scheduling.JOB_ID if job.group else scheduling.SCALING_GROUP
        text = sentence("the operator fails a job without label {label}", label=lacks)
        return "INVALID_SCALING_CONFIG", text
    if job.budget.problem:
        return "RETRY_TIMES_INVALID", job.budget.problem
    if job.is_exhausted:
        reason = sentence(
            "wave {wave} was the last of {count} that the operator allows: the job fails",
            wave=job.counted,
            count=job.budget.limit,
        )
        return "BACKOFF_EXHAUSTED", reason
    return None

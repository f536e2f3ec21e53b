"""Whether pods can be placed at all: chips, nodes and the scheduler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.labels import KNOWN, RING_CONTROLLER
from advisor.lint.pods import ARCH, HOST_ARCH, SCHEDULER_NAME
from advisor.lint.workload import VOLCANO, WorkloadForm
from advisor.similar_words import nearest
from contract.scheduling import ACCELERATOR_TYPE, SCHEDULE_POLICY
from contract.sentences import counted, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.workload import Role, Workload, WorkloadGroup

ARCHITECTURES = ("huawei-arm", "huawei-x86")
_OTHER_NAMES = {"arm64": "huawei-arm", "amd64": "huawei-x86"}
MACHINES = {
    "module": 8,
    "module-910b-8": 8,
    "module-910b-16": 16,
    "module-a3-16": 16,
    "module-a3-16-super-pod": 16,
    "module-a3-8-super-pod": 8,
    "850-Atlas-8p-8": 8,
    "850-SuperPod-Atlas-8": 8,
    "950-SuperPod-Atlas-8": 8,
}
"""Cards of a node by its accelerator-type (``docs/spec/dcmi.md#11``)."""
_OTHERS = ("half", "card", "card-910b-2", "card-910b-infer", "card-300i-duo", "soc")
_A3 = "module-a3-"
_POLICY = re.compile(r"chip\d+-node(\d+)(?:-.*)?", re.ASCII)
_SOFT_SHARE = "softsharedev"
_STATIC_PART = re.compile(r"huawei\.com/Ascend\w+-\d+c(?:\..+)?", re.ASCII)
"""A part of a chip that was made before, such as ``huawei.com/Ascend910-4c``."""
_FIRST_GENERATION = (3, 5, 6, 7)
_A2_MACHINE, _A3_MACHINE = 8, 16
_KEYS = frozenset((*KNOWN, RING_CONTROLLER))
"""Labels and annotations of MindCluster."""
_ALWAYS = (WorkloadForm.VCJOB, WorkloadForm.ASCENDJOB, WorkloadForm.STORM, WorkloadForm.OME)
"""Workloads that only Volcano places. A Deployment is one of them by its labels."""


def machine(group: WorkloadGroup, role: Role) -> int | None:
    """Return the cards of a node that the role can be placed on; ``None``: unknown."""
    policy = group.annotation(SCHEDULE_POLICY)
    match = _POLICY.fullmatch(policy.value) if policy is not None else None
    if match is not None:
        return int(match[1])
    selected = role.selector.get(ACCELERATOR_TYPE)
    return MACHINES.get(selected.value) if selected is not None else None


def judge(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Return what keeps pods from being placed."""
    if not group.is_shared:
        yield from _judge_architectures(workload, group)
    for role in group.roles:
        place = workload.place.at(role.line, role.file)
        yield from _judge_selector(role, place)
        if not role.has_spec and workload.form is not WorkloadForm.OME:
            continue
        yield from _judge_scheduler(workload, group, role, place)
        policy = group.annotation(SCHEDULE_POLICY)
        is_soft = policy is not None and _SOFT_SHARE in policy.value.lower()
        is_placed = workload.form in _ALWAYS or _is_meant_for_volcano(group, role)
        if role.cards and not is_soft and (is_placed or role.asks_volcano_for_chips()):
            yield from _judge_cards(workload, group, role, place.at(role.cards_line))
            yield from _judge_visible(role, place)


def _judge_architectures(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Return pods with chips that are not on the architecture of the others in their instance."""
    first: tuple[str, str] | None = None
    for role in group.roles:
        arch = role.selector.get(HOST_ARCH) or role.selector.get(ARCH)
        if arch is None or not role.cards:
            continue
        name = _OTHER_NAMES.get(arch.value, arch.value)
        first = first or (name, role.name)
        if name in ARCHITECTURES and name != first[0] and first[0] in ARCHITECTURES:
            words = {"role": role.name, "arch": name, "other": first[1], "other_arch": first[0]}
            yield finding("ARCHITECTURES_DIFFER", workload.place.at_text(arch), **words)


def _judge_selector(role: Role, place: FindingPlace) -> Iterator[LintFinding]:
    arch = role.selector.get(HOST_ARCH)
    if arch is not None and arch.value not in ARCHITECTURES:
        yield finding("HOST_ARCH", place.at_text(arch), value=arch.value or sentence("(empty)"))
    wrong = role.selector.get(SCHEDULER_NAME)
    if wrong is not None:
        yield finding("SCHEDULER_IN_NODE_SELECTOR", place.at_text(wrong))
    kind = role.selector.get(ACCELERATOR_TYPE)
    if kind is not None:
        meant = nearest(kind.value, (*MACHINES, *_OTHERS))
        if meant is not None:
            here = place.at_text(kind)
            yield finding("ACCELERATOR_TYPE_TYPO", here, value=kind.value, known=meant)


def _judge_scheduler(
    workload: Workload, group: WorkloadGroup, role: Role, place: FindingPlace
) -> Iterator[LintFinding]:
    """Judge the scheduler of pods with chips; any other scheduler may place those without."""
    line = workload.scheduler_line
    where = sentence("below spec") if line else sentence("below spec of the pods")
    here = place.at(line or role.spec_line)
    if role.scheduler is None and _may_be_filled_in(workload, role):
        # Once for each workload, because its pods get one scheduler.
        if role is next(item for item in workload.roles() if item.scheduler is None):
            yield finding("SCHEDULER_FILLED_IN", here, who=workload.filled_by, where=where)
    elif not role.asks_for_chips():
        return
    elif role.scheduler is None:
        # It stands below nodeSelector, which is a finding of its own.
        if SCHEDULER_NAME in role.selector:
            return
        if workload.form in _ALWAYS or _is_meant_for_volcano(group, role):
            unless = (
                sentence(", unless {filled_by} fills it in", filled_by=workload.filled_by)
                if workload.filled_by
                else ""
            )
            yield finding("SCHEDULER_MISSING", here, where=where, unless=unless)
    elif (name := role.scheduler.value) in ("", "default-scheduler") or nearest(name, (VOLCANO,)):
        yield finding(
            "SCHEDULER_OTHER", place.at_text(role.scheduler), value=name or sentence("(empty)")
        )


def _may_be_filled_in(workload: Workload, role: Role) -> bool:
    """Whether another program may write the scheduler of pods, or nothing depends on it."""
    if workload.form is WorkloadForm.VCJOB:
        return not any(item.asks_for_chips() for item in workload.roles())
    return bool(workload.filled_by) and role.asks_for_chips()


def _is_meant_for_volcano(group: WorkloadGroup, role: Role) -> bool:
    """Whether keys of ours or nodes of MindCluster show who is to place pods without a scheduler.

    Webhooks of other schedulers fill theirs into pods with the same chips.
    """
    texts = (*group.label_sources(), group.annotations, *(item.annotations for item in group.roles))
    return bool(role.selector) or any(key in _KEYS for text in texts for key in text)


def _judge_cards(
    workload: Workload, group: WorkloadGroup, role: Role, place: FindingPlace
) -> Iterator[LintFinding]:
    # Virtual chips have a dash in their name, and these rules are about whole ones.
    if any("-" in resource.partition("/")[2] for resource in role.cards):
        return
    count = role.count()
    cards = machine(group, role)
    selected = role.selector.get(ACCELERATOR_TYPE)
    if workload.form is WorkloadForm.OME:
        whole = {cards} if cards is not None else {_A2_MACHINE, _A3_MACHINE}
        if count and count not in whole:
            shown = joined("{before} or {part}", map(str, sorted(whole)))
            yield finding("OME_WHOLE_MACHINE", place, count=count, cards=shown)
        return
    if cards is not None and count > cards:
        reason = sentence("a node has {cards}", cards=cards)
        yield _cards(
            place,
            count,
            reason,
            counted(
                cards,
                "Ask for at most {count} card for a pod.",
                "Ask for at most {count} cards for a pod.",
            ),
        )
    elif selected is not None and selected.value.startswith(_A3) and count > 1 and count % 2:
        reason = sentence("on A3 the two dies of a card are given together")
        yield _cards(
            place,
            count,
            reason,
            sentence(
                "Ask for {count} or {other_count} cards.", count=count - 1, other_count=count + 1
            ),
        )
    elif (
        selected is None
        and group.annotation(SCHEDULE_POLICY) is None
        and count in _FIRST_GENERATION
        and any(resource.endswith("Ascend910") for resource in role.cards)
    ):
        reason = sentence(
            "without accelerator-type the rules of the first generation count: 1, 2, 4 or 8"
        )
        instead = sentence(
            "Select an accelerator-type such as module-910b-8, or ask for 1, 2, 4 or 8 cards."
        )
        yield _cards(place, count, reason, instead)


def _cards(place: FindingPlace, count: int, reason: str, instead: str) -> LintFinding:
    return finding("CARDS_PER_POD", place, count=count, why=reason, instead=instead)


def _judge_visible(role: Role, place: FindingPlace) -> Iterator[LintFinding]:
    static = next((resource for resource in role.cards if _STATIC_PART.fullmatch(resource)), None)
    if static is not None and role.visible_variable is not None:
        here = place.at_text(role.visible_variable)
        yield finding("VISIBLE_DEVICES_OF_VNPU", here, requested=static)
        return
    visible = role.visible
    if visible is None or visible.value in role.cards:
        return
    if any("npu-core" in resource for resource in role.cards):
        return
    here = place.at_text(visible)
    words = {"named": visible.value, "requested": next(iter(role.cards))}
    yield finding("VISIBLE_DEVICES_OTHER_RESOURCE", here, **words)

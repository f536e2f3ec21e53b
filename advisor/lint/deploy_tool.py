"""The two configurations of the deploy tool, as the objects that it makes of them.

Source: docs/spec/consumers.md#6.2, 6.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import PlacedText, finding
from advisor.lint.labels import value_of
from advisor.lint.model import whole
from advisor.lint.pods import selected, take_metadata, text_of
from advisor.lint.workload import Component, Role, Service, Workload, WorkloadForm, WorkloadGroup
from contract.scheduling import (
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_FORCE,
    POD_RESCHEDULING,
    RECOVER_POLICY_PATH,
    RECOVER_POLICY_POD,
    RESOURCE_DOMAIN,
    SCHEDULE_MIN_AVAILABLE,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.model import Mapping
    from advisor.lint.workload import Texts

OME_KEY = "inference_service"
STORM_KEY = "storm_service"
_RESOURCE = f"{RESOURCE_DOMAIN}Ascend910"
# The tool's own limits (consumers#6.2).
_MAX_REPLICAS = 64
_MAX_CARDS = 16
_SIZED = ("prefill", "decode")


def inference_service(root: Mapping, place: FindingPlace) -> Service:
    """Return the InferenceService that the tool makes."""
    inside = root.mapping(OME_KEY)
    assert inside is not None
    components = {}
    for name in ("engine", "decoder"):
        part = inside.mapping(name)
        if part is not None:
            components[name] = _component(name, part, place.file, inside.line_of(name))
    return Service(
        place,
        root.text("app_name"),
        root.text("app_namespace") or "default",
        {},
        {},
        components,
        text_of(inside.scalar("runtime_name"), place.file),
        is_rendered=True,
    )


def _component(name: str, part: Mapping, file: str, line: int) -> Component:
    pods = part.count("pod_num")
    role = _role(name, part, file, line, "node_selector")
    role.labels = {
        # The tool's defaults come first, so that labels of the user replace them.
        FAULT_SCHEDULING: PlacedText(FAULT_SCHEDULING_FORCE, line, file),
        POD_RESCHEDULING: PlacedText("on", line, file),
        **role.labels,
    }
    replicas, most = whole(part.scalar("min_replicas")) or 1, whole(part.scalar("max_replicas"))
    # A component of one pod has neither a leader nor workers.
    if pods is None or pods == 1:
        minimum = PlacedText(str(replicas), line, file)
        role.annotations = {SCHEDULE_MIN_AVAILABLE: minimum, **role.annotations}
        return Component(role, None, None, replicas, most)
    leader, worker = (
        _role(item, part, file, line, "node_selector") for item in ("leader", "worker")
    )
    leader.pods, worker.pods = 1, pods - 1
    return Component(role, leader, worker, replicas, most)


def _role(name: str, part: Mapping, file: str, line: int, selector_key: str) -> Role:
    role = Role(name, file, line, spec_line=line)
    take_metadata(role, part, line, is_rendered=True)
    role.selector = selected(part.mapping(selector_key), file)
    # The configuration has no key for it, so its user cannot leave it out.
    role.scheduler = PlacedText("volcano", line, file)
    count = part.scalar("npu_num")
    if count is not None:
        role.cards = {_RESOURCE: whole(count)}
        role.cards_line = count.line
    return role


def storm_service(root: Mapping, place: FindingPlace) -> Workload:
    """Return the StormService that the tool makes."""
    inside = root.mapping(STORM_KEY)
    assert inside is not None
    roles: dict[str, Role] = {}
    sizes: dict[str, int | None] = {}
    for name in (*_SIZED, "routing"):
        part = inside.mapping(name)
        if part is None:
            continue
        role = _role(name, part, place.file, inside.line_of(name), "nodeSelector")
        roles[name] = role
        role.pods = part.count("replicas")
        if name in _SIZED:
            sizes[name] = part.count("podGroupSize")
    for name, size in sizes.items():
        role = roles[name]
        defaults: Texts = {
            FAULT_SCHEDULING: PlacedText(FAULT_SCHEDULING_FORCE, role.line, place.file)
        }
        if size == 1:
            defaults[POD_RESCHEDULING] = PlacedText("on", role.line, place.file)
            path = PlacedText(RECOVER_POLICY_POD, role.line, place.file)
            role.annotations = {RECOVER_POLICY_PATH: path, **role.annotations}
        else:
            # Each instance has a PodGroup of its own (consumers#2.9).
            role.pods = size
        role.labels = {**defaults, **role.labels}
    # Roles of podGroupSize 1 share one PodGroup; each other role has its own.
    shared = tuple(roles[name] for name in sizes if sizes[name] == 1)
    others = tuple(WorkloadGroup((role,)) for role in roles.values() if role not in shared)
    groups = (*others, WorkloadGroup(shared, is_shared=True)) if shared else others
    return Workload(
        WorkloadForm.STORM,
        place,
        root.text("app_name"),
        root.text("app_namespace") or "default",
        groups,
        is_rendered=True,
    )


def judge(root: Mapping, place: FindingPlace) -> Iterator[LintFinding]:
    """Return what the tool itself refuses, or ends on."""
    if root.get("app_name") is None:
        yield _refused(place, sentence("app_name is missing"), sentence("Write app_name."))
    inside = root.mapping(OME_KEY)
    if inside is not None:
        yield from _judge_engine(inside, place.at(root.line_of(OME_KEY)))
    inside = root.mapping(STORM_KEY)
    if inside is not None and inside.get("decode") is None:
        reason = sentence("decode is read before it is known to be there")
        yield _refused(place.at(root.line_of(STORM_KEY)), reason, sentence("Write decode."))


def _judge_engine(inside: Mapping, place: FindingPlace) -> Iterator[LintFinding]:
    for key in ("model_name", "engine"):
        if inside.get(key) is None:
            yield _refused(
                place, sentence("{key} is missing", key=key), sentence("Write {key}.", key=key)
            )
    for name in ("engine", "decoder"):
        part = inside.mapping(name)
        if part is None:
            continue
        if part.get("pod_num") is None:
            yield _refused(
                place.at(inside.line_of(name)),
                sentence("pod_num is missing"),
                sentence("Write pod_num."),
            )
        for key, least, most in (
            ("min_replicas", 1, _MAX_REPLICAS),
            ("max_replicas", whole(part.scalar("min_replicas")) or 1, _MAX_REPLICAS),
            ("npu_num", 0, _MAX_CARDS),
        ):
            value = part.scalar(key)
            number = whole(value)
            if value is not None and (number is None or not least <= number <= most):
                shown = value_of(value, is_rendered=True)
                reason = sentence(
                    "{key} {shown} is not from {least} to {most}",
                    key=key,
                    shown=shown,
                    least=least,
                    most=most,
                )
                write = sentence("Write a number from {least} to {most}.", least=least, most=most)
                yield _refused(place.at(value.line), reason, write)


def _refused(place: FindingPlace, reason: str, instead: str) -> LintFinding:
    return finding("DEPLOY_TOOL_REFUSES", place, why=reason, instead=instead)

"""The values of a pod template that decide what happens at a fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.lint.finding import PlacedText
from advisor.lint.labels import both_kept
from advisor.lint.model import Mapping, Scalar, ScalarKind, Sequence, whole
from advisor.lint.workload import Role
from contract.scheduling import ACCELERATOR_TYPE, RESOURCE_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.workload import Texts

HOST_ARCH = "host-arch"
ARCH = "kubernetes.io/arch"
SCHEDULER_NAME = "schedulerName"
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
_SELECTED = (HOST_ARCH, ARCH, ACCELERATOR_TYPE, SCHEDULER_NAME)
_WAIT = re.compile(r"(?:\S*sh -\w*c )?\S*sleep [0-9.]+s?", re.ASCII)
"""A command that waits for the end of requests and saves nothing."""
_SIDES = ("limits", "requests")
_CHIPS = tuple(f"{RESOURCE_DOMAIN}{name}" for name in ("Ascend", "npu"))


def text_of(scalar: Scalar | None, file: str) -> PlacedText | None:
    """Return a value with its place; ``None`` for null, too."""
    if scalar is None or scalar.kind is ScalarKind.NULL:
        return None
    return PlacedText(scalar.text, scalar.line, file)


def role_of(name: str, template: Mapping | None, file: str, line: int, pods: int | None) -> Role:
    """Return the role that a pod template makes."""
    role = Role(name, file, line, pods=pods)
    if template is None:
        role.labels_line = role.annotations_line = role.spec_line = line
        role.has_spec = False
        return role
    metadata = template.mapping("metadata")
    take_metadata(role, metadata, template.line_of("metadata"))
    spec = template.mapping("spec")
    role.spec_line = template.line_of("spec")
    if spec is not None:
        take_spec(role, spec)
    return role


def take_metadata(
    role: Role, metadata: Mapping | None, line: int, *, is_rendered: bool = False
) -> None:
    """Copy labels and annotations into ``role``, and the lines to which more can be added."""
    role.labels_line = role.annotations_line = line
    if metadata is None:
        return
    role.labels, role.annotations = both_kept(metadata, role.file, is_rendered=is_rendered)
    role.labels_line = metadata.line_of("labels", line)
    role.annotations_line = metadata.line_of("annotations", line)


def _containers_of(spec: Mapping) -> Iterator[Mapping]:
    """Return the containers of a pod, with those of OME, whose first one is the runner."""
    runner = spec.mapping("runner")
    if runner is not None:
        yield runner
    yield from spec.sequence("containers")


def take_spec(role: Role, spec: Mapping) -> None:
    """Copy the deciding values of a pod specification into ``role``."""
    file = role.file
    role.selector = selected(spec.mapping("nodeSelector"), file)
    role.scheduler = text_of(spec.scalar(SCHEDULER_NAME), file)
    role.restart = text_of(spec.scalar("restartPolicy"), file)
    role.termination = text_of(spec.scalar("terminationGracePeriodSeconds"), file)
    for container in _containers_of(spec):
        _take_container(role, container)


def selected(selector: Mapping | None, file: str) -> Texts:
    """Return the deciding values of a node selector."""
    if selector is None:
        return {}
    texts = {key: text_of(selector.scalar(key), file) for key in _SELECTED}
    return {key: text for key, text in texts.items() if text is not None}


def asks_for_chips(container: Mapping) -> bool:
    """Return whether a container asks for chips."""
    sides = (container.mapping("resources", side) for side in _SIDES)
    return any(key.startswith(_CHIPS) for side in sides if side is not None for key in side)


def _take_container(role: Role, container: Mapping) -> None:
    for side in _SIDES:
        amounts = container.mapping("resources", side)
        if amounts is None:
            continue
        chips = [key for key in amounts if key.startswith(_CHIPS)]
        for key in chips:
            role.cards[key] = whole(amounts.scalar(key))
            role.cards_line = amounts.line_of(key)
        # Limits suffice: of chips, Kubernetes takes no other requests.
        if chips:
            break
    lifecycle = container.mapping("lifecycle")
    hook = lifecycle.mapping("preStop") if lifecycle is not None else None
    if lifecycle is not None and hook is not None and not _only_waits(hook):
        role.pre_stop = PlacedText("preStop", lifecycle.line_of("preStop"), role.file)
    for variable in container.sequence("env"):
        if variable.text("name") == VISIBLE_DEVICES:
            role.visible_variable = PlacedText(VISIBLE_DEVICES, variable.line, role.file)
            path = variable.scalar("valueFrom", "fieldRef", "fieldPath")
            named = path.text.partition("metadata.annotations['")[2] if path else ""
            if path is not None and named.endswith("']"):
                role.visible = PlacedText(named[:-2], path.line, role.file)


def _only_waits(hook: Mapping) -> bool:
    if hook.mapping("sleep") is not None:
        return True
    execute = hook.mapping("exec")
    command = execute.get("command") if execute is not None else None
    words = command if isinstance(command, Sequence) else ()
    return bool(_WAIT.fullmatch(" ".join(word.text for word in words if isinstance(word, Scalar))))

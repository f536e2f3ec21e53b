"""The scaling rule of a MindIE Motor service: found, read, checked, and what it allows to create.

Source: ``docs/spec/consumers.md#3.1`` to 3.4 and R50.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from contract import scheduling
from contract.errors import DocumentError
from contract.go.decode import GoStruct, decode
from contract.scheduling import go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.snapshot import StoredConfigMap

_VERSION = "1.0"


class _RuleGroup(GoStruct, frozen=True):
    group_name: str = ""
    group_num: str = ""
    server_num_per_group: str = ""


class _RuleEntry(GoStruct, frozen=True):
    group_list: list[_RuleGroup] | None = None


class _Rule(GoStruct, frozen=True):
    version: str = ""
    elastic_scaling_list: list[_RuleEntry] | None = None


class GroupSize(msgspec.Struct, frozen=True):
    """How many instances of a group an entry wants, and of how many pods each is."""

    instances: int
    servers: int


Entry = dict[str, GroupSize]
"""One step of a rule: sizes by group name."""


class ScalingRule(msgspec.Struct, frozen=True):
    """The entries of a rule; the first is full size, the last the smallest that serves."""

    entries: tuple[Entry, ...]

    @property
    def groups(self) -> frozenset[str]:
        """Return the groups that any entry names."""
        return frozenset(group for entry in self.entries for group in entry)


def read_rule(text: str, document: str, *, strict: bool = False) -> ScalingRule:
    """Return the rule in ``text``; raise ``DocumentError`` where the operator refuses it.

    ``strict`` also refuses what the operator accepts and must not (profile ``corrected`` of R50):
    another version, numbers below 1, a group twice in one entry, unlike server counts.
    """
    rule = decode(text, _Rule, document, "$")
    if strict and rule.version != _VERSION:
        raise DocumentError(document, "$.version", f"must be '1.0', is {rule.version[:40]!r}")
    entries = tuple(
        _entry(entry, document, f"$.elastic_scaling_list[{index}]", strict=strict)
        for index, entry in enumerate(rule.elastic_scaling_list or ())
    )
    # Each entry may only be smaller than the one before (consumers#3.2).
    for index, (larger, smaller) in enumerate(pairwise(entries), start=1):
        _check_step(larger, smaller, document, index, strict=strict)
    return ScalingRule(entries)


def rule_of(
    namespace: str, name: str, maps: Mapping[tuple[str, str], StoredConfigMap], *, strict: bool
) -> tuple[ScalingRule | None, tuple[str, str]]:
    """Return the rule ``name`` of a namespace, or reason and text why there is none."""
    config_map = maps.get((namespace, name))
    text = None if config_map is None else config_map.data.get(scheduling.SCALING_KEY)
    if text is None:
        reason = sentence(
            "namespace {namespace} has no ConfigMap {name} with key {key}",
            namespace=namespace,
            name=name,
            key=scheduling.SCALING_KEY,
        )
        return None, ("RULE_MISSING", reason)
    try:
        rule = read_rule(text, f"ConfigMap {namespace}/{name}", strict=strict)
    except DocumentError as error:
        return None, ("RULE_INVALID", str(error))
    return rule, ("", "")


def _entry(entry: _RuleEntry, document: str, where: str, *, strict: bool) -> Entry:
    sizes: Entry = {}
    for index, group in enumerate(entry.group_list or ()):
        place = f"{where}.group_list[{index}]"
        size = GroupSize(
            _number(group.group_num, document, f"{place}.group_num", strict=strict),
            _number(
                group.server_num_per_group, document, f"{place}.server_num_per_group", strict=strict
            ),
        )
        # The operator lets the last of two win, without a sign.
        if strict and group.group_name in sizes:
            raise DocumentError(document, place, f"names {group.group_name[:63]!r} twice")
        sizes[group.group_name] = size
    return sizes


def _number(text: str, document: str, where: str, *, strict: bool) -> int:
    number = go_integer(text)
    if number is None:
        raise DocumentError(document, where, f"must be a whole number as text, is {text[:40]!r}")
    if strict and number < 1:
        raise DocumentError(document, where, f"must be 1 or more, is {number}")
    return number


def _check_step(larger: Entry, smaller: Entry, document: str, index: int, *, strict: bool) -> None:
    """Check one entry against the one before (consumers#3.2)."""
    where = f"$.elastic_scaling_list[{index}]"
    for group, size in smaller.items():
        before = larger.get(group)
        if before is None:
            raise DocumentError(document, where, f"group {group[:63]!r} is not in the entry before")
        if size.instances > before.instances:
            raise DocumentError(document, where, f"group_num of {group[:63]!r} grows")
        if size.servers > before.servers:
            raise DocumentError(document, where, f"server_num_per_group of {group[:63]!r} grows")
        if strict and size.servers != before.servers:
            raise DocumentError(document, where, f"server_num_per_group of {group[:63]!r} differs")


def target_index(rule: ScalingRule, running: Mapping[str, int]) -> int | None:
    """Return the index of the smallest entry that is not reached, ``None`` if each one is.

    ``running``: instances by group.

    Source: docs/spec/consumers.md#3.4.
    """
    # From the smallest entry on: a service grows one entry after the other (consumers#3.4).
    for index in reversed(range(len(rule.entries))):
        sizes = rule.entries[index]
        if any(running.get(group, 0) < size.instances for group, size in sizes.items()):
            return index
    return None

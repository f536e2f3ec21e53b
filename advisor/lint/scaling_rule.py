"""A scaling rule of MindIE Motor, as the operator decodes it (``consumers#3.1`` to 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.lint.finding import finding
from advisor.lint.model import Mapping, Scalar, ScalarKind, Sequence
from advisor.lint.workload import RuleGroup
from advisor.similar_words import nearest
from contract.scheduling import SCALING_KEY, go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import FindingPlace, LintFinding

LIST = "elastic_scaling_list"
_NAME, _NUMBER, _SERVERS = "group_name", "group_num", "server_num_per_group"
_VERSION = "1.0"


class _EntryGroup(NamedTuple):
    """A group of an entry; the numbers that it has, with their lines, by key."""

    line: int
    numbers: dict[str, tuple[int, int]]


_Entry = dict[str, _EntryGroup]


def data_key(data: Mapping) -> str | None:
    """Return the key of a ConfigMap that has a rule. The operator reads ``SCALING_KEY`` only.

    Another key has a rule if it is almost that key, or if its text has the list of a rule.
    """
    if SCALING_KEY in data:
        return SCALING_KEY
    for key, value in data.items():
        is_rule = isinstance(value, Scalar) and LIST in value.text
        if is_rule or nearest(key, (SCALING_KEY,)) is not None:
            return key
    return None


def groups(rule: Mapping) -> dict[str, RuleGroup]:
    """Return the groups of all entries by name, each with the servers of its first entry."""
    by_name: dict[str, RuleGroup] = {}
    for entry in rule.sequence(LIST):
        for group in entry.sequence("group_list"):
            servers = group.scalar(_SERVERS)
            number = None if servers is None else go_integer(servers.text)
            by_name.setdefault(group.text(_NAME), RuleGroup(number, group.line_of(_SERVERS)))
    return by_name


def judge(rule: Mapping, place: FindingPlace) -> Iterator[LintFinding]:
    """Return what is wrong with the values and with the order of the entries."""
    version = rule.get("version")
    if not isinstance(version, Scalar) or version.kind is ScalarKind.NULL:
        line = rule.line if version is None else version.line
        yield finding("SCALING_RULE_VERSION", place.at(line), why=sentence("is missing"))
    elif version.kind is not ScalarKind.STRING:
        words = {"key": "version", "value": _VERSION}
        yield finding("SCALING_RULE_NO_STRING", place.at(version.line), **words)
    elif version.text != _VERSION:
        reason = sentence(
            "{text} is not {version}", text=version.text or sentence("(empty)"), version=_VERSION
        )
        yield finding("SCALING_RULE_VERSION", place.at(version.line), why=reason)
    entries = rule.get(LIST)
    if not isinstance(entries, Sequence) or not [*entries.mappings()]:
        line = rule.line_of(LIST)
        yield finding(
            "SCALING_RULE_EMPTY", place.at(line), what=sentence("no entry in {key}", key=LIST)
        )
        return
    before: _Entry | None = None
    for entry in entries.mappings():
        named: _Entry = {}
        for group in entry.sequence("group_list"):
            yield from _judge_group(group, named, place)
        if not named:
            yield finding(
                "SCALING_RULE_EMPTY", place.at(entry.line), what=sentence("an entry without groups")
            )
        if before is not None:
            yield from _judge_step(before, named, place.at(entry.line), place)
        before = named


def _judge_group(group: Mapping, into: _Entry, place: FindingPlace) -> Iterator[LintFinding]:
    name = group.text(_NAME)
    numbers: dict[str, tuple[int, int]] = {}
    for key in (_NAME, _NUMBER, _SERVERS):
        value = group.get(key)
        if not isinstance(value, Scalar):
            shown = sentence("(no value that is not a text)")
            if value is None:
                shown = sentence("(no value)")
            line = group.line if value is None else value.line
            words = {"key": key, "value": shown}
            yield finding("SCALING_RULE_NO_NUMBER", place.at(line), **words)
        elif value.kind is not ScalarKind.STRING:
            yield finding("SCALING_RULE_NO_STRING", place.at(value.line), key=key, value=value.text)
        if key != _NAME and isinstance(value, Scalar):
            number = go_integer(value.text)
            if number is not None and number > 0:
                numbers[key] = (number, value.line)
            elif value.kind is ScalarKind.STRING:
                words = {"key": key, "value": value.text or sentence("(empty)")}
                yield finding("SCALING_RULE_NO_NUMBER", place.at(value.line), **words)
    if name in into:
        yield finding("SCALING_RULE_GROUP_TWICE", place.at(group.line_of(_NAME)), group=name)
    into[name] = _EntryGroup(group.line, numbers)


def _judge_step(
    before: _Entry, named: _Entry, entry: FindingPlace, place: FindingPlace
) -> Iterator[LintFinding]:
    """Judge what an entry may not have after the one before it."""
    for name, group in named.items():
        if name not in before:
            yield finding("SCALING_RULE_GROUP_UNKNOWN", place.at(group.line), group=name)
            continue
        for key, (now, line) in group.numbers.items():
            # A number that is missing or wrong has its finding already.
            was, _ = before[name].numbers.get(key, (now, 0))
            words: dict[str, object] = {"key": key, "group": name, "before": was, "value": now}
            here = place.at(line)
            if now > was:
                yield finding("SCALING_RULE_GROWS", here, **words)
            elif now < was and key == _SERVERS:
                yield finding("SCALING_RULE_UNLIKE_SERVERS", here, **words)
    for name in before:
        if name not in named:
            yield finding("SCALING_RULE_GROUP_MISSING", entry, group=name)

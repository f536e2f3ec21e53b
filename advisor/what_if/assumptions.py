"""The texts of ``--what-if``, as values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from contract.codes.chip_codes import parse_code
from contract.codes.levels import ChipLevel
from contract.errors import ConfigurationError, Problem
from contract.names import node_name_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE_WORDS = ("UnHealthy", "PreSeparate", "NotReady", "silent", "gone")
SWITCH_WORDS = ("UnHealthy", "SubHealthy", "PreSeparate")
CHIP_LEVELS = tuple(level for level in ChipLevel if level is not ChipLevel.NORMAL_NPU)
_MAX_EXIT_CODE = 255
FORMS = (
    "chip NUMBER of NODE LEVEL",
    "code CODE on chip NUMBER of NODE",
    f"NODE {'|'.join(NODE_WORDS)}",
    f"switch of NODE {'|'.join(SWITCH_WORDS)}",
    "heal NODE",
    "pod NAMESPACE/NAME exits NUMBER",
)


class ChipAtLevel(msgspec.Struct, frozen=True):
    """A chip has a fault at a level."""

    node: str
    chip: int
    level: ChipLevel


class ChipHasCode(msgspec.Struct, frozen=True):
    """A chip has a fault code; the level is that of the table."""

    node: str
    chip: int
    code: str


class NodeIs(msgspec.Struct, frozen=True):
    """A node is one of ``NODE_WORDS``."""

    node: str
    word: str


class SwitchIs(msgspec.Struct, frozen=True):
    """The switches of a node are one of ``SWITCH_WORDS``."""

    node: str
    word: str


class NodeHealed(msgspec.Struct, frozen=True):
    """No part of a node has a fault."""

    node: str


class PodExits(msgspec.Struct, frozen=True):
    """All containers of a pod end with an exit code."""

    namespace: str
    name: str
    code: int


Assumption: TypeAlias = ChipAtLevel | ChipHasCode | NodeIs | SwitchIs | NodeHealed | PodExits


def parse_all(texts: Sequence[str]) -> tuple[Assumption, ...]:
    """Return what ``texts`` assume; raise ``ConfigurationError`` with all that is wrong."""
    parsed, problems = [], []
    for text in texts:
        try:
            parsed.append(parse(text))
        except ValueError as error:
            problems.append(Problem(f"{text[:100]!r}", str(error)))
    if problems:
        raise ConfigurationError("--what-if", problems)
    return tuple(parsed)


def parse(text: str) -> Assumption:
    """Return what ``text`` assumes; raise ``ValueError``."""
    words = " ".join(text.split())
    for pattern, make in _PATTERNS:
        match = pattern.fullmatch(words)
        if match is not None:
            return make(*match.groups())
    raise ValueError(f"is none of: {'; '.join(FORMS)}")


def _node(name: str) -> str:
    problem = node_name_problem(name)
    if problem is not None:
        raise ValueError(f"node name {problem}")
    return name


def _chip(number: str) -> int:
    # Before the conversion, which takes long for a text of many digits.
    if len(number) > 4:
        raise ValueError(f"chip {number[:20]} is not the physical id of a chip")
    return int(number)


def _one_of(word: str, words: Sequence[str]) -> str:
    if word not in words:
        raise ValueError(f"{word[:40]!r} is none of {', '.join(words)}")
    return word


def _chip_at_level(chip: str, node: str, level: str) -> Assumption:
    return ChipAtLevel(_node(node), _chip(chip), ChipLevel(_one_of(level, CHIP_LEVELS)))


def _chip_has_code(code: str, chip: str, node: str) -> Assumption:
    return ChipHasCode(_node(node), _chip(chip), parse_code(code))


def _pod_exits(namespace: str, name: str, code: str) -> Assumption:
    if len(code) > 3 or int(code) > _MAX_EXIT_CODE:
        raise ValueError(f"{code[:20]} is not a valid exit code: 0 to {_MAX_EXIT_CODE}")
    return PodExits(namespace, name, int(code))


_NUMBER = "([0-9]+)"
_NAME = r"([^\s/]+)"
_Make: TypeAlias = Callable[..., Assumption]
_PATTERNS: tuple[tuple[re.Pattern[str], _Make], ...] = (
    (re.compile(f"chip {_NUMBER} of {_NAME} {_NAME}"), _chip_at_level),
    (re.compile(f"code {_NAME} on chip {_NUMBER} of {_NAME}"), _chip_has_code),
    (
        re.compile(f"switch of {_NAME} {_NAME}"),
        lambda node, word: SwitchIs(_node(node), _one_of(word, SWITCH_WORDS)),
    ),
    (re.compile(f"heal {_NAME}"), lambda node: NodeHealed(_node(node))),
    (re.compile(f"pod {_NAME}/{_NAME} exits {_NUMBER}"), _pod_exits),
    (
        re.compile(f"{_NAME} {_NAME}"),
        lambda node, word: NodeIs(_node(node), _one_of(word, NODE_WORDS)),
    ),
)

"""Inputs that are nearly right: seeded mutations of good ones, as text or inside of their JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

_LONGEST = 1 << 17
_MOST_CHANGES = 4
_TOKENS = (
    *(
        "",
        "null",
        "true",
        "0",
        "-1",
        "1e999",
        "NaN",
        "[]",
        "{}",
        '""',
        '"',
        "\\",
        "{",
        "}",
        "[",
        "]",
    ),
    *(",", ":", "\n", "\r\n", "\t", "\0", "\ufeff", "\u2028", "\U0001f525", "\\u0000", "\\ud800"),
    *("0x", "80E01801", "81078603", "[0x00f1fef5,155912,cpu,na]", "Ascend910-3", "Ascend910-99999"),
    *("ManuallySeparateNPU", "NormalNPU", "FaultFrequency", "AutofillFaultCode", "UP", "DOWN"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63, -(2**63) - 1, 10**30),
    *(0.5, 1e300, -0.0, "", " ", "0", "-1", "null", "80e01801", "0x80E01801", "80E0180G", "8" * 9),
    *(
        "Ascend910-0",
        "Ascend910-0,Ascend910-1",
        "NotHandleFault",
        "é",
        "\0",
        "\U0001f525",
        "a" * 5000,
    ),
    *([], {}, [None], [[]], {"": None}, [0] * 200),
)


def mutated(rng: Random, seeds: Sequence[str]) -> str:
    """Return one of ``seeds``, changed in one to four places; what is not JSON is changed
    as text.
    """
    text = rng.choice(seeds)
    change = _in_tree if rng.random() < 0.6 else _in_text
    for _ in range(rng.randint(1, _MOST_CHANGES)):
        text = change(rng, text, seeds)
    return text[:_LONGEST]


def _in_text(rng: Random, text: str, seeds: Sequence[str]) -> str:
    return rng.choice(_TEXT_CHANGES)(rng, text, seeds)


def _span(rng: Random, text: str) -> tuple[int, int]:
    begin = rng.randint(0, len(text))
    return begin, min(len(text), begin + rng.choice((1, 2, 8, 60, 500)))


def _cut(rng: Random, text: str, _: Sequence[str]) -> str:
    begin, end = _span(rng, text)
    return text[:begin] + text[end:]


def _repeat(rng: Random, text: str, _: Sequence[str]) -> str:
    begin, end = _span(rng, text)
    return text[:begin] + text[begin:end] * rng.choice((2, 3, 20, 300)) + text[end:]


def _insert(rng: Random, text: str, _: Sequence[str]) -> str:
    begin, end = _span(rng, text)
    return text[:begin] + rng.choice(_TOKENS) + text[end if rng.random() < 0.5 else begin :]


def _character(rng: Random, text: str, _: Sequence[str]) -> str:
    begin = rng.randint(0, len(text))
    return text[:begin] + chr(rng.choice((rng.randrange(128), 0xFF, 0x4E2D))) + text[begin + 1 :]


def _splice(rng: Random, text: str, seeds: Sequence[str]) -> str:
    other = rng.choice(seeds)
    begin, end = _span(rng, text)
    other_begin, other_end = _span(rng, other)
    return text[:begin] + other[other_begin:other_end] + text[end:]


def _truncate(rng: Random, text: str, _: Sequence[str]) -> str:
    return text[: rng.randint(0, len(text))]


def _nest(rng: Random, text: str, _: Sequence[str]) -> str:
    depth = rng.choice((10, 500, 5000))
    begin, end = _span(rng, text)
    return text[:begin] + "[" * depth + text[begin:end] + "]" * depth + text[end:]


_TEXT_CHANGES: tuple[Callable[[Random, str, Sequence[str]], str], ...] = (
    *(_cut, _cut, _repeat, _insert, _insert, _insert),
    *(_character, _character, _splice, _splice, _truncate, _nest),
)


def _in_tree(rng: Random, text: str, seeds: Sequence[str]) -> str:
    tree = _parsed(text)
    if not isinstance(tree, (dict, list)):
        return _in_text(rng, text, seeds)
    return json.dumps(_changed(rng, tree, seeds), ensure_ascii=rng.random() < 0.5)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _changed(rng: Random, tree: Any, seeds: Sequence[str]) -> Any:
    """``tree`` with one place changed; the deeper a place is, the likelier are its neighbours."""
    if isinstance(tree, str) and tree[:1] in ("{", "[") and rng.random() < 0.7:
        return _in_tree(rng, tree, seeds)
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.12:
        return _another(rng, tree)
    if isinstance(tree, list):
        return _changed_list(rng, tree, seeds)
    key = rng.choice(list(tree))
    match rng.randrange(8):
        case 0:
            return {name: value for name, value in tree.items() if name != key}
        case 1:
            return {rng.choice((key.upper(), key + "x", "", key[:-1])): tree[key], **tree}
        case 2:
            return {**tree, rng.choice(list(tree)): tree[key]}
    return {**tree, key: _changed(rng, tree[key], seeds)}


def _changed_list(rng: Random, tree: list[Any], seeds: Sequence[str]) -> list[Any]:
    place = rng.randrange(len(tree))
    match rng.randrange(6):
        case 0:
            return tree[:place] + tree[place + 1 :]
        case 1:
            return tree[:place] + [tree[place]] * rng.choice((2, 50)) + tree[place + 1 :]
        case 2:
            return [*tree, rng.choice(tree)]
    return [*tree[:place], _changed(rng, tree[place], seeds), *tree[place + 1 :]]


def _another(rng: Random, value: Any) -> Any:
    if isinstance(value, str) and value and rng.random() < 0.5:
        return _without_surrogates(_in_text(rng, value, (value,)))
    if isinstance(value, int) and rng.random() < 0.3:
        return value + rng.choice((-1, 1, 10**6, -(10**13)))
    return rng.choice(_VALUES)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()

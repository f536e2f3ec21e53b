"""Wrong texts made of right ones: for parsers that must refuse, or read, whatever comes.

``targets`` are the parsers of fault configurations, each with what its texts are made of and a
function that reads one and does not change what was in force. Benchmarks go on with the same ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from contract.catalogue import read_table, shipped_levels
from contract.fault_configuration import DOCUMENTS, InForce, judge_texts
from contract.policies import PolicyTables
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

TOKENS = (
    *("{", "}", "[", "]", ",", ":", '"', "null", "true", "false", "{}", "[]", '""'),
    *("0", "-1", "60", "1.0", "1e3", "4294967296", "9223372036854775808", "9" * 5000, "NaN"),
    *("\\u0000", "\\ud800", "\ufeff", "\u017f", "\u212a", "\x00", "\t", "\\", "//", "\U0001f600"),
    *('"80E18005"', '"0x80E18005"', '"020001002"', '"zz"', '"-80E18005"', '"81078603"'),
    *('"ManuallySeparateNPU"', '"SeparateNPU"', '"EventId":', '"eventid":[],', '"Times":101,'),
    *('"[0x00f1fef5,155912,npu,na]"', '"[,,,]"', "[" * 2000, '{"a":' * 2000),
)
_LONGEST = 20_000


def mutated(texts: Sequence[str], random: Random) -> str:
    """One of ``texts`` with a few things wrong, at most 20,000 characters long."""
    text = random.choice(texts)
    for _ in range(random.randint(1, 4)):
        here = random.randint(0, len(text))
        there = min(len(text), here + random.choice((0, 1, 2, 8, 64, 1000)))
        match random.randrange(6):
            case 0:
                text = text[:here] + text[there:]
            case 1:
                text = text[:there] + text[here:]
            case 2:
                text = text[:here] + random.choice(TOKENS) + text[there:]
            case 3:
                other = random.choice(texts)
                text = text[:here] + other[random.randint(0, len(other)) :]
            case 4:
                text = text[:here] + chr(random.randrange(1, 0x3000)) + text[there:]
            case _:
                text = text[:here] + text[here:there].swapcase() + text[there:]
    return text[:_LONGEST]


@dataclass(frozen=True)
class Target:
    """A parser by its name: good ``texts``, and ``read``, which may only raise ``VigilError``."""

    name: str
    texts: tuple[str, ...]
    read: Callable[[str], object]


def _read(key: str, before: InForce, text: str) -> object:
    judged = judge_texts({key: text}, {}, before)
    if key in judged.kept:
        assert judged.in_force == before, "what cannot be decoded changes nothing"
        assert judged.problems
    return judged


def shipped_texts() -> dict[str, str]:
    """The shipped tables as the documents that they were made of, by their keys."""
    levels = shipped_levels()
    policies = read_table("policies.json", PolicyTables)
    chip = {f"{name}Codes": codes for name, codes in levels.chip.items()}
    switch = {f"{name}Codes": codes for name, codes in levels.switch.items()}
    rules = {"FaultFrequency": policies.frequency, "FaultDuration": policies.duration}
    texts = (json.dumps(chip), msgspec.json.encode(rules).decode(), json.dumps(switch))
    return dict(zip(DOCUMENTS, texts, strict=True))


def recorded_texts(key: str) -> tuple[str, ...]:
    """What was given to the real program as the document ``key``, good and bad."""
    found: dict[str, list[str]] = json.loads((VECTORS / "fault-config" / "texts.json").read_text())
    return tuple(found[key])


def _target(key: str) -> Target:
    shipped = shipped_texts()
    before = judge_texts({key: shipped[key]}, {}, InForce()).in_force
    return Target(key, (shipped[key], *recorded_texts(key)), partial(_read, key, before))


def targets() -> tuple[Target, ...]:
    """All of them."""
    return tuple(_target(key) for key in DOCUMENTS)

"""The functions of the emulated libraries, read from the list that they are compiled from."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent
_ENTRY = re.compile(r"^FUNCTION\((\w+), (NODE|CHIP|SWITCH)\)$", re.MULTILINE)


class Function(NamedTuple):
    """``number`` is the function's place in the C enumeration."""

    name: str
    number: int
    is_about_a_chip: bool
    is_of_switches: bool


@cache
def functions() -> dict[str, Function]:
    """Every exported function by its full name."""
    entries = _ENTRY.findall((SOURCES / "functions.h").read_text("ascii"))
    return {
        name: Function(name, number, scope == "CHIP", scope == "SWITCH")
        for number, (name, scope) in enumerate(entries)
    }


def find_function(name: str) -> Function | None:
    """Return the function called ``name``, with or without the prefix ``dcmi_``."""
    return functions().get(name) or functions().get(f"dcmi_{name}")

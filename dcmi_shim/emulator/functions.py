"""The functions and tools of the emulated driver, read from the lists that they are built from."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent
_ENTRY = re.compile(r"^(?:FUNCTION|TOOL)\((\w+), (NODE|CHIP|SWITCH)\)$", re.MULTILINE)


class EmulatedCall(NamedTuple):
    """A function or tool; ``number`` is its place in the C enumeration."""

    name: str
    number: int
    is_about_a_chip: bool
    is_of_switches: bool


@cache
def _listed(header: str) -> dict[str, EmulatedCall]:
    entries = _ENTRY.findall((SOURCES / header).read_text("ascii"))
    return {
        name: EmulatedCall(name, number, scope == "CHIP", scope == "SWITCH")
        for number, (name, scope) in enumerate(entries)
    }


def functions() -> dict[str, EmulatedCall]:
    """Return every exported function by its full name."""
    return _listed("functions.h")


def tools() -> dict[str, EmulatedCall]:
    """Return every command line tool by its name."""
    return _listed("tools.h")


def find_function(name: str) -> EmulatedCall | None:
    """Return the function called ``name``, with or without the prefix ``dcmi_``."""
    return functions().get(name) or functions().get(f"dcmi_{name}")

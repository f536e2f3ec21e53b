"""Fault codes as people write them, and the severities that the emulated driver gives them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from contract.levels import Severity

_CODE = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{8})")
_SEVERITIES = Path(__file__).parent / "profiles" / "severities-910b.lst"


def parse_code(text: str) -> int:
    """The number of a code like ``80E01801`` or ``0x80e01801``. Raises ``ValueError``."""
    match = _CODE.fullmatch(text)
    if match is None or int(match[1], 16) == 0:
        raise ValueError(f"{text!r} is not a fault code; eight hexadecimal digits are, as 80E01801")
    return int(match[1], 16)


@cache
def _listed() -> dict[int, Severity]:
    lines = _SEVERITIES.read_text("ascii").splitlines()
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return {int(code, 16): Severity(int(severity)) for code, severity in entries}


def severity_of(code: int) -> Severity:
    """What the driver calls ``code``; a code that it does not list is minor (5.5)."""
    return _listed().get(code, Severity.MINOR)

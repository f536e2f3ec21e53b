"""Fault codes as people write them, and the severities that the emulated driver reports for
them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from contract.codes.chip_codes import (
    HANG,
    UB_PORT_DOWN,
    UB_SEPARATE,
    UB_SUB_HEALTH,
    UBOE_PRE_SEPARATE,
    UBOE_SUB_HEALTH,
)
from contract.codes.levels import Severity

_CODE = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{8})")
_SEVERITIES = Path(__file__).parent / "profiles" / "severities-910b.lst"


_CAUSES = {
    UBOE_SUB_HEALTH: "link CHIP down on an a5, whose other Ethernet port stays up",
    UBOE_PRE_SEPARATE: "link CHIP down --ports 2 on an a5",
    UB_SEPARATE: f"occur CHIP {UB_PORT_DOWN} on an a5: the port of the unified bus is down",
    UB_SUB_HEALTH: f"occur CHIP {UB_PORT_DOWN} on every chip of an a5",
    HANG: "load CHIP --aicore 0 --traffic still --processes PID, of a process that sleeps, for as "
    "long as the agent's hang.detect_duration",
}
"""How to make the agent find a code that no driver reports: arguments of ``vigil simulate``."""


def parse_code(text: str) -> int:
    """Return the number of a code like ``80E01801`` or ``0x80e01801``. Raises ``ValueError``."""
    cause = _CAUSES.get(text.upper().removeprefix("0X"))
    if cause is not None:
        raise ValueError(
            f"{text!r} is reported by no driver; cause it with: vigil simulate {cause}"
        )
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
    """Return the driver's severity of ``code``.

    A code that it does not list is minor (dcmi#5.5).
    """
    return _listed().get(code, Severity.MINOR)

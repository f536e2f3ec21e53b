"""``SwitchFaultCode.json``: which code of an on-board switch is at which level.

Source: ``docs/spec/device-plugin.md#5.2``. Codes are compared as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.codes.levels import SwitchLevel
from contract.codes.switch_codes import format_switch_code, parse_switch_code
from contract.errors import FoundProblems, Problem, quoted
from contract.go.decode import GoStruct, decode_all, refuse
from contract.go.dropped import dropped
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCH_FAULT_CODE_KEY = "SwitchFaultCode.json"
# Upstream accepts an entry by length, brackets and commas only (device-plugin#5.2).
_MAX_BYTES = 50
_PARTS = 4


class _SwitchCodeLists(GoStruct, frozen=True):
    SeparateFaultCodes: list[str] | None = None
    ResetFaultCodes: list[str] | None = None
    PreSeparateFaultCodes: list[str] | None = None
    RestartRequestFaultCodes: list[str] | None = None
    SubHealthFaultCodes: list[str] | None = None
    NotHandleFaultCodes: list[str] | None = None


# Most serious first.
_LEVELS = {
    "SeparateFaultCodes": SwitchLevel.SEPARATE,
    # Upstream appends these codes to Separate (device-plugin#5.2).
    "ResetFaultCodes": SwitchLevel.SEPARATE,
    "PreSeparateFaultCodes": SwitchLevel.PRE_SEPARATE,
    "RestartRequestFaultCodes": SwitchLevel.RESTART_REQUEST,
    "SubHealthFaultCodes": SwitchLevel.SUB_HEALTH_FAULT,
    "NotHandleFaultCodes": SwitchLevel.NOT_HANDLE,
}


class SwitchLevels(Record, frozen=True):
    """Level by code as text."""

    levels: Mapping[str, SwitchLevel]
    problems: tuple[Problem, ...]


def read_switch_levels(text: str) -> SwitchLevels:
    """Read a ``SwitchFaultCode.json``.

    Raises ``DocumentError`` for a text that cannot be decoded, of which nothing counts.
    """
    lists, wrong = decode_all(text, _SwitchCodeLists, SWITCH_FAULT_CODE_KEY)
    problems = FoundProblems()
    problems.extend(dropped(text, _SwitchCodeLists))
    levels: dict[str, SwitchLevel] = {}
    for name, level in _LEVELS.items():
        for index, entry in enumerate(getattr(lists, name) or ()):
            problem = _problem(entry)
            if problem is not None:
                where = f"$.{name}[{index}]"
                problems.add(Problem(where, f"{quoted(entry)!r} {problem}"))
            if _is_accepted(entry):
                # The lists come by seriousness, so the higher of two
                # levels stays (device-plugin#5.2).
                levels.setdefault(entry, level)
    if not levels:
        problems.add(Problem("$", "names no code: faults of switches have no level"))
    refuse(SWITCH_FAULT_CODE_KEY, wrong, problems)
    return SwitchLevels(levels, problems.all())


def _is_accepted(entry: str) -> bool:
    bracketed = entry.startswith("[") and entry.endswith("]")
    short = len(entry.encode(errors="replace")) <= _MAX_BYTES
    return bracketed and short and entry.count(",") == _PARTS - 1


def _problem(entry: str) -> str | None:
    if not _is_accepted(entry):
        return "is not a valid switch code, such as [0x00f1fef5,155912,cpu,na]; it is skipped"
    try:
        written = format_switch_code(parse_switch_code(entry))
    except ValueError:
        return "never comes from a driver: it is not written as [0x00f1fef5,155912,cpu,na]"
    return None if written == entry else f"never comes from a driver, which writes {written}"

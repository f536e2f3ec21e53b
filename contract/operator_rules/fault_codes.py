"""``faultCode.json``: which code is at which level.

Source: ``device-plugin#3.2`` and 2.7. What the Device Plugin skips without a word is a
``Problem`` here, with the same effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import field
from msgspec.structs import fields

from contract.codes.chip_codes import NETWORK_FAULT_CODES, code_of, is_network
from contract.codes.levels import ChipLevel, most_serious
from contract.errors import Problem, quoted
from contract.found_problems import FoundProblems
from contract.go.decode import GoStruct, decode_all, refuse
from contract.go.dropped import dropped

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = re.compile(r"[+-]?[0-9A-Fa-f]+", re.ASCII)
FAULT_CODE_KEY = "faultCode.json"
_INT64 = range(-(2**63), 2**63)


class _Lists(GoStruct, frozen=True):
    not_handle: list[str] | None = field(name="NotHandleFaultCodes", default=None)
    restart_request: list[str] | None = field(name="RestartRequestCodes", default=None)
    restart_business: list[str] | None = field(name="RestartBusinessCodes", default=None)
    restart_npu: list[str] | None = field(name="RestartNPUCodes", default=None)
    free_restart_npu: list[str] | None = field(name="FreeRestartNPUCodes", default=None)
    pre_separate: list[str] | None = field(name="PreSeparateNPUCodes", default=None)
    separate: list[str] | None = field(name="SeparateNPUCodes", default=None)
    sub_health: list[str] | None = field(name="SubHealthFaultCodes", default=None)
    net_not_handle: list[str] | None = field(name="NotHandleFaultNetworkCodes", default=None)
    net_pre_separate: list[str] | None = field(name="PreSeparateNPUNetworkCodes", default=None)
    net_separate: list[str] | None = field(name="SeparateNPUNetworkCodes", default=None)
    net_sub_health: list[str] | None = field(name="SubHealthFaultNetworkCodes", default=None)


_CHIP = {
    "not_handle": ChipLevel.NOT_HANDLE_FAULT,
    "restart_request": ChipLevel.RESTART_REQUEST,
    "restart_business": ChipLevel.RESTART_BUSINESS,
    "restart_npu": ChipLevel.RESTART_NPU,
    "free_restart_npu": ChipLevel.FREE_RESTART_NPU,
    "pre_separate": ChipLevel.PRE_SEPARATE_NPU,
    "separate": ChipLevel.SEPARATE_NPU,
    "sub_health": ChipLevel.SUB_HEALTH_FAULT,
}
_NETWORK = {
    "net_not_handle": ChipLevel.NOT_HANDLE_FAULT,
    "net_pre_separate": ChipLevel.PRE_SEPARATE_NPU,
    "net_separate": ChipLevel.SEPARATE_NPU,
    "net_sub_health": ChipLevel.SUB_HEALTH_FAULT,
}
_WIRE = {member.name: member.encode_name for member in fields(_Lists)}


@dataclass(frozen=True)
class FaultCodes:
    """Level by code as on the wire, and how the document wrote each number (lower case)."""

    levels: Mapping[str, ChipLevel]
    spellings: Mapping[int, str]
    problems: tuple[Problem, ...]


def number_of(text: str) -> int | None:
    """Return what Go's ``ParseInt`` makes of ``text`` in base 16; ``None`` for what it refuses."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text, 16)
    return number if number in _INT64 else None


def read_fault_codes(text: str) -> FaultCodes:
    """Read a ``faultCode.json``.

    Raises ``DocumentError`` for a text that cannot be decoded, of which nothing counts.
    """
    lists, wrong = decode_all(text, _Lists, FAULT_CODE_KEY)
    problems = FoundProblems()
    problems.extend(dropped(text, _Lists))
    levels: dict[str, list[ChipLevel]] = {}
    spellings: dict[int, str] = {}
    for attribute, listed_level in (_CHIP | _NETWORK).items():
        for index, entry in enumerate(getattr(lists, attribute) or ()):
            where = f"$.{_WIRE[attribute]}[{index}]"
            number = number_of(entry)
            if number is None:
                what = f"{quoted(entry)!r} is no hexadecimal number (without 0x); it is skipped"
                problems.add(Problem(where, what))
                continue
            try:
                code = code_of(number)
            except ValueError as error:
                problems.add(Problem(where, f"{quoted(entry)!r} is skipped: {error}"))
                continue
            spellings.setdefault(number, entry.lower())
            level = listed_level
            if attribute in _NETWORK and not is_network(code):
                what = f"{code} is no network code; in this list it has no effect"
                problems.add(Problem(where, what))
                continue
            if is_network(code) and level not in _NETWORK.values():
                level = ChipLevel.NOT_HANDLE_FAULT
                what = f"{code} is a network code, which cannot be {listed_level}; it is {level}"
                problems.add(Problem(where, what))
            levels.setdefault(code, []).append(level)
    problems.extend(_missing(lists, levels))
    refuse(FAULT_CODE_KEY, wrong, problems)
    judged = {code: most_serious(named) for code, named in levels.items()}
    return FaultCodes(judged, spellings, problems.all())


def _missing(lists: _Lists, levels: Mapping[str, list[ChipLevel]]) -> list[Problem]:
    """Return what is probably a mistake: no code at all, or network codes in no list (K18)."""
    if not levels:
        what = (
            "names no code: every code of a chip is unknown and judged by its severity, and "
            "every network code is PreSeparateNPU"
        )
        return [Problem("$", what)]
    pre_separate = any(ChipLevel.PRE_SEPARATE_NPU in levels.get(c, ()) for c in NETWORK_FAULT_CODES)
    if lists.not_handle or pre_separate:
        return []
    unnamed = sorted(NETWORK_FAULT_CODES - levels.keys())
    if not unnamed:
        return []
    what = (
        f"network codes in no list are PreSeparateNPU: {', '.join(unnamed)} (the Device Plugin "
        "would replace this table by the shipped one at the first network fault)"
    )
    return [Problem("$", what)]

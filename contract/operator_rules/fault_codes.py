"""``faultCode.json``: which code is at which level.

Source: ``device-plugin#3.2`` and 2.7. What the Device Plugin skips without a word is a
``Problem`` here, with the same effect.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from contract.codes.chip_codes import NETWORK_FAULT_CODES, code_of, is_network
from contract.codes.levels import ChipLevel, most_serious
from contract.errors import FoundProblems, Problem, quoted
from contract.go.decode import GoStruct, decode_all, refuse
from contract.go.dropped import dropped
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

# ``int`` of Python takes underscores, blanks and a prefix, which ``ParseInt`` refuses.
_NUMBER = re.compile(r"[+-]?[0-9A-Fa-f]+", re.ASCII)
FAULT_CODE_KEY = "faultCode.json"
# Upstream parses numbers of 64 bits with a sign (device-plugin#3.2).
_INT64 = range(-(2**63), 2**63)


class _ChipCodeLists(GoStruct, frozen=True):
    NotHandleFaultCodes: list[str] | None = None
    RestartRequestCodes: list[str] | None = None
    RestartBusinessCodes: list[str] | None = None
    RestartNPUCodes: list[str] | None = None
    FreeRestartNPUCodes: list[str] | None = None
    PreSeparateNPUCodes: list[str] | None = None
    SeparateNPUCodes: list[str] | None = None
    SubHealthFaultCodes: list[str] | None = None
    NotHandleFaultNetworkCodes: list[str] | None = None
    PreSeparateNPUNetworkCodes: list[str] | None = None
    SeparateNPUNetworkCodes: list[str] | None = None
    SubHealthFaultNetworkCodes: list[str] | None = None


_CHIP = {
    "NotHandleFaultCodes": ChipLevel.NOT_HANDLE_FAULT,
    "RestartRequestCodes": ChipLevel.RESTART_REQUEST,
    "RestartBusinessCodes": ChipLevel.RESTART_BUSINESS,
    "RestartNPUCodes": ChipLevel.RESTART_NPU,
    "FreeRestartNPUCodes": ChipLevel.FREE_RESTART_NPU,
    "PreSeparateNPUCodes": ChipLevel.PRE_SEPARATE_NPU,
    "SeparateNPUCodes": ChipLevel.SEPARATE_NPU,
    "SubHealthFaultCodes": ChipLevel.SUB_HEALTH_FAULT,
}
_NETWORK = {
    "NotHandleFaultNetworkCodes": ChipLevel.NOT_HANDLE_FAULT,
    "PreSeparateNPUNetworkCodes": ChipLevel.PRE_SEPARATE_NPU,
    "SeparateNPUNetworkCodes": ChipLevel.SEPARATE_NPU,
    "SubHealthFaultNetworkCodes": ChipLevel.SUB_HEALTH_FAULT,
}


class FaultCodes(Record, frozen=True):
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
    lists, wrong = decode_all(text, _ChipCodeLists, FAULT_CODE_KEY)
    problems = FoundProblems()
    problems.extend(dropped(text, _ChipCodeLists))
    levels: dict[str, list[ChipLevel]] = {}
    spellings: dict[int, str] = {}
    for name, listed_level in (_CHIP | _NETWORK).items():
        for index, entry in enumerate(getattr(lists, name) or ()):
            where = f"$.{name}[{index}]"
            number = number_of(entry)
            if number is None:
                message = (
                    f"{quoted(entry)!r} is not a valid hexadecimal number (without 0x); it is "
                    "skipped"
                )
                problems.add(Problem(where, message))
                continue
            try:
                code = code_of(number)
            except ValueError as error:
                problems.add(Problem(where, f"{quoted(entry)!r} is skipped: {error}"))
                continue
            # The first spelling of a code stays, which rules must repeat (device-plugin#2.5).
            spellings.setdefault(number, entry.lower())
            level = listed_level
            if name in _NETWORK and not is_network(code):
                message = f"{code} is not a network code; in this list it has no effect"
                problems.add(Problem(where, message))
                continue
            # Upstream moves such codes to the network list of the lowest level (device-plugin#3.2).
            if is_network(code) and level not in _NETWORK.values():
                level = ChipLevel.NOT_HANDLE_FAULT
                message = f"{code} is a network code, which cannot be {listed_level}; it is {level}"
                problems.add(Problem(where, message))
            levels.setdefault(code, []).append(level)
    problems.extend(_missing(lists, levels))
    refuse(FAULT_CODE_KEY, wrong, problems)
    judged = {code: most_serious(named) for code, named in levels.items()}
    return FaultCodes(judged, spellings, problems.all())


def _missing(lists: _ChipCodeLists, levels: Mapping[str, list[ChipLevel]]) -> list[Problem]:
    """Return probable mistakes: a document without any code, network codes in no list (K18)."""
    if not levels:
        message = (
            "names no code: every code of a chip is unknown and judged by its severity, and "
            "every network code is PreSeparateNPU"
        )
        return [Problem("$", message)]
    pre_separate = any(ChipLevel.PRE_SEPARATE_NPU in levels.get(c, ()) for c in NETWORK_FAULT_CODES)
    # Only where both are empty, upstream loads its own table instead (device-plugin#2.7).
    if lists.NotHandleFaultCodes or pre_separate:
        return []
    unnamed = sorted(NETWORK_FAULT_CODES - levels.keys())
    if not unnamed:
        return []
    message = (
        f"network codes in no list are PreSeparateNPU: {', '.join(unnamed)} (the Device Plugin "
        "would replace this table by the shipped one at the first network fault)"
    )
    return [Problem("$", message)]

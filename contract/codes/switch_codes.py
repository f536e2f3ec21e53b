"""Codes of on-board switches as people and level tables write them (``device-plugin#5.2``).

``[0x00f1fef5,155912,cpu,na]``: event type, sub-type, kind of peer, and one that is always ``na``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CPU, NPU, L2 = 0, 1, 2
NOT_APPLICABLE = 0xFFFF
"""A peer that is none of these, or a port that means the whole switch chip."""

# The driver's value for no sub-type, which upstream writes as ``na`` (device-plugin#5.2).
_NO_SUB_TYPE = 0xFFFFFFFF
_PEERS = {CPU: "cpu", NPU: "npu", L2: "L2"}
_CODE = re.compile(r"\[0[xX]([0-9A-Fa-f]{8}),([0-9]{1,10}|na),(\w+),na\]")


class SwitchCode(NamedTuple):
    """``sub_type`` is ``None`` where the driver gives none; ``peer`` is the driver's number."""

    event_type: int
    sub_type: int | None
    peer: int


def sub_type_of(number: int) -> int | None:
    """Return a sub-type as the driver writes it."""
    return None if number == _NO_SUB_TYPE else number


def format_switch_code(code: SwitchCode) -> str:
    """Return the text of a code."""
    sub_type = "na" if code.sub_type is None else code.sub_type
    return f"[0x{code.event_type:08x},{sub_type},{_PEERS.get(code.peer, 'na')},na]"


def parse_peer(word: str) -> int:
    """Return the number of a kind of peer: cpu, npu, L2 or na. Raises ``ValueError``."""
    numbers = {name.lower(): number for number, name in _PEERS.items()} | {"na": NOT_APPLICABLE}
    if word.lower() not in numbers:
        raise ValueError(
            f"{word!r} is not a valid peer of a switch port; there are cpu, npu, L2 and na"
        )
    return numbers[word.lower()]


def parse_switch_code(text: str) -> SwitchCode:
    """Decode a code. Raises ``ValueError`` for a text that is none."""
    match = _CODE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a switch code, as [0x00f1fef5,155912,cpu,na]")
    sub_type = _NO_SUB_TYPE if match[2] == "na" else int(match[2])
    if sub_type > _NO_SUB_TYPE:
        raise ValueError(f"switch code {text!r}: its sub-type has more than 32 bits")
    return SwitchCode(int(match[1], 16), sub_type_of(sub_type), parse_peer(match[3]))

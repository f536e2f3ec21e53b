"""Faults of the emulated on-board switches as people write them (``docs/spec/dcmi.md#6``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contract.codes.switch_codes import NOT_APPLICABLE, SwitchCode, parse_switch_code

# As in the real library (dcmi#6).
CHIPS = 7
PORTS = 48
_NUMBER_16 = 0xFFFF
_EVENT_TYPE = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{8})")


@dataclass(frozen=True)
class EmulatedSwitchFault:
    """A fault of a switch port; a ``port`` of 65535 is the whole switch chip.

    Raises ``ValueError`` for a place that no switch has.
    """

    code: SwitchCode
    chip: int
    port: int = NOT_APPLICABLE
    peer_port: int = 0

    def __post_init__(self) -> None:
        if self.code.event_type == 0:
            raise ValueError("the event type 0 is none")
        if not 0 <= self.chip < CHIPS:
            raise ValueError(f"{self.chip} is not a valid switch chip; there are 0 to {CHIPS - 1}")
        if not 0 <= self.port < PORTS and self.port != NOT_APPLICABLE:
            raise ValueError(
                f"{self.port} is not a valid port of a switch; there are 0 to {PORTS - 1}"
            )
        if not 0 <= self.peer_port <= _NUMBER_16:
            raise ValueError(f"the peer's port {self.peer_port} has more than 16 bits")

    def __str__(self) -> str:
        where = "" if self.port == NOT_APPLICABLE else f" port {self.port}"
        return f"switch chip {self.chip}{where}"


def code_of(text: str, sub_type: str | None = None, peer: str | None = None) -> SwitchCode:
    """Return a code from one text, or from event type, sub-type and peer. Raises ``ValueError``."""
    if text.startswith("["):
        if sub_type is not None or peer is not None:
            raise ValueError(f"{text} contains sub-type and peer already; leave them out")
        return parse_switch_code(text)
    match = _EVENT_TYPE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is neither an event type, as 0x00f1fef5, nor a switch code")
    return parse_switch_code(f"[0x{match[1]},{sub_type or 'na'},{peer or 'na'},na]")

"""Parses the output of ``hccn_tool`` on 910, 910B and A3 (``docs/spec/dcmi.md#7.2`` to 7.4). Pure.

Parsers take the whole standard output of a run that ended with status 0, and the chip that was
asked about. They accept any spacing, unknown and missing lines and either device prefix. An answer
that is empty, names another chip or lacks the answer is ``ToolInvalidOutput``, which quotes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from contract.errors import ToolInvalidOutput

# Older documentation has ``[device 0]`` instead of ``[devid 0]`` (dcmi#7.4).
_DEVICE = re.compile(r"\s*\[dev(?:id|ice)[ \t]+(\d{1,9})\][ \t]*", re.ASCII)
_LINK = re.compile(r"link status\s*:\s*(\w+)\s*", re.ASCII | re.IGNORECASE)
_SPEED = re.compile(r"speed\s*:\s*(?:(\d{1,12})\s*Mb/s|(Unknown!?))\s*", re.ASCII | re.IGNORECASE)
_UPS = re.compile(r"link up count\s*:\s*(\d{1,18})\s*", re.ASCII | re.IGNORECASE)
# An A5 prints blanks around the colon, other chips print none (dcmi#7.2).
_COUNTER = re.compile(r"(\w+)\s*:\s*(\d{1,20})\s*", re.ASCII)
_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,9})?)(?:\s+\S+)?", re.ASCII)


class Optical(msgspec.Struct, frozen=True):
    """The optical module: values as printed, blanks in names replaced by ``_``."""

    values: Mapping[str, str]

    @property
    def present(self) -> bool | None:
        """Whether there is a module; ``None`` when the tool does not show it."""
        word = self.values.get("present")
        return None if word is None else word == "present"

    def number(self, name: str) -> float | None:
        """Return the number before the unit; ``None`` when missing, ``NA`` or ``not supported``."""
        return number(self.values.get(name, ""))


def number(text: str) -> float | None:
    """Return the number in ``47 C`` or ``1.4035 mW``; ``None`` for any other text."""
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else float(match[1])


def lines_of(text: str, chip: int) -> list[str]:
    """Return the lines without their device prefix, which must be that of ``chip``."""
    lines = []
    for line in text.splitlines():
        prefix = _DEVICE.match(line)
        if prefix is not None and int(prefix[1]) != chip:
            message = f"hccn_tool answered for chip {int(prefix[1])} when chip {chip} was asked for"
            raise ToolInvalidOutput(message, text)
        lines.append(line if prefix is None else line[prefix.end() :])
    return lines


def invalid_output(quantity: str, chip: int, text: str) -> ToolInvalidOutput:
    """Return the error for an answer that lacks ``quantity``."""
    return ToolInvalidOutput(f"hccn_tool gave no {quantity} of chip {chip}", text)


def _only(pattern: re.Pattern[str], quantity: str, text: str, chip: int) -> re.Match[str]:
    """Return the one line that matches ``pattern``; two that agree are one."""
    matches = [
        counter for line in lines_of(text, chip) if (counter := pattern.fullmatch(line.strip()))
    ]
    if len({match.groups() for match in matches}) != 1:
        raise invalid_output(quantity, chip, text)
    return matches[0]


def parse_link(text: str, chip: int) -> bool:
    """Return from ``-link -g`` whether the link is up. Another word is an invalid output."""
    word = _only(_LINK, "link status", text, chip)[1]
    if word not in ("UP", "DOWN"):
        raise invalid_output("link status", chip, text)
    return word == "UP"


def parse_speed(text: str, chip: int) -> int | None:
    """Return from ``-speed -g`` the speed in Mb/s, or ``None`` for ``Unknown!``."""
    speed = _only(_SPEED, "speed", text, chip)[1]
    return None if speed is None else int(speed)


def parse_link_ups(text: str, chip: int) -> int:
    """Return from ``-link_stat -g`` how often the link came up."""
    counts = (_UPS.fullmatch(line.strip()) for line in lines_of(text, chip))
    counter = [int(count[1]) for count in counts if count is not None]
    if not counter:
        raise invalid_output("link up count", chip, text)
    return counter[-1]


def parse_counters(text: str, chip: int) -> Mapping[str, int]:
    """Return from ``-stat -g`` of all families packet counters by the tool's names."""
    counter = (_COUNTER.fullmatch(line.strip()) for line in lines_of(text, chip))
    counters = {match[1]: int(match[2]) for match in counter if match is not None}
    if not counters:
        raise invalid_output("packet statistics", chip, text)
    return counters


def _pairs(text: str, chip: int) -> dict[str, str]:
    parted = (line.partition(":") for line in lines_of(text, chip))
    return {
        "_".join(key.split()): value.strip()
        for key, colon, value in parted
        if colon and key.strip() and value.strip()
    }


def parse_optical(text: str, chip: int) -> Optical:
    """Return from ``-optical -g`` the module's values.

    One of them must be one that every tool prints.
    """
    values = _pairs(text, chip)
    # Old firmware has one line ``Tx Power`` instead of four (dcmi#7.4).
    if not values.keys() & {"present", "temperature", "Vcc", "Tx_Power0", "Tx_Power"}:
        raise invalid_output("optical info", chip, text)
    return Optical(values)

"""Which family a chip belongs to (``docs/spec/dcmi.md#1.6``). Pure."""

from __future__ import annotations

import re

_A3_BOARDS = frozenset({0xB0, 0xB1, 0xB2, 0xB3, 0xB4, 0x81, 0x83, 0xD1, 0xD3})
_ORDERED_RULES = (
    (re.compile(r"Ascend950"), "Ascend910A5"),
    (re.compile(r"310P\d?|I2\d?"), "Ascend310P"),
    (re.compile(r".*310B"), "Ascend310B"),
    (re.compile(r".*310"), "Ascend310"),
    (re.compile(r"910B\d|A2G\d"), "Ascend910B"),
    (re.compile(r"910"), "Ascend910"),
)


def chip_family(chip_name: str, board_id: int | None) -> str | None:
    """Return the family by board id, then by chip name; ``None`` when no rule matches."""
    if board_id in _A3_BOARDS:
        return "Ascend910A3"
    return next((family for rule, family in _ORDERED_RULES if rule.match(chip_name)), None)

"""Quantities of Kubernetes, as ``8``, ``500m`` and ``1500Gi`` are written."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

CPU = "cpu"

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_MAX_LENGTH = 40


@lru_cache(maxsize=1024)
def amount(text: str, resource: str) -> int | None:
    """Return the amount of ``resource`` in ``text``, rounded up; ``None`` for no quantity.

    CPU is counted in thousandths of a core, everything else in whole units.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        return None
    number, exponent, unit = match.groups()
    value = Decimal(number + (exponent or "")) * _FACTORS[unit or ""]
    if resource == CPU:
        value *= 1000
    # Three digits of an exponent would make an integer of a thousand digits.
    if value.adjusted() > _MAX_LENGTH:
        return None
    return int(value.to_integral_value(ROUND_CEILING))

"""Times in output and options."""

from __future__ import annotations

from datetime import UTC, datetime

from contract.errors import ConfigurationError, Problem
from contract.sentences import message, sentence

_SECOND_MS = 1000
_UNITS_MS = {"s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_STEPS = (
    (86_400, message("{count} d ago"), message("in {count} d")),
    (3600, message("{count} h ago"), message("in {count} h")),
    (60, message("{count} min ago"), message("in {count} min")),
    (1, message("{count} s ago"), message("in {count} s")),
)
"""Units in seconds, the largest first, with how a past and a future time is written."""


def ago(at_ms: int, now_ms: int) -> str:
    """Return how long ago ``at_ms`` is (both epoch milliseconds): ``3 min ago``."""
    seconds = (now_ms - at_ms) // _SECOND_MS
    length = abs(seconds)
    size, past, future = next((step for step in _STEPS if length >= step[0]), _STEPS[-1])
    return sentence(future if seconds < 0 else past, count=length // size)


def since(at_ms: int, now_ms: int, *, utc: bool) -> str:
    """Return ``at_ms`` in both forms: ``3 min ago (21:44:20)``, with the date where it is older."""
    zone = UTC if utc else None
    try:
        at = datetime.fromtimestamp(at_ms / _SECOND_MS, UTC).astimezone(zone)
        now = datetime.fromtimestamp(now_ms / _SECOND_MS, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return sentence("at an unknown time")
    form = "%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S"
    clock = f"{at.strftime(form)}{' UTC' if utc else ''}"
    return sentence("{ago} ({clock})", ago=ago(at_ms, now_ms), clock=clock)


def written(at_ms: int, *, utc: bool) -> str:
    """Return ``at_ms`` with its date: ``2026-11-23 21:44:20``."""
    try:
        time = datetime.fromtimestamp(at_ms / _SECOND_MS, UTC)
        return f"{time if utc else time.astimezone():%Y-%m-%d %H:%M:%S}{' UTC' if utc else ''}"
    except (ValueError, OverflowError, OSError):
        return sentence("unknown time")


def since_of(text: str, now_ms: int, *, utc: bool) -> int:
    """Return the time (epoch milliseconds) that ``text`` names: ``90s``, ``10min``, ``2h``, ``1d``
    before ``now_ms``, or a date with or without a time. Raises ``ConfigurationError``.
    """
    unit = text.lstrip("0123456789")
    number = text.removesuffix(unit)
    if number.isascii() and number and len(number) < 9 and unit in _UNITS_MS:
        return max(0, now_ms - int(number) * _UNITS_MS[unit])
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC) if utc else at.astimezone()
        return max(0, int(at.timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        problem = sentence(
            "{value} is neither a time (2026-11-23T21:44) nor a length (90s, 10min, 2h, 1d)",
            value=repr(text),
        )
        raise ConfigurationError("command line", [Problem("--since", problem)]) from None

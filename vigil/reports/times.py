"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_SECOND_MS = 1000
_STEPS = ((86_400, "d"), (3600, "h"), (60, "min"))


def ago(at_ms: int, now_ms: int) -> str:
    """Return how long ago ``at_ms`` is (both epoch milliseconds): ``3 min ago``."""
    seconds = (now_ms - at_ms) // _SECOND_MS
    if seconds < 0:
        return f"in {_length(-seconds)}"
    return f"{_length(seconds)} ago"


def since(at_ms: int, now_ms: int, *, utc: bool) -> str:
    """Return ``at_ms`` in both forms: ``3 min ago (21:44:20)``, with the date where it is older."""
    zone = UTC if utc else None
    try:
        at = datetime.fromtimestamp(at_ms / _SECOND_MS, UTC).astimezone(zone)
        now = datetime.fromtimestamp(now_ms / _SECOND_MS, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
    form = "%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S"
    return f"{ago(at_ms, now_ms)} ({at.strftime(form)}{' UTC' if utc else ''})"


def _length(seconds: int) -> str:
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"

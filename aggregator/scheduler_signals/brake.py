"""When nothing may get stricter: what is silent may be the aggregator's own view. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

SETTLE_SECONDS = 15.0
"""How long a new leader makes nothing stricter: three intervals of heartbeats (``noded#7.10``)."""


def why_held(
    *, leads_for_ms: int | None, silence_alarm: bool, unread: Collection[str]
) -> str | None:
    """Return why no condition turns ``Unknown`` and no taint gets stricter; ``None`` if they may.

    ``leads_for_ms`` is how long this process has led, ``None`` where it does not.
    ``silence_alarm``: so many nodes fell silent at once that none is published lost
    (``liveness/lost_nodes.py``). ``unread`` are the places whose heartbeats were not listed for
    long.
    """
    if leads_for_ms is None:
        return "this aggregator does not lead"
    if leads_for_ms < SETTLE_SECONDS * 1000:
        return f"this aggregator has led for less than {SETTLE_SECONDS:.0f} s"
    if silence_alarm:
        return "too many nodes fell silent at once"
    if unread:
        return f"heartbeats cannot be read: {', '.join(sorted(unread))}"
    return None

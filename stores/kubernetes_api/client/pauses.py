"""A server that is overloaded asks for a pause (``Retry-After``, RFC 9110 10.2.3): it gets one.

What must not wait for so long is tried every 5 s all the same: heartbeats, the Lease of a leader,
and documents.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from contract.errors import StoreUnavailable

_log = logging.getLogger(__name__)

_STATUSES = (429, 503)
_MAX_SECONDS = 60.0
_JITTER = 0.1
_URGENT_SECONDS = 5.0
_WORTH_A_LINE_SECONDS = 5.0
_DIGITS = 9


class Pauses:
    """The pause of one client."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._why = ""
        self._tried: dict[str, float] = {}
        """When what is urgent was tried last."""

    async def turn(self, urgent: str | None) -> None:
        """Return when a request may be made; ``urgent`` names one that must not wait for long.

        Raises ``StoreUnavailable`` for all others during a pause.
        """
        now = _now()
        if now >= self._until:
            if self._tried:
                self._tried.clear()
            return
        if urgent is None:
            raise StoreUnavailable(self._why)
        due = min(self._tried.get(urgent, -math.inf) + _URGENT_SECONDS, self._until)
        if due > now:
            await asyncio.sleep(due - now)
        self._tried[urgent] = _now()

    def answered(self, host: str, urgent: str | None, status: int, retry_after: str | None) -> None:
        """Begin a pause if an answer asks for one."""
        if status not in _STATUSES or retry_after is None:
            return
        seconds = seconds_of(retry_after, datetime.now(UTC))
        if seconds is None:
            return
        # Clients that were refused together shall not come back together (decision 15: 10 %).
        seconds = min(seconds * random.uniform(1 - _JITTER, 1 + _JITTER), _MAX_SECONDS)
        now = _now()
        if urgent is not None:
            self._tried[urgent] = now
        if now >= self._until and seconds >= _WORTH_A_LINE_SECONDS:
            _log.warning(
                "%s answered %d and asks for a pause: only heartbeats and documents are tried for "
                "%.0f s",
                host,
                status,
                seconds,
            )
        self._until = max(self._until, now + seconds)
        self._why = f"{host} answered {status} and asked for a pause"


def seconds_of(retry_after: str, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` asks for; ``None`` for what is none."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        # A longer number is above every limit, and may be too large for a float.
        return float(text) if len(text) < _DIGITS else _MAX_SECONDS
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def _now() -> float:
    return asyncio.get_running_loop().time()

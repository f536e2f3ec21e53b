"""Lines of the log about events that may be frequent: a few each minute, with a count of the rest.

The counts are complete: faster events wait for the next line, which names the first few of them. So
a log stays readable, and no disk fills, however often something changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from service.log.shortened import shortened

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping, Sequence

PERIOD_SECONDS = 60.0
NAMED = 8


class PacedLines:
    """Logs texts at one level, in at most ``most`` lines a minute. Used from one event loop.

    ``single`` is the format of a line with one text; ``many`` that of a line with several, which
    gets their count and the first of them.
    """

    def __init__(
        self, log: logging.Logger, level: int, most: int, single: str = "%s", many: str = "%d: %s"
    ) -> None:
        self._log = log
        self._level = level
        self._one, self._many = single, many
        self._logged: deque[float] = deque(maxlen=most)
        self._count = 0
        self._first: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._fields: Mapping[str, object] | None = None

    def add(self, texts: Sequence[str], fields: Mapping[str, object] | None = None) -> None:
        """Log these, together in one line, or let them wait for the next one.

        ``fields`` are attributes of the record of a line that has one text only.
        """
        if texts:
            self._fields = fields
        self._count += len(texts)
        self._first += texts[: NAMED - len(self._first)]
        if self._count and self._timer is None:
            wait = self._wait_seconds()
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self.flush)
            else:
                self.flush()

    def flush(self) -> None:
        """Log what waits, at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._count:
            return
        if self._count == 1:
            self._log.log(self._level, self._one, self._first[0], extra=self._fields)
        else:
            self._log.log(self._level, self._many, self._count, self._texts())
        self._count = 0
        self._first = []
        # A ``deque`` of ``most`` places: the oldest of the last lines decides when the next may
        # come.
        self._logged.append(asyncio.get_running_loop().time())

    def _texts(self) -> str:
        return shortened(self._first, NAMED, count=self._count, separator="; ")

    def _wait_seconds(self) -> float:
        if len(self._logged) < (self._logged.maxlen or 0):
            return 0.0
        return self._logged[0] + PERIOD_SECONDS - asyncio.get_running_loop().time()

"""The log of commits for which a publication did not wait: at most one line a minute.

A busy disk takes more than 20 ms for many commits, each of which costs a gap mark and no more
(decision 2). One that hangs is an ERROR.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from contract.plural import plural
from service.log.paced_lines import PERIOD_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("agent.journal")

HANGS_SECONDS = 5.0


class SlowCommits:
    """Times and counts the slow commits of the journal at ``path``, from one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began: float | None = None
        self._hang: asyncio.TimerHandle | None = None
        self._minute: asyncio.TimerHandle | None = None
        self._count = 0
        self._longest_seconds = 0.0

    def begin_slow_commit(self, waited_seconds: float) -> None:
        """Record that a commit is not done after ``waited_seconds``."""
        loop = asyncio.get_running_loop()
        self._began = loop.time() - waited_seconds
        self._hang = loop.call_later(HANGS_SECONDS - waited_seconds, self._hangs)

    def end_commit(self) -> bool:
        """End the time of the slow commit; return whether there was one that did not hang."""
        if self._hang is None or self._began is None:
            return False
        seconds = asyncio.get_running_loop().time() - self._began
        self._hang.cancel()
        self._hang = None
        self._count += 1
        self._longest_seconds = max(self._longest_seconds, seconds)
        if self._minute is None:
            self._log_state()
        return True

    def close(self) -> None:
        """Log the slow commits since the last line, and stop the timers."""
        for timer in (self._hang, self._minute):
            if timer is not None:
                timer.cancel()
        self._hang = self._minute = None
        if self._count:
            self._write()

    def _log_state(self) -> None:
        self._minute = None
        if self._count:
            self._write()
            self._minute = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self._log_state)

    def _write(self) -> None:
        log.warning(
            "journal %s: %s, the longest took %.0f ms; publishing continued meanwhile",
            self._path,
            plural(self._count, "slow commit"),
            self._longest_seconds * 1000,
        )
        self._count = 0
        self._longest_seconds = 0.0

    def _hangs(self) -> None:
        self._hang = None
        log.error(
            "journal %s: a commit takes longer than %.0f s; publishing continues without it",
            self._path,
            HANGS_SECONDS,
        )

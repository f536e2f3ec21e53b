"""A journal without threads, for virtual time: a thread's work would take no time there.

Rows are kept in memory and go into the journal's file when the agent ends, so that a start reads
what a start reads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent.journal.file import FILE_NAME, JournalFile
from agent.journal.rows import JournalRow, RowKind
from contract.pages.agent_status import JournalStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

COMMIT_SECONDS = 2**-9
"""How long a commit takes."""


class RecordedJournal:
    """What the agent takes for its ``Journal``."""

    def __init__(
        self,
        directory: Path,
        *,
        first_sequence: int,
        wall_clock: Callable[[], int],
        on_recovered: Callable[[], None],
        on_changes: Callable[[int], None] = lambda _: None,
    ) -> None:
        del wall_clock, on_recovered, on_changes
        self._path = directory / FILE_NAME
        self._rows: list[JournalRow] = []
        self._first = first_sequence

    @property
    def last_sequence(self) -> int:
        return self._first + len(self._rows) - 1

    def append(self, entries: Iterable[tuple[RowKind, str]], at_ms: int) -> int:
        for kind, body in entries:
            self._rows.append(JournalRow(self.last_sequence + 1, at_ms, kind, body))
        return self.last_sequence

    async def committed(self, sequence: int, within_seconds: float) -> bool:
        assert within_seconds > COMMIT_SECONDS
        await asyncio.sleep(COMMIT_SECONDS)
        return sequence <= self.last_sequence

    def status(self) -> JournalStatus:
        return JournalStatus(None, None, 0, len(self._rows), 0, 0, None)

    async def close(self) -> bool:
        file = JournalFile(self._path)
        file.write(tuple(self._rows))
        file.close()
        return True

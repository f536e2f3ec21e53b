"""The journal of an agent that does not run, as a source of the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from agent.journal.file import FILE_NAME
from agent.journal.reader import read_rows
from agent.journal.rows import JournalRow, RowKind, Start, decoded
from agent.pages.history import history_rows
from agent.state_dir import is_claimed
from contract.errors import JournalError, StoreUnavailable
from contract.sentences import sentence
from vigil.daemon_client import OtherNode
from vigil.reports.explanation import is_meant
from vigil.reports.fault_history import Timeline, TimelineRow, timeline_row
from vigil.sources.source import FaultHistory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import NoReturn


def has_journal(directory: Path) -> bool:
    """Return whether ``directory`` has the journal of an agent that does not run now."""
    return (directory / FILE_NAME).is_file() and not is_claimed(directory)


class JournalSource:
    """The journal in ``directory``; see ``AnswerSource``. It knows only what happened."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def history(self, node: str | None, part: str, since_ms: int | None) -> JournalFileHistory:
        """Return what happened from ``since_ms`` on (epoch milliseconds)."""
        history = JournalFileHistory(self._path, part, since_ms)
        if node not in (None, history.node):
            text = sentence(
                "the journal {file} is of {node}; name an aggregator with --server",
                file=self._path,
                node=history.node,
            )
            raise OtherNode(node or "", text)
        return history

    def close(self) -> None:
        """See ``AnswerSource``. Nothing is kept open."""

    def _refuse(self, *_: object) -> NoReturn:
        text = sentence("{file}: a journal knows only what happened", file=self._path)
        raise StoreUnavailable(text)

    report = explanation = jobs = signal = _refuse


class JournalFileHistory(FaultHistory):
    """The changes in the journal at ``path``, from ``since_ms`` on; see ``FaultHistory``.

    Raises ``StoreUnavailable`` where it cannot be read.
    """

    def __init__(self, path: Path, part: str, since_ms: int | None) -> None:
        self._path = path
        self._part = part
        self._since_ms = since_ms
        self._last = -1
        self._state: tuple[float, ...] = ()
        self.node = ""
        for row in self._rows():
            if row.kind == RowKind.START:
                self.node = decoded(row, Start).node

    @override
    def about(self) -> Timeline:
        not_known = (
            sentence("what happened since the agent ended"),
            sentence("what the cluster published about this node"),
        )
        source = sentence("journal of the agent of {node}", node=self.node)
        return Timeline(source, str(self._path), not_known, ())

    @override
    def read(self) -> Iterator[TimelineRow]:
        """See ``FaultHistory``. The file is read again only where it changed."""
        # New rows are in the write-ahead log until SQLite moves them into the file.
        state = tuple(
            file.stat().st_mtime
            for file in (self._path, self._path.with_name(f"{self._path.name}-wal"))
            if file.exists()
        )
        if state == self._state:
            return
        self._state = state
        for row in self._rows():
            if row.sequence > self._last:
                self._last = row.sequence
                if self._since_ms is None or row.at_ms >= self._since_ms:
                    yield from self._shown(row)

    def _rows(self) -> Iterator[JournalRow]:
        try:
            yield from read_rows(self._path)
        except (JournalError, OSError) as error:
            raise StoreUnavailable(str(error)) from None

    def _shown(self, row: JournalRow) -> Iterator[TimelineRow]:
        for entry in history_rows(row, self.node, ""):
            shown = timeline_row(entry)
            if not self._part or is_meant(self._part, shown.part):
                yield shown

"""Files that are replaced while a daemon runs.

New content that cannot be used leaves the last good content in force, and is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, NoReturn, TypeAlias, TypeVar

from contract.errors import ConfigurationError, Problem
from pacing.abandonable_thread import AbandonableThread
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_FileStamp: TypeAlias = tuple[int, int, int, int] | None
Content = TypeVar("Content")

_PERIOD_SECONDS = 5.0
_DEADLINE_SECONDS = 10.0


class ReloadedFiles(Generic[Content]):
    """The last good content of files that are replaced while they are in use."""

    def __init__(
        self,
        paths: Iterable[Path],
        load: Callable[[], Content],
        log: logging.Logger,
        subject: str,
    ) -> None:
        """Load the files. ``load`` raises ``ConfigurationError`` with what is wrong with each.

        ``subject`` names them in messages, such as "gRPC certificates".
        """
        self._paths = tuple(paths)
        self._load = load
        self._log = log
        self._subject = subject
        self.problem = OngoingFailure(
            log,
            f"new {subject} are not used: %s",
            f"the {subject} are good again",
            level=logging.ERROR,
        )
        """Why the newest content is not used."""
        self._seen = self._stamps()
        self.content = load()

    def refresh(self) -> bool:
        """Look whether the files were replaced by good ones; return whether they were."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        # The stamps are older than what is read now: a file replaced meanwhile is read again.
        self._seen = stamps
        before = self.content
        self.load()
        changed = self.content != before
        if changed:
            self._log.info("the %s were replaced", self._subject)
        return changed

    def load(self) -> None:
        """Load the files, whether they were replaced or not."""
        try:
            self.content = self._load()
        except ConfigurationError as error:
            self.problem.record_failure("; ".join(map(str, error.problems)))
        else:
            self.problem.end()

    async def keep_current(self, on_replaced: Callable[[], None] = lambda: None) -> NoReturn:
        """Look at the files for ever; call ``on_replaced`` after good ones replaced others."""
        thread: AbandonableThread[bool] | None = None
        content = self.content
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            # A disk that hangs keeps one thread, and the last good content.
            if thread is not None and thread.is_stuck:
                continue
            thread = AbandonableThread(self.refresh, self._subject)
            try:
                await thread.result(_DEADLINE_SECONDS)
            except TimeoutError:
                self.problem.record_failure(f"they cannot be read within {_DEADLINE_SECONDS:g} s")
            # Not what the thread returns: one that was late has replaced the content as well.
            if self.content != content:
                content = self.content
                on_replaced()

    def _stamps(self) -> tuple[_FileStamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: Path) -> _FileStamp:
    """Return what differs once a file was replaced; ``None`` where it cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    # The mode: a file is refused, or accepted again, by its rights.
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def read_files(paths: Mapping[str, Path]) -> tuple[list[bytes], list[Problem]]:
    """Return the content of the files that can be read, and a problem for each other one.

    ``paths`` are by the setting that names them.
    """
    contents, problems = [], []
    for where, path in paths.items():
        try:
            contents.append(path.read_bytes())
        except OSError as error:
            problems.append(Problem(where, f"{path} cannot be read: {error.strerror}"))
    return contents, problems

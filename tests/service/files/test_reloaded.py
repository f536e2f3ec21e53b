"""Files of a server that are replaced while it runs."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from service.files import reloaded
from service.files.reloaded import ReloadedFiles
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_files_that_are_read_too_late_are_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk hangs for longer than the deadline, and then gives the new content."""
    monkeypatch.setattr(reloaded, "_PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(reloaded, "_DEADLINE_SECONDS", 0.01)
    file, may_read = tmp_path / "file", threading.Event()
    may_read.set()
    file.write_text("old")

    def load() -> str:
        assert may_read.wait(patience(20))
        return file.read_text()

    replaced: list[str] = []
    files = ReloadedFiles((file,), load, logging.getLogger("test"), "files of the test")
    task = asyncio.create_task(files.keep_current(lambda: replaced.append(files.content)))
    try:
        may_read.clear()
        file.write_text("newer")
        await until(lambda: files.problem.reason is not None, "the deadline of the read")
        may_read.set()
        await until(lambda: bool(replaced), "the new content")
        assert replaced == ["newer"]
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

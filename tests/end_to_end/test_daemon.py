"""How the daemon ends when a part of it does."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import pytest

from agent import collector_setup, daemon
from agent.config import AgentConfiguration
from collectors.base import Collector
from contract.settings import Section
from service.tasks import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _process_is_as_before() -> Iterator[None]:
    """Restore signal handlers and logging: a daemon keeps its own until its process ends.

    With the log of a daemon, later tests of this process saw messages below ``WARNING``.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logging.basicConfig(level=level, handlers=handlers, force=True)
    for number, handler in before.items():
        signal.signal(number, handler)


class Broken(Collector[Section]):
    """A collector with a mistake in it."""

    name = "broken"
    period_seconds = 1.0
    deadline_seconds = 1.0

    async def run(self) -> NoReturn:
        await self.context.driver.inventory()
        raise ZeroDivisionError("a mistake")


def test_the_first_root_task_that_ends_ends_the_daemon(
    tmp_path: Path,
    built: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(collector_setup, "COLLECTORS", (Broken,))
    configuration = AgentConfiguration(
        node_name="node-1",
        store=f"directory:{tmp_path / 'store'}",
        driver_root=built / "driver",
        trust_driver=True,
        state_dir=tmp_path / "state",
    )
    assert daemon.run(configuration) == 1
    assert "CRITICAL agent.daemon: ends: ZeroDivisionError('a mistake')" in capfd.readouterr().err
    with closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite")) as connection:
        (body,) = connection.execute("SELECT body FROM rows WHERE kind = 'stop'").fetchone()
    assert json.loads(body) == {"reason": "ZeroDivisionError: a mistake"}

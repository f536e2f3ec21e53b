"""How the daemon ends when a part of it does."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

from agent import daemon, sources
from agent.config import AgentConfiguration
from collectors.base import Need

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from collectors.base import Surroundings


class Broken:
    """A collector with a mistake in it."""

    name = "broken"
    period_seconds = 1.0
    deadline_seconds = 1.0
    needs = frozenset({Need.DRIVER})

    async def run(self, surroundings: Surroundings) -> NoReturn:
        await surroundings.driver.inventory()
        raise ZeroDivisionError("a mistake")


def test_the_first_root_task_that_ends_ends_the_daemon(
    tmp_path: Path,
    built: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sources, "COLLECTORS", {"broken": Broken})
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

"""Whole agents and aggregators in virtual time: what a plan does, and that it does it twice."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.chaos.plan import CODES, Plan, PlannedFault, PlannedTrouble
from benchmarks.chaos.simulated.site import SimulatedSite, play_in, run_site
from benchmarks.chaos.stage import judged
from contract.codes.catalogue import shipped
from contract.names import LEADER_LEASE
from pacing import waiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.chaos.simulated.site import Episode

LEVELS = {code: shipped().chip_levels[code].value for code in CODES}
SEPARATES, SUB_HEALTH = "80E18402", "80818C06"
PLAN = Plan(
    *("simulated", 7, 30.0),
    faults=(
        PlannedFault("node-1", 3, SEPARATES, 2.0, 20.0),
        PlannedFault("node-2", 5, SUB_HEALTH, 4.0),
    ),
    troubles=(
        PlannedTrouble("agent-killed", "node-1", 5.0, 7.0),
        PlannedTrouble("aggregator-paused", "aggregator-1", 6.0, 14.0),
        PlannedTrouble("codes-hang", "node-2", 15.0, 18.0),
    ),
)


def wrongs(episode: Episode) -> list[str]:
    return [str(item) for item in judged(PLAN, *episode.parts)]


def rows(directory: Path) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield all rows of all tables of all databases."""
    for path in sorted(directory.rglob("*.sqlite")):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in sorted(tables):
                content = connection.execute(f"SELECT * FROM {table}").fetchall()
                yield str(path.relative_to(directory)), table, content


@pytest.mark.slow
def test_a_plan_does_the_same_twice_and_is_right(tmp_path: Path) -> None:
    results = []
    # In one place, because the path is a part of the configuration in the journal.
    for _ in range(2):
        place = tmp_path / "site"
        place.mkdir()
        results.append((play_in(place, PLAN)[0], [*rows(place)]))
        shutil.rmtree(place)
    (first, kept), (second, kept_again) = results
    assert first.writes == second.writes
    assert first.samples == second.samples
    assert kept == kept_again
    journals = [content for path, table, content in kept if "node-1" in path and table == "rows"]
    assert len(journals) == 3, "the agent was killed in the plan and at the end: each leaves a copy"
    assert min(map(len, journals)) > 5
    assert first.errors == []
    leader = next(client for _, client, name, _ in first.writes if name.endswith(LEADER_LEASE))
    is_excused = any(excuse.reason == "aggregator-paused" for excuse in first.excuses)
    assert is_excused == (leader == "aggregator-1"), "one that does not lead is not visible"
    assert wrongs(first) == []
    shown = {key: level for sample in first.samples for key, level in sample.levels.items()}
    assert shown == {
        ("node-1", 3, SEPARATES): LEVELS[SEPARATES],
        ("node-2", 5, SUB_HEALTH): LEVELS[SUB_HEALTH],
    }


@pytest.mark.slow
def test_rows_that_were_not_synced_are_gone_after_a_loss_of_power(tmp_path: Path) -> None:
    plan = Plan(
        *("simulated", 7, 20.0),
        faults=(PlannedFault("node-1", 3, SEPARATES, 5.5),),
        troubles=(PlannedTrouble("power-lost", "node-1", 4.0, 5.6),),
    )
    episode, _ = play_in(tmp_path, plan)
    assert episode.errors == []
    assert judged(plan, *episode.parts) == []
    before, after = (
        {str(row) for row in content}
        for path, table, content in rows(tmp_path / "node-1")
        if table == "rows" and path.startswith(("state-0", "state-1"))
    )
    assert before & after, "what was synced is there"
    assert any(SEPARATES in row for row in before - after), "the report of the fault is not"


def test_the_seed_decides_the_shared_wake_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = []

    async def work(site: SimulatedSite) -> None:
        phases.append(waiting.SHARED_WAKE_UPS.phase_seconds)
        await site.close()

    for number, seed in enumerate((1, 2, 1)):
        monkeypatch.setattr(waiting, "SHARED_WAKE_UPS", waiting.SharedWakeUps(float(number)))
        run_site(functools.partial(SimulatedSite, tmp_path / str(number)), work, seed)
    assert phases[0] == phases[2] != phases[1]


def test_a_task_that_goes_on_is_an_error_of_its_own_and_is_left(tmp_path: Path) -> None:
    async def go_on() -> None:
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def work(site: SimulatedSite) -> None:
        task = asyncio.create_task(go_on(), name="without an end")
        await site.close()
        assert not task.done()
        assert site.loop.time() < 60

    site = run_site(lambda: SimulatedSite(tmp_path), work, seed=1)
    assert site.episode.errors == [("a task went on", "without an end")]

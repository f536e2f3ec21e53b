"""The heartbeat on a directory store that a test can make fail."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from agent.name_claim import ClaimState, identity, this_holder
from contract.errors import StoreError, StoreRefused, StoreUnavailable
from stores.base import Beat
from stores.directory.store import DirectoryStore
from tests.agent.lives import HeartbeatLife
from tests.parts.deadlines import stays, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


HOLDER = "host-m_5"


class TroubledStore(DirectoryStore):
    """A directory store with outages."""

    error: StoreError | None = None
    hangs = False

    async def beat(self, beat: Beat) -> None:
        await self._trouble()
        await super().beat(beat)

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        await self._trouble()
        return await super().beats(node)

    async def _trouble(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class TroubledLife(HeartbeatLife):
    """A heartbeat on a directory that a test can make fail."""

    def __init__(self, root: Path, interval_seconds: float) -> None:
        self.store = TroubledStore(f"directory:{root}", root)
        super().__init__(self.store, HOLDER, interval_seconds, now_ms)
        self.permitted = 0
        self.claim.notify(self._permit)

    def _permit(self) -> None:
        self.permitted += 1

    async def beats(self, count: int) -> None:
        await self.until(lambda: self.heartbeat.beats >= count, f"{count} beats")

    async def until(self, happened: Callable[[], bool], what: str, seconds: float = 5.0) -> None:
        await until(happened, what, seconds)


@pytest.mark.slow
async def test_it_does_not_beat_while_a_task_stalls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TroubledLife(tmp_path, 0.1)
    async with bench.running():
        await bench.until(lambda: bench.heartbeat.beats > 1, "it beats")
        bench.watchdog.stalls = {"links": 61.0}
        await bench.until(lambda: bench.heartbeat.withheld is not None, "it stops")
        beats = bench.heartbeat.beats
        bench.watchdog.stalls["links"] = 62.0
        await stays(0.4, because="four intervals of 0.1 s pass")
        assert bench.heartbeat.beats == beats
        assert bench.heartbeat.withheld == "no progress: links"
        assert bench.claim.may_publish, "what is known is published all the same"
        bench.watchdog.stalls = {}
        await bench.beats(beats + 1)
        await bench.until(lambda: bench.heartbeat.withheld is None, "it says so")
    assert caplog.text.count("no heartbeat: no progress: links") == 1


@pytest.mark.slow
async def test_a_blind_agent_beats_and_reports_it(tmp_path: Path) -> None:
    bench = TroubledLife(tmp_path, 0.05)

    async def shown() -> bool | None:
        beats = await bench.store.beats("node-1")
        return beats[0].blind if beats else None

    async with bench.running():
        await bench.beats(2)
        assert await shown() is False
        bench.blind = True
        await bench.beats(bench.heartbeat.beats + 2)
        assert await shown() is True
        bench.blind = False
        await bench.beats(bench.heartbeat.beats + 2)
        assert await shown() is False


@pytest.mark.slow
async def test_a_failure_is_tried_again_long_before_the_interval_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TroubledLife(tmp_path, 60.0)
    bench.store.error = StoreUnavailable("no route to host")
    async with bench.running():
        await bench.until(lambda: bench.heartbeat.failures > 2, "it tries again and again")
        assert bench.permitted == 0, "nobody knows yet who has the name"
        bench.store.error = None
        await bench.until(lambda: bench.heartbeat.beats > 0, "it beats", 3.0)
        assert bench.permitted == 1
        assert bench.claim.may_publish
        assert bench.heartbeat.trouble.reason is None
    assert caplog.text.count("no route to host") == 1
    assert caplog.text.count("heartbeats work again") == 1


async def test_missing_rights_do_not_keep_faults_from_the_cluster(tmp_path: Path) -> None:
    bench = TroubledLife(tmp_path, 0.1)
    bench.store.error = StoreRefused("no right to read Leases")
    async with bench.running():
        await bench.until(lambda: bench.permitted == 1, "publishing may begin")
        assert bench.claim.may_publish
        bench.store.error = StoreUnavailable("away")
        failures = bench.heartbeat.failures
        await bench.until(lambda: bench.heartbeat.failures > failures + 1, "it is away")
        assert bench.claim.may_publish
        assert bench.permitted == 1


async def test_a_store_that_hangs_is_no_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.heartbeat.heartbeat.READ_SECONDS", 0.1)
    bench = TroubledLife(tmp_path, 0.1)
    bench.store.hangs = True
    async with bench.running():
        await bench.until(lambda: bench.watchdog.marks > 3, "it goes on")
        assert bench.heartbeat.trouble.reason == "heartbeats cannot be read: no answer within 0.1 s"


@pytest.mark.slow
async def test_a_rival_that_has_to_give_way_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TroubledLife(tmp_path, 0.1)
    rival = DirectoryStore("", tmp_path)
    async with bench.running():
        await bench.until(lambda: bench.heartbeat.beats > 0, "it beats")
        for number in range(3):
            beats = bench.heartbeat.beats
            await rival.beat(Beat("node-1", "host-x_9", 5.0, number))
            await bench.beats(beats + 2)
        assert bench.claim.state is ClaimState.OURS
        assert caplog.text.count("must stop publishing") == 1
        await rival.beat(Beat("node-1", "host-x_1", 5.0, 1))
        await bench.until(lambda: not bench.claim.may_publish, "it gives way")
        assert bench.claim.conflict == (
            "conflict: another agent with the node name node-1 runs on host-x_1"
        )


async def test_agent_that_may_not_beat_gives_way_to_one_that_does(tmp_path: Path) -> None:
    bench = TroubledLife(tmp_path, 0.1)
    rival = DirectoryStore("", tmp_path)
    async with bench.running():
        await bench.beats(1)
        bench.watchdog.stalls = {"links": 61.0}
        await bench.until(lambda: bench.heartbeat.withheld is not None, "it stops")
        await rival.beat(Beat("node-1", "host-x_9", 0.1, 1))
        await bench.until(lambda: bench.claim.conflict is not None, "it gives way")


async def test_waiting_agent_ends_its_trouble_when_the_store_answers(tmp_path: Path) -> None:
    bench = TroubledLife(tmp_path, 0.1)
    await DirectoryStore("", tmp_path).beat(Beat("node-1", "host-x_9", 60.0, 2**45))
    bench.store.error = StoreUnavailable("away")
    async with bench.running():
        await bench.until(lambda: bench.heartbeat.trouble.reason is not None, "it is away")
        bench.store.error = None
        await bench.until(lambda: bench.heartbeat.trouble.reason is None, "it is back")
        assert bench.claim.state is ClaimState.WAITING


def test_a_holder_is_a_host_and_its_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "one")
    one = this_holder(tmp_path / "one")
    assert one == this_holder(tmp_path / "one") == this_holder(tmp_path / "link")
    assert identity(one) != identity(this_holder(tmp_path / "two"))
    assert one.endswith(f"_{identity(one)}")


async def test_stopped_agent_announces_its_absence(tmp_path: Path) -> None:
    bench = TroubledLife(tmp_path, 0.2)
    async with bench.running():
        await bench.beats(1)
    (before,) = await bench.store.beats()
    await bench.heartbeat.leave(0.5)
    assert await bench.store.beats() == (before,), "3 intervals are longer"
    await bench.heartbeat.leave(300.0)
    (last,) = await bench.store.beats()
    assert (last.interval_seconds, last.holder) == (100.0, HOLDER)
    assert last.beaten_at_ms > before.beaten_at_ms


async def test_an_agent_without_heartbeat_does_not_sign_off(tmp_path: Path) -> None:
    bench = TroubledLife(tmp_path, 0.2)
    await bench.heartbeat.leave(300.0)
    assert await bench.store.beats() == ()

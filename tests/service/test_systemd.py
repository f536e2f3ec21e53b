"""The service manager, on a real datagram socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from service.systemd import notify_manager
from tests.parts.deadlines import stays
from tests.parts.service_manager import Manager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = f"\0npu-vigil-test-{os.getpid()}-{tmp_path.name}"
    manager = Manager(str(tmp_path / "notify") if request.param == "path" else name)
    with contextlib.closing(manager):
        yield manager


class Daemon:
    """A state to report to the service manager."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.stalled: dict[str, float] = {}
        self.not_ready: tuple[str, ...] = ("the store does\nnot answer",)
        self._environment = environment

    @contextlib.asynccontextmanager
    async def lives(self) -> AsyncIterator[None]:
        running = notify_manager(lambda: self.stalled, lambda: self.not_ready, self._environment)
        task = asyncio.create_task(running)
        yield
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_ready_when_ready_and_stopping_at_the_end(manager: Manager) -> None:
    daemon = Daemon(manager.environment)
    async with daemon.lives():
        waiting = await manager.receives("STATUS=the store does not answer")
        assert "EXTEND_TIMEOUT_USEC=30000000" in waiting
        daemon.not_ready = ()
        assert "STATUS=ready" in await manager.receives("READY=1")
    await manager.receives("STOPPING=1")
    assert manager.lines_with("READY") == ["READY=1"]
    assert manager.lines_with("WATCHDOG") == []


@pytest.mark.slow
async def test_the_watchdog_is_fed_only_while_nothing_stalls(manager: Manager) -> None:
    daemon = Daemon({**manager.environment, "WATCHDOG_USEC": "200000"})
    daemon.not_ready = ()
    async with daemon.lives():
        for _ in range(3):
            await manager.receives("WATCHDOG=1")
        daemon.stalled = {"publisher": 31.0}
        await manager.receives("STATUS=stalled: publisher")
        manager.received.clear()
        await stays(0.3, because="the watchdog would be fed several times")
        assert manager.lines_with("WATCHDOG") == []
        daemon.stalled = {}
        assert "STATUS=ready" in await manager.receives("WATCHDOG=1")


async def test_a_stall_while_starting_asks_for_no_more_time(manager: Manager) -> None:
    daemon = Daemon(manager.environment)
    daemon.stalled = {"driver": 61.0}
    async with daemon.lives():
        assert await manager.receives("STATUS=stalled: driver") == ["STATUS=stalled: driver"]


async def test_the_watchdog_of_another_process_is_not_fed(manager: Manager) -> None:
    environment = {"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}
    daemon = Daemon({**manager.environment, **environment})
    async with daemon.lives():
        await manager.receives("STATUS=the store does not answer")
    assert manager.lines_with("WATCHDOG") == []


@pytest.mark.slow
async def test_a_manager_that_does_not_listen_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = Daemon({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    async with daemon.lives():
        await stays(0.6, because="several messages are sent, to nobody")
    assert caplog.text.count("does not listen: No such file or directory") == 1


async def test_without_a_manager_nothing_happens() -> None:
    daemon = Daemon({"WATCHDOG_USEC": "200000"})
    async with daemon.lives():
        await asyncio.sleep(0)

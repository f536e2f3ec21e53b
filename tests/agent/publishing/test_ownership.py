"""Which documents an agent leaves to another program, and when it takes them over, in virtual time.

The whole agent beside a Device Plugin is in ``tests/replay/test_beside_plugin.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from agent.publishing.ownership import Ownership, other_program, owned_by
from contract.errors import StoreRefused, StoreUnavailable
from service.watchdog import Watchdog
from stores.base import LastWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agent.publishing.ownership import Owned
    from stores.base import Store

NOW_MS = 1_800_000_000_000
DEVICE_INFO, NODE_INFO = owned_by("n", ["device-info", "node-info"])

pytestmark = pytest.mark.looptime(resolution=2**-20)


class Writers:
    """The part of a store that knows who wrote."""

    def __init__(self) -> None:
        self.program: LastWriter | None = None
        self.other: LastWriter | None = None
        self.errors: list[Exception] = []
        self.asked = 0

    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.program

    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        return self.other

    def wrote(self, name: str, age_seconds: float = 0.0) -> None:
        """Set another program as the writer, ``age_seconds`` ago."""
        self.program = self.other = LastWriter(name, now_ms() - round(age_seconds * 1000))


def now_ms() -> int:
    return NOW_MS + round(asyncio.get_running_loop().time() * 1000)


@contextlib.asynccontextmanager
async def owning(writers: Writers, owned: Owned = DEVICE_INFO) -> AsyncIterator[Ownership]:
    """Yield a running ownership whose store has answered once."""
    ownership = Ownership(
        cast("Store", writers),
        owned,
        Watchdog(),
        now_ms,
        on_change=lambda: None,
        on_failure=lambda _: None,
    )
    task = asyncio.create_task(ownership.run())
    await ownership.decided.wait()
    yield ownership
    task.cancel()


def test_only_what_is_owned_is_asked_about() -> None:
    assert [owned.kind for owned in (DEVICE_INFO, NODE_INFO)] == ["device-info", "node-info"]
    assert owned_by("n", ["node-info"]) == (NODE_INFO,)


@pytest.mark.parametrize("name", [None, "npu-vigil"])
async def test_document_without_another_program_is_ours(name: str | None) -> None:
    writers = Writers()
    if name is not None:
        writers.wrote(name)
    async with owning(writers) as ownership:
        assert ownership.is_ours
        await asyncio.sleep(3600)
        assert writers.asked == 1, "a healthy node asks once"


@pytest.mark.parametrize(
    ("owned", "name", "age_seconds", "left_seconds"),
    [
        (DEVICE_INFO, "device-plugin", 0, 360),
        (DEVICE_INFO, "device-plugin", 359, 1),
        (DEVICE_INFO, "device-plugin", -30, 390),
        (NODE_INFO, "noded", 1859, 1),
        (NODE_INFO, "backup-tool", 0, 60),
    ],
)
async def test_document_is_left_until_the_program_is_gone(
    owned: Owned, name: str, age_seconds: int, left_seconds: int
) -> None:
    writers = Writers()
    writers.wrote(name, age_seconds)
    async with owning(writers, owned) as ownership:
        assert not ownership.is_ours
        assert ownership.other is not None
        text = ownership.other.text
        assert f"{owned.namespace}/{owned.name} is left to '{name}'" in text
        assert f"kubectl delete configmap -n {owned.namespace} {owned.name}" in text
        assert f"take {owned.kind} out of `documents`" in text
        await asyncio.sleep(left_seconds - 0.5)
        assert not ownership.is_ours
        await asyncio.sleep(1)
        assert ownership.is_ours


@pytest.mark.parametrize(("owned", "age_seconds"), [(DEVICE_INFO, 360), (NODE_INFO, 1860)])
async def test_program_that_is_gone_is_followed(owned: Owned, age_seconds: int) -> None:
    writers = Writers()
    writers.wrote("noded", age_seconds)
    assert other_program(owned, writers.program, now_ms()) is None
    async with owning(writers, owned) as ownership:
        assert ownership.is_ours


async def test_program_that_returns_has_its_whole_period() -> None:
    writers = Writers()
    writers.wrote("my-plugin")
    async with owning(writers) as ownership:
        await asyncio.sleep(61)
        assert ownership.is_ours
        writers.wrote("my-plugin")
        await ownership.query_after_change()
        assert ownership.other is not None
        assert ownership.other.left_seconds == 360


async def test_clock_that_is_set_takes_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    writers = Writers()
    writers.wrote("device-plugin")
    async with owning(writers) as ownership:
        monkeypatch.setattr("tests.agent.publishing.test_ownership.NOW_MS", NOW_MS + 3_600_000)
        ownership.wake()
        await asyncio.sleep(100)
        assert not ownership.is_ours


@pytest.mark.parametrize(
    ("name", "age_seconds", "was"),
    [
        (None, 0, False),
        ("npu-vigil", 0, False),
        ("device-plugin", 0, True),
        ("device-plugin", 86_400, True),
    ],
)
async def test_it_is_known_whether_another_program_wrote_it_before(
    name: str | None, age_seconds: float, was: bool
) -> None:
    """It may write it again, and wipe what it does not know."""
    writers = Writers()
    if name is not None:
        writers.wrote(name, age_seconds)
    async with owning(writers) as ownership:
        assert ownership.was_others is was
        writers.wrote("device-plugin")
        await ownership.query_after_change()
        assert ownership.was_others
        await asyncio.sleep(400)
        assert ownership.is_ours
        assert ownership.was_others


@pytest.mark.parametrize(("name", "is_ours"), [("backup-tool", True), ("device-plugin", False)])
async def test_only_a_real_program_is_given_the_document(name: str, is_ours: bool) -> None:
    writers = Writers()
    async with owning(writers) as ownership:
        await asyncio.sleep(10)
        writers.wrote(name)
        await ownership.query_after_change()
        assert ownership.is_ours is is_ours


async def test_old_write_gives_nothing_back() -> None:
    """The fields of a plugin that has gone keep its name for years."""
    writers = Writers()
    writers.wrote("device-plugin", 86_400)
    async with owning(writers) as ownership:
        await ownership.query_after_change()
        assert ownership.is_ours


async def test_store_that_is_away_is_waited_for() -> None:
    writers = Writers()
    writers.wrote("device-plugin", 1)
    writers.errors = [StoreUnavailable("away"), TimeoutError()]
    async with owning(writers) as ownership:
        assert not ownership.is_ours
        assert writers.asked == 3


async def test_store_that_may_not_be_asked_takes_no_document_away() -> None:
    writers = Writers()
    writers.errors = [StoreRefused("no right")]
    async with owning(writers) as ownership:
        assert ownership.is_ours

"""A real aggregator whose directory is a mount that goes, comes late, or is another one."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from stores.directory_mark import MARK_NAME
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import T0, faulty, report
from tests.parts.fuse import mounts
from tests.parts.mounted import Mounted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon

pytestmark = mounts

NODES = ("n1", "n2", "n3", "n4", "n5")
NOTICED_SECONDS = 5.0
OF_ANOTHER = "0123456789abcdef" * 2


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    with Mounted(tmp_path) as one:
        yield one


def mark(mounted: Mounted) -> str:
    found: str = json.loads((mounted.real / MARK_NAME).read_text())["id"]
    return found


@pytest.fixture
async def filled(mounted: Mounted) -> AsyncIterator[Store]:
    """The directory behind the mount, with a faulty chip on each node."""
    store = open_store(f"directory:{mounted.real}")
    for node in NODES:
        await store.put(report(node, faulty()))
    yield store
    await store.close()


@pytest.fixture
def daemon(make: Make, mounted: Mounted, tmp_path: Path) -> Daemon:
    return make(
        f"directory:{mounted.place}", None, "--publish", f"directory:{tmp_path / 'published'}"
    )


def ready(daemon: Daemon) -> bool:
    return daemon.ask("/readyz")[0] == 200


def not_ready_for(daemon: Daemon, *texts: str) -> bool:
    status, answer = daemon.ask("/readyz")
    return status == 503 and all(text in str(answer) for text in texts)


def errors(daemon: Daemon) -> list[str]:
    return [line for line in daemon.log.read_text().splitlines() if " ERROR " in line]


async def until(daemon: Daemon, text: str, seconds: float = NOTICED_SECONDS) -> None:
    """Wait until the aggregator is not ready because of what ``text`` says."""
    began = time.monotonic()
    while not await asyncio.to_thread(not_ready_for, daemon, text):
        assert time.monotonic() - began < seconds, daemon.ask("/readyz")
        await asyncio.sleep(0.1)


async def until_ready(daemon: Daemon, seconds: float = NOTICED_SECONDS) -> None:
    began = time.monotonic()
    while not await asyncio.to_thread(ready, daemon):
        assert time.monotonic() - began < seconds, daemon.ask("/readyz")
        await asyncio.sleep(0.1)


def faulty_nodes(daemon: Daemon) -> set[str]:
    """Nodes with a fault in the cluster's documents, as the API shows them."""
    return {fault["node"] for fault in daemon.ask("/api/v1/faults")[1]["faults"]}


async def test_an_unmounted_directory_and_its_return(
    mounted: Mounted, filled: Store, daemon: Daemon
) -> None:
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    assert faulty_nodes(daemon) == set(NODES)
    mounted.unmount()
    await until(daemon, f"has no mark, and the directory known here has {mark(mounted)}")
    assert daemon.metric("npu_vigil_store_replaced") == 1
    assert faulty_nodes(daemon) == set(NODES)
    await filled.put(report("n1", faulty(3, T0 + 5)))
    mounted.mount()
    await until_ready(daemon, 10)
    daemon.process.wait_until(lambda: daemon.node("n1")["reported_update_time"] == T0 + 5, 10)
    (line,) = errors(daemon)
    assert mark(mounted) in line
    assert daemon.metric("npu_vigil_store_replaced") == 0


async def test_an_aggregator_that_is_started_before_the_mount(
    mounted: Mounted, filled: Store, daemon: Daemon
) -> None:
    await asyncio.to_thread(daemon.start)
    assert filled is not None
    mounted.mount()
    # It knew no mark: there was nothing to forget.
    daemon.process.wait_until(lambda: faulty_nodes(daemon) == set(NODES), 10)
    await until_ready(daemon)
    await asyncio.sleep(NOTICED_SECONDS)
    daemon.stop()
    mounted.unmount()
    await asyncio.to_thread(daemon.spawn)
    await until(daemon, f"has no mark, and the directory known here has {mark(mounted)}", 10)
    assert faulty_nodes(daemon) == set(NODES)
    mounted.mount()
    await until_ready(daemon, 10)
    assert faulty_nodes(daemon) == set(NODES)


async def test_the_directory_of_another_cluster_and_a_backup(
    mounted: Mounted, filled: Store, daemon: Daemon, tmp_path: Path
) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    shutil.copytree(mounted.real, backup)
    other.mkdir()
    (other / MARK_NAME).write_text(json.dumps({"id": OF_ANOTHER}))
    await filled.put(report("n1", faulty(3, T0 + 5)))
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    mounted.mount(other)
    await until(daemon, f"has the mark {OF_ANOTHER}, and the directory known here")
    (other / MARK_NAME).write_text("garbage")
    await until(daemon, f"{MARK_NAME} cannot be read")
    assert faulty_nodes(daemon) == set(NODES)
    mounted.unmount()
    mounted.unmount()
    mounted.mount(backup)
    await until_ready(daemon, 10)
    assert faulty_nodes(daemon) == set(NODES)
    assert daemon.node("n1")["reported_update_time"] == T0 + 5, "an older document is no news"
    assert len(errors(daemon)) == 1


async def test_agents_that_beat_in_the_new_directory_make_it_count(
    mounted: Mounted, filled: Store, daemon: Daemon, tmp_path: Path
) -> None:
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    new = tmp_path / "new"
    new.mkdir()
    mounted.mount(new)
    await until(daemon, "has no mark")
    there = open_store(f"directory:{new}")
    async with Fleet(there, NODES[:2], 1.0).beating():
        await asyncio.sleep(NOTICED_SECONDS)
        assert not await asyncio.to_thread(ready, daemon)
    async with Fleet(there, NODES[:3], 1.0).beating():
        for node in NODES[:3]:
            await there.put(report(node, faulty()))
        await until_ready(daemon, 10)
    assert filled is not None
    assert faulty_nodes(daemon) == set(NODES)
    assert "3 of 5 known nodes beat there" in daemon.log.read_text()
    await there.close()

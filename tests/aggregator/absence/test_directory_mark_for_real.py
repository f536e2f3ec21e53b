"""A real aggregator whose directory is a mount that goes, comes late, or is another one."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from stores.base import Beat
from stores.directory.mark import MARK_NAME
from tests.aggregator.chip_reader import ChipReader
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import T0, faulty, report
from tests.parts import deadlines
from tests.parts.deadlines import stays
from tests.parts.fuse import mounts
from tests.parts.mounted import Mounted
from tests.parts.verbs import vigil_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon

pytestmark = mounts

NODES = ("n1", "n2", "n3", "n4", "n5")
NOTICED_SECONDS = 5.0
WRITTEN_SECONDS = 1.5
"""After so long what is known is in the state directory."""
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
    """Return the directory behind the mount, with a faulty chip on each node."""
    store = open_store(f"directory:{mounted.real}")
    for node in NODES:
        await store.put(report(node, faulty()))
    yield store
    await store.close()


@pytest.fixture
def daemon(make: Make, mounted: Mounted, tmp_path: Path) -> Daemon:
    publish = f"directory:{tmp_path / 'published'}"
    daemon = make(f"directory:{mounted.place}", None, "--publish", publish)
    daemon.program = "tests.aggregator.quick"
    return daemon


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[ChipReader]:
    """Read what is published; fail where a chip turns healthy or a node vanishes."""
    store = open_store(f"directory:{tmp_path / 'published'}")
    reader = ChipReader()
    async with reader.reading(store):
        yield reader
        assert set(reader.ill) == set(NODES)
    await store.close()


def ready(daemon: Daemon) -> bool:
    return daemon.ask("/readyz")[0] == 200


def not_ready_for(daemon: Daemon, *texts: str) -> bool:
    status, answer = daemon.ask("/readyz")
    return status == 503 and all(text in str(answer) for text in texts)


def errors(daemon: Daemon) -> list[str]:
    return [line for line in daemon.log.read_text().splitlines() if " ERROR " in line]


async def until(daemon: Daemon, text: str, seconds: float = NOTICED_SECONDS) -> None:
    """Wait until the aggregator is not ready for the reason ``text``."""
    await deadlines.until(
        lambda: asyncio.to_thread(not_ready_for, daemon, text),
        lambda: daemon.ask("/readyz"),
        seconds,
        0.1,
    )


async def until_ready(daemon: Daemon, seconds: float = NOTICED_SECONDS) -> None:
    await deadlines.until(
        lambda: asyncio.to_thread(ready, daemon), lambda: daemon.ask("/readyz"), seconds, 0.1
    )


async def test_an_unmounted_directory_and_its_return(
    mounted: Mounted, filled: Store, daemon: Daemon, reader: ChipReader
) -> None:
    daemon.program = "vigil"
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    await shown(reader)
    mounted.unmount()
    await until(daemon, f"has no mark, and the directory known here has {mark(mounted)}")
    assert daemon.metric("npu_vigil_store_replaced") == 1
    assert set(reader.ill) == set(NODES)
    await filled.put(report("n1", faulty(3, T0 + 5)))
    mounted.mount()
    await until_ready(daemon, 10)
    await until_reported(daemon, T0 + 5)
    (line,) = errors(daemon)
    assert mark(mounted) in line
    # A scrape is good for a second.
    await asyncio.to_thread(
        daemon.process.wait_until, lambda: daemon.metric("npu_vigil_store_replaced") == 0, 5
    )


async def test_an_aggregator_that_is_started_before_the_mount(
    mounted: Mounted, filled: Store, daemon: Daemon, reader: ChipReader
) -> None:
    assert filled is not None
    await asyncio.to_thread(daemon.start)
    mounted.mount()
    # It knew no mark: there was nothing to forget.
    await shown(reader)
    await until_ready(daemon)
    await stays(WRITTEN_SECONDS, because="what is known is written after _GATHER_SECONDS, 0.5")
    daemon.stop()
    mounted.unmount()
    await asyncio.to_thread(daemon.spawn)
    await until(daemon, f"has no mark, and the directory known here has {mark(mounted)}", 10)
    mounted.mount()
    await until_ready(daemon, 10)


async def test_the_directory_of_another_cluster_and_a_backup(
    mounted: Mounted, filled: Store, daemon: Daemon, reader: ChipReader, tmp_path: Path
) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    shutil.copytree(mounted.real, backup)
    other.mkdir()
    (other / MARK_NAME).write_text(json.dumps({"id": OF_ANOTHER}))
    await filled.put(report("n1", faulty(3, T0 + 5)))
    await filled.beat(Beat("n1", "host", 5.0, T0 * 1000))
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    await shown(reader)
    mounted.mount(other)
    await until(daemon, f"has the mark {OF_ANOTHER}, and the directory known here")
    (other / MARK_NAME).write_text("garbage")
    await until(daemon, f"{MARK_NAME} cannot be read")
    mounted.unmount()
    mounted.unmount()
    mounted.mount(backup)
    await until_ready(daemon, 10)
    node = await asyncio.to_thread(daemon.node, "n1")
    assert node["reported_update_time"] == T0 + 5, "its agent is to write it again"
    assert len(errors(daemon)) == 1


async def test_agents_that_beat_in_the_new_directory_make_it_count(
    mounted: Mounted, filled: Store, daemon: Daemon, reader: ChipReader, tmp_path: Path
) -> None:
    assert filled is not None
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    await shown(reader)
    there = await replaced(mounted, tmp_path / "new")
    await until(daemon, "has no mark")
    for node in NODES[:3]:
        await there.put(report(node, faulty()))
    async with Fleet(there, NODES[:2], 0.5).beating():
        await stays(2, because="four heartbeats pass")
        assert not await asyncio.to_thread(ready, daemon)
    async with Fleet(there, NODES[:3], 0.5).beating():
        await until_ready(daemon, 10)
    await asyncio.to_thread(daemon.waits_for_text, "3 of 5 known nodes beat there")
    await there.close()


async def test_an_operator_confirms_it_and_forgets_the_nodes_that_are_not_there(
    mounted: Mounted, filled: Store, daemon: Daemon, reader: ChipReader, tmp_path: Path
) -> None:
    assert filled is not None
    mounted.mount()
    await asyncio.to_thread(daemon.start)
    await shown(reader)
    there = await replaced(mounted, tmp_path / "new")
    for node in NODES[:4]:
        await there.put(report(node, faulty()))
    known = mark(mounted)
    await until(daemon, f"vigil forget --mark {known}")
    where = ("--yes", "--store", f"directory:{mounted.place}")
    await asyncio.to_thread(forget, "--mark", known, *where)
    await until_ready(daemon, 10)
    await asyncio.to_thread(daemon.waits_for_text, "counts, an operator confirmed it")
    reader.may_end(NODES[4:])
    options = (*where, "--config", str(published_too(tmp_path)))
    await asyncio.to_thread(forget, NODES[4], *options)
    await deadlines.until(lambda: reader.healthy == set(NODES[4:]), seconds=20)
    await there.close()


def forget(*arguments: str) -> None:
    """Run ``vigil forget``, which succeeds."""
    result = vigil_process("forget", *arguments)
    assert result.returncode == 0, result.stderr


def published_too(tmp_path: Path) -> Path:
    """Write a configuration with the published store, from which the command knows the node."""
    file = tmp_path / "stores.toml"
    file.write_text(f'publish = ["directory:{tmp_path / "published"}"]\n')
    return file


async def replaced(mounted: Mounted, new: Path) -> Store:
    """Mount an empty directory over the known one; the store that is there now."""
    new.mkdir()
    mounted.mount(new)
    return open_store(f"directory:{new}")


async def shown(reader: ChipReader) -> None:
    """Wait until the fault of each node is published."""
    await deadlines.until(lambda: set(reader.ill) == set(NODES), seconds=10)


async def until_reported(daemon: Daemon, update_time: int) -> None:
    async def is_reported() -> bool:
        node = await asyncio.to_thread(daemon.node, "n1")
        return bool(node["reported_update_time"] == update_time)

    await deadlines.until(is_reported, "the document is reported", 10)

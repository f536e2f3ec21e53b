"""A broker and a directory that come back without what they had: nothing turns healthy."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from contract.forget_record import FORGET_NAMESPACE, ForgetRecord, forget_record_name
from stores.address import open_store
from tests.aggregator.chip_reader import ChipReader
from tests.aggregator.daemon import Daemon
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import T0, faulty, forget_document, report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.broker import Broker

_TOUCH_SECONDS = 1
_WRITTEN_SECONDS = 1.5
"""After so long what is published is in the state directory."""


@pytest.fixture
def daemon(tmp_path: Path, broker: Broker) -> Iterator[Daemon]:
    options = ("--store", broker.url, "--touch-period-seconds", str(_TOUCH_SECONDS))
    daemon = Daemon(tmp_path / "aggregator", *options)
    yield daemon
    daemon.stop()


@pytest.fixture
async def store(broker: Broker) -> AsyncIterator[Store]:
    opened = open_store(broker.url)
    yield opened
    await opened.close()


async def until(what: str, reached: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.05)


async def write(store: Store, node: str) -> None:
    await store.put(report(node, faulty(update_time=T0)))


def empty(broker: Broker) -> None:
    """It restarts without persistence."""
    broker.kill()
    (broker.directory / "mosquitto.db").unlink(missing_ok=True)
    broker.start()


def is_named(daemon: Daemon, node: str) -> bool:
    """Whether a ready aggregator names the node."""
    status, answer = daemon.ask("/readyz")
    return status == 200 and node in str(answer)


async def test_what_an_emptied_broker_lacks_stays_and_silent_nodes_are_lost(
    broker: Broker, daemon: Daemon, store: Store
) -> None:
    nodes = [f"n{number}" for number in range(1, 6)]
    reader = ChipReader()
    fleet = Fleet(store, nodes, 1.0)
    for node in nodes:
        await write(store, node)
    async with fleet.beating():
        daemon.spawn()
        async with reader.reading(store):
            await until("all are shown", lambda: len(reader.ill) == len(nodes))
            alive = 'npu_vigil_heartbeats{state="alive"}'
            await until("all beat", lambda: daemon.metric(alive) == len(nodes))
            fleet.silent.add("n5")
            await asyncio.to_thread(empty, broker)
            await asyncio.sleep(1.0)
            for node in nodes[:-1]:
                await write(store, node)
            await until("it is named", lambda: is_named(daemon, "n5"))
            assert daemon.node("n5")["state"] == "missing"
            assert daemon.metric("npu_vigil_missing_documents") == 1
            await until("n5 is lost", lambda: reader.lost == {"n5"})
            await asyncio.sleep(_WRITTEN_SECONDS)
            await asyncio.to_thread(daemon.kill)
            await asyncio.to_thread(empty, broker)
            await asyncio.to_thread(daemon.spawn)
            for node in nodes[:-1]:
                await write(store, node)
            await until("it is lost again", lambda: is_named(daemon, "n5"))
            await asyncio.sleep(2.0)
            assert daemon.node("n5")["heartbeat"] == "lost"
            assert reader.lost == {"n5"}
            reader.may_end(["n5"])
            record = ForgetRecord("n5", int(time.time() * 1000), "a test")
            await store.put(forget_document(record))
            await until("n5 is shown healthy", lambda: "n5" in reader.healthy)
            await until("n5 is dropped", lambda: "n5" in reader.dropped)
            deadline = time.monotonic() + 20
            while await store.get(FORGET_NAMESPACE, forget_record_name("n5")) is not None:
                assert time.monotonic() < deadline, "the record stays"
                await asyncio.sleep(0.1)
    log = daemon.log.read_text()
    assert "Traceback" not in log
    assert "lacks documents" in log

"""A broker and a directory that come back without what they had: nothing turns healthy."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from contract.documents.forget_record import FORGET_NAMESPACE, ForgetRecord, forget_record_name
from contract.errors import StoreUnavailable
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    STATE_LABEL,
    STATE_NAMESPACE,
    device_info_name,
)
from stores.address import open_store
from stores.base import Beat, Selection
from tests.aggregator.chip_reader import ChipReader
from tests.aggregator.daemon import OUTPUTS, Daemon
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import T0, faulty, forget_document, report
from tests.parts import deadlines
from tests.parts.deadlines import patience, stays, until_succeeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

_TOUCH_SECONDS = 1
_LOOK_SECONDS = 0.25
"""A page about 1,000 nodes costs more than all else here."""
_MANY = 1000
_ALIVE = 'npu_vigil_heartbeats{state="alive"}'
_UNKNOWN = 'npu_vigil_heartbeats{state="unknown"}'
_BACK_SECONDS = 20.0
_STATE = Selection(namespace=STATE_NAMESPACE, has_label=STATE_LABEL)
_MISSING = "npu_vigil_missing_documents"


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
    await deadlines.until(reached, lambda: f"never: {what}", seconds)


async def _has_state(store: Store, names: set[str]) -> bool:
    return names <= {one.name for one in await store.list(_STATE)}


async def _knows_all(daemon: Daemon, store: Store) -> bool:
    """Return whether a run after a kill knows what is published and kept now."""
    in_file = await asyncio.to_thread(daemon.known_documents)
    stored = [*await store.list(OUTPUTS), *await store.list(_STATE)]
    return all(in_file.get((state.namespace, state.name)) == state.data for state in stored)


async def _has_no_record(store: Store, node: str) -> bool:
    return await store.get(FORGET_NAMESPACE, forget_record_name(node)) is None


async def write(store: Store, node: str) -> None:
    # The connection to a broker that was just started is made again after a pause.
    await until_succeeds(lambda: store.put(report(node, faulty(update_time=T0))), StoreUnavailable)


def empty(broker: Broker) -> None:
    """Restart the broker without persistence."""
    broker.kill()
    (broker.directory / "mosquitto.db").unlink(missing_ok=True)
    broker.start()


def silent(daemon: Daemon) -> list[str]:
    """Return the silent nodes, and check that none is lost."""
    page = daemon.ask("/api/v1/liveness")[1]["liveness"]
    assert page["lost"] == []
    held: list[str] = page["held"]
    return held


def is_named(daemon: Daemon, node: str) -> bool:
    """Return whether a ready aggregator reports the node."""
    status, answer = daemon.ask("/readyz")
    return status == 200 and node in str(answer)


@pytest.mark.timeout(120)
async def test_a_thousand_nodes_that_an_emptied_broker_lacks_stay_and_no_node_is_lost(
    broker: Broker, daemon: Daemon, store: Store
) -> None:
    nodes = [f"n{number:04}" for number in range(_MANY)]
    reader = ChipReader()

    async def publish(some: list[str]) -> None:
        for node in some:
            await write(store, node)
            await store.beat(Beat(node, f"host-of-{node}", 1.0, 1))

    await asyncio.gather(*(publish(nodes[first::20]) for first in range(20)))
    await asyncio.to_thread(daemon.spawn)
    async with reader.reading(store):
        await until("all are shown", lambda: len(reader.ill) == _MANY, 40)
        await until("all have beaten", lambda: daemon.metric(_UNKNOWN) == 0)
        await until("all are held", lambda: len(silent(daemon)) == _MANY)
        await deadlines.until(lambda: store.list(_STATE), "who is silent is kept")
        await deadlines.until(partial(_knows_all, daemon, store), "what is shown is in its file")
        for is_restarted in (False, True):
            kept = {one.name for one in await store.list(_STATE)}
            assert kept, "who is silent is kept"
            if is_restarted:
                await asyncio.to_thread(daemon.kill)
            reader.forget_documents()
            await asyncio.to_thread(empty, broker)
            if is_restarted:
                await asyncio.to_thread(daemon.spawn)
            await until("all are shown again", lambda: len(reader.shown) == _MANY)
            await until("they are named", lambda: daemon.metric(_MISSING) == _MANY)
            await until("all are held", lambda: len(silent(daemon)) == _MANY)
            await deadlines.until(
                partial(_has_state, store, kept), "kept state is written again", _BACK_SECONDS
            )
            status, answer = daemon.ask("/readyz")
            assert status == 503
            assert f"lacks documents of {_MANY} of {_MANY} nodes" in str(answer)
    assert reader.lost == set()
    assert daemon.log.read_text().count("WARNING aggregator.absence.ended_documents") == 2, (
        "one of each run"
    )


@pytest.mark.daemon
async def test_explicit_deletions_in_a_directory(tmp_path: Path) -> None:
    nodes = [f"n{number:02}" for number in range(12)]
    root = tmp_path / "store"
    url = f"directory:{root}"
    store, reader = open_store(url), ChipReader()
    options = ("--store", url, "--touch-period-seconds", str(_TOUCH_SECONDS))
    daemon = Daemon(tmp_path / "aggregator", *options)
    for node in nodes:
        await write(store, node)

    def remove(node: str) -> None:
        (root / DEVICE_INFO_NAMESPACE / f"{device_info_name(node)}.json").unlink()

    try:
        async with Fleet(store, nodes[-1:], patience(1.0)).beating(), reader.reading(store):
            await asyncio.to_thread(daemon.start)
            await until("one beats", lambda: daemon.metric(_ALIVE) == 1)
            remove(nodes[-1])
            reader.may_end(nodes[:1])
            await store.beat(Beat(nodes[0], "host", 1.0, 1))
            await until("it is lost", lambda: reader.lost == set(nodes[:1]))
            began = time.monotonic()
            remove(nodes[0])
            await until("it ends", lambda: reader.healthy == set(nodes[:1]))
            assert time.monotonic() - began > 1.9
            await until("it is dropped", lambda: reader.dropped == set(nodes[:1]))
            assert reader.lost == set(nodes[:1]), "its heartbeat is there and old"
            await store.forget_beat(nodes[0])
            await until("it is lost no more", lambda: not reader.lost)
            for node in nodes[1:5]:
                remove(node)
            await until("they are held", lambda: daemon.metric("npu_vigil_held_deletions") == 4)
            status, answer = daemon.ask("/readyz")
            assert status == 503
            assert "of 4 a deletion is held back" in str(answer)
            assert daemon.node(nodes[-1])["state"] == "missing"
            assert daemon.node(nodes[-1])["heartbeat"] == "alive"
    finally:
        daemon.stop()
        await store.close()
    errors = [line for line in daemon.log.read_text().splitlines() if " ERROR " in line]
    assert len(errors) == 1
    assert f"vigil forget NODE... --store {url}" in errors[0]


@pytest.mark.apiserver
async def test_a_namespace_of_kubernetes_that_is_emptied_ends_its_nodes(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    store = open_store("kubernetes:", control_plane.kubeconfig)
    reader, nodes = ChipReader(), ["n1", "n2", "n3", "n4", "n5"]
    options = ("--store", "kubernetes:", "--kubeconfig", str(control_plane.kubeconfig))
    daemon = Daemon(tmp_path / "aggregator", *options, "--touch-period-seconds", "1")
    for node in nodes:
        await write(store, node)
    try:
        async with reader.reading(store):
            await asyncio.to_thread(daemon.start)
            reader.may_end(nodes)
            for node in nodes:
                await store.delete(DEVICE_INFO_NAMESPACE, device_info_name(node))
            await until("all end", lambda: reader.healthy == set(nodes))
            await until("all are dropped", lambda: reader.dropped == set(nodes))
    finally:
        daemon.stop()
        await store.close()


async def test_documents_that_an_emptied_broker_lacks_stay_and_silent_nodes_are_lost(
    broker: Broker, daemon: Daemon, store: Store
) -> None:
    nodes = [f"n{number}" for number in range(1, 6)]
    reader = ChipReader()
    fleet = Fleet(store, nodes, patience(1.0))
    for node in nodes:
        await write(store, node)
    async with fleet.beating():
        await asyncio.to_thread(daemon.spawn)
        async with reader.reading(store):
            await until("all are shown", lambda: len(reader.ill) == len(nodes))
            await until("all beat", lambda: daemon.metric(_ALIVE) == len(nodes))
            fleet.silent.add("n5")
            await asyncio.to_thread(empty, broker)
            await stays(
                1.0, because="the broker has nothing for longer than a look of the rules, 1 s"
            )
            for node in nodes[:-1]:
                await write(store, node)
            await until("it is named", lambda: is_named(daemon, "n5"))
            assert daemon.node("n5")["state"] == "missing"
            assert daemon.metric(_MISSING) == 1
            await until("n5 is lost", lambda: reader.lost == {"n5"})
            await deadlines.until(
                partial(_knows_all, daemon, store), "what is shown is in its file"
            )
            await asyncio.to_thread(daemon.kill)
            await asyncio.to_thread(empty, broker)
            await asyncio.to_thread(daemon.spawn)
            for node in nodes[:-1]:
                await write(store, node)
            await until("it is lost again", lambda: is_named(daemon, "n5"))
            await stays(2.0, because="the liveness rules look at least every second")
            assert daemon.node("n5")["heartbeat"] == "lost"
            assert reader.lost == {"n5"}
            reader.may_end(["n5"])
            record = ForgetRecord("n5", int(time.time() * 1000), "a test")
            await store.put(forget_document(record))
            await until("n5 is shown healthy", lambda: "n5" in reader.healthy)
            await until("n5 is dropped", lambda: "n5" in reader.dropped)
            await deadlines.until(partial(_has_no_record, store, "n5"), "the record goes")
    log = daemon.log.read_text()
    assert "Traceback" not in log
    assert "lacks documents" in log

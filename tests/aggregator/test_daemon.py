"""A real aggregator process on a directory and on a real API server."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from aggregator.config import AggregatorConfiguration
from aggregator.daemon import Aggregator
from aggregator.notify.history import ClusterHistory
from aggregator.process import _collecting_seldom
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from service.clock import system_clock
from service.election.leadership import AlwaysLeader
from stores.base import Beat, Changed, Document
from stores.directory.beats import DirectoryHeartbeats
from stores.directory.owner import OwnerCheck
from stores.touch import TOUCHED
from tests.aggregator.daemon import OUTPUTS, Daemon, entries, values
from tests.aggregator.nodes import T0, faulty, healthy, published, report, unhealthy
from tests.contract.documents.node_documents import config
from tests.parts.deadlines import patience, until
from tests.parts.processes import free_ports
from tests.parts.tasks import beside
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make

NAME = "cluster-info-device-0"
FOREIGN_WRITES = "npu_vigil_publication_foreign_writes_total"


def shows(node: str, chips: str) -> Callable[[Watching], bool]:
    """Return a condition: ``node`` is published with these unhealthy chips."""

    def happened(seen: Watching) -> bool:
        entry = entries(seen).get(node)
        return entry is not None and unhealthy(entry) == chips

    return happened


async def test_a_fault_appears_and_clears_on_one_of_three_nodes(
    store: Store, daemon: Daemon
) -> None:
    for node in ("n3", "n1", "n2"):
        await store.put(report(node, healthy()))
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await seen.until(lambda seen: list(entries(seen)) == ["n1", "n2", "n3"])
        await store.put(report("n2", faulty(update_time=T0 + 1)))
        await seen.until(shows("n2", "Ascend910-3"))
        faults = daemon.ask("/api/v1/faults")[1]["faults"]
        assert [(f["node"], f["subject"], f["code"], f["level"]) for f in faults] == [
            ("n2", "Ascend910-3", "80E18402", "RestartNPU")
        ]
        assert (faults[0]["severity"], faults[0]["device_fault"]) == ("critical", True)
        assert daemon.metric('npu_vigil_cluster_faults{code="80E18402"') == 1
        await store.put(report("n2", healthy(T0 + 2)))
        await seen.until(shows("n2", ""))
    assert daemon.ask("/api/v1/faults")[1]["faults"] == []
    # Nothing more was written than needed: two documents, the fault, the recovery.
    # A scrape is good for a second.
    written = "npu_vigil_publication_writes_total"
    daemon.process.wait_until(lambda: daemon.metric(written) == 4, seconds=2)
    assert daemon.metric("npu_vigil_publication_foreign_writes_total") == 0
    everywhere = "public faults are taken from all namespaces; public_faults.namespaces names"
    daemon.waits_for_text(everywhere)
    assert daemon.log.read_text().count(everywhere) == 1


@pytest.mark.parametrize("kind", ["directory"])
async def test_bad_documents_never_replace_a_good_one_and_are_reported(
    store: Store, daemon: Daemon
) -> None:
    await store.put(report("n1", faulty()))
    await store.put(report("n2", {"DeviceInfoCfg": "{"}))
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        for data in (config(CheckCode="x"), {"DeviceInfoCfg": "{oops"}, {}, {"Other": "x"}):
            await store.put(report("n1", data))
        await store.put(report("n3", healthy()))
        await seen.until(shows("n3", ""))
        assert set(entries(seen)) == {"n1", "n3"}
        assert unhealthy(entries(seen)["n1"]) == "Ascend910-3"
        kept = daemon.node("n1")
        assert kept["state"] == "kept"
        assert "is missing" in kept["rejected"][0]["reason"]
        assert kept["rejected"][0]["since_ms"] <= time.time() * 1000
        assert daemon.node("n2")["state"] == "rejected"
        assert daemon.metric('npu_vigil_rejected_documents_total{reason="unreadable"') >= 2
        await store.put(report("n1", healthy(T0 + 5)))
        await seen.until(shows("n1", ""))
    assert daemon.node("n1")["state"] == "reported"


async def repaired(store: Store, right: dict[str, str]) -> None:
    """Wait until the store has this again. A watch may show the repair alone."""

    async def is_right() -> bool:
        return await values(store) == right

    await until(is_right, "the document is repaired", 10)


async def test_document_changed_or_deleted_by_others_is_repaired(
    store: Store, daemon: Daemon
) -> None:
    await store.put(report("n1", faulty()))
    await asyncio.to_thread(daemon.start)
    right = await values(store)
    wrong = (
        Document(CLUSTER_NAMESPACE, NAME, {NAME: ""}, dict([CLUSTER_LABEL])),
        Document(CLUSTER_NAMESPACE, NAME, {NAME: right[NAME]}),
        None,
    )
    for number, document in enumerate(wrong, 1):
        if document is None:
            await store.delete(CLUSTER_NAMESPACE, NAME)
        else:
            await store.put(document)
        daemon.process.wait_until(
            lambda number=number: daemon.metric(FOREIGN_WRITES) == number,  # type: ignore[misc]
            seconds=10,
        )
        await repaired(store, right)


@pytest.mark.parametrize("kind", ["directory"])
async def test_sizes_of_documents_are_known_again_after_a_restart(
    store: Store, daemon: Daemon
) -> None:
    await store.put(report("n1", faulty()))
    await store.put(report("n2", healthy()))
    await asyncio.to_thread(daemon.start)

    def shown() -> list[float]:
        documents = daemon.ask("/api/v1/documents")[1]["documents"]
        (one,) = (one for one in documents if one["document"] == NAME)
        labels = f'{{document="{NAME.rpartition("-")[0]}"'
        return [
            one["nodes"],
            one["bytes"],
            one["published"],
            daemon.metric(f"npu_vigil_publication_nodes{labels}"),
            daemon.metric(f"npu_vigil_publication_bytes{labels}"),
        ]

    before = shown()
    size = len((await values(store))[NAME].encode())
    assert before == [2, size, True, 2, size]
    daemon.stop()
    await asyncio.to_thread(daemon.start)
    assert shown() == before
    assert daemon.metric("npu_vigil_publication_writes_total") == 0


async def test_a_second_writer_is_a_conflict_and_a_change_is_shown_by_the_next_try(
    store: Store, daemon: Daemon
) -> None:
    await store.put(report("n1", faulty()))
    await asyncio.to_thread(daemon.start)
    right = await values(store)
    for number in range(4):
        mine = {NAME: f'{{"number":{number}}}'}
        await store.put(Document(CLUSTER_NAMESPACE, NAME, mine, dict([CLUSTER_LABEL])))
        daemon.process.wait_until(
            lambda number=number: daemon.metric(FOREIGN_WRITES) == number + 1,  # type: ignore[misc]
            seconds=10,
        )
        if number < 3:
            await repaired(store, right)
    daemon.process.wait_until(
        lambda: daemon.metric("npu_vigil_publication_conflict") == 1, seconds=10
    )
    assert daemon.ask("/api/v1/documents")[1]["documents"][0]["conflict"] is True
    status, answer = daemon.ask("/readyz")
    assert status == 200, "all other documents are published"
    assert answer["warnings"][0].startswith(f"conflict: another program writes {NAME} in ")
    assert 'writer=""' in daemon.ask("/metrics")[1]
    daemon.waits_for_text(f"conflict: another program writes {NAME} in ")
    async with watching(store, OUTPUTS) as seen:
        await store.put(report("n1", healthy(T0 + 1)))
        await seen.until(shows("n1", ""))


async def test_killed_and_started_again_nothing_is_lost_and_stamps_grow(
    store: Store, daemon: Daemon, kind: str
) -> None:
    for node in ("n1", "n2", "n3"):
        await store.put(report(node, healthy(T0 + 50)))
    surplus = {"cluster-info-device-7": '{"left":"over"}'}
    await store.put(
        Document(CLUSTER_NAMESPACE, "cluster-info-device-7", surplus, dict([CLUSTER_LABEL]))
    )
    await asyncio.to_thread(daemon.start)
    assert (await values(store))["cluster-info-device-7"] == ""
    daemon.kill()
    await store.put(report("n1", faulty(update_time=T0 + 40)))
    await store.delete("kube-system", "mindx-dl-deviceinfo-n2")
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await seen.until(shows("n1", "Ascend910-3"))
        after = entries(seen)
        assert set(after) == {"n1", "n2", "n3"}
        assert after["n1"]["UpdateTime"] == T0 + 51
        assert after["n3"]["UpdateTime"] == T0 + 50
        if kind == "kubernetes":
            await seen.until(lambda seen: set(entries(seen)) == {"n1", "n3"})
        else:
            assert daemon.node("n2")["state"] == "missing", "a list of a directory ends nobody"
    unchanged = await values(store)
    daemon.process.stop()
    await asyncio.to_thread(daemon.start)
    assert await values(store) == unchanged
    assert daemon.metric("npu_vigil_publication_writes_total") == 0


async def test_a_deleted_node_is_shown_healthy_before_it_goes(
    store: Store, make: Make, address: tuple[str, Path | None]
) -> None:
    # It is dropped after this time, and until then it is looked at.
    daemon = make(*address, "--touch-period-seconds", f"{min(55, patience(1)):g}")
    await store.put(report("n1", faulty()))
    await store.put(report("n2", healthy()))
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await store.delete("kube-system", "mindx-dl-deviceinfo-n1")
        await seen.until(shows("n1", ""))
        assert daemon.node("n1")["state"] == "deleted"
        await seen.until(lambda seen: set(entries(seen)) == {"n2"})


async def test_it_ends_at_once_when_stopped(store: Store, daemon: Daemon) -> None:
    await store.put(report("n1", healthy()))
    await asyncio.to_thread(daemon.start)
    began = time.monotonic()
    daemon.process.signal(signal.SIGTERM)
    assert daemon.process.wait(patience(5)) == 0
    assert time.monotonic() - began < patience(5)


async def test_a_second_store_that_is_away_delays_no_other(make: Make, tmp_path: Path) -> None:
    from stores.address import open_store

    url, blocked = f"directory:{tmp_path / 'one'}", tmp_path / "other"
    store = open_store(url)
    await store.put(report("n1", faulty()))
    blocked.mkdir(mode=0o700)
    (blocked / "mindx-dl").write_text("a file where a directory belongs")
    daemon = make(url, None, "--publish", url, "--publish", f"directory:{blocked}")
    await asyncio.to_thread(daemon.spawn)
    async with watching(store, OUTPUTS) as seen:
        await seen.until(shows("n1", "Ascend910-3"))

    def names_reason() -> bool:
        status, answer = daemon.ask("/readyz")
        return status == 503 and str(blocked) in answer["reasons"][0]

    daemon.process.wait_until(names_reason, seconds=10)
    (blocked / "mindx-dl").unlink()
    daemon.process.wait_until(lambda: daemon.ask("/readyz")[0] == 200, seconds=20)


async def test_clients_that_cannot_be_served_are_reported_while_nodes_are_published(
    make: Make, tmp_path: Path
) -> None:
    from stores.address import open_store

    url = f"directory:{tmp_path / 'store'}"
    daemon = make(url, None, "--grpc-plaintext", "--grpc-listen", "192.0.2.1:8899")
    store = open_store(url)
    await store.put(report("n1", faulty()))
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.spawn)
        await seen.until(shows("n1", "Ascend910-3"))
    why = "cannot serve gRPC on 192.0.2.1:8899: Cannot assign requested address"
    daemon.process.wait_until(lambda: daemon.ask("/readyz")[1]["reasons"] == [why], seconds=20)
    assert daemon.ask("/readyz")[0] == 503
    assert daemon.ask("/healthz")[0] == 200
    assert daemon.ask("/api/v1/services")[1]["services"]["grpc"]["trouble"] == why
    await store.close()


async def test_a_store_that_cannot_be_read_is_why_it_is_not_ready(make: Make) -> None:
    (port,) = free_ports(1)
    url = f"mqtt://127.0.0.1:{port}"
    daemon = make(url, None)
    await asyncio.to_thread(daemon.spawn)

    def names_reason() -> bool:
        status, answer = daemon.ask("/readyz")
        return status == 503 and f"{url} cannot be read: " in str(answer["reasons"])

    daemon.process.wait_until(names_reason, seconds=10)


async def test_two_stores_are_read_and_both_are_published_to(make: Make, tmp_path: Path) -> None:
    from stores.address import open_store

    urls = [f"directory:{tmp_path / name}" for name in ("one", "other")]
    one, other = (open_store(url) for url in urls)
    await one.put(report("n1", healthy()))
    await other.put(report("n2", faulty()))
    daemon = make(urls[0], None, "--store", urls[1], "--publish", urls[0], "--publish", urls[1])
    await asyncio.to_thread(daemon.start)
    there = await values(one)
    assert there == await values(other)
    assert list(published(there[NAME])) == ["n1", "n2"]


def touches(seen: Watching, name: str) -> list[datetime]:
    """Return the times of the touches of a document that the watch has shown."""
    states = [event.document for event in seen.of(Changed) if event.document.name == name]
    times = dict.fromkeys(state.annotations.get(TOUCHED) for state in states)
    return [datetime.fromisoformat(at) for at in times if at is not None]


async def test_documents_are_touched_and_their_data_is_not_written(
    store: Store, daemon: Daemon
) -> None:
    await store.put(report("n1", faulty()))
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        right = await values(store)
        names = {NAME, CLUSTER_NODE_NAME}

        await seen.until(lambda seen: all(len(touches(seen, name)) >= 2 for name in names))
        for name in names:
            first, second = touches(seen, name)[:2]
            # Every second, by the clock of the aggregator.
            assert (second - first).total_seconds() > 0.9
        assert all("npu-vigil/touched" in d.annotations for d in seen.documents.values())
    assert await values(store) == right
    assert daemon.metric("npu_vigil_publication_writes_total") == 2
    assert daemon.metric(FOREIGN_WRITES) == 0
    # The last one may be counted after a watch has shown it, and a scrape is good for a second.
    daemon.process.wait_until(
        lambda: daemon.metric("npu_vigil_publication_touches_total") >= 4, seconds=5
    )


async def test_a_node_that_falls_silent_is_published_unless_configured_otherwise(
    make: Make, tmp_path: Path
) -> None:
    from stores.address import open_store

    url, other = f"directory:{tmp_path / 'one'}", f"directory:{tmp_path / 'other'}"
    store, aside = open_store(url), open_store(other)
    quiet = tmp_path / "quiet.toml"
    quiet.write_text("[liveness]\npublish = false\n")
    talks, shows_only = make(url, None), make(url, None, "--publish", other, "--config", str(quiet))
    await store.beat(Beat("n1", "host", 1.0, 1))
    talks.start()
    shows_only.start()
    for daemon in (talks, shows_only):
        daemon.process.wait_until(lambda: daemon.node("n1")["heartbeat"] == "lost", seconds=10)  # noqa: B023
        page = daemon.ask("/api/v1/liveness")[1]["liveness"]
        assert (page["lost"], page["alarm"], page["published"]) == (["n1"], False, daemon is talks)
    async with watching(store, OUTPUTS) as seen:
        key = (CLUSTER_NAMESPACE, CLUSTER_NODE_NAME)
        await seen.until(lambda seen: "UnHealthy" in seen.documents[key].data[CLUSTER_NODE_NAME])
        await store.beat(Beat("n1", "host", 1.0, 0))
        await seen.until(lambda seen: seen.documents[key].data[CLUSTER_NODE_NAME] == "")
    published = await aside.get(CLUSTER_NAMESPACE, CLUSTER_NODE_NAME)
    assert published is not None
    assert published.data == {CLUSTER_NODE_NAME: ""}


@pytest.mark.slow
def test_of_many_nodes_only_the_oldest_heartbeats_and_wrong_clocks_have_series(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    beats = DirectoryHeartbeats(root, OwnerCheck(root, others_may_write=False))
    nodes = [f"n{number:02}" for number in range(30)]
    ahead = dict.fromkeys(nodes, 0) | {"n07": 3_600_000, "n08": 1_000}

    def beat() -> None:
        for node, ahead_ms in ahead.items():
            beats.beat(Beat(node, "host", 1.0, int(time.time() * 1000) + ahead_ms))

    daemon = Daemon(tmp_path / "aggregator", "--store", f"directory:{root}")
    daemon.start()
    try:
        beat()

        def is_shown() -> bool:
            beat()
            return daemon.metric("npu_vigil_node_clock_skew_seconds{") > 3500

        daemon.process.wait_until(is_shown, seconds=20)
        lines = daemon.ask("/metrics")[1].splitlines()
    finally:
        daemon.stop()
    ages = [line for line in lines if line.startswith("npu_vigil_heartbeat_age_seconds{")]
    skews = [line for line in lines if line.startswith("npu_vigil_node_clock_skew_seconds{")]
    assert len(ages) == 20
    assert [line.partition(" ")[0] for line in skews] == [
        'npu_vigil_node_clock_skew_seconds{node="n07"}'
    ]


async def test_a_start_ends_once_with_everything_read(store: Store, tmp_path: Path) -> None:
    begun: list[frozenset[str]] = []
    await store.put(report("n1", faulty()))
    configuration = AggregatorConfiguration(store=(store.url,), state_dir=tmp_path / "state")
    aggregator = Aggregator(
        configuration,
        {store.url: store},
        ClusterHistory(configuration.state_dir, {}, system_clock),
        AlwaysLeader("me"),
        on_begun=lambda: begun.append(frozenset(aggregator.pipeline.device.entries)),
    )
    async with beside(aggregator.run()):
        await store.put(report("n2", faulty()))
        await until(lambda: "n2" in aggregator.pipeline.device.entries)
    assert len(begun) == 1
    assert "n1" in begun[0]


@pytest.mark.slow
def test_the_garbage_collector_does_little_at_the_start_and_passes_over_what_was_read() -> None:
    before = gc.get_threshold()
    end = _collecting_seldom()
    try:
        assert gc.get_threshold()[0] > 100 * before[0]
        read = [[number] for number in range(1000)]
    finally:
        end()
    try:
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() >= len(read)
        assert not any(read is thing for thing in gc.get_objects())
    finally:
        gc.unfreeze()

"""Other programs and agents write our documents: no agent falls silent, on any kind of store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from typing import TYPE_CHECKING

import pytest

from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, DEVICE_INFO_NAMESPACE, REPORT_LABEL
from stores.address import open_store
from stores.base import Beat, Changed, Deleted, Document, DocumentsListed, Selection
from stores.settings import Mqtt
from tests.aggregator.daemon import Daemon
from tests.end_to_end.mqtt_node import OnBroker, aggregator_on_broker
from tests.end_to_end.node import WITHIN_A_SECOND, Node
from tests.parts.deadlines import patience, stays, time_passes, until
from tests.parts.places import Cluster, Folder
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.places import Place

FAULT = "80E01801"
SEPARATING = "80E18402"
"""Its level is SeparateNPU, so a reader that sees the chip well gives it to a job."""
DEVICES = "cluster-info-device-0"
INTERVAL_SECONDS = 1.0


@pytest.fixture(
    params=["directory", "mqtt", pytest.param("kubernetes", marks=pytest.mark.apiserver)]
)
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return each kind of store in turn."""
    match request.param:
        case "directory":
            return Folder(tmp_path / "store")
        case "mqtt":
            return OnBroker(request.getfixturevalue("broker"), "node-1")
    return Cluster(request.getfixturevalue("control_plane"))


@pytest.fixture
def node(tmp_path: Path, built: Path, any_place: Place) -> Iterator[Node]:
    """Yield a node on any store; its agent is not started."""
    node = Node(tmp_path / "node-1", built, any_place)
    if isinstance(any_place, OnBroker):
        node.environment |= any_place.environment
    node.options += ["--heartbeat-interval-seconds", f"{INTERVAL_SECONDS}"]
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, any_place: Place) -> Iterator[Daemon]:
    """Yield an aggregator on the same store; it is not started."""
    directory = tmp_path / "aggregator"
    if isinstance(any_place, OnBroker):
        daemon = aggregator_on_broker(directory, any_place.broker, *any_place.options)
    else:
        daemon = Daemon(directory, *any_place.options)
    yield daemon
    daemon.stop()


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Store]:
    """Open the store with the right to write everything."""
    match place:
        case Folder():
            store = open_store(f"directory:{place.root}")
        case OnBroker():
            store = open_store(place.broker.url, mqtt=Mqtt())
        case _:
            assert isinstance(place, Cluster)
            store = open_store("kubernetes:", place.plane.kubeconfig)
    try:
        yield store
    finally:
        await store.close()


def device_info(number: int) -> Document:
    """Return the document that another program writes in place of the node's device-info."""
    data = {"DeviceInfoCfg": "{}", "UpgradeFaultReason": json.dumps({"stranger": number})}
    return Document(DEVICE_INFO_NAMESPACE, "mindx-dl-deviceinfo-node-1", data, dict([REPORT_LABEL]))


def cluster_info(number: int) -> Document:
    """Return the document that another program writes in place of the cluster's document."""
    data = {DEVICES: json.dumps({"stranger": number})}
    return Document(CLUSTER_NAMESPACE, DEVICES, data, dict([CLUSTER_LABEL]))


def conflicts(node: Node) -> list[str]:
    """Return the conflicts that the agent reports about its documents."""
    return [one["conflict"] for one in node.status()["publications"] if one["conflict"]]


def test_another_holder_and_seven_writes_at_once_are_no_conflict(node: Node) -> None:
    """Seen as a stranger's, they would hold the node's document up."""
    node.start()
    node.healthy()
    # Of two that beat the one with the greater identity gives way, so this one cannot stay.
    at_ms = int(time.time() * 1000)
    beat = Beat("node-1", "other-host_zzzz", INTERVAL_SECONDS, at_ms, blind=False)

    async def attack() -> None:
        async with opened(node.place) as store:
            await store.beat(beat)
            for number in range(7):
                await store.put(device_info(number))
                await time_passes(0.03)

    asyncio.run(attack())
    node.emulator.occur(1, FAULT)
    took = node.until(lambda now: now.codes(1) == {FAULT}, "the fault is shown")
    assert took < patience(3), "it takes milliseconds; nothing says that it is in a conflict"
    assert conflicts(node) == []
    assert "conflict: somebody" not in node.logged()
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")


def test_a_stranger_who_writes_for_three_seconds_blocks_no_other_for_long(
    node: Node, aggregator: Daemon
) -> None:
    node.start()
    node.healthy()
    aggregator.start()
    node.emulator.occur(1, FAULT)
    node.until(lambda now: now.codes(1) == {FAULT}, "the first fault")

    async def attack() -> None:
        async with opened(node.place) as store:
            begin, numbers = time.monotonic(), itertools.count()

            async def is_named_after_another_write() -> bool:
                number = next(numbers)
                await asyncio.gather(
                    store.put(device_info(number)), store.put(cluster_info(number))
                )
                return time.monotonic() - begin > 3 and await asyncio.to_thread(are_named)

            # A busy machine may take longer to notice enough of them.
            await until(is_named_after_another_write, "both are named", 20, 0.05)

    def are_named() -> bool:
        conflict = "conflict: another program writes mindx-dl-deviceinfo-node-1"
        other = "conflict: another program writes cluster-info-device-0"
        return (
            conflicts(node) == [conflict]
            and conflict in json.dumps(node.ask("/readyz")[1])
            and other in json.dumps(aggregator.ask("/readyz")[1])
        )

    asyncio.run(attack())
    node.emulator.occur(2, FAULT)
    node.until(lambda now: now.codes(2) == {FAULT}, "the next try shows it", 15)

    def is_in_cluster_info() -> bool:
        data = cluster_data(node.place)
        return data is not None and FAULT in data[DEVICES] and "Ascend910-2" in data[DEVICES]

    node.wait(is_in_cluster_info, "the next try shows it there, too", 15)


@pytest.mark.parametrize("any_place", ["kubernetes"], indirect=True)
@pytest.mark.apiserver
async def test_an_immutable_document_is_replaced_and_its_node_never_healthy(
    node: Node, aggregator: Daemon
) -> None:
    assert isinstance(node.place, Cluster)
    plane = node.place.plane
    node.emulator.occur(1, SEPARATING)
    node.start()
    node.until(lambda now: now.codes(1) == {SEPARATING}, "the standing fault")
    aggregator.start()
    selection = Selection(namespace=CLUSTER_NAMESPACE)

    def is_separated(document: Document) -> bool:
        """Return whether a reader of cluster-info finds the node with its chip separated."""
        entry = json.loads(document.data[DEVICES]).get("mindx-dl-deviceinfo-node-1")
        if entry is None:
            return False
        chips = entry["DeviceList"]
        faults = [
            (fault["fault_code"], fault["fault_level"])
            for fault in json.loads(chips["huawei.com/Ascend910-Fault"])
            if fault["npu_name"] == "Ascend910-1"
        ]
        return (
            "Ascend910-1" in chips["huawei.com/Ascend910-Unhealthy"].split(",")
            and "Ascend910-1" not in chips["huawei.com/Ascend910"].split(",")
            and faults == [(SEPARATING, "SeparateNPU")]
        )

    place = (CLUSTER_NAMESPACE, DEVICES)
    nodes = (CLUSTER_NAMESPACE, "cluster-info-node-cm")
    async with opened(node.place) as store, watching(store, selection) as seen:
        await seen.until(lambda seen: {place, nodes} <= seen.documents.keys())
        await seen.until(lambda seen: is_separated(seen.documents[place]))
        known = len(seen.events)
        path = f"/api/v1/namespaces/{DEVICE_INFO_NAMESPACE}/configmaps/{node.document}"
        begin = time.monotonic()
        await asyncio.to_thread(plane.request, "PATCH", path, {"immutable": True})

        def is_mutable() -> bool:
            status, found = plane.ask("GET", path)
            return status == 200 and "immutable" not in found

        await asyncio.to_thread(node.wait, is_mutable, "it is replaced", 5.0)
        assert time.monotonic() - begin < patience(WITHIN_A_SECOND)
        node.emulator.occur(2, SEPARATING)
        await seen.until(
            lambda seen: "Ascend910-2" in seen.documents[place].data[DEVICES].partition("-Fault")[2]
        )
        await stays(2.5, because="a write that was missed is found within claims.PATIENCE_MS, 2000")
        since = seen.events[known:]
        assert not any(isinstance(event, DocumentsListed) for event in since), "nothing was missed"
        shown = [event.document for event in since if isinstance(event, Changed)]
        devices = [document for document in shown if document.name == DEVICES]
        assert devices
        assert all(map(is_separated, devices))
        gone = [event.name for event in since if isinstance(event, Deleted)]
        assert not {DEVICES, "cluster-info-node-cm"} & set(gone)
        lost = [one for one in shown if "UnHealthy" in one.data.get("cluster-info-node-cm", "")]
        assert lost == []
    node.waits_for_text("it was made immutable; it is deleted and created again")
    node.ready()


def cluster_data(place: Place) -> dict[str, str] | None:
    """Return the data of cluster-info now."""

    async def read() -> Document | None:
        async with opened(place) as store:
            return await store.get(CLUSTER_NAMESPACE, DEVICES)

    found = asyncio.run(read())
    return None if found is None else found.data

"""``vigil forget NODE`` and ``--mark`` on each store."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.documents.forget_record import (
    FORGET_NAMESPACE,
    decode_forget_record,
    encode_forget_record,
    forget_record_name,
)
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.address import open_store
from stores.base import Beat, Document, FoundMark
from stores.directory.mark import MARK_NAME
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import T0, faulty, healthy, node_report, report
from tests.parts.deadlines import patience
from tests.parts.verbs import vigil_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import Store
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.daemon

INTERVAL = patience(0.2)
AHEAD_SECONDS = 3600
MARK = "0123456789abcdef" * 2


class Place:
    """A store, and the options by which the verb finds it."""

    def __init__(self, url: str, kubeconfig: Path | None = None) -> None:
        self.store: Store = open_store(url, kubeconfig)
        where = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
        self.options = ("--store", url, *where)
        self.has_records = kubeconfig is None

    async def forget(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output."""
        return await asyncio.to_thread(forget, *arguments, *self.options)

    async def names(self, node: str) -> set[str]:
        """Return the names of a node's documents, with marks for its heartbeats and its record."""
        store = self.store
        documents = [report(node, {}), node_report(node, [], "")]
        found = {
            one.name for one in documents if await store.get(one.namespace, one.name) is not None
        }
        found |= {"beat"} if await store.beats(node) else set()
        recorded = await store.get(FORGET_NAMESPACE, forget_record_name(node))
        return found | ({"record"} if recorded is not None else set())


def forget(*arguments: str) -> tuple[int, str]:
    """Run ``vigil forget``; return its exit status and output."""
    result = vigil_process("forget", *arguments)
    output = result.stdout + result.stderr
    assert "Traceback" not in output
    return result.returncode, output


@pytest.fixture(
    params=["directory", "broker", pytest.param("kubernetes", marks=pytest.mark.apiserver)]
)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Yield each kind of store in turn."""
    if request.param == "directory":
        place = Place(f"directory:{tmp_path / 'store'}")
    elif request.param == "broker":
        broker: Broker = request.getfixturevalue("broker")
        place = Place(broker.url)
    else:
        plane: ControlPlane = request.getfixturevalue("control_plane")
        place = Place("kubernetes:", plane.kubeconfig)
    yield place
    await place.store.close()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(f"directory:{tmp_path / 'store'}")
    yield place
    await place.store.close()


async def fill(place: Place, node: str, update_time: int = T0) -> set[str]:
    """Write everything that an agent leaves; return its names."""
    await place.store.put(report(node, faulty(update_time=update_time)))
    await place.store.put(node_report(node, [], "Healthy"))
    await place.store.beat(Beat(node, "host", INTERVAL, T0 * 1000))
    return await place.names(node)


async def test_a_node_that_is_gone_is_forgotten_and_one_that_beats_is_refused(
    place: Place,
) -> None:
    there = await fill(place, "gone")
    assert there == {"mindx-dl-deviceinfo-gone", "mindx-dl-nodeinfo-gone", "beat"}
    alive = await fill(place, "alive")
    status, output = await place.forget("gone")
    assert (status, await place.names("gone")) == (0, there)
    assert "gone would be forgotten: mindx-dl-deviceinfo-gone, mindx-dl-nodeinfo-gone" in output
    assert "nothing was changed: add --yes" in output
    async with Fleet(place.store, ["alive"], INTERVAL).beating():
        status, output = await place.forget("gone", "alive", "--yes")
    assert (status, "alive beats: nothing is forgotten" in output) == (1, True)
    assert await place.names("gone") == there, "all of them or none"
    status, output = await place.forget("gone", "--yes")
    assert (status, "gone is forgotten" in output) == (0, True)
    assert await place.names("gone") == ({"record"} if place.has_records else set())
    assert await place.names("alive") == alive
    status, output = await place.forget("nobody", "--yes")
    assert (status, "nothing is known of nobody" in output) == (1, True)
    assert "there are: alive" in output


async def test_a_record_is_no_earlier_than_what_the_node_wrote(folder: Place) -> None:
    ahead = int(time.time()) + AHEAD_SECONDS
    await fill(folder, "ahead", ahead)
    assert (await folder.forget("ahead", "--yes"))[0] == 0
    name = forget_record_name("ahead")
    document = await folder.store.get(FORGET_NAMESPACE, name)
    assert document is not None
    record = decode_forget_record(name, document.data)
    assert ahead * 1000 <= record.at_ms <= (ahead + 1) * 1000
    assert document.data == encode_forget_record(record)
    assert (await folder.forget("ahead", "--yes"))[0] == 0, "until an aggregator took it up"


async def test_a_node_of_which_only_cluster_info_is_left(folder: Place) -> None:
    name = "cluster-info-device-0"
    entry = {"mindx-dl-deviceinfo-left": {"UpdateTime": T0}}
    labels = dict([CLUSTER_LABEL])
    await folder.store.put(Document(CLUSTER_NAMESPACE, name, {name: json.dumps(entry)}, labels))
    await folder.store.put(Document(CLUSTER_NAMESPACE, "cluster-info-x", {"x": "{"}, labels))
    status, output = await folder.forget("left", "--yes")
    assert (status, "left is forgotten: its entry in cluster-info" in output) == (0, True)
    assert await folder.names("left") == {"record"}


async def test_unreadable_documents_of_a_node_are_forgotten_too(folder: Place) -> None:
    await folder.store.put(report("spoilt", {"DeviceInfoCfg": "{"}))
    await folder.store.beat(Beat("spoilt", "host", INTERVAL, 1, writes="nonsense"))
    assert (await folder.forget("spoilt", "--yes"))[0] == 0
    assert await folder.names("spoilt") == {"record"}


async def test_a_directory_takes_the_place_of_another(folder: Place) -> None:
    assert folder.store.mark is not None
    await folder.store.put(report("n1", healthy()))
    before = await folder.store.mark.read()
    status, output = await folder.forget("--mark", MARK)
    assert (status, before.id in output, "add --yes" in output) == (0, True, True)
    assert await folder.store.mark.read() == before
    assert (await folder.forget("--mark", MARK, "--yes"))[0] == 0
    assert await folder.store.mark.read() == FoundMark(before.id, MARK)
    status, output = await folder.forget("--mark", before.id, "--yes")
    assert (status, "is the directory with this mark" in output) == (1, True)
    root = Path(folder.store.url.removeprefix("directory:"))
    (root / MARK_NAME).write_text("{")
    status, output = await folder.forget("--mark", MARK)
    assert (status, "cannot be read" in output) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        ((), 2, "give nodes, or --chip NAME, or --mark ID"),
        (("n1", "--mark", MARK), 2, "give nodes, or --chip NAME, or --mark ID"),
        (("n1", "--store", "ftp:"), 2, "store"),
        (("Node_1", "--store", "directory:{}"), 1, "the node name"),
        (("n1", "--store", "directory:{}"), 1, "there are: no nodes"),
        (("n1", "--store", "mqtt://127.0.0.1:1"), 3, "127.0.0.1:1"),
        (("--mark", MARK, "--store", "mqtt://127.0.0.1:1"), 1, "one directory"),
        (("--mark", "mine", "--yes", "--store", "directory:{}"), 3, "is not a valid mark"),
    ],
)
def test_wrong_use_is_named(
    arguments: tuple[str, ...], status: int, part: str, tmp_path: Path
) -> None:
    found, output = forget(*(one.format(tmp_path) for one in arguments))
    assert (found, part in output) == (status, True), output

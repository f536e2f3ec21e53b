"""A node whose every document names another node, on each store: nothing about that one changes.

``n1`` has its own places and nothing else; ``n2`` is the other node. A tenant who may write in a
namespace of its own tries the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.documents.episodes import EpisodeEvent
from contract.documents.node_info import FaultDevice
from contract.documents.public_fault import (
    DATA_KEY,
    Influence,
    PublicFault,
    PublicFaultEntry,
    encode_public_fault,
)
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    PUBLIC_FAULT_LABEL,
    PUBLIC_FAULT_NAMESPACE,
    REPORT_LABEL,
    STATE_NAMESPACE,
    STATE_PREFIX,
    device_info_name,
    heartbeat_name,
    node_info_name,
    public_fault_name,
)
from contract.observation import chip_subject
from stores.address import open_store
from stores.base import Beat, Document, HistoryBatch, Selection
from stores.settings import Mqtt
from tests.aggregator.daemon import OUTPUTS
from tests.aggregator.nodes import node_report, with_switch
from tests.parts import deadlines
from tests.parts.deadlines import patience, stand_in_waits
from tests.parts.processes import program
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

LABELS = dict([PUBLIC_FAULT_LABEL])
CHIPS = list(range(8))
NOW_MS = time.time_ns() // 1_000_000
_PAGES = ("/api/v1/nodes/n2", "/api/v1/faults", "/api/v1/history?node=n2", "/api/v1/separation")
_PASSES = ("at_ms", "age_seconds", "_seconds_ago")
"""What only time changes ends so."""
_COUNTED = (
    'node="n2"',
    "npu_vigil_nodes{",
    "npu_vigil_node_lost",
    "npu_vigil_cluster_",
    "npu_vigil_withheld_faults",
    "npu_vigil_public_faults_active",
    "npu_vigil_public_faults_nodes",
    "npu_vigil_public_faults_absent",
    "npu_vigil_history_",
    "npu_vigil_heartbeats{",
    "npu_vigil_jobs_with_faults",
)


def message(resource: str, *nodes: str, assertion: str = "occur", fault_id: str = "") -> str:
    """Return a message that every chip of these nodes must be isolated, or has recovered."""
    influence = [Influence(node, "", CHIPS) for node in nodes]
    one = PublicFaultEntry(
        fault_id or "attack-" + "-".join(nodes),
        "NPU",
        "220001001",
        NOW_MS,
        assertion,
        influence=influence,
    )
    whole = PublicFault("message-of-n1", NOW_MS, "1.0", resource, [one])
    return encode_public_fault(whole)[DATA_KEY]


class Place:
    """A store as ``n1`` writes to it."""

    def __init__(self, store: Store, daemon: Daemon) -> None:
        self.store = store
        self.daemon = daemon
        self.beat = ""
        """Where the heartbeat of ``n1`` is, as it is named when it is refused."""

    async def put(self, namespace: str, name: str, text: str, **data: str) -> None:
        """Write a document with the label of messages about public faults."""
        labels = LABELS | dict([REPORT_LABEL])
        await self.store.put(Document(namespace, name, data | {DATA_KEY: text}, labels))

    async def beat_for(self, node: str) -> None:
        """Make the heartbeat of ``n1`` one of ``node``."""
        raise NotImplementedError

    async def more(self) -> set[str]:
        """Write what only this kind of store has; returns the places that are to be refused."""
        return set()

    def refused(self) -> dict[str, str]:
        """Return the reason of each refused document, by its place, from the API."""
        rows = self.daemon.ask("/api/v1/documents")[1]["refused"]
        return {row["place"]: row["reason"] for row in rows}


class OnDirectory(Place):
    """A directory that ``n1`` may write to, its own files only."""

    async def beat_for(self, node: str) -> None:
        root = Path(self.store.url.removeprefix("directory:"))
        beat = Beat(node, "host-n1", 300.0, NOW_MS + 9)
        content = {"node": node, "holder": beat.holder, "interval_seconds": 300.0}
        file = root / "beats" / "n1.json"
        file.with_suffix(".new").write_text(json.dumps(content | {"beaten_at_ms": NOW_MS}))
        file.with_suffix(".new").rename(file)
        self.beat = str(file)


class OnCluster(Place):
    """An API server."""

    plane: ControlPlane

    async def beat_for(self, node: str) -> None:
        name = heartbeat_name("n1")
        path = f"/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases/{name}"
        change = {"metadata": {"annotations": {"npu-vigil/node": node}}}
        self.plane.request("PATCH", path, change)
        self.beat = f"Lease mindx-dl/{name}"


class OnBroker(Place):
    """A broker, with the certificate of ``n1`` and the rights that come with it."""

    broker: Broker

    def _publish(self, topic: str, payload: bytes, *, retain: bool = True) -> None:
        mqtt = self.broker.certified("n1")
        address = ("-h", "127.0.0.1", "-p", self.broker.tls_url.rpartition(":")[2])
        files = ("--cafile", str(mqtt.ca_file), "--cert", str(mqtt.certificate_file))
        how = ("--key", str(mqtt.key_file), "-t", topic, "-q", "1", "-s")
        command = [program("mosquitto_pub"), *address, *files, *how, *(("-r",) if retain else ())]
        subprocess.run(command, input=payload, check=True, timeout=patience(10))

    async def beat_for(self, node: str) -> None:
        beat = {"node": node, "connection": "x", "holder": "host-n1", "interval_seconds": 300.0}
        self.beat = "vigil/v1/nodes/n1/beat"
        self._publish(self.beat, json.dumps(beat | {"beaten_at_ms": NOW_MS}).encode())

    async def more(self) -> set[str]:
        text = message("dpcStorage", "n2")
        document = json.dumps({"labels": LABELS, "data": {DATA_KEY: text}})
        for topic in ("other", "dpc-fault/n2", "device-info/n2", "other/deeper/n2/device-info"):
            self._publish(f"vigil/v1/nodes/n1/{topic}", document.encode())
        event = EpisodeEvent(1, 0, "abc", "began", chip_subject(3), "80E01801", NOW_MS, None, "x")
        batch = msgspec.json.encode(HistoryBatch("n2", "journal-of-n2", 0, 1, (event,)))
        self._publish("vigil/v1/nodes/n1/events", batch, retain=False)
        return {"vigil/v1/nodes/n1/events"}


@pytest.fixture(
    params=["directory", "mqtt", pytest.param("kubernetes", marks=pytest.mark.apiserver)]
)
async def place(request: pytest.FixtureRequest, tmp_path: Path, make: Make) -> AsyncIterator[Place]:
    """Yield each kind of store in turn, with a real aggregator that is not started."""
    found: Place
    file = tmp_path / "aggregator.toml"
    file.write_text('[public_faults]\nnamespaces = ["mindx-dl", "kube-system"]\n')
    config = ("--config", str(file))
    if request.param == "directory":
        url = f"directory:{tmp_path / 'store'}"
        found = OnDirectory(open_store(url), make(url, None, *config))
    elif request.param == "mqtt":
        broker: Broker = request.getfixturevalue("broker")
        store = open_store(broker.tls_url, mqtt=broker.certified("n1"), node="n1")
        found = OnBroker(store, make(broker.url, None, *config))
        found.broker = broker
    else:
        plane: ControlPlane = request.getfixturevalue("control_plane")
        daemon = make("kubernetes:", plane.kubeconfig, *config)
        found = OnCluster(open_store("kubernetes:", plane.kubeconfig), daemon)
        found.plane = plane
    yield found
    await found.store.close()


def own_documents(node: str) -> tuple[Document, ...]:
    """Return device-info with a switch, and node-info, of one node."""
    return (
        with_switch(node, "Separate", "UnHealthy"),
        node_report(node, [FaultDevice("Fan", 4, ["06000025"], "PreSeparateFault")], "PreSeparate"),
    )


def attacks() -> dict[tuple[str, str], tuple[str, str]]:
    """Return the messages in documents of ``n1``, each with the reason why it is refused.

    The keys are namespace and name.
    """
    text, no_place = message("dpcStorage", "n2"), "other-kind"
    dpc, dtfs = public_fault_name("n1", "dpcStorage"), public_fault_name("n1", "dtfsStorage")
    recovers = message("dtfsStorage", "n2", assertion="recover", fault_id="own-fault-of-n2")
    return {
        (PUBLIC_FAULT_NAMESPACE, dpc): (text, "other-node"),
        (PUBLIC_FAULT_NAMESPACE, dtfs): (recovers, "other-node"),
        (DEVICE_INFO_NAMESPACE, dpc): (message("CCAE", "n1", "n2"), "other-resource"),
        (DEVICE_INFO_NAMESPACE, device_info_name("n1")): (text, no_place),
        (NODE_INFO_NAMESPACE, node_info_name("n1")): (text, no_place),
        (NODE_INFO_NAMESPACE, device_info_name("n1")): (text, no_place),
        (DEVICE_INFO_NAMESPACE, node_info_name("n1")): (text, no_place),
        (NODE_INFO_NAMESPACE, heartbeat_name("n1")): (text, no_place),
    }


ON_BROKER = {
    (PUBLIC_FAULT_NAMESPACE, public_fault_name("n1", one)) for one in ("dpcStorage", "dtfsStorage")
}
"""Elsewhere no node may write, or (documents with the label) no reader looks."""


def scrubbed(value: Any) -> Any:
    """Return the value without the members that only time changes."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if not name.endswith(_PASSES)}
        return {name: scrubbed(one) for name, one in kept.items()}
    return [scrubbed(one) for one in value] if isinstance(value, list) else value


async def picture(reader: Store, daemon: Daemon) -> dict[str, Any]:
    """Return everything that is published, kept, explained and counted of ``n2``."""
    published = {one.name: one.data for one in await reader.list(OUTPUTS)}
    kept = {
        one.name: one.data
        for one in await reader.list(Selection(namespace=STATE_NAMESPACE))
        if one.name.startswith(f"{STATE_PREFIX}public-faults-")
    }
    statistic = await reader.get("cluster-system", "statistic-fault-info")
    lines = daemon.ask("/metrics")[1].splitlines()
    return {
        "published": published,
        "kept": kept,
        "statistic": None if statistic is None else statistic.data,
        "pages": {page: scrubbed(daemon.ask(page)[1]) for page in _PAGES},
        "metrics": [
            line
            for line in lines
            if any(one in line for one in _COUNTED) and "age_seconds" not in line
        ],
    }


async def until(daemon: Daemon, reached: Callable[[], bool], what: str) -> None:
    await deadlines.until(reached, lambda: f"never: {what}\n{daemon.log.read_text()}", 30)


def has_history(daemon: Daemon) -> bool:
    """Return whether the history has each fault; it is written up to a second later, and by parts.

    The disk may take longer than the time between two pictures.
    """
    rows = daemon.ask("/api/v1/faults")[1]["faults"]
    events = daemon.ask("/api/v1/history")[1]["events"]
    published = [event["published"] for event in events if event.get("published")]
    written = {(change["node"], change["code"]) for change in published}
    return bool(rows) and written >= {(row["node"], row["code"]) for row in rows}


async def settled(reader: Store, daemon: Daemon) -> dict[str, Any]:
    """Wait until the picture is stable and every part shows ``n2``; return it."""
    before: dict[str, Any] | None = None
    now: dict[str, Any] | None = None

    async def is_settled() -> bool:
        nonlocal before, now
        before, now = now, await picture(reader, daemon)
        is_whole = now["statistic"] and "own-fault-of-n2" in str(now["kept"])
        return now == before and is_whole and has_history(daemon)

    await deadlines.until(is_settled, lambda: (before, now), 30, 0.6)
    assert now is not None
    return now


def reader_of(place: Place) -> Store:
    """Return the store as an operator opens it."""
    if isinstance(place, OnBroker):
        return open_store(place.broker.url, mqtt=Mqtt())
    return place.store


async def prepared(place: Place, reader: Store) -> None:
    """Write the documents, heartbeats and public faults of both nodes, and start the aggregator."""
    for node in ("n1", "n2"):
        for document in own_documents(node):
            await reader.put(document)
        await reader.beat(Beat(node, f"host-{node}", 300.0, NOW_MS))
        text = message("dtfsStorage", node, fault_id=f"own-fault-of-{node}")
        name = public_fault_name(node, "dtfsStorage")
        await reader.put(Document(PUBLIC_FAULT_NAMESPACE, name, {DATA_KEY: text}, LABELS))
    place.daemon.start()


@contextlib.asynccontextmanager
async def listed_often(store: Store) -> AsyncIterator[None]:
    """Send heartbeats of a third node each second, so that they are listed often.

    Its interval of 5 s is the shortest, and heartbeats are listed once in that time.
    """

    async def beat() -> None:
        for at_ms in itertools.count(NOW_MS, 1000):
            await store.beat(Beat("n3", "host-n3", 5.0, at_ms))
            await stand_in_waits(1)

    async with beside(beat()):
        yield


async def test_documents_that_name_another_node_change_nothing(place: Place) -> None:
    reader = reader_of(place)
    async with listed_often(reader):
        await attack(place, reader)
    if reader is not place.store:
        await reader.close()


async def attack(place: Place, reader: Store) -> None:
    daemon = place.daemon
    await prepared(place, reader)
    before = await settled(reader, daemon)
    own = {(one.namespace, one.name): one.data for one in own_documents("n1")}
    expected = {}
    for key, (text, reason) in attacks().items():
        if not isinstance(place, OnBroker) or key in ON_BROKER or key in own:
            await place.put(*key, text, **own.get(key, {}))
            if not isinstance(place, OnBroker) or key in ON_BROKER:
                expected["/".join(key)] = reason
    tenant = Document("tenant", "evil", {DATA_KEY: message("CCAE", "n2")}, LABELS)
    await reader.put(tenant)
    expected["tenant"] = "namespace"
    await place.beat_for("n2")
    expected |= dict.fromkeys({place.beat, *await place.more()}, "other-node")
    await until(daemon, lambda: expected.keys() <= place.refused().keys(), "all is refused")
    assert place.refused() == expected
    assert daemon.node("n1")["heartbeat"] == "alive", "the last good one counts"
    after = await settled(reader, daemon)
    for part, value in before.items():
        assert after[part] == value, part
    counted = {
        reason: daemon.metric(f'npu_vigil_rejected_documents_total{{reason="{reason}"')
        for reason in set(expected.values())
    }
    for reason, number in counted.items():
        assert number == list(expected.values()).count(reason), counted
    log = daemon.log.read_text()
    for one in expected:
        named = log.count(f" in {one}: refused") + log.count(f": {one} is left out")
        named += log.count(f"in namespace {one} are left out")
        assert named == 1, f"{one}: {named}\n{log}"

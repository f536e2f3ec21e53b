"""What a real agent reports of blind sources, beside upstream's data keys, in every store."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.aggregator.daemon import Daemon
from tests.end_to_end.mqtt_node import OnBroker, aggregator_on_broker
from tests.end_to_end.node import Node
from tests.parts.deadlines import patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.broker import Broker

KEY = "NpuVigil"
FAULT = "80E01801"
QUICK = {
    "VIGIL_DRIVER_PROBE_PERIOD_SECONDS": "1",
    "VIGIL_CHIP_FAULTS_AUDIT_PERIOD_SECONDS": "1",
    "VIGIL_BMC_ENABLED": "false",
}
QUERY = "dcmi_get_device_errorcode_v2"


def blind(data: dict[str, str] | None) -> dict[tuple[str, int | None], dict[str, Any]]:
    """Return the blind sources that a document reports, by source and chip."""
    if data is None or KEY not in data:
        return {}
    record = json.loads(data[KEY])
    assert record["version"] == 1
    assert len(data[KEY].encode()) <= 16 * 1024
    return {(one["source"], one.get("chip")): one for one in record.get("blind", ())}


def without_times(data: dict[str, str] | None) -> dict[str, Any]:
    """Return a device-info as upstream's readers see it, without its time and check code."""
    assert data is not None
    outer: dict[str, Any] = json.loads(data["DeviceInfoCfg"])
    del outer["CheckCode"], outer["DeviceInfo"]["UpdateTime"]
    others = {key: data[key] for key in data.keys() - {"DeviceInfoCfg", "SwitchInfoCfg", KEY}}
    return {**others, **outer}


def test_a_chip_whose_call_hangs_is_named_beside_upstreams_keys(folder_node: Node) -> None:
    node = folder_node
    node.environment |= QUICK
    node.start()
    node.healthy()
    before = node.place.read(node.document)
    node.emulator.hang(QUERY, 3)
    chip = ("chip-faults", 3)
    node.wait(lambda: chip in blind(node.place.read(node.document)), "the blind chip is named")
    now = node.place.read(node.document)
    assert now is not None
    assert QUERY in blind(now)[chip]["why"]
    assert abs(blind(now)[chip]["since_ms"] - node.status()["at_ms"]) < 60_000
    assert node.shown() is not None, "the check code is right"
    assert without_times(now) == without_times(before)
    node.ready()  # the others are seen
    node.emulator.reset()
    node.wait(
        lambda: chip not in blind(node.place.read(node.document)), "it is not named any more", 40.0
    )


def test_beside_a_device_plugin_the_key_is_in_node_info(folder_node: Node) -> None:
    node = folder_node
    node.environment |= QUICK | {"VIGIL_DOCUMENTS": "node-info"}
    node.start()
    node.up()
    node.wait(lambda: len(node.status()["chips"]) == 8, "chips are watched")
    assert node.node_info() is None
    node.emulator.hang(QUERY, 3)
    chip = ("chip-faults", 3)
    node.wait(lambda: chip in blind(node.node_info()), "the blind chip is named")
    assert node.parts() == [], "and no part of the server"
    assert node.place.read(node.document) is None
    node.kill()
    node.start()
    node.up()
    node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "it beats")
    node.emulator.reset()
    node.wait(lambda: node.node_info() is None, "the document goes with the key", 40.0)


@pytest.mark.parametrize(
    ("hanging", "why"),
    [
        (("dcmi_init",), "the driver has not answered yet"),
        ((QUERY, "dcmi_get_device_health"), "blind: no chip gives an answer"),
    ],
    ids=["driver", "chips"],
)
def test_an_agent_that_never_read_a_chip_goes_on_with_all_else(
    folder_node: Node, tmp_path: Path, hanging: tuple[str, ...], why: str
) -> None:
    """Its driver hangs from the start, and its disk is new. What was there stays, also above."""
    node = folder_node
    node.environment |= QUICK | {"VIGIL_BMC_ENABLED": "true"}
    node.environment |= {"VIGIL_DRIVER_CALL_DEADLINE_SECONDS": f"{patience(0.25):g}"}
    node.options += ["--heartbeat-interval-seconds", "1"]
    node.give_bmc(tmp_path)
    daemon = Daemon(tmp_path / "aggregator", *node.place.options)
    node.emulator.occur(2, FAULT)
    node.start()
    # A chip that answers late would come into the documents after they are read here.
    node.until(
        lambda now: now.codes(2) == {FAULT} and len(now.free) == 7, "the fault of an earlier life"
    )
    daemon.start()
    before = cluster_entry(node)
    assert FAULT in str(before)
    node.kill()
    shutil.rmtree(node.state_dir)
    for function in hanging:
        node.emulator.hang(function)
    shown = without_times(node.place.read(node.document))
    try:
        node.start()
        node.up()
        node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "it beats")
        node.emulator.bmc.occur(BmcAlarm("06000025", "Fan", 3))
        node.wait(lambda: node.parts() == [("Fan", 3, ["06000025"])], "node-info goes on")
        node.wait(lambda: why in str(node.ask("/readyz")[1]), "it says why it is not ready")
        assert node.ask("/readyz")[0] == 503
        assert node.ask("/healthz")[0] == 200, "nobody is to restart it"
        node.wait(lambda: daemon.node(node.name)["blind"] not in (None, []), "it is shown blind")
        beats = node.status()["heartbeat"]["beats"]
        node.wait(lambda: node.status()["heartbeat"]["beats"] > beats + 3, "it beats on")
        assert without_times(node.place.read(node.document)) == shown
        assert cluster_entry(node) == before
        node.wait(lambda: daemon.node(node.name)["heartbeat"] == "alive", "it is alive")
        node.emulator.reset()
        node.until(lambda now: len(now.free) == 8, "the driver answers again", 40)
        node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
    finally:
        daemon.stop()


def cluster_entry(node: Node) -> Any:
    """Return the device list of the node that the aggregator has published."""
    assert isinstance(node.place, Folder)
    file = node.place.root / "mindx-dl/cluster-info-device-0.json"
    data = json.loads(json.loads(file.read_text())["data"]["cluster-info-device-0"])
    return data[node.document]["DeviceList"]


@pytest.fixture
def broker_node(tmp_path: Path, built: Path, broker: Broker) -> Iterator[Node]:
    place = OnBroker(broker, "node-1")
    node = Node(tmp_path / "node-1", built, place)
    node.environment |= QUICK | place.environment
    node.options += ["--heartbeat-interval-seconds", "1"]
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, broker: Broker) -> Iterator[Daemon]:
    daemon = aggregator_on_broker(tmp_path / "aggregator", broker, "--store", broker.tls_url)
    yield daemon
    daemon.stop()


def test_over_a_broker_an_aggregator_shows_the_blind_chip(
    broker_node: Node, aggregator: Daemon
) -> None:
    node = broker_node
    node.start()
    node.healthy()
    aggregator.start()
    node.emulator.hang(QUERY, 3)

    def shown() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = aggregator.node(node.name)["blind"] or []
        return [one for one in found if one["source"] == "chip-faults"]

    # On a busy machine calls about other chips miss their deadline, too.
    node.wait(lambda: [one["chip"] for one in shown()] == ["Ascend910-3"], "it is shown alone")
    (one,) = shown()
    assert QUERY in one["reason"]
    chips = aggregator.ask(f"/api/v1/nodes/{node.name}")[1]["chips"]
    assert len(chips) == 8, "chips that are well are listed, too"
    (chip,) = (one for one in chips if one["blind"])
    assert (chip["chip"], chip["published"]) == ("Ascend910-3", "available")

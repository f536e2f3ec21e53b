"""Documents that are overwritten with what is not a document are written again by their owners."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.aggregator.daemon import Daemon
from tests.end_to_end.mqtt_node import OnBroker, aggregator_on_broker
from tests.end_to_end.node import WITHIN_A_SECOND, Node
from tests.parts.deadlines import patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OF_NODE = ("mindx-dl-deviceinfo-node-1", "mindx-dl-nodeinfo-node-1")
OF_CLUSTER = ("cluster-info-device-0", "cluster-info-switch-0", "cluster-info-node-cm")
SPOILT = (b"[]", b'{"labels":{"mx-consumer-cim":"true"},"da', b"\xff\x00")


@pytest.fixture(params=["directory", "mqtt"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Folder | OnBroker:
    """Return each store that accepts any content, in turn."""
    if request.param == "directory":
        return Folder(tmp_path / "store")
    return OnBroker(request.getfixturevalue("broker"), "node-1")


@pytest.fixture
def node(tmp_path: Path, built: Path, place: Folder | OnBroker) -> Iterator[Node]:
    """Yield a node with switches and a BMC with an active alarm; its agent is not started."""
    node = Node(tmp_path / "node-1", built, place, profile="a3")
    if isinstance(place, OnBroker):
        node.environment |= place.environment
    node.give_bmc(tmp_path)
    node.emulator.bmc.occur(BmcAlarm("06000025", "Fan", 3))
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, place: Folder | OnBroker) -> Iterator[Daemon]:
    """Yield an aggregator on the same store; it is not started."""
    directory = tmp_path / "aggregator"
    if isinstance(place, OnBroker):
        daemon = aggregator_on_broker(directory, place.broker, *place.options)
    else:
        daemon = Daemon(directory, *place.options)
    yield daemon
    daemon.stop()


def read(place: Folder | OnBroker, name: str) -> set[str] | None:
    """Return the keys of a document; ``None`` if it is missing or cannot be decoded."""
    try:
        data = place.read(name)
    except (ValueError, KeyError, TypeError, AssertionError):
        return None
    return None if data is None else set(data)


def cluster_keys(place: Folder | OnBroker, name: str) -> set[str] | None:
    """Return the keys of a document of the cluster, which has another namespace and label."""
    if isinstance(place, OnBroker):
        return read(place, name)
    try:
        return set(json.loads((place.root / "mindx-dl" / f"{name}.json").read_text())["data"])
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        return None


def test_each_kind_of_document_is_repaired_three_times_a_minute(
    node: Node, aggregator: Daemon, place: Folder | OnBroker
) -> None:
    node.start()
    aggregator.start()
    keys = {}
    for name in (*OF_NODE, *OF_CLUSTER):
        look = read if name in OF_NODE else cluster_keys
        node.wait(lambda name=name, look=look: bool(look(place, name)), f"{name} is there")  # type: ignore[misc]
        # A key about blindness may come later.
        keys[name] = look(place, name)
    assert keys["cluster-info-switch-0"] == {"cluster-info-switch-0"}
    for content in SPOILT:
        for name, right in keys.items():
            look = read if name in OF_NODE else cluster_keys
            place.spoil(name, content)
            node.wait(
                lambda name=name, look=look, right=right: right <= (look(place, name) or set()),  # type: ignore[misc]
                f"{name} is repaired after {content!r}",
                WITHIN_A_SECOND,
            )
    assert "conflict" not in node.logged()
    spoilt = "another program deleted or spoilt it"
    node.wait(lambda: node.logged().count(spoilt) == 3 * len(OF_NODE), "each is named once", 5)
    counted = "npu_vigil_publication_foreign_writes_total"
    assert aggregator.metric(counted) == 3 * len(OF_CLUSTER)
    labels = f'document="device-info",store="{node.status()["store"]}"'
    assert f"{counted}{{{labels}}} 3.0" in node.ask("/metrics")[1]
    place.spoil(OF_NODE[0], b"[]")
    node.wait(lambda: node.status()["publications"][0]["conflict"] is not None, "the conflict")
    begin = time.monotonic()
    node.wait(lambda: read(place, OF_NODE[0]) is not None, "it is tried again")
    assert time.monotonic() - begin < patience(1 + WITHIN_A_SECOND), "the first pause is one second"

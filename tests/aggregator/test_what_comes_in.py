"""What comes in beside the documents of nodes, or does not: all of it in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.playing import SOON, broken, cluster, public_message
from tests.contract.documents.node_documents import config
from tests.parts.examples import mostly_slow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.apiserver import Place

pytestmark = pytest.mark.looptime(resolution=2**-20)

CHIP = "Ascend910-0"


def everywhere(_: str, place: Place) -> bool:
    """Return whether the place is ConfigMaps in all namespaces."""
    return place.resource.endswith("configmaps") and place.namespace is None


def nodes(_: str, place: Place) -> bool:
    return place.resource.endswith("nodes")


@pytest.mark.slow
async def test_a_public_fault_waits_for_its_node_over_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.public("p1", public_message("occur", node="n2"))
        await site.device("n1", config(), 10)
        await site.end()
        site.start()
        await site.device("n1", config(), 10)
        await site.device("n2", config(), 1)
        assert site.unhealthy("n2") == CHIP


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 403, 404, 503])
async def test_documents_that_must_not_be_read_keep_nothing_else_back(
    status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as site:
        site.api.refuses_with, site.api.refuses = status, everywhere
        await site.public("p1", public_message("occur", chips=(0,)))
        site.start()
        await site.device("n1", broken(3), 10)
        assert site.unhealthy("n1") == "Ascend910-3"
        output = [one.getMessage() for one in caplog.records if "cannot be read" in one.message]
        about = [
            text for text in output if "mc-consumer-publicfault=true in all namespaces" in text
        ]
        assert len(about) == 1, output
        await site.pass_time(300)
        await site.device("n1", broken(4, update_time=1_760_000_010), SOON)
        assert site.unhealthy("n1") == "Ascend910-4"
        site.api.refuses = lambda *_: False
        await site.pass_time(120)
        assert site.unhealthy("n1") == f"{CHIP},Ascend910-4"


@pytest.mark.slow
@pytest.mark.parametrize("status", mostly_slow([400, 403], 2))
async def test_public_faults_need_no_nodes(status: int, tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.api.refuses_with, site.api.refuses = status, nodes
        site.start()
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config(), 10)
        await site.public("p1", public_message("occur"))
        await site.public("p2", by_number("SN-1"))
        await site.pass_time(10)
        assert site.unhealthy("n1") == CHIP
        site.api.refuses = lambda *_: False
        await site.pass_time(120)
        assert site.unhealthy("n1") == f"{CHIP},Ascend910-1", "now it is known whose number it is"


def by_number(serial_number: str) -> dict[str, Any]:
    """Return a message about chip 1 of the node with this serial number."""
    message = public_message("occur", number=2, chips=(1,))
    message["faults"][0]["influence"] = [{"nodeSN": serial_number, "deviceIds": [1]}]
    return message


@pytest.mark.slow
async def test_a_node_that_goes_and_comes_back_has_its_public_fault_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", config(), 1)
        await site.device("n2", config(), 1)
        await site.public("p1", public_message("occur"))
        await site.pass_time(1)
        assert site.unhealthy("n1") == CHIP
        before = site.devices["n1"]["UpdateTime"]
        await site.gone("n1", 3)
        assert site.unhealthy("n1") == "", "shown healthy before it goes"
        await site.pass_time(60)
        assert "n1" not in site.devices
        await site.pass_time(10)
        await site.device("n1", broken(3), 1)
        assert site.unhealthy("n1") == f"{CHIP},Ascend910-3"
        assert site.devices["n1"]["UpdateTime"] > before
        assert site.unhealthy("n2") == ""


async def test_chips_that_are_called_otherwise_keep_their_public_fault(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", config(), 1)
        await site.public("p1", public_message("occur"))
        await site.pass_time(1)
        chips = ",".join(f"npu-{number}" for number in range(8))
        devices = {"huawei.com/npu": chips, "huawei.com/npu-Fault": "[]"}
        await site.device("n1", config(devices=devices, update_time=1_760_000_010), 1)
        found = site.devices["n1"]["DeviceList"]
        assert found["huawei.com/npu-Unhealthy"] == "npu-0"
        assert not any("910" in key for key in found)

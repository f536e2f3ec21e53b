"""What a server of each family shows: the table of families in ``docs/compatibility.md``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from agent.node.labels import desired_labels
from contract.codes.chip_codes import LINK_DOWN, UBOE_PORT_DOWN, UBOE_SUB_HEALTH
from dcmi_shim.driver import Driver
from dcmi_shim.emulator.control import CONTROL_LIBRARY, Emulator
from dcmi_shim.library.discovery import VendorPaths, find_library
from tests.end_to_end.node import Node
from tests.parts.deadlines import patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULT, RESET_FINISHED = "80E01801", "8C2FA009"
_TRAINING = ("", "-Fault", "-NetworkUnhealthy", "-Recovering", "-Unhealthy")


@dataclass(frozen=True)
class Family:
    """What is expected of a profile."""

    chips: int
    resource: str
    keys: tuple[str, ...]
    labels: dict[str, str]
    events: bool = True
    switch: str | None = None
    """``NodeStatus`` of ``SwitchInfoCfg``; ``None``: there is none."""
    network: bool = True
    link_codes: frozenset[str] = frozenset({LINK_DOWN})
    """Of one link that only the tool finds down."""

    @property
    def fault_key(self) -> str:
        """Return the key of the device list that has the faults."""
        return next(key for key in self.keys if key.endswith("-Fault"))


def training(
    chips: int,
    name: str,
    labels: dict[str, str],
    switch: str | None = None,
    link_codes: tuple[str, ...] = (LINK_DOWN,),
) -> Family:
    """Return a family of training servers, which has five keys."""
    keys = tuple(f"huawei.com/{name}{end}" for end in _TRAINING)
    return Family(chips, name, keys, labels, switch=switch, link_codes=frozenset(link_codes))


def inference(chips: int, name: str, labels: dict[str, str], faults: str = "Ascend310P") -> Family:
    """Return a family of inference servers: three keys, no events and no network."""
    keys = (f"huawei.com/{name}", f"huawei.com/{faults}-Fault", f"huawei.com/{name}-Unhealthy")
    return Family(chips, name, tuple(sorted(keys)), labels, events=False, network=False)


NAME, ACCELERATOR = "node.kubernetes.io/npu.chip.name", "accelerator"
MEMORY = "mind-cluster/npu-chip-memory"
SUPER_POD = "huawei.com/topotree.superpodid"
PROFILES = {
    "910a": training(
        8, "Ascend910", {NAME: "910A", ACCELERATOR: "huawei-Ascend910", MEMORY: "32G"}
    ),
    "a2": training(8, "Ascend910", {NAME: "910B3", ACCELERATOR: "huawei-Ascend910", MEMORY: "64G"}),
    "a3": training(
        16,
        "Ascend910",
        {NAME: "Ascend910", ACCELERATOR: "huawei-Ascend910", MEMORY: "64G", SUPER_POD: "0"},
        "",  # as long as there is no library of the switches
    ),
    "a5": training(
        8,
        "npu",
        {
            NAME: "Ascend950PR",
            ACCELERATOR: "huawei-npu",
            MEMORY: "128G",
            SUPER_POD: "0",
            "huawei.com/topotree.serverid": "0",
            "servertype": "npu-32",
        },
        "",
        (UBOE_PORT_DOWN, UBOE_SUB_HEALTH),
    ),
    "310p": inference(4, "Ascend310P", {NAME: "310P3", ACCELERATOR: "huawei-Ascend310P"}),
    "duo": inference(
        8,
        "Ascend310P",
        {
            NAME: "310P3",
            ACCELERATOR: "huawei-Ascend310P",
            "infer-card-type": "card-300i-duo",
        },
    ),
    "310": inference(4, "Ascend310", {NAME: "310", ACCELERATOR: "huawei-Ascend310"}),
}
SERVER_TYPES = {
    "910a": "Ascend910-32",
    "a2": "Ascend910B-20",
    "a3": "Ascend910A3-24",
    "a5": None,
    "310p": "Ascend310P-8",
    "duo": "Ascend310P-8",
    "310": "Ascend310-2",
}


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> str:
    """Return each profile in turn."""
    return str(request.param)


@pytest.fixture
def node(tmp_path: Path, built: Path, profile: str) -> Iterator[Node]:
    """Yield a server of this profile; its agent is not started."""
    node = Node(tmp_path, built, Folder(tmp_path / "store"), profile=profile)
    node.environment["VIGIL_METRICS_NPU_EXPORTER_NAMES"] = "true"
    node.environment["VIGIL_LINKS_PERIOD_SECONDS"] = "0.5"
    yield node
    node.close()


def test_documents_names_and_how_faults_are_found(node: Node, profile: str) -> None:
    family = PROFILES[profile]
    names = sorted(f"{family.resource}-{chip}" for chip in range(family.chips))

    def devices() -> dict[str, str]:
        data = node.place.read(node.document) or {}
        found: dict[str, Any] = json.loads(data.get("DeviceInfoCfg", "{}"))
        return dict(found.get("DeviceInfo", {}).get("DeviceList", {}))

    node.start()
    resource = f"huawei.com/{family.resource}"
    node.wait(lambda: devices().get(resource) == ",".join(names), "all chips are free")
    assert tuple(devices()) == family.keys
    data = node.place.read(node.document)
    assert data is not None
    if family.switch is None:
        assert "SwitchInfoCfg" not in data
    else:
        assert json.loads(data["SwitchInfoCfg"])["NodeStatus"] == family.switch
    node.emulator.occur(1, FAULT)
    limit = 1.0 if family.events else 3.0
    shown = f"{family.resource}-1"
    node.wait(lambda: devices()[f"{resource}-Unhealthy"] == shown, "the fault", limit)
    driver = node.status()["driver"]
    assert (driver["polling_reason"] is None) is family.events
    metrics = node.ask("/metrics")[1]
    assert ("npu_vigil_driver_list_period_seconds 1.0" in metrics) is not family.events
    assert f"machine_npu_nums {family.chips}.0" in metrics
    assert ("machine_card_nums" in metrics) is (profile not in ("310", "a5"))

    def health() -> list[str]:
        """Return the health of chip 1 in NPU exporter's metric, one value for each sample."""
        lines = node.ask("/metrics")[1].splitlines()
        shown = [one for one in lines if one.startswith("npu_chip_info_health_status{")]
        return [one.rpartition(" ")[2] for one in shown if 'id="1"' in one]

    node.wait(lambda: health() == ["0.0"], "NPU exporter's name for it", 8)
    blind = [one["source"] for one in node.status()["blind"]]
    assert "links" not in blind, "no network is no blindness"

    def faults(chip: int) -> set[str]:
        found: list[dict[str, Any]] = json.loads(devices()[family.fault_key])
        name = f"{family.resource}-{chip}"
        return {
            code
            for one in found
            if one["npu_name"] == name
            for code in one["fault_time_and_level_map"]
        }

    def links() -> list[str]:
        """Return the samples of link states under NPU exporter's name."""
        lines = node.ask("/metrics")[1].splitlines()
        return [one for one in lines if one.startswith("npu_chip_info_link_status{")]

    if not family.network:
        assert links() == []
    else:
        # The tool is asked about one chip after the other.
        node.wait(lambda: len(links()) == family.chips, "the states of all links", 10)
        node.emulator.link(2, up=False, quietly=True)
        node.wait(lambda: faults(2) == family.link_codes, "the tool finds it down", 10)
    # An operator resets the chip: its faults are gone, and no event reports it.
    node.emulator.lose_next_event()
    node.emulator.recover(1, FAULT)
    node.emulator.once(1, RESET_FINISHED)
    node.wait(lambda: not faults(1), "it is read anew", 10)


async def test_labels_and_annotations(
    tmp_path: Path, built: Path, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(built / "emulator" / CONTROL_LIBRARY, tmp_path)
    monkeypatch.setenv("VIGIL_EMULATOR_DIR", str(tmp_path))
    emulator = Emulator(tmp_path)
    emulator.start(profile)
    library = find_library(VendorPaths(built / "driver", True, {}))
    driver = Driver(library, lambda: time.time_ns() // 1_000_000)
    running = asyncio.create_task(driver.run())
    try:
        inventory = await asyncio.wait_for(driver.inventory(), patience(20))
        facts, problems = await driver.facts()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        emulator.close()
    assert problems == ()
    got = desired_labels(inventory, facts, {})
    version = {"huawei.com/driver.version": inventory.driver_version}
    assert got.labels == PROFILES[profile].labels | version
    assert got.server_type == SERVER_TYPES[profile]
    assert got.refused == {}
    devices = json.loads(got.annotations["baseDeviceInfos"])
    assert len(devices) == PROFILES[profile].chips
    assert ("DeviceID" in devices[next(iter(devices))]) is (profile == "a5")
    kinds = {"a3": "A3", "a5": "npu"}
    assert got.annotations["serverType"] == kinds.get(profile, "")

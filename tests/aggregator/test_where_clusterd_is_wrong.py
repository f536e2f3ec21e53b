"""Where the real ClusterD was seen to be wrong, ours is not: the aggregator in virtual time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.names import CLUSTER_NODE_NAME
from tests.cluster import wire
from tests.cluster.playing import DEVICE, JOB, KEY, SOON, broken, cluster, public_message, put_job
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config, fault, node_data

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.playing import Cluster

pytestmark = pytest.mark.looptime(resolution=2**-20)

SWITCH = "cluster-info-switch-0"
POISON = {"NodeInfo": EXAMPLES["E33"]["input"]}


@pytest.mark.slow
async def test_a_null_in_one_node_info_touches_no_other_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.server("good", node_data(None, "Healthy"), SOON)
        before = site.servers["good"]
        await site.server("poison", POISON, SOON)
        assert site.servers["good"] == before
        # Upstream ends at a push with the same status and as many parts.
        again = POISON | {"updateTime": "2026-01-02T03:04:05+08:00"}
        await site.server("poison", again, SOON)
        cpu = {"DeviceType": "CPU", "DeviceId": 1, "FaultCode": ["00000001"]}
        faulty = node_data([cpu | {"FaultLevel": "SeparateFault"}], "UnHealthy")
        await site.server("good", faulty, SOON)
        assert site.servers["good"]["NodeStatus"] == "UnHealthy"
        assert site.servers["poison"]["FaultDevList"] is None


@pytest.mark.parametrize("bad", [{}, {"DeviceInfoCfg": "{"}, config(CheckCode="0" * 64)])
async def test_the_first_good_device_info_after_a_bad_one_counts(
    bad: dict[str, str], tmp_path: Path
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", config(), SOON)
        await site.device("n1", bad, SOON)
        assert site.unhealthy("n1") == ""
        await site.device("n1", broken(3, update_time=1_760_000_010), SOON)
        assert site.unhealthy("n1") == "Ascend910-3"


async def test_the_first_good_node_info_and_switch_info_after_bad_ones_count(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.server("n1", {"NodeInfo": "{"})
        await site.device("n1", config() | {"SwitchInfoCfg": "{"}, SOON)
        await site.server("n1", node_data(None, "UnHealthy"))
        await site.device("n1", config() | {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}, SOON)
        assert site.servers["n1"]["NodeStatus"] == "UnHealthy"
        assert '"NodeStatus":"UnHealthy"' in site.outputs[SWITCH][SWITCH]


@pytest.mark.slow
async def test_public_faults_written_while_no_aggregator_reads_are_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        await site.public("p1", public_message("occur"))
        site.start()
        await site.pass_time(1)
        assert site.unhealthy("n1") == "Ascend910-0"
        await site.end()
        await site.public("p2", public_message("occur", number=2, chips=(1,)))
        site.start()
        await site.pass_time(1)
        assert site.unhealthy("n1") == "Ascend910-0,Ascend910-1"


@pytest.mark.slow
async def test_a_recovery_that_overtakes_does_not_kill_a_later_occurrence(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config(), 1)
        await site.public("recover", public_message("recover"))
        await site.pass_time(7)  # upstream would have forgotten the recovery after 5 s
        await site.public("occur", public_message("occur"))
        await site.pass_time(10)
        assert site.unhealthy("n1") == "Ascend910-0"


@pytest.mark.parametrize("serial_number", [None, ""])
async def test_a_public_fault_of_no_node_lands_nowhere(
    serial_number: str | None, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.node("n1", serial_number=serial_number)
        await site.device("n1", config(), 1)
        await site.public("p1", public_message("occur", node=None))
        await site.public("p2", public_message("occur", number=2, chips=(1,)))
        await site.pass_time(3)
        assert site.unhealthy("n1") == "Ascend910-1"


@pytest.mark.slow
async def test_a_switch_fault_does_not_outlive_its_key(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
        await site.device("n1", config() | switch, SOON)
        # A bad document changes nothing, and does not remove the switch.
        for bad in ({}, {"DeviceInfoCfg": "{"}, config(CheckCode="x")):
            await site.device("n1", bad, SOON)
            assert len(switch_of(site)["FaultCode"]) == 1
        await site.device("n1", config(update_time=1_760_000_060), SOON)
        assert switch_of(site)["FaultCode"] == []
        assert switch_of(site)["NodeStatus"] == "Healthy"
        await site.pass_time(50)
        assert site.outputs[SWITCH][SWITCH] == ""
        await site.device("n1", config() | switch, SOON)
        assert len(switch_of(site)["FaultCode"]) == 1


@pytest.mark.slow
async def test_a_switch_key_that_went_between_two_readings(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
        await site.device("n1", config() | switch, SOON)
        await site.end()
        await site.device("n1", config(update_time=1_760_000_060))
        site.start()
        await site.pass_time(1)
        assert switch_of(site)["FaultCode"] == []


def switch_of(site: Cluster) -> dict[str, Any]:
    """Return the published switch data of n1."""
    found: dict[str, Any] = json.loads(site.outputs[SWITCH][SWITCH])["mindx-dl-switchinfo-n1"]
    return found


@pytest.mark.slow
async def test_a_switch_fault_does_not_outlive_its_document(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
        await site.device("n1", config() | switch, SOON)
        await site.device("n1", config(update_time=1_760_000_060), SOON)
        await site.gone("n1", 2 + SOON)
        shown = json.loads(site.outputs[SWITCH][SWITCH])
        assert shown["mindx-dl-switchinfo-n1"]["FaultCode"] == []
        await site.pass_time(50)
        assert site.outputs[SWITCH][SWITCH] == ""


@pytest.mark.slow
async def test_after_a_restart_without_inputs_nothing_stale_stays(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", broken(3) | {"SwitchInfoCfg": EXAMPLES["E17"]["input"]})
        await site.server("n1", node_data(None, "UnHealthy"), SOON)
        await site.end()
        await site.gone("n1")
        thing = {"namespace": "mindx-dl", "name": "mindx-dl-nodeinfo-n1"}
        await site.do({"do": "delete-configmap", "object": thing})
        site.start()
        await site.pass_time(1)
        assert site.unhealthy("n1") == ""
        assert site.servers == {}
        await site.pass_time(50)
        for name in (DEVICE, SWITCH, CLUSTER_NODE_NAME):
            assert site.outputs[name][name] == "", name


@pytest.mark.slow
async def test_surplus_shards_are_blanked_after_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await many(site, 0, 2100)
        site.start()
        await site.pass_time(1)
        shards = {name for name in site.outputs if name.startswith("cluster-info-device-")}
        assert len(shards) > 1
        assert len(site.devices) == 2100
        await site.kill()
        for name in shards - {DEVICE}:
            for key in json.loads(site.outputs[name][name]):
                await site.gone(key.removeprefix("mindx-dl-deviceinfo-"))
        site.start()
        await site.pass_time(60)
        assert {name: bool(site.outputs[name][name]) for name in shards} == {
            name: name == DEVICE for name in shards
        }


async def many(site: Cluster, first: int, end: int) -> None:
    """Write device-infos of many healthy nodes."""
    text = config()
    for number in range(first, end):
        await site.device(f"node-{number:04}", text)


async def test_of_many_updates_the_newest_is_shown_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", config(), 1)
        for number in range(6):
            data = broken(number, update_time=1_760_000_001 + number)
            await site.device("n1", data, 0.08)
        await site.pass_time(SOON)
        assert site.unhealthy("n1") == "Ascend910-5"


@pytest.mark.slow
async def test_faults_that_flap_are_gone_when_they_are_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", config(), 1)
        for number in range(40):
            chips = (3,) if number % 2 == 0 else ()
            data = broken(*chips, update_time=1_760_000_001 + number)
            await site.device("n1", data, 0.05)
        await site.pass_time(1.1)  # stamps lead the clock by no more than 5 s
        assert site.unhealthy("n1") == ""
        stamps = [entry["UpdateTime"] for entry in site.shown_entries("n1") if entry is not None]
        assert stamps == sorted(stamps)


@pytest.mark.slow
async def test_a_relation_fault_keeps_its_level_after_its_time(tmp_path: Path) -> None:
    """A link is down for longer than 300 s, with the trigger that makes it worse at its end."""
    async with cluster(tmp_path) as site:
        site.start()
        await site.pass_time(1)
        await put_job(site)
        await site.pass_time(1)
        client = {"jobId": JOB, "role": "test"}
        await site.do({"do": "subscribe-fault-stream", "object": client})
        link = fault(1, "PreSeparateNPU", "81078603", kind="CardNetwork")
        trigger = fault(0, "NotHandleFault", "8C1F8608")
        await site.device("n1", config([link, trigger], SuperPodID=0, ServerIndex=0), 310)
        await site.pass_time(10)
        levels = [
            level
            for one in site.played.sent
            if one.method == wire.SUBSCRIBE.lstrip("/") and "end" not in one.message
            for node in one.message["nodeFaultInfo"]
            for device in node["faultDevice"]
            for level in device["faultLevels"]
        ]
        assert levels
        first = levels.index("SeparateFault") if "SeparateFault" in levels else len(levels)
        assert set(levels[first:]) <= {"SeparateFault", "PreSeparateNPU"}
        shown = [one for one in site.played.shown if one.name == "Pod default/train-0"]
        assert shown[-1].data == {"labels": "Separate"}


@pytest.mark.slow
async def test_a_chip_hidden_by_a_filter_is_in_a_list(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await put_job(site, **{"huawei.com/schedule.filter.faultCode": "80C98000:120"})
        faults = [fault(chip, "RestartNPU", "80C98000") for chip in (0, 5)]
        await site.device("n1", config(faults, unhealthy=(0, 5)), 1)
        devices = site.devices["n1"]["DeviceList"]
        assert devices[f"{KEY}-Unhealthy"] == "Ascend910-5"
        assert devices[f"{KEY}-Recovering"] == "Ascend910-0", "nobody is given it, no pod harmed"
        listed = [*devices[KEY].split(","), "Ascend910-5", "Ascend910-0"]
        assert sorted(listed) == [f"Ascend910-{chip}" for chip in range(8)]
        await site.pass_time(125)
        assert site.unhealthy("n1") == "Ascend910-0,Ascend910-5"


@pytest.mark.slow
async def test_the_update_time_never_goes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config(), 1)
        await site.public("p1", public_message("occur"))
        await site.pass_time(10)
        during = site.devices["n1"]["UpdateTime"]
        assert site.unhealthy("n1") == "Ascend910-0"
        await site.public("p1", public_message("recover"))
        await site.pass_time(10)
        assert site.unhealthy("n1") == ""
        assert site.devices["n1"]["UpdateTime"] > during > 1_760_000_000


async def test_a_healthy_switch_is_no_fault_of_the_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.node("n1", serial_number="SN-1")
        healthy = '{"FaultCode":[],"FaultLevel":"","UpdateTime":1760000000,"NodeStatus":"Healthy"}'
        await site.device("n1", config() | {"SwitchInfoCfg": healthy}, 5)
        answer = await site.services.call(wire.GET, {"jobId": "", "role": "test"})
        assert answer["faultSignal"]["signalType"] == "normal"
        assert answer["faultSignal"]["nodeFaultInfo"] == []


@pytest.mark.slow
@pytest.mark.parametrize("data", [None, {CLUSTER_NODE_NAME: "{}", "more": "x"}])
async def test_steady_changes_of_one_kind_do_not_keep_another_from_repair(
    data: dict[str, str] | None, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.server("n1", node_data(None, "UnHealthy"), SOON)
        good = site.outputs[CLUSTER_NODE_NAME]
        for number in range(30):
            if number == 10:
                await site.edit(CLUSTER_NODE_NAME, data)
                assert site.outputs.get(CLUSTER_NODE_NAME) != good
                good = good | {key: text for key, text in (data or {}).items() if key == "more"}
            await site.device("n1", broken(number % 8, update_time=1_760_000_001 + number), 0.3)
            assert site.outputs[CLUSTER_NODE_NAME] == good


@pytest.mark.slow
async def test_a_change_rewrites_its_own_shard_only(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await many(site, 0, 2100)
        site.start()
        await site.pass_time(1)
        before = site.outputs
        await site.device("node-0007", broken(3, update_time=1_760_000_100), 1)
        changed = {name for name, data in site.outputs.items() if before[name] != data}
        assert len(changed) == 1
        assert site.unhealthy("node-0007") == "Ascend910-3"
        after = site.outputs
        await site.pass_time(120)
        assert site.outputs == after


@pytest.mark.slow
async def test_the_order_of_unhealthy_never_flips(tmp_path: Path) -> None:
    pre = [fault(chip, "PreSeparateNPU", "80E21007") for chip in (6, 1, 4, 3, 0)]
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", config(pre), 1)
        for number in range(20):
            await site.device("n2", broken(number % 8, update_time=1_760_000_001 + number), 1)
        expected = ",".join(f"Ascend910-{chip}" for chip in (0, 1, 3, 4, 6))
        assert site.shown_unhealthy("n1") == [expected]

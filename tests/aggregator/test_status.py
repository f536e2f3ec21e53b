"""Faults that are on no chip, as the API shows them."""

from __future__ import annotations

from aggregator.status import (
    ServerFaultStatus,
    SwitchFaultStatus,
    server_fault_statuses,
    switch_fault_statuses,
)
from contract.device_info import SWITCH_INFO_KEY
from contract.node_info import FaultDevice
from contract.switch_info import SwitchEvent, SwitchRecord, encode_switch_info
from tests.aggregator.nodes import T0, healthy, node_report, report
from tests.aggregator.test_kinds import World

CODE = "[0x00f1ff09,155913,cpu,na]"


def test_switches_and_servers_tell_every_code_with_its_level() -> None:
    events = (
        SwitchEvent(assembled_fault_code=CODE, switch_chip_id=2, switch_port_id=7),
        SwitchEvent(assembled_fault_code=CODE, switch_chip_id=3, alarm_raised_time=T0 * 1000),
    )
    times = ((f"{CODE}_2_7", T0, "NotHandle"),)
    switches = encode_switch_info(SwitchRecord(events, "Separate", T0, "UnHealthy", times))
    parts = [
        FaultDevice("CPU", 1, ["00000001", "00000002"], "PreSeparateFault"),
        FaultDevice("Fan", 4, None, "NotHandleFault"),
    ]
    world = World(
        report("n2", {**healthy(), SWITCH_INFO_KEY: switches}),
        report("n1", healthy()),
        node_report("n3", parts, "PreSeparate"),
    )
    assert list(switch_fault_statuses(world.pipeline)) == [
        SwitchFaultStatus("n2", 2, 7, CODE, "NotHandle", None),
        SwitchFaultStatus("n2", 3, 0, CODE, "Separate", T0 * 1000),
    ]
    assert list(server_fault_statuses(world.pipeline)) == [
        ServerFaultStatus("n3", "CPU", 1, "00000001", "PreSeparateFault"),
        ServerFaultStatus("n3", "CPU", 1, "00000002", "PreSeparateFault"),
    ]

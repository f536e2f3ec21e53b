"""Order is no content of node-info and switches: a changed order is no write, any change is one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.documents.node_info import FaultDevice
from contract.documents.switch_info import SwitchEvent, SwitchRecord, encode_switch_info
from contract.names import CLUSTER_NODE_NAME
from tests.aggregator.nodes import T0, healthy, node_report, report
from tests.aggregator.pipelines import DEVICES, SWITCHES, WrittenPipeline
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Document

PARTS = (
    FaultDevice("CPU", 1, ["00000001", "00000003", "00000019"], "PreSeparateFault"),
    FaultDevice("CPU", 2, ["00000001"], "PreSeparateFault"),
    FaultDevice("Fan", 1, ["28000009"], "NotHandleFault"),
)
CODES = ("[0x00f1ff09,155913,cpu,na]", "[0x00f1fef5,155912,L2,na]", "[0x00f1fef5,155912,npu,na]")
EVENTS = tuple(
    SwitchEvent(5, code, number, 7, 3, number, 2, 1, T0 * 1000 + number)
    for number, code in enumerate(CODES)
)
TIMES = tuple(
    (f"{one.assembled_fault_code}_3_{one.switch_port_id}", T0 * 1000, "Separate")
    for one in reversed(EVENTS)
)
SWITCH = SwitchRecord(EVENTS, "Separate", T0, "UnHealthy", tuple(sorted(TIMES)))


def with_switches(record: SwitchRecord) -> Document:
    return report("n1", {**healthy(), "SwitchInfoCfg": encode_switch_info(record)})


def test_no_order_of_parts_or_codes_is_a_write() -> None:
    bench = WrittenPipeline(node_report("n1", list(PARTS), "PreSeparate"))
    entry = bench.servers()["n1"]
    for parts in itertools.permutations(PARTS):
        for codes in itertools.permutations(PARTS[0].fault_code or ()):
            shuffled = [
                replace(part, fault_code=list(codes)) if part is PARTS[0] else part
                for part in parts
            ]
            assert bench.put(node_report("n1", shuffled, "PreSeparate")) == frozenset()
    assert bench.servers()["n1"] == entry


@pytest.mark.parametrize(
    "parts",
    [
        PARTS[:2],
        (*PARTS, PARTS[2]),
        (*PARTS[:2], replace(PARTS[2], device_type="Fun")),
        (*PARTS[:2], replace(PARTS[2], device_id=9)),
        (*PARTS[:2], replace(PARTS[2], fault_level="PreSeparateFault")),
        (*PARTS[:2], replace(PARTS[2], fault_code=["2800000B"])),
        (*PARTS[:2], replace(PARTS[2], fault_code=["28000009", "28000009"])),
        (*PARTS[:2], replace(PARTS[2], fault_code=[])),
    ],
)
def test_any_change_of_a_part_is_a_write(parts: tuple[FaultDevice, ...]) -> None:
    bench = WrittenPipeline(node_report("n1", list(PARTS), "PreSeparate"))
    assert bench.put(node_report("n1", list(parts), "PreSeparate")) == {CLUSTER_NODE_NAME}


def test_another_status_is_a_write() -> None:
    bench = WrittenPipeline(node_report("n1", list(PARTS), "PreSeparate"))
    assert bench.put(node_report("n1", list(PARTS), "UnHealthy")) == {CLUSTER_NODE_NAME}


def test_no_order_of_events_is_a_write() -> None:
    bench = WrittenPipeline(with_switches(SWITCH))
    entry = bench.switches()["n1"]
    for number, events in enumerate(itertools.permutations(EVENTS)):
        shuffled = replace(SWITCH, events=events, update_time=T0 + number)
        assert bench.put(with_switches(shuffled)) == frozenset()
    assert bench.switches()["n1"] == entry


def _event(**changes: object) -> SwitchRecord:
    return replace(SWITCH, events=(*EVENTS[:2], replace(EVENTS[2], **changes)))


@pytest.mark.parametrize(
    "record",
    [
        replace(SWITCH, events=EVENTS[:2]),
        replace(SWITCH, events=(*EVENTS, EVENTS[2])),
        replace(SWITCH, level="PreSeparate"),
        replace(SWITCH, status="Healthy"),
        replace(SWITCH, times=None),
        replace(SWITCH, times=(*sorted(TIMES)[:2], (sorted(TIMES)[2][0], 1, "Separate"))),
        replace(SWITCH, times=(*sorted(TIMES)[:2], (sorted(TIMES)[2][0], T0 * 1000, "NotHandle"))),
        _event(event_type=6),
        _event(assembled_fault_code=CODES[0]),
        _event(peer_port_device=9),
        _event(peer_port_id=9),
        _event(switch_chip_id=9),
        _event(switch_port_id=9),
        _event(severity=0),
        _event(assertion=0),
        _event(alarm_raised_time=1),
    ],
)
def test_any_change_of_a_switch_is_a_write(record: SwitchRecord) -> None:
    bench = WrittenPipeline(with_switches(SWITCH))
    assert bench.put(with_switches(record)) == {SWITCHES}


@pytest.mark.parametrize("make", [node_report, None])
def test_entry_written_in_another_order_by_an_earlier_run_stays(
    make: Callable[..., Document] | None,
) -> None:
    def reported(*, is_reversed: bool) -> Document:
        step = -1 if is_reversed else 1
        if make is not None:
            return make("n1", list(PARTS[::step]), "PreSeparate")
        return with_switches(replace(SWITCH, events=EVENTS[::step]))

    bench = WrittenPipeline(reported(is_reversed=False))
    again = WrittenPipeline(reported(is_reversed=True), outputs=dict(bench.outputs))
    for name in (CLUSTER_NODE_NAME, SWITCHES):
        if name in bench.outputs:
            assert again.outputs[name].data == bench.outputs[name].data


def test_lists_of_chips_keep_their_rule() -> None:
    """A doubled code of a chip is a change, and codes are sorted before they are compared."""
    codes = ["80E18402", "80E01801"]
    two = [fault(3, "RestartNPU", code) for code in codes]
    bench = WrittenPipeline(report("n1", config(two, unhealthy=(3,))))
    assert bench.put(report("n1", config(two[::-1], unhealthy=(3,), update_time=T0 + 1))) == set()
    doubled = config([*two, two[0]], unhealthy=(3,), update_time=T0 + 2)
    assert bench.put(report("n1", doubled)) == {DEVICES}

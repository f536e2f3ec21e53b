"""Faults as the API shows them: of chips, switches and servers."""

from __future__ import annotations

import msgspec

from aggregator.api.fault_status import fault_statuses
from contract.documents.device_info import SWITCH_INFO_KEY
from contract.documents.node_info import FaultDevice
from contract.documents.switch_info import SwitchEvent, SwitchRecord, encode_switch_info
from contract.pages.faults import names_of
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.nodes import T0, faulty, healthy, instant, node_report, report
from tests.aggregator.pipelines import WrittenPipeline
from tests.contract.documents.node_documents import config, fault

CODE = "[0x00f1ff09,155913,cpu,na]"


def test_switches_and_servers_show_every_code_with_its_level() -> None:
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
    bench = WrittenPipeline(
        report("n2", {**healthy(), SWITCH_INFO_KEY: switches}),
        report("n1", healthy()),
        node_report("n3", parts, "PreSeparate"),
    )
    began_ms = T0 * 1000 + 7
    found = list(fault_statuses(bench.pipeline, lambda *_: began_ms))
    assert [(one.node, one.subject, one.kind, one.code, one.level) for one in found] == [
        ("n2", "switch 2 port 7", "switch", CODE, "NotHandle"),
        ("n2", "switch 3 port 0", "switch", CODE, "Separate"),
        ("n3", "CPU 1", "host", "00000001", "PreSeparateFault"),
        ("n3", "CPU 1", "host", "00000002", "PreSeparateFault"),
    ]
    assert [one.since_ms for one in found] == [T0 * 1000, T0 * 1000, began_ms, began_ms]
    assert names_of("[0x00f103b0,155649,na,na]")["summary"] == "Forwarding engine function failure"
    assert names_of("06000025")["name"] is not None
    assert [one.node for one in fault_statuses(bench.pipeline, nodes={"n3"})] == ["n3", "n3"]


def received(bench: WrittenPipeline) -> list[int | None]:
    return [one.received_at_ms for one in fault_statuses(bench.pipeline)]


def test_an_upgraded_code_began_when_it_was_first_received() -> None:
    bench = WrittenPipeline(
        report("n1", config([fault(3, "NotHandleFault", "81078603")], update_time=T0))
    )
    (began,) = fault_statuses(bench.pipeline)
    later = {"81078603": (T0 * 1000 + 20_000, "PreSeparateNPU")}
    upgraded = fault(3, "PreSeparateNPU", "81078603", later)
    bench.put(report("n1", config([upgraded], update_time=T0 + 20)), 20)
    (now,) = fault_statuses(bench.pipeline)
    assert now.level == "PreSeparateNPU"
    assert now.since_ms == began.since_ms == now.received_at_ms


def test_since_when_a_fault_is_there_outlives_a_restart() -> None:
    bench = WrittenPipeline(report("n1", faulty(3)))
    assert received(bench) == [T0 * 1000]
    bench.put(report("n1", faulty(3, T0 + 9)), 9)
    assert received(bench) == [T0 * 1000]
    processing = bench.pipeline.processing
    kept = kept_texts(processing)
    after = WrittenPipeline(outputs=bench.outputs)
    after.pipeline.processing.restore(kept, instant(20))
    after.put(report("n1", faulty(3, T0 + 9)), 20)
    assert received(after) == [T0 * 1000]
    after.put(report("n1", healthy(T0 + 30)), 30)
    assert received(after) == []
    after.put(report("n1", faulty(3, T0 + 40)), 40)
    assert received(after) == [(T0 + 40) * 1000]


def test_a_time_that_is_none_does_not_spoil_the_page() -> None:
    late = {"80E18402": (2**63 - 1, "RestartNPU")}
    faults = [fault(3, "RestartNPU", "80E18402", late, "PublicFault")]
    bench = WrittenPipeline(report("n1", config(faults, unhealthy=(3,))))
    (one,) = fault_statuses(bench.pipeline)
    assert one.since_ms == one.received_at_ms
    assert msgspec.json.encode(one)


def test_a_fault_that_is_held_back_is_shown_with_why() -> None:
    companion = {"80C98009": (T0 * 1000, "RestartBusiness")}
    faults = [fault(3, "RestartBusiness", "80C98009", companion)]
    bench = WrittenPipeline(report("n1", config(faults, unhealthy=(3,))))
    (one,) = fault_statuses(bench.pipeline)
    assert (one.code, one.hidden, one.hidden_until_ms) == (
        "80C98009",
        "undecided",
        T0 * 1000 + 5000,
    )
    bench.step(5.1)
    (one,) = fault_statuses(bench.pipeline)
    assert (one.hidden, one.hidden_until_ms) == (None, None)

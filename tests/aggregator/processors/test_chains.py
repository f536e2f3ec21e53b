"""The device chain as a whole: worked examples, and chips that are hidden are in some list."""

from __future__ import annotations

import json

from aggregator.processors.chains import ProcessorEngine
from aggregator.processors.separation_documents import render_chips
from contract.documents.cluster_device import DeviceRecord, render_device_entry
from service.clock import Instant
from tests.aggregator.processors.cases import (
    T,
    chip,
    codes,
    node_context,
    numbers,
    one,
    pod,
    process,
    record,
    record_of,
)
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import KEY


def entry(done: DeviceRecord) -> dict[str, str]:
    """Return the ``DeviceList`` of the entry, with short keys, faults by their objects."""
    devices = json.loads(render_device_entry("node1", done, done.update_time))["DeviceList"]
    return {key.removeprefix(KEY): text for key, text in devices.items()}


def test_e19_pre_separation() -> None:
    faults = [
        one(0, "PreSeparateNPU", "80E21007"),
        one(1, "PreSeparateNPU", "80E21007"),
        one(2, "PreSeparateNPU", "81078603", kind="CardNetwork"),
    ]
    reported = record_of(range(8), faults, unhealthy=(0,), network=(2,))
    done = process(reported, known=node_context(pod(0)))
    text = render_device_entry("node1", done.record, done.record.update_time)
    assert f'{{"mindx-dl-deviceinfo-node1":{text}}}' == EXAMPLES["E19"]["output"]
    assert done.hidden == ()


def test_a_separated_chip_is_never_free_though_its_node_has_the_fault_and_lists_it_so() -> None:
    reported = record_of(range(8), [one(3, "ManuallySeparateNPU", "")])
    assert chip(3) in reported.available
    done = process(reported, separated=frozenset({chip(3)})).record
    assert done.faults == reported.faults
    assert numbers(done.unhealthy) == [3]
    assert numbers(done.available) == [0, 1, 2, 4, 5, 6, 7]
    assert process(done, separated=frozenset({chip(3)})).record == done


def test_e26_companions_of_a_uce_fault() -> None:
    reported = record(
        one(0, "RestartBusiness", "80E01801", T - 6000),
        one(0, "RestartRequest", "80C98009", T - 4000),
        one(1, "RestartRequest", "80CB8009", T - 1000),
        one(2, "RestartRequest", "80CB8009", T - 9000),
        unhealthy=(0, 1, 2),
    )
    done = process(reported)
    assert codes(done.record) == ["0:80E01801", "2:80CB8009"]
    lists = entry(done.record)
    assert lists[""] == "Ascend910-3,Ascend910-4,Ascend910-5,Ascend910-6,Ascend910-7"
    assert lists["-Unhealthy"] == "Ascend910-0,Ascend910-2"
    assert lists["-NetworkUnhealthy"] == ""
    # Upstream has chip 1 in no list.
    assert lists["-Recovering"] == "Ascend910-1"
    assert done.record.update_time == T // 1000
    assert [(hidden.fault.code, hidden.why) for hidden in done.hidden] == [
        ("80C98009", "accompanies"),
        ("80CB8009", "undecided"),
    ]


def test_e27_manual_separation() -> None:
    reported = record(one(3, "RestartNPU", "8C084E00", T + 500), unhealthy=(3,))
    done = process(reported, separated=frozenset({chip(3), chip(6)}), counting=True)
    lists = entry(done.record)
    assert lists[""] == "Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-4,Ascend910-5,Ascend910-7"
    assert lists["-Unhealthy"] == "Ascend910-3,Ascend910-6"
    level = '"{}":"ManuallySeparateNPU"'
    levels = ",".join(
        level.format(name) for name in ("large_model_fault_level", "fault_level", "fault_handling")
    )
    assert lists["-Fault"] == (
        f'[{{"fault_type":"CardUnhealthy","npu_name":"Ascend910-3",{levels},'
        '"fault_code":"8C084E00","fault_time_and_level_map":{"8C084E00":'
        '{"fault_time":1760000000500,"fault_level":"RestartNPU"}}},'
        f'{{"fault_type":"CardUnhealthy","npu_name":"Ascend910-6",{levels},'
        '"fault_code":"","fault_time_and_level_map":{}}]'
    )
    assert done.record.update_time == reported.update_time


def test_e27_the_document() -> None:
    separated = {"8C084E00": 1760000000999}
    assert render_chips({chip(6): separated, chip(3): separated}) == (
        '{"Total":["Ascend910-3","Ascend910-6"],"Detail":{"Ascend910-3":[{"FaultCode":"8C084E00",'
        '"FaultLevel":"ManuallySeparateNPU","LastSeparateTime":1760000000999}],"Ascend910-6":'
        '[{"FaultCode":"8C084E00","FaultLevel":"ManuallySeparateNPU",'
        '"LastSeparateTime":1760000000999}]}}'
    )


def test_e29_custom_filter() -> None:
    reported = record(
        one(0, "RestartNPU", "80C98000"), one(1, "RestartNPU", "80C98000"), unhealthy=(0, 1)
    )
    done = process(reported, known=node_context(pod(0), codes="80C98000:120"))
    assert codes(done.record) == ["1:80C98000"]
    assert numbers(done.record.available) == [2, 3, 4, 5, 6, 7]
    assert numbers(done.record.unhealthy) == [1]
    # Upstream has chip 0 in no list.
    assert numbers(done.record.recovering) == [0]
    assert done.record.update_time == reported.update_time
    assert done.due_ms == T + 120_001


def test_e30_lists_of_the_node_are_passed_through() -> None:
    reported = record_of(
        (0, 1, 2, 3, 4, 5, 7),
        [one(7, "SubHealthFault", "80CD8003")],
        network=(6,),
        recovering=(5,),
    )
    assert process(reported).record == reported


def test_a_hidden_chip_that_is_separated_is_unhealthy_and_nothing_else() -> None:
    reported = record(one(0, "RestartNPU", "80C98000"), unhealthy=(0,))
    known = node_context(pod(0), codes="80C98000")
    done = process(reported, known=known, separated=frozenset({chip(0)})).record
    assert (numbers(done.unhealthy), numbers(done.recovering)) == ([0], [])


def test_another_fault_keeps_a_chip_where_it_is() -> None:
    reported = record(
        one(0, "RestartNPU", "80C98000"), one(0, "SeparateNPU", "80E18402"), unhealthy=(0,)
    )
    done = process(reported, known=node_context(pod(0), codes="80C98000"))
    assert codes(done.record) == ["0:80E18402"]
    assert (numbers(done.record.unhealthy), numbers(done.record.recovering)) == ([0], [])


def test_public_faults_are_never_hidden_and_never_counted() -> None:
    public = one(0, "SeparateNPU", "220001001") | {"fault_type": "PublicFault"}
    reported = record(public, unhealthy=(0,))
    done = process(reported, known=node_context(pod(0), codes="220001001"), counting=True)
    assert done.record == reported
    assert done.occurrences == ()


def test_receive_times_stay_with_a_code_and_are_never_in_the_future() -> None:
    first = process(record(one(0, "RestartNPU", "80C98000"), unhealthy=(0,)), T)
    both = record(
        one(0, "RestartNPU", "80C98000"), one(0, "RestartNPU", "80C98001"), unhealthy=(0,)
    )
    second = process(both, T + 5, state=first.state)
    assert second.state.received == {chip(0): {"80C98000": T, "80C98001": T + 5}}
    set_back = process(both, T - 9, state=second.state)
    assert set_back.state.received == {chip(0): {"80C98000": T - 9, "80C98001": T - 9}}
    assert process(record(), T + 9, state=second.state).state.received == {}


def test_nothing_is_due_of_a_fault_that_ended_and_of_a_node_that_is_gone() -> None:
    known = node_context(pod(0), codes="80C98000:120")
    engine = ProcessorEngine(1, lambda _: known)
    now = Instant(steady_ms=7, wall_ms=T)
    faulty, healthy = record(one(0, "RestartNPU", "80C98000"), unhealthy=(0,)), record()
    engine.device("n1", faulty, None, now)
    assert engine.next_advance_ms() == 7 + 120_001
    engine.device("n1", healthy, None, now)
    assert engine.next_advance_ms() is None
    engine.device("n1", faulty, None, now)
    engine.forget("device", "n1")
    assert engine.next_advance_ms() is None

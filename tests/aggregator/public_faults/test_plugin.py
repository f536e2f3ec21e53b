"""Messages: what is taken, what it does to a node, what is refused by name, what is held."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from aggregator.cluster_documents.kinds import ClusterEntry, merge
from aggregator.inputs.node_context import NodeState
from aggregator.public_faults.plugin import PublicFaultsPlugin
from aggregator.public_faults.published_faults import MAX_NODE_FAULTS, with_public_faults
from aggregator.public_faults.values import ActivePublicFault
from contract.documents import device_info
from contract.documents.cluster_device import (
    device_record,
    pre_separate_device,
    render_device_entry,
)
from contract.documents.cluster_info import VALUE_LIMIT
from contract.documents.public_fault import Influence
from tests.aggregator.nodes import T0
from tests.aggregator.public_faults.messages import (
    REPORTED_MS,
    at,
    begun,
    document,
    eight,
    fault_message,
    one,
    places,
    read,
    standing,
)
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from aggregator.plugin import DocumentPlugin, Persistent, Timed, Viewed
    from contract.documents.public_fault import PublicFault


def test_an_occurrence_separates_chips_and_a_recovery_ends_that() -> None:
    """Follow the example clusterd#E20."""
    faults = begun()
    before = render_device_entry("node1", eight(), T0)
    answer = faults.send(
        fault_message(one(name="fault-0001", devices=(0, 1), time_ms=1_760_000_100_000)), at(0)
    )
    assert (answer.code, answer.info) == (0, "public fault send successfully")
    assert faults.pop_changed_nodes() == {"n1"}
    record = faults.add_public_faults("n1", eight(), at(3))
    assert record.update_time == T0 + 3
    assert record.unhealthy == ("Ascend910-0", "Ascend910-1")
    assert record.available == tuple(f"Ascend910-{chip}" for chip in range(2, 8))
    text = render_device_entry("node1", record, T0)
    assert (
        '{\\"fault_type\\":\\"PublicFault\\",\\"npu_name\\":\\"Ascend910-0\\",'
        '\\"large_model_fault_level\\":\\"SeparateNPU\\",\\"fault_level\\":\\"SeparateNPU\\",'
        '\\"fault_handling\\":\\"SeparateNPU\\",\\"fault_code\\":\\"220001001\\",'
        '\\"fault_time_and_level_map\\":{\\"220001001\\":{\\"fault_time\\":1760000100,'
        '\\"fault_level\\":\\"SeparateNPU\\"}}}'
    ) in text
    (view,) = faults.views()
    assert (view.namespace, view.name) == ("cluster-system", "statistic-fault-info")
    assert view.labels == {"mc-statistic-fault": "true"}
    assert view.data == {
        "PublicFaults": '{"n1":[{"resource":"CCAE","devIds":[0,1],"faultId":"fault-0001",'
        '"type":"NPU","faultCode":"220001001","level":"SeparateNPU","faultTime":1760000100}]}',
        "FaultNum": '{"publicFaultNum":1}',
    }
    assert faults.send(fault_message(one(assertion="recover")), at(6)).code == 0
    assert faults.pop_changed_nodes() == {"n1"}
    assert (
        render_device_entry("node1", faults.add_public_faults("n1", eight(), at(6)), T0) == before
    )
    (view,) = faults.views()
    assert view.data == {"PublicFaults": "{}", "FaultNum": '{"publicFaultNum":0}'}


def test_all_levels_beside_a_fault_of_the_chip() -> None:
    """Follow the example clusterd#E21, without chip 30, which does not exist."""
    hardware = [fault(3, "RestartNPU", "80C98000", {"80C98000": (1760000000500, "RestartNPU")})]
    data = config(hardware, unhealthy=(3,))
    record = device_record(device_info.decode(data, "x"))
    faults = begun()
    faults_sent = [
        ("fault-0001", "010001001", 2, 100),
        ("fault-0002", "110001022", 4, 101),
        ("fault-0003", "220001001", 3, 102),
        ("fault-0004", "220001001", 3, 103),
        ("fault-0005", "200001010", 5, 104),
        ("fault-0006", "220001002", 30, 105),
    ]
    answer = faults.send(
        fault_message(
            *(
                one(name, code=code, devices=(chip,), time_ms=(1_760_000_000 + time) * 1000)
                for name, code, chip, time in faults_sent
            )
        ),
        at(0),
    )
    assert answer.code == 0
    assert "fault fault-0006: node 'n1' has no chip 30" in answer.info
    public = faults.add_public_faults("n1", record, at(0))
    judged = pre_separate_device(public, frozenset())
    text = render_device_entry("n1", judged, T0)
    assert '"huawei.com/Ascend910-Unhealthy":"Ascend910-3,Ascend910-4"' in text
    assert (
        '\\"npu_name\\":\\"Ascend910-3\\",\\"large_model_fault_level\\":\\"SeparateNPU\\",'
        '\\"fault_level\\":\\"SeparateNPU\\",\\"fault_handling\\":\\"SeparateNPU\\",'
        '\\"fault_code\\":\\"220001001,220001001\\",\\"fault_time_and_level_map\\":{'
        '\\"220001001\\":{\\"fault_time\\":1760000103,\\"fault_level\\":\\"SeparateNPU\\"}}'
    ) in text
    used = pre_separate_device(public, frozenset({"Ascend910-4"}))
    assert used.unhealthy == ("Ascend910-3",)


def test_a_chip_is_called_by_the_type_of_its_node() -> None:
    """Follow the example clusterd#E22."""
    devices = {"huawei.com/npu": "npu-0,npu-1", "huawei.com/npu-Fault": "[]"}
    record = device_record(device_info.decode(config(devices=devices), "x"))
    known = places()
    known.see_report("n5", record)
    faults = begun(known)
    faults.send(fault_message(one(node="n5", devices=(1,), code="010001001")), at(0))
    found = faults.add_public_faults("n5", record, at(0))
    assert [(f.chip, f.level) for f in found.faults] == [("npu-1", "SubHealthFault")]
    assert found.available == ("npu-0", "npu-1")
    assert found.unhealthy == ()


def test_a_node_without_public_faults_costs_nothing() -> None:
    faults = begun()
    faults.send(fault_message(one()), at(0))
    record = eight()
    assert faults.add_public_faults("n2", record, at(0)) is record


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (fault_message(one(node="ghost")), "there is no node 'ghost'"),
        (fault_message(one(devices=(8,))), "node 'n1' has no chip 8"),
        (
            fault_message(one(node="", serial_number="of nobody")),
            "no node has the serial number 'of nobody'",
        ),
        (fault_message(one(node="")), "faults[0].influence[0]"),
        (fault_message(one(code="999999999")), "faults[0].faultCode: '999999999'"),
        (fault_message(one(), resource="Nobody"), "resource: 'Nobody'"),
        (fault_message(), "faults: 0"),
        (replace(fault_message(one()), version="1.1"), "version: '1.1'"),
    ],
)
def test_a_refused_message_is_named(message: PublicFault, named: str) -> None:
    faults = begun()
    answer = faults.send(message, at(0))
    assert answer.code == 409
    assert named in answer.info
    assert faults.pop_changed_nodes() == frozenset()
    status = faults.status()
    assert status.standing == 0
    assert [refusal.where for refusal in status.refused] == [p.where for p in answer.refused]


def test_each_influence_counts_for_itself() -> None:
    faults = begun()
    mixed = replace(
        one(),
        influence=[
            Influence("n1", "", [0]),
            Influence("ghost", "", [1]),
            Influence("", "of nobody", [1]),
            Influence("", "serial of n2", [2, 9]),
        ],
    )
    answer = faults.send(fault_message(mixed), at(0))
    assert answer.code == 0
    assert "'ghost'" in answer.info
    assert "no node has the serial number 'of nobody'" in answer.info
    assert "node 'n2' has no chip 9" in answer.info
    assert standing(faults, "n1").keys() == {"0"}
    assert standing(faults, "n2").keys() == {"2"}


def test_a_fault_without_a_node_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    """Cover defect B9: upstream gives it to a node without a serial number."""
    known = places("n1")
    known.see_node("n1", NodeState("n1"))
    faults = begun(known)
    read(faults, document("pub", fault_message(one(node=""))))
    assert standing(faults) == {}
    assert "public faults in default/pub: refused: faults[0].influence[0]" in caplog.text


def test_a_chip_in_use_exists_although_no_list_names_it() -> None:
    known = places()
    record = replace(eight(), available=("Ascend910-0",))
    known.see_report("n1", record, ["Ascend910-5"])
    known.see_report("n1", record)
    faults = begun(known)
    assert faults.send(fault_message(one(devices=(5,))), at(0)).code == 0
    found = faults.add_public_faults("n1", record, at(0))
    assert found.unhealthy == ("Ascend910-5",)
    assert faults.send(fault_message(one("fault-0002", devices=(6,))), at(0)).code == 409


def test_chips_of_a_new_node_are_looked_for_when_it_reports_them() -> None:
    known = places("n1")
    known.see_node("n3", NodeState("n3"))
    faults = begun(known)
    assert faults.send(fault_message(one(node="n3", devices=(0, 9))), at(0)).code == 0
    assert faults.status().unplaced == 1
    assert standing(faults, "n3").keys() == {"0"}, "the other one may not exist"
    known.see_report("n3", eight())
    faults.pop_changed_nodes()
    assert faults.next_due_ms() == 1000
    assert faults.step(at(1)) == {"n3"}
    assert standing(faults, "n3").keys() == {"0"}
    assert faults.status().unplaced == 0
    assert "node 'n3' has no chip 9" in faults.status().refused[-1].what


def test_messages_wait_until_the_nodes_are_known() -> None:
    known = places("n1", synced=False)
    faults = begun(known)
    answer = faults.send(fault_message(one(), one("fault-0002", node="ghost")), at(0))
    assert answer.code == 0
    assert "2 of it waits until the nodes are known" in answer.info
    read(faults, document("pub", fault_message(one("fault-0003", devices=(3,)))))
    assert standing(faults) == {}
    assert (faults.status().held, faults.status().waiting) == (2, 2)
    due_ms = faults.next_due_ms()
    assert due_ms is not None
    known.synced = True
    assert faults.step(at(due_ms / 1000)) == {"n1"}
    assert faults.ready.is_set()
    assert standing(faults).keys() == {"0", "3"}
    assert "ghost" in faults.status().refused[-1].what
    assert (faults.status().held, faults.status().waiting) == (0, 0)


def test_the_time_of_an_entry_never_goes_back() -> None:
    """Cover defect B3: upstream's goes back to the node's own time when a public fault recovers."""
    faults, stamps = begun(), []
    entry = None
    for seconds, assertion in ((0, ""), (100, "occur"), (200, "recover"), (200.5, "once")):
        if assertion:
            faults.send(
                fault_message(one(assertion=assertion), at_ms=at(seconds).wall_ms), at(seconds)
            )
        merged = merge(
            "n1", faults.add_public_faults("n1", eight(), at(seconds)), entry, at(seconds)
        )
        assert isinstance(merged, ClusterEntry)
        entry = merged
        stamps.append(entry.stamp)
    assert stamps == [T0, T0 + 100, T0 + 101, T0 + 200]


def test_a_sender_whose_clock_is_behind_learns_that_its_message_is_old() -> None:
    faults = begun()
    faults.send(fault_message(one(), at_ms=REPORTED_MS + 30_000), at(0))
    answer = faults.send(
        fault_message(one(assertion="recover"), at_ms=REPORTED_MS + 10_000), at(10)
    )
    assert (answer.code, answer.info) == (
        0,
        "public fault send successfully; refused: "
        "fault fault-0001: a newer message about it was applied on node 'n1'",
    )
    assert standing(faults).keys() == {"0"}


def standing_of(*text: tuple[str, str, tuple[int, ...], int]) -> list[ActivePublicFault]:
    """Return the faults by code, level, chips and time."""
    return [
        ActivePublicFault(
            "n1", "CCAE", f"fault-{n:05}", "NPU", code, level, chips, at_s, 0, 0, 0, None, True
        )
        for n, (code, level, chips, at_s) in enumerate(text)
    ]


def test_a_fault_that_is_reported_under_ever_new_names_leaves_the_entry_small() -> None:
    """Send 32 messages of 100 faults on 32 chips: more than 1 MiB."""
    chips = tuple(range(32))
    flood = [("010001001", "SubHealthFault", chips, T0 + n) for n in range(3200)]
    worse = ("220001001", "SeparateNPU", (31,), T0)
    record = with_public_faults(eight(), standing_of(*flood, worse), T0)
    shown_faults = [one for one in record.faults if one.code == "010001001"]
    assert {(one.chip, one.time_ms) for one in shown_faults} == {
        (f"Ascend910-{chip}", T0 + 3199) for chip in chips
    }
    assert record.unhealthy == ("Ascend910-31",)
    assert [one.chip for one in record.faults if one.code == "220001001"] == ["Ascend910-31"]


def test_as_many_times_as_there_is_room_for_are_reported_like_upstream() -> None:
    one_more = [("010001001", "SubHealthFault", (0,), T0 + n) for n in range(MAX_NODE_FAULTS + 1)]
    shown_faults = with_public_faults(eight(), standing_of(*one_more[:-1]), T0).faults
    assert len(shown_faults) == MAX_NODE_FAULTS
    assert len(with_public_faults(eight(), standing_of(*one_more), T0).faults) == 1


@pytest.mark.slow
def test_of_ever_new_codes_the_worst_are_reported_for_each_chip() -> None:
    mild = [(f"{n:09}", "SubHealthFault", tuple(range(31)), T0 + n) for n in range(2000)]
    worse = [(f"9{n:08}", "SeparateNPU", (n % 8, 31), T0) for n in range(100)]
    record = with_public_faults(eight(), standing_of(*mild, *worse), T0)
    assert len(record.faults) == MAX_NODE_FAULTS
    assert len(render_device_entry("n1", record, T0)) < VALUE_LIMIT // 4
    counts = Counter(one.chip for one in record.faults)
    assert set(counts) == {f"Ascend910-{chip}" for chip in range(32)}
    assert max(counts.values()) - min(counts.values()) <= 1
    separated = {one.chip for one in record.faults if one.level == "SeparateNPU"}
    assert separated == set(record.unhealthy) == {f"Ascend910-{n}" for n in (*range(8), 31)}
    assert "000001999" in {one.code for one in record.faults if one.chip == "Ascend910-9"}


def test_it_is_what_the_daemon_asks_for() -> None:
    faults = PublicFaultsPlugin(places())
    reader: DocumentPlugin = faults
    timed: Timed = faults
    keeper: Persistent = faults
    viewed: Viewed = faults
    assert len(reader.inputs) == 3
    assert timed.next_due_ms() == 500
    assert keeper.name == "public-faults"
    assert viewed.views() == ()


def test_counts_do_not_grow_with_invented_names() -> None:
    faults = begun()
    for number in range(500):
        faults.send(fault_message(one(), resource=f"made-up-{number}"), at(0))
    faults.send(fault_message(one()), at(0))
    faults.send(fault_message(one()), at(0))
    counts = {(c.resource, c.verdict): c.number for c in faults.status().counts}
    assert counts == {
        ("(not configured)", "refused"): 500,
        ("CCAE", "taken"): 2,
        ("CCAE", "added"): 1,
        ("CCAE", "known"): 1,
    }
    assert len(faults.status().refused) == 100

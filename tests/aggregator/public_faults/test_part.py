"""Messages over gRPC and in documents: what is taken, refused by name, held, limited and kept."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.facts import NodeState
from aggregator.merge import Entry, merge
from aggregator.public_faults.part import MESSAGES, STATISTIC, PublicFaults
from contract import device_info
from contract.cluster_device import device_record, pre_separate_device, render_device_entry
from contract.public_fault import Influence, encode_public_fault
from stores.base import Changed, Deleted, Document, Interrupted, Listed
from tests.aggregator.nodes import T0
from tests.aggregator.public_faults.telling import (
    at,
    begun,
    changed,
    document,
    eight,
    kept,
    one,
    places,
    read,
    standing,
    told,
)
from tests.contract.test_cluster_device import config, fault

if TYPE_CHECKING:
    from aggregator.part import Keeper, Reader, Timed, Viewed
    from contract.public_fault import PublicFault

SEPARATED = {"0": ("220001001", "SeparateNPU")}


def test_an_occurrence_separates_chips_and_a_recovery_ends_that() -> None:
    """Example E20."""
    faults = begun()
    before = render_device_entry("node1", eight(), T0)
    answer = faults.send(
        told(one(name="fault-0001", devices=(0, 1), time_ms=1_760_000_100_000)), at(0)
    )
    assert (answer.code, answer.info) == (0, "public fault send successfully")
    assert faults.take_changed_nodes() == {"n1"}
    record = faults.apply("n1", eight(), at(3))
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
    assert faults.send(told(one(assertion="recover")), at(6)).code == 0
    assert faults.take_changed_nodes() == {"n1"}
    assert render_device_entry("node1", faults.apply("n1", eight(), at(6)), T0) == before
    (view,) = faults.views()
    assert view.data == {"PublicFaults": "{}", "FaultNum": '{"publicFaultNum":0}'}


def test_all_levels_beside_a_fault_of_the_chip() -> None:
    """Example E21, but for chip 30, which does not exist."""
    hardware = [fault(3, "RestartNPU", "80C98000", {"80C98000": (1760000000500, "RestartNPU")})]
    data = config(hardware, unhealthy=(3,))
    record = device_record(device_info.decode(data, "x"))
    faults = begun()
    told_faults = [
        ("fault-0001", "010001001", 2, 100),
        ("fault-0002", "110001022", 4, 101),
        ("fault-0003", "220001001", 3, 102),
        ("fault-0004", "220001001", 3, 103),
        ("fault-0005", "200001010", 5, 104),
        ("fault-0006", "220001002", 30, 105),
    ]
    answer = faults.send(
        told(
            *(
                one(name, code=code, devices=(chip,), time_ms=(1_760_000_000 + time) * 1000)
                for name, code, chip, time in told_faults
            )
        ),
        at(0),
    )
    assert answer.code == 0
    assert "fault fault-0006: node 'n1' has no chip 30" in answer.info
    public = faults.apply("n1", record, at(0))
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
    """Example E22."""
    devices = {"huawei.com/npu": "npu-0,npu-1", "huawei.com/npu-Fault": "[]"}
    record = device_record(device_info.decode(config(devices=devices), "x"))
    known = places()
    known.see_report("n5", record)
    faults = begun(known)
    faults.send(told(one(node="n5", devices=(1,), code="010001001")), at(0))
    found = faults.apply("n5", record, at(0))
    assert [(f.chip, f.level) for f in found.faults] == [("npu-1", "SubHealthFault")]
    assert found.available == ("npu-0", "npu-1")
    assert found.unhealthy == ()


def test_a_node_without_public_faults_costs_nothing() -> None:
    faults = begun()
    faults.send(told(one()), at(0))
    record = eight()
    assert faults.apply("n2", record, at(0)) is record


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (told(one(node="ghost")), "there is no node 'ghost'"),
        (told(one(devices=(8,))), "node 'n1' has no chip 8"),
        (
            told(one(node="", serial_number="of nobody")),
            "no node has the serial number 'of nobody'",
        ),
        (told(one(node="")), "faults[0].influence[0]"),
        (told(one(code="999999999")), "faults[0].faultCode: '999999999'"),
        (told(one(), resource="Nobody"), "resource: 'Nobody'"),
        (told(), "faults: 0"),
        (replace(told(one()), version="1.1"), "version: '1.1'"),
    ],
)
def test_what_is_refused_is_named(message: PublicFault, named: str) -> None:
    faults = begun()
    answer = faults.send(message, at(0))
    assert answer.code == 409
    assert named in answer.info
    assert faults.take_changed_nodes() == frozenset()
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
    answer = faults.send(told(mixed), at(0))
    assert answer.code == 0
    assert "'ghost'" in answer.info
    assert "no node has the serial number 'of nobody'" in answer.info
    assert "node 'n2' has no chip 9" in answer.info
    assert standing(faults, "n1").keys() == {"0"}
    assert standing(faults, "n2").keys() == {"2"}


def test_a_fault_without_a_node_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    """Defect B9: upstream gives it to a node without a serial number."""
    known = places("n1")
    known.see_node("n1", NodeState("n1"))
    faults = begun(known)
    read(faults, document("pub", told(one(node=""))))
    assert standing(faults) == {}
    assert "public faults in default/pub: refused: faults[0].influence[0]" in caplog.text


def test_a_chip_in_use_exists_although_no_list_names_it() -> None:
    known = places()
    record = replace(eight(), available=("Ascend910-0",))
    known.see_report("n1", record, ["Ascend910-5"])
    known.see_report("n1", record)
    faults = begun(known)
    assert faults.send(told(one(devices=(5,))), at(0)).code == 0
    found = faults.apply("n1", record, at(0))
    assert found.unhealthy == ("Ascend910-5",)
    assert faults.send(told(one("fault-0002", devices=(6,))), at(0)).code == 409


def test_chips_of_a_new_node_are_looked_for_when_it_tells_of_them() -> None:
    known = places("n1")
    known.see_node("n3", NodeState("n3"))
    faults = begun(known)
    assert faults.send(told(one(node="n3", devices=(0, 9))), at(0)).code == 0
    assert faults.status().unplaced == 1
    assert standing(faults, "n3").keys() == {"0"}, "the other one may not exist"
    known.see_report("n3", eight())
    assert faults.next_due_ms() == 1000
    assert faults.step(at(1)) == {"n3"}
    assert standing(faults, "n3").keys() == {"0"}
    assert faults.status().unplaced == 0
    assert "node 'n3' has no chip 9" in faults.status().refused[-1].what


def test_messages_wait_until_the_nodes_are_known() -> None:
    known = places("n1", synced=False)
    faults = begun(known)
    answer = faults.send(told(one(), one("fault-0002", node="ghost")), at(0))
    assert answer.code == 0
    assert "2 of it waits until the nodes are known" in answer.info
    read(faults, document("pub", told(one("fault-0003", devices=(3,)))))
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


def test_what_waits_survives_a_restart() -> None:
    faults = begun(places("n1", synced=False))
    faults.send(told(one("fault-0001"), one("fault-0002", devices=(1,))), at(0))
    state = kept(faults)
    again = begun(places("n1"), state, seconds=1)
    assert standing(again).keys() == {"0", "1"}
    later = begun(places("n1"), kept(again, state), seconds=2)
    assert standing(later).keys() == {"0", "1"}
    assert later.status().held == 0


def test_each_node_has_a_limit_of_its_own() -> None:
    faults = begun()
    first = [faults.send(told(one(f"fault-{n:04}")), at(0)).code for n in range(101)]
    assert first == [0] * 100 + [410]
    both = replace(one("fault-0999"), influence=[Influence(n, "", [0]) for n in ("n1", "n2")])
    answer = faults.send(told(both), at(0))
    assert answer.code == 410
    assert "limiter work by resource failed: node n1: CCAE may say no more of it now" in answer.info
    assert "n2" not in answer.info
    assert standing(faults, "n2") == SEPARATED
    assert faults.send(told(one("fault-0998")), at(1)).code == 0
    assert faults.send(told(one("fault-0997"), resource="Netmind"), at(1)).code == 0


def test_what_is_invalid_takes_nothing_from_what_is_good() -> None:
    """Defect B12."""
    faults = begun()
    for _ in range(1000):
        assert faults.send(told(one(code="999999999")), at(0)).code == 409
        assert faults.send(told(one(node="ghost")), at(0)).code == 409
    assert faults.send(told(one()), at(0)).code == 0


def test_a_resource_may_say_a_thousand_things_a_second() -> None:
    names = [f"node-{number}" for number in range(1500)]
    faults = begun(places(*names))
    for second in range(3):
        for name in names:
            fault_ = one(f"fault-{second}-{name}", node=name)
            assert faults.send(told(fault_), at(second)).code == 0


def test_documents_wait_where_messages_are_refused() -> None:
    faults = begun()
    for number in range(103):
        faults.observe(0, MESSAGES, changed("pub", told(one(f"fault-{number:04}"))), at(0))
    status = faults.status()
    assert (status.standing, status.waiting) == (100, 3)
    state = kept(faults)
    for second in (1, 2, 3):
        assert faults.next_due_ms() == second * 1000
        faults.step(at(second))
    assert (faults.status().standing, faults.status().waiting) == (103, 0)
    again = begun(kept=state, seconds=4)
    read(again, document("pub", told(one("fault-0102"))), seconds=4)
    assert again.status().standing == 101, "of a document that waited the newest text counts"


def test_a_text_that_waits_has_not_counted() -> None:
    faults = begun()
    for number in range(102):
        faults.observe(0, MESSAGES, changed("pub", told(one(f"fault-{number:04}"))), at(0))
    faults.step(at(1))
    assert (faults.status().standing, faults.status().waiting) == (101, 1)
    again = begun(kept=kept(faults), seconds=2)
    read(again, document("pub", told(one("fault-0101"))), seconds=2)
    assert again.status().standing == 102


def test_a_document_that_never_rests_is_read_as_it_is_now() -> None:
    faults = begun()
    for number in range(200):
        faults.observe(0, MESSAGES, changed("pub", told(one(f"fault-{number:04}"))), at(0))
    assert (faults.status().waiting, faults.status().dropped) == (16, 84)
    for second in range(1, 17):
        faults.step(at(second))
    assert faults.status().waiting == 0
    (view,) = faults.views()
    assert view.data is not None
    assert "fault-0199" in view.data["PublicFaults"]


def test_a_document_counts_once() -> None:
    faults = begun()
    pub = document("pub", told(one()))
    read(faults, pub)
    faults.send(told(one(assertion="recover")), at(10))
    touched = replace(pub, annotations={"touched": "now"}, version="2")
    faults.observe(0, MESSAGES, Changed(touched), at(20))
    faults.observe(0, MESSAGES, Interrupted("why"), at(20))
    read(faults, touched, seconds=30)
    assert standing(faults) == {}
    faults.observe(0, MESSAGES, Deleted("default", "pub"), at(100))
    faults.observe(0, MESSAGES, Changed(pub), at(101))
    assert standing(faults) == SEPARATED


def test_documents_that_were_counted_are_not_counted_after_a_restart() -> None:
    faults = begun()
    told_1 = document("pub-1", told(one(), at_ms=at(0).wall_ms))
    told_2 = document("pub-2", told(one("fault-0002", devices=(2,)), at_ms=at(0).wall_ms))
    read(faults, told_1, told_2)
    faults.send(told(one(assertion="recover"), at_ms=at(10).wall_ms), at(10))
    state = kept(faults)
    again = begun(kept=state, seconds=100)
    assert standing(again).keys() == {"2"}, "before anything is read"
    assert begun(kept=state, seconds=20).take_changed() == frozenset()
    told_3 = document("pub-3", told(one("fault-0003", devices=(3,))))
    read(again, told_1, told_3, seconds=100)
    assert standing(again).keys() == {"2", "3"}
    state = kept(again, state)
    third = begun(kept=state, seconds=200)
    read(third, told_1, told_2, told_3, seconds=200)
    assert standing(third).keys() == {"2", "3"}
    assert sum("pub-2" in text for text in kept(third, state).values()) == 1


def test_of_several_documents_the_one_told_last_holds() -> None:
    older = document("z", told(one(), at_ms=at(-4000).wall_ms))
    newer = document("a", told(one(assertion="recover"), at_ms=at(-2000).wall_ms))
    faults = begun()
    read(faults, newer, older)
    faults.step(at(6))
    assert standing(faults) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["occur", "recover", "once"]),
            st.sampled_from(["send", "a", "b"]),
            st.integers(0, 8000),
            st.booleans(),
        ),
        max_size=12,
    )
)
@settings(deadline=None, max_examples=100)
def test_whatever_way_it_comes_the_newest_holds(
    history: list[tuple[str, str, int, bool]],
) -> None:
    """By gRPC or in one of two documents, with a restart after any of them, during which a document
    may change."""
    faults, state = begun(), dict[str, str]()
    texts: dict[str, Document] = {}
    clock_ms, stands = 0, False
    for number, (assertion, way, pause_ms, restarts) in enumerate(history):
        clock_ms += pause_ms
        now = at(clock_ms / 1000)
        message = told(one(assertion=assertion), at_ms=now.wall_ms, name=f"message-{number}")
        faults.step(now)
        if way == "send":
            faults.send(message, now)
        else:
            texts[way] = document(way, message)
            if not restarts:
                faults.observe(0, MESSAGES, Changed(texts[way]), now)
        stands = assertion == "occur" or (stands and assertion == "once")
        state = kept(faults, state)
        if restarts:
            faults = begun(kept=state, seconds=clock_ms / 1000)
            read(faults, *texts.values(), seconds=clock_ms / 1000)
    faults.step(at(clock_ms / 1000 + 5))
    assert bool(standing(faults)) == stands


def test_a_follower_begins_where_the_leader_ended() -> None:
    """It has read the documents, too, but not what was said over gRPC."""
    leader, follower = begun(), PublicFaults()
    follower.know(places("n1", "n2"))
    follower.step(at(0))
    first = document("pub-1", told(one()))
    for part in (leader, follower):
        read(part, first)
    leader.send(told(one("fault-0002", devices=(1,))), at(1))
    leader.send(told(one(assertion="recover")), at(10))
    state = kept(leader)
    late = document("pub-2", told(one("fault-0003", devices=(2,))))
    follower.observe(0, MESSAGES, Changed(late), at(11))
    assert standing(follower).keys() == {"0", "2"}
    assert follower.views() == ()
    assert list(follower.restore(state, at(20))) == []
    assert follower.take_changed_nodes() == {"n1"}
    assert standing(follower).keys() == {"1", "2"}
    assert len(follower.views()) == 1
    assert kept(follower, state).keys() >= state.keys()


def test_what_upstream_has_left_is_taken_over() -> None:
    left = {
        "PublicFaults": '{"n1":[{"resource":"CCAE","devIds":[0],"faultId":"fault-0001","type":"NPU"'
        ',"faultCode":"220001001","level":"SeparateNPU","faultTime":1760000123},'
        '{"resource":"CCAE","devIds":[1,99],"faultId":"fault-0002","type":"NPU",'
        '"faultCode":"900000009","level":"PreSeparateNPU","faultTime":1760000123},{}],'
        '"ghost":[{"resource":"CCAE","devIds":[3],"faultId":"fault-0001","type":"NPU",'
        '"faultCode":"220001001","level":"SeparateNPU","faultTime":1760000123}]}',
        "FaultNum": '{"publicFaultNum":3}',
    }
    faults = PublicFaults(2)
    faults.know(places("n1"))
    faults.restore({}, at(0))
    listed = Listed((Document("cluster-system", "statistic-fault-info", left),))
    faults.observe(0, STATISTIC, listed, at(0))
    assert faults.views() == (), "another store may know more"
    assert "about" not in kept(faults)
    faults.observe(1, STATISTIC, Listed(()), at(0))
    faults.step(at(0))
    assert standing(faults) == SEPARATED | {"1": ("900000009", "PreSeparateNPU")}
    state = kept(faults)
    faults.send(told(one(assertion="recover")), at(1))
    assert faults.send(told(one("fault-0002", "recover", code="900000009")), at(1)).code == 0
    assert faults.send(told(one("fault-0003", code="900000009")), at(1)).code == 409
    assert standing(faults) == {}
    again = begun(places("n1"), kept(faults, state), seconds=10)
    again.observe(0, STATISTIC, listed, at(10))
    assert standing(again) == {}, "it has a state of its own"


def test_a_node_that_went_has_its_faults_for_a_day() -> None:
    known = places("n1", "n2")
    faults = begun(known)
    faults.send(told(one()), at(0))
    faults.step(at(1))
    known.see_node("n1", None)
    known.see_report("n1", None)
    assert faults.next_due_ms() == 60_000
    faults.step(at(60))
    assert faults.status().away == {"n1": at(60).wall_ms}
    state = kept(faults)
    back = places("n1", "n2")
    returned = begun(back, state, seconds=80_000)
    assert returned.status().away == {}
    assert standing(returned) == SEPARATED
    gone = begun(known, state, seconds=80_000)
    assert gone.status().standing == 1
    gone.step(at(86_399 + 60))
    assert gone.status().standing == 1
    assert gone.step(at(86_460 + 60)) == {"n1"}
    assert gone.status().standing == 0
    assert gone.status().away == {}


def test_a_fault_of_a_node_that_went_may_recover() -> None:
    known = places("n1")
    faults = begun(known)
    faults.send(told(one()), at(0))
    known.see_node("n1", None)
    known.see_report("n1", None)
    assert faults.send(told(one("fault-0002")), at(10)).code == 409
    assert faults.send(told(one(assertion="recover")), at(10)).code == 0
    assert faults.status().standing == 0


def test_the_time_of_an_entry_never_goes_back() -> None:
    """Defect B3: upstream's goes back to the node's own time when a public fault recovers."""
    faults, stamps = begun(), []
    entry = None
    for seconds, assertion in ((0, ""), (100, "occur"), (200, "recover"), (200.5, "once")):
        if assertion:
            faults.send(told(one(assertion=assertion), at_ms=at(seconds).wall_ms), at(seconds))
        merged = merge("n1", faults.apply("n1", eight(), at(seconds)), entry, at(seconds))
        assert isinstance(merged, Entry)
        entry = merged
        stamps.append(entry.stamp)
    assert stamps == [T0, T0 + 100, T0 + 101, T0 + 200]


def test_it_is_what_the_daemon_asks_for() -> None:
    faults = PublicFaults()
    reader: Reader = faults
    timed: Timed = faults
    keeper: Keeper = faults
    viewed: Viewed = faults
    assert len(reader.inputs) == 3
    assert timed.next_due_ms() == 500
    assert keeper.name == "public-faults"
    assert viewed.views() == ()


def test_a_bucket_that_cannot_be_read_is_told_and_the_others_count() -> None:
    names = [f"n{number}" for number in range(1, 20)]
    known = places(*names)
    faults = begun(known)
    for name in names:
        faults.send(told(one(node=name)), at(0))
    state = kept(faults)
    damaged = next(bucket for bucket in sorted(state) if bucket != "about")
    state[damaged] = state[damaged][:-5]
    again = PublicFaults()
    (problem,) = again.restore(state, at(1))
    assert problem.startswith(damaged)
    assert 0 < again.status().standing < len(names)


def test_troubles_are_told_once_and_when_they_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = begun()
    caplog.clear()
    for number in range(3):
        bad = document("pub", told(one(code="999999999"), name=f"message-{number}"))
        faults.observe(0, MESSAGES, Changed(bad), at(number))
    faults.observe(0, MESSAGES, changed("pub", told(one())), at(5))
    assert [record.getMessage() for record in caplog.records] == [
        "public faults in default/pub: refused: faults[0].faultCode: '999999999' is refused, and "
        "no other fault is left",
        "public faults in default/pub: everything is taken again",
    ]
    assert faults.status().troubles == {}


def test_counts_do_not_grow_with_what_anybody_makes_up() -> None:
    faults = begun()
    for number in range(500):
        faults.send(told(one(), resource=f"made-up-{number}"), at(0))
    faults.send(told(one()), at(0))
    faults.send(told(one()), at(0))
    counts = {(c.resource, c.verdict): c.number for c in faults.status().counts}
    assert counts == {
        ("(not configured)", "refused"): 500,
        ("CCAE", "taken"): 2,
        ("CCAE", "added"): 1,
        ("CCAE", "known"): 1,
    }
    assert len(faults.status().refused) == 100


def test_a_document_without_its_key_is_told() -> None:
    faults = begun()
    data = {"publicfault": encode_public_fault(told(one()))["PublicFault"]}
    read(faults, replace(document("pub", told(one())), data=data))
    assert "the data key is missing" in faults.status().troubles["public faults in default/pub"]

"""What a job rides out: how its annotations are read, whose chips, how long; switches too."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.inputs.node_context import JobState, NodeContext
from aggregator.processors.chains import ChainContext, SwitchResult, process_switch
from aggregator.processors.custom_filter import read_filter
from aggregator.processors.state_types import NO_SWITCH_STATE, SwitchState
from contract.documents.switch_info import SwitchEvent, SwitchRecord
from tests.aggregator.processors.cases import T, codes, node_context, one, pod, process, record

FAULTS = record(
    one(0, "RestartNPU", "80C98000"),
    one(0, "RestartRequest", "80CB8002"),
    one(1, "RestartNPU", "80C98000"),
    unhealthy=(0, 1),
)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", {}),
        ("80C98000", {"80C98000": 60_000}),
        ("80C98000:120,80CB8002:5", {"80C98000": 120_000, "80CB8002": 5000}),
        ("80C98000：120，80CB8002", {"80C98000": 120_000, "80CB8002": 60_000}),
        (" 80C98000 : 0 , ,", {"80C98000": 0}),
        ("a:86400,b:86401,c:-1,d:x,e:1.5,f:", {"a": 86_400_000, **dict.fromkeys("bcdef", 60_000)}),
        ("a:" + "9" * 5000, {"a": 60_000}),
        ("[0x08520003,na,L2,na]:30,b", {"[0x08520003,na,L2,na]": 30_000, "b": 60_000}),
        ("[0x08520003,na,L2", {"[0x08520003,na,L2": 60_000}),
        ("a:1,a:2", {"a": 2000}),
        (":5", {}),
    ],
)
def test_annotations(text: str, items: dict[str, int]) -> None:
    assert read_filter(text) == items


@given(st.text(alphabet="ab,:，：[] 019\n", max_size=60))
def test_any_annotation_is_read(text: str) -> None:
    assert all(name and 0 <= ms <= 86_400_000 for name, ms in read_filter(text).items())


def test_a_fault_is_hidden_until_its_time_is_over_and_not_a_millisecond_longer() -> None:
    known = node_context(pod(0), codes="80C98000:120")
    first = process(FAULTS, T, known)
    assert codes(first.record) == ["0:80CB8002", "1:80C98000"]
    last = process(FAULTS, T + 120_000, known, first.state)
    assert (last.record, last.due_ms) == (first.record, T + 120_001)
    over = process(FAULTS, T + 120_001, known, last.state)
    assert (over.record, over.hidden, over.due_ms) == (FAULTS, (), None)


def test_a_code_goes_before_a_level() -> None:
    both = node_context(pod(0), codes="80C98000:0", levels="RestartNPU:100")
    assert codes(process(FAULTS, T, both).record) == ["0:80CB8002", "1:80C98000"]
    later = process(FAULTS, T + 1, both, process(FAULTS, T, both).state)
    assert later.record == FAULTS


def test_chips_of_another_job_and_idle_chips_are_shown() -> None:
    other = node_context(pod(0, job="job1"), pod(1, job="job2"), codes="80C98000")
    assert codes(process(FAULTS, T, other).record) == ["0:80CB8002", "1:80C98000"]
    idle = node_context(pod(5), codes="80C98000")
    assert process(FAULTS, T, idle).record == FAULTS


def test_all_pods_of_a_job_on_the_node_count() -> None:
    two = node_context(pod(0, uid="a"), pod(1, uid="b"), codes="80C98000")
    assert codes(process(FAULTS, T, two).record) == ["0:80CB8002"]


def test_a_filter_ends_with_its_annotation_or_job() -> None:
    hidden = process(FAULTS, T, node_context(pod(0), codes="80C98000"))
    assert process(FAULTS, T + 1, node_context(pod(0)), hidden.state).record == FAULTS
    assert process(FAULTS, T + 1, node_context(), hidden.state).hidden == ()


def test_levels_of_chips_and_their_aliases() -> None:
    by_level = node_context(pod(0), levels="RestartRequestFault:10")
    assert codes(process(FAULTS, T, by_level).record) == ["0:80C98000", "1:80C98000"]


def server(**labels: str) -> NodeContext:
    return node_context(pod(0, app="mindie-ms-server", jobID="m1", **labels))


def test_servers_ride_out_restart_requests_while_their_controller_listens() -> None:
    listening = process(FAULTS, T, server(), controllers=frozenset({"m1"}))
    assert codes(listening.record) == ["0:80C98000", "1:80C98000"]
    assert listening.due_ms == T + 60_001
    deaf = process(FAULTS, T, server(), controllers=frozenset({"m2"}))
    assert deaf.record == FAULTS
    known = server()
    annotated = {"huawei.com/schedule.filter.faultCode": "80C98000"}
    jobs = {"job1": JobState("job1", annotations=annotated)}
    known = msgspec.structs.replace(known, jobs=jobs)
    assert process(FAULTS, T, known).record == FAULTS
    both = process(FAULTS, T, known, controllers=frozenset({"m1"}))
    assert codes(both.record) == ["1:80C98000"]


def event(code: str, switch: int = 1, port: int = 2) -> SwitchEvent:
    return SwitchEvent(assembled_fault_code=code, switch_chip_id=switch, switch_port_id=port)


LINK, CPU = "[0x08520003,na,L2,na]", "[0x00f1ff09,155913,cpu,na]"
SWITCH = SwitchRecord(
    events=(event(LINK), event(CPU)),
    level="Separate",
    update_time=T // 1000,
    status="UnHealthy",
    times=((f"{CPU}_1_2", T, "Separate"), (f"{LINK}_1_2", T, "SubHealthFault")),
)


def switched(
    known: NodeContext,
    now_ms: int = T,
    state: SwitchState = NO_SWITCH_STATE,
    reported: SwitchRecord = SWITCH,
) -> SwitchResult:
    return process_switch(reported, state, ChainContext(known), now_ms)


def test_a_node_is_judged_by_the_events_that_are_left() -> None:
    known = node_context(pod(0), levels="SeparateFault:30")
    done = switched(known)
    assert done.record.events == (event(LINK),)
    assert (done.record.level, done.record.status) == ("SubHealthFault", "SubHealthy")
    assert done.record.times == ((f"{LINK}_1_2", T, "SubHealthFault"),)
    assert [one.event for one in done.hidden] == [event(CPU)]
    over = switched(known, T + 30_001, done.state)
    assert (over.record, over.hidden) == (SWITCH, ())


def test_without_any_event_left_the_node_is_healthy() -> None:
    done = switched(node_context(pod(0), codes=f"{LINK},{CPU}:5"))
    assert (done.record.level, done.record.status) == ("NotHandleFault", "Healthy")
    assert (done.record.events, done.record.times) == ((), ())
    assert done.due_ms == T + 5001


def test_an_event_without_a_level_of_its_own_is_shown() -> None:
    bare = msgspec.structs.replace(SWITCH, times=None)
    assert switched(node_context(pod(0), codes=LINK), reported=bare).record == bare


def test_a_pre_separation_that_is_left_is_decided_by_the_chips_in_use() -> None:
    mixed = msgspec.structs.replace(
        SWITCH, times=((f"{CPU}_1_2", T, "Separate"), (f"{LINK}_1_2", T, "PreSeparate"))
    )
    done = switched(node_context(pod(0), codes=CPU), reported=mixed)
    assert (done.record.level, done.record.status) == ("PreSeparate", "Healthy")

"""What holds for whatever nodes, jobs and operators do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aggregator.inputs.node_context import JobState, NodeContext, PodState
from aggregator.processors.chains import ChainContext, DeviceResult, ProcessorEngine, process_device
from aggregator.processors.state_types import NO_DEVICE_STATE
from contract.codes.levels import ChipLevel
from contract.documents.cluster_device import CodeFault, DeviceRecord
from stores.base import Document, DocumentsListed
from tests.aggregator.nodes import instant
from tests.aggregator.processors.cases import NODE, T, chip, policy_text
from tests.parts.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

CODES = ("80E01801", "80C98009", "80CB8009", "80C98000", "81078603", "220001001")
TYPES = ("CardUnhealthy", "CardNetworkUnhealthy", "PublicFault")
PRE = ChipLevel.PRE_SEPARATE_NPU.value

faults = st.builds(
    lambda kind, number, level, code, at: CodeFault(kind, chip(number), level, code, at, level),
    st.sampled_from(TYPES),
    st.integers(0, 5),
    st.sampled_from([level.value for level in ChipLevel]),
    st.sampled_from(CODES),
    st.integers(T - 12_000, T + 12_000),
)


@st.composite
def records(draw: st.DrawFn) -> DeviceRecord:
    """Draw records of a node of six chips, each in one list, with any faults."""
    places = draw(st.lists(st.sampled_from("auanr"), min_size=6, max_size=6))
    lists = {
        place: tuple(chip(number) for number, one in enumerate(places) if one == place)
        for place in "aunr"
    }
    return DeviceRecord(
        "Ascend910",
        lists["a"],
        lists["u"],
        lists["n"],
        lists["r"],
        tuple(sorted(draw(st.lists(faults, max_size=8)))),
        T // 1000,
        -2,
        0,
        -2,
    )


wishes = st.dictionaries(
    st.sampled_from(
        ["huawei.com/schedule.filter.faultCode", "huawei.com/schedule.filter.faultLevel"]
    ),
    st.lists(
        st.sampled_from([*CODES, "RestartNPU:3", "SeparateNPU:9", "80C98000:2"]), max_size=3
    ).map(",".join),
)


@st.composite
def known(draw: st.DrawFn) -> NodeContext:
    """Draw two jobs, whose pods may share chips; or none are known."""
    if draw(st.booleans()) and draw(st.booleans()):
        return NodeContext()
    pods = tuple(
        PodState(
            f"pod-{key}", NODE, job=key, chips=tuple(map(chip, draw(st.sets(st.integers(0, 5)))))
        )
        for key in ("j1", "j2")
    )
    jobs = {key: JobState(key, annotations=draw(wishes)) for key in ("j1", "j2")}
    return NodeContext(frozenset(name for pod in pods for name in pod.chips), False, pods, jobs)


arounds = st.builds(
    ChainContext,
    known(),
    st.frozensets(st.sampled_from([chip(0), chip(3)])),
    st.booleans(),
    st.just(frozenset[str]()),
)


def lists_of(record: DeviceRecord) -> list[tuple[str, ...]]:
    return [record.available, record.unhealthy, record.network_unhealthy, record.recovering]


def processed(
    reported: Sequence[DeviceRecord], context: ChainContext, times: Sequence[int]
) -> DeviceResult:
    """Return the last of several records of one node, processed one after the other."""
    state, now_ms, done = NO_DEVICE_STATE, T, None
    for record, later_ms in zip(reported, times, strict=False):
        now_ms += later_ms
        done = process_device(NODE, record, state, context, now_ms)
        state = done.state
    assert done is not None
    return done


reported = st.lists(records(), min_size=1, max_size=4)
waits = st.lists(st.integers(0, 8000), min_size=4, max_size=4)


@given(reported, arounds, waits)
@examples(60)
def test_every_chip_is_in_some_list_and_every_list_is_sorted(
    reported: list[DeviceRecord], context: ChainContext, times: list[int]
) -> None:
    done = processed(reported, context, times).record
    spared = {fault.chip for fault in done.faults if fault.level == PRE}
    before = {name for names in lists_of(reported[-1]) for name in names}
    after = {name for names in lists_of(done) for name in names}
    assert before - after <= spared
    for names in lists_of(done):
        assert list(names) == sorted(set(names))
    assert list(done.faults) == sorted(done.faults)


@given(reported, arounds, waits)
@examples(60)
def test_no_fault_is_lost_and_none_is_made_up(
    reported: list[DeviceRecord], context: ChainContext, times: list[int]
) -> None:
    done = processed(reported, context, times)
    shown = set(done.record.faults) | {one.fault for one in done.hidden}
    assert shown >= set(reported[-1].faults)
    assert {one.chip for one in shown - set(reported[-1].faults)} <= context.separated
    assert not set(done.record.faults) & {one.fault for one in done.hidden}
    assert set(done.record.available) <= set(reported[-1].available)


@given(reported, arounds, waits)
@examples(60)
def test_to_be_processed_again_at_once_changes_nothing(
    reported: list[DeviceRecord], context: ChainContext, times: list[int]
) -> None:
    done = processed(reported, context, times)
    now_ms = T + sum(times[: len(reported)])
    again = process_device(NODE, reported[-1], done.state, context, now_ms)
    assert msgspec.structs.replace(again, occurrences=done.occurrences) == done
    assert again.occurrences == ()


@given(reported, arounds, waits, st.randoms(use_true_random=False))
@examples(60)
def test_the_order_of_pods_jobs_and_faults_changes_nothing(
    reported: list[DeviceRecord], context: ChainContext, times: list[int], random: Any
) -> None:
    node_context = context.node_context
    pods, jobs = list(node_context.pods), list(node_context.jobs.items())
    random.shuffle(jobs)
    random.shuffle(pods)
    other = msgspec.structs.replace(node_context, pods=tuple(pods), jobs=dict(jobs))
    assert processed(
        reported, msgspec.structs.replace(context, node_context=other), times
    ) == processed(reported, context, times)


@given(records(), arounds, st.integers(0, 8000))
@examples(60)
def test_nothing_changes_between_now_and_what_is_due(
    reported: DeviceRecord, context: ChainContext, later_ms: int
) -> None:
    done = process_device(NODE, reported, NO_DEVICE_STATE, context, T)
    if done.due_ms is not None:
        assert done.due_ms > T
        later_ms = min(later_ms, done.due_ms - 1 - T)
    later = process_device(NODE, reported, done.state, context, T + later_ms)
    shown = msgspec.structs.replace(later.record, update_time=done.record.update_time)
    assert (shown, later.hidden, later.due_ms) == (done.record, done.hidden, done.due_ms)


class Life:
    """A processing that may be replaced by one that knows only what was kept."""

    def __init__(self, node_context: dict[str, NodeContext], replaced_at: int) -> None:
        self.node_context, self.replaced_at = node_context, replaced_at
        self.kept: dict[str, str] = {}
        self.processing = self._new(0)

    def _new(self, at: float) -> ProcessorEngine:
        processing = ProcessorEngine(1, lambda node: self.node_context[node])
        assert list(processing.restore(self.kept, instant(at))) == []
        policy, chips = processing.inputs
        document = Document("cluster-system", "clusterd-config-cm", POLICY)
        processing.observe(0, policy, DocumentsListed((document,)), instant(at))
        processing.observe(0, chips, DocumentsListed(()), instant(at))
        return processing

    def live(self, course: list[tuple[str, DeviceRecord, int]]) -> list[object]:
        shown: list[object] = []
        last: dict[str, DeviceRecord] = {}
        at = 0.0
        for number, (node, record, later_s) in enumerate(course):
            if number == self.replaced_at:
                self.processing = self._new(at)
            at += later_s
            last[node] = record
            now = instant(at)
            self.processing.advance(now)
            shown.append(
                {name: self.processing.device(name, last[name], None, now) for name in last}
            )
            self.processing.settle(now)
            for bucket in self.processing.pop_changed():
                kept = self.processing.text(bucket)
                self.kept[bucket] = kept or "{}"
            shown.append(sorted(self.processing.separation.chips))
        return shown


POLICY = {"manually_separate_policy.conf": policy_text(threshold=2, free=1)}
courses = st.lists(
    st.tuples(st.sampled_from(["n1", "n2"]), records(), st.sampled_from([0, 1, 7, 31, 4000])),
    min_size=2,
    max_size=10,
)


@given(courses, known(), known(), st.integers(0, 9))
@examples(60)
def test_restart_from_persistent_state_publishes_the_same_as_no_restart(
    course: list[tuple[str, DeviceRecord, int]],
    one: NodeContext,
    other: NodeContext,
    replaced_at: int,
) -> None:
    node_context = {"n1": one, "n2": other}
    assert Life(node_context, replaced_at).live(course) == Life(node_context, -1).live(course)

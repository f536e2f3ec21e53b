"""The judge calls each forged history by its name, and nothing that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.chaos.judge import (
    Excuse,
    Fault,
    Sample,
    Silence,
    Wrong,
    excused_seconds,
    judge,
    one_off_seconds,
    settled_seconds,
)
from benchmarks.chaos.planning import plan_of
from benchmarks.chaos.stage import judged as judged_plan

if TYPE_CHECKING:
    from collections.abc import Iterable

CODE, LEVEL = "80E18402", "SeparateNPU"
KEY = "node-1", 3, CODE
NODES = frozenset({"node-1"})
FAULT = Fault(*KEY, 10.0, 20.0)


def shown(
    *spans: tuple[float, float], level: str = LEVEL, seconds: int = 60, document: str = "device"
) -> list[Sample]:
    """Return a sample each half second, with the fault in these spans."""
    samples = []
    for number in range(2 * seconds):
        at = number / 2
        is_shown = any(begin <= at < end for begin, end in spans)
        samples.append(Sample(document, at, NODES, {KEY: level} if is_shown else {}))
    return samples


def wrongs(
    samples: Iterable[Sample], *excuses: Excuse, faults: tuple[Fault, ...] = (FAULT,)
) -> list[Wrong]:
    return [verdict.wrong for verdict in judge(faults, samples, excuses, {CODE: LEVEL})]


def excuse(begin: float, end: float, *, forgets: bool = False, loses: bool = False) -> Excuse:
    documents = frozenset({"device"})
    return Excuse(
        *("agent-killed", begin, end, NODES, documents),
        is_late=not loses,
        forgets=forgets,
        loses=loses,
    )


def test_what_is_shown_within_the_bound_is_right() -> None:
    assert wrongs(shown((10.5, 20.5))) == []
    assert wrongs(shown((15, 25))) == []


@pytest.mark.parametrize(
    ("spans", "wrong"),
    [
        ([], Wrong.MISSING),
        ([(17, 20)], Wrong.MISSING),
        ([(10, 12), (14, 20)], Wrong.MISSING),
        ([(10, 27)], Wrong.LATCHED),
        ([(10, 20.5), (22, 23)], Wrong.RETURNED),
        ([(5, 20)], Wrong.INVENTED),
    ],
)
def test_each_wrong_history_has_its_name(spans: list[tuple[float, float]], wrong: Wrong) -> None:
    assert wrongs(shown(*spans)) == [wrong]


def test_a_document_with_a_fault_that_holds_is_gone_for_less_than_the_bound() -> None:
    def gone(begin: float, end: float) -> list[Sample]:
        return [
            Sample("device", sample.at, NODES, {}, is_gone=True)
            if begin <= sample.at < end
            else sample
            for sample in shown((10, 20))
        ]

    assert wrongs(gone(12, 18)) == []
    assert wrongs(gone(12, 19)) == [Wrong.MISSING]
    assert wrongs(gone(2, 16)) == [], "it is no longer than that since the fault began"
    assert wrongs(gone(21, 60)) == [], "no fault holds"
    assert wrongs(gone(11, 19), excuse(10, 13)) == []
    assert wrongs(gone(11, 19.5), excuse(10, 13)) == [Wrong.MISSING]
    assert wrongs(gone(12, 19), excuse(9, 24, forgets=True)) == []
    twice = [*gone(12, 15)[:31], *gone(15.5, 18.5)[31:]]
    assert wrongs(twice) == [], "it was there between"
    assert settled_seconds([FAULT], gone(12, 19), {CODE: LEVEL}, since=12.0) == 0.0


def test_another_level_is_wrong() -> None:
    assert wrongs(shown((10.5, 20), level="SubHealthFault")) == [Wrong.LEVEL]


def test_a_chip_that_never_failed_is_wrong() -> None:
    assert wrongs(shown((10, 20)), faults=()) == [Wrong.INVENTED]


def test_a_lost_node_whose_agent_runs_is_wrong() -> None:
    lost = Sample("device", 30.0, NODES, {}, NODES)
    assert wrongs([*shown((10, 20)), lost]) == [Wrong.LOST]
    assert wrongs([*shown((10, 20)), lost], excuse(29, 31)) == [Wrong.LOST]
    assert wrongs([*shown((10, 20)), lost], excuse(29, 31, loses=True)) == []


def test_a_node_that_is_not_lost_and_whose_agent_makes_no_progress_is_wrong() -> None:
    silence = Silence("task-hangs", "node-1", 5.0, 40.0)

    def judged(
        *lost: tuple[float, frozenset[str]], until: float = 40.0, others: tuple[Excuse, ...] = ()
    ) -> list[Wrong]:
        samples = [Sample("device", at, NODES, {}, names) for at, names in lost]
        silences = [Silence("task-hangs", "node-1", silence.begin, until)]
        excuses = [excuse(0, 60, loses=True), *others]
        return [verdict.wrong for verdict in judge([], samples, excuses, {}, silences)]

    no_node: frozenset[str] = frozenset()
    assert judged((20.0, no_node), (35.0, NODES)) == []
    assert judged((20.0, no_node), (35.0, no_node)) == [Wrong.NOT_LOST]
    assert judged((35.0, no_node), until=34.0) == []
    restarted = (Excuse("aggregators-restarted", 24.5, 24.5, NODES, frozenset({"device"})),)
    assert judged((35.0, no_node), others=restarted) == [], "it has not measured for 11 s"
    assert judged((35.5, no_node), others=restarted) == [Wrong.NOT_LOST]
    unread = Sample("device", 35.0, NODES, {})
    assert judge([], [unread], [], {}, [silence]) == [], "the document states nothing of it"


def timed(*times: tuple[float, int]) -> list[Sample]:
    """Return samples that show the fault with these times of its begin."""
    return [Sample("device", at, NODES, {KEY: LEVEL}, None, {KEY: time}) for at, time in times]


def test_the_time_of_a_fault_that_holds_stays() -> None:
    assert wrongs(timed((10.5, 1000), (12, 1000), (19, 1000))) == []
    assert wrongs(timed((10.5, 1000), (12, 1500), (19, 1500))) == [Wrong.TIME]
    again = Fault(*KEY, 22.0, 40.0)
    gone = Sample("device", 21.0, NODES, {})
    both = FAULT, again
    assert wrongs([*timed((11, 1000)), gone, *timed((23, 1500))], faults=both) == []
    assert wrongs(timed((11, 1000), (22, 1000), (23, 1500)), faults=both) == []
    clock = Excuse("clock-ahead", 11, 13, NODES, frozenset({"device"}), is_late=False, retimes=True)
    assert wrongs(timed((10.5, 1000), (12, 1500), (19, 1500)), clock) == []


ONE_OFF = Fault(*KEY, 10.0, once=True)


@pytest.mark.parametrize(
    ("spans", "wrong"),
    [
        ([(10.5, 17)], []),
        ([(15.5, 21.5)], []),
        ([(10.5, 15)], [Wrong.BRIEF]),
        ([(16.5, 22.5)], [Wrong.MISSING]),
        ([], [Wrong.MISSING]),
        ([(10.5, 23)], [Wrong.LATCHED]),
        ([(10.5, 17), (18, 19)], [Wrong.RETURNED]),
        ([(9, 17)], [Wrong.INVENTED]),
    ],
)
def test_a_one_off_fault_is_shown_soon_and_long_enough_and_then_is_gone(
    spans: list[tuple[float, float]], wrong: list[Wrong]
) -> None:
    assert wrongs(shown(*spans), faults=(ONE_OFF,)) == wrong


def test_a_one_off_fault_has_one_level_and_one_time() -> None:
    wrong = wrongs(shown((10.5, 17), level="SubHealthFault"), faults=(ONE_OFF,))
    assert wrong == [Wrong.LEVEL]
    assert wrongs(timed((10.5, 1000), (12, 1500)), faults=(ONE_OFF,)) == [Wrong.TIME]
    clock = Excuse("clock-ahead", 11, 13, NODES, frozenset({"device"}), is_late=False, retimes=True)
    assert wrongs(timed((10.5, 1000), (12, 1500)), clock, faults=(ONE_OFF,)) == []


def test_a_one_off_fault_may_be_late_under_an_excuse_and_is_shown_as_long() -> None:
    late = excuse(9, 17)
    assert wrongs(shown((22, 28)), late, faults=(ONE_OFF,)) == []
    assert wrongs(shown((22, 26)), late, faults=(ONE_OFF,)) == [Wrong.BRIEF]
    assert wrongs(shown((24, 30)), late, faults=(ONE_OFF,)) == [Wrong.MISSING]
    clock = Excuse("clock-ahead", 9, 17, NODES, frozenset({"device"}), is_late=False, retimes=True)
    assert wrongs(shown((10.5, 11)), clock, faults=(ONE_OFF,)) == [Wrong.BRIEF]
    assert wrongs(shown(), clock, faults=(ONE_OFF,)) == [Wrong.MISSING]


def test_a_one_off_fault_may_go_too_soon_where_the_journal_was_lost_meanwhile() -> None:
    def lost(begin: float, end: float) -> list[Wrong]:
        names = frozenset({"device"})
        journal = Excuse("journal", begin, end, NODES, names, is_late=False, shortens=True)
        return wrongs(shown((10.5, 13)), journal, faults=(ONE_OFF,))

    assert lost(11, 19) == []
    assert lost(5, 10) == lost(13.1, 20) == [Wrong.BRIEF]


def test_in_a_document_about_more_nodes_a_one_off_fault_is_shown_for_five_seconds() -> None:
    def cluster(begin: float, end: float, *excuses: Excuse) -> list[Wrong]:
        both = NODES | {"node-2"}
        samples = [
            Sample("device", at / 2, both, {KEY: LEVEL} if begin <= at / 2 < end else {})
            for at in range(80)
        ]
        return wrongs(samples, *excuses, faults=(ONE_OFF,))

    assert cluster(11, 15.5) == []
    assert cluster(11, 15) == [Wrong.BRIEF]
    assert cluster(14, 15, excuse(9, 12)) == []
    assert cluster(10.5, 12.5, excuse(12, 13)) == [Wrong.BRIEF], "its begin was not late"


def test_a_fault_that_begins_or_ends_during_a_read_may_be_shown_or_not() -> None:
    fault = Fault(*KEY, 10.0, 20.0)

    def read(at: float, until: float, *, is_shown: bool) -> Sample:
        return Sample("device", at, NODES, {KEY: LEVEL} if is_shown else {}, until=until)

    for is_shown in (False, True):
        began = [read(9.9, 10.1, is_shown=is_shown), *shown((10, 20))]
        ended = [*shown((10.5, 20))[:40], read(19.9, 20.1, is_shown=is_shown)]
        assert wrongs(began, faults=(fault,)) == []
        assert wrongs(ended, faults=(fault,)) == []
    invented = read(9.7, 9.9, is_shown=True)
    assert wrongs([invented], faults=(fault,)) == [Wrong.INVENTED]
    missing = [*shown((10.5, 20))[:38], read(19.6, 19.9, is_shown=False)]
    assert wrongs(missing, faults=(fault,)) == [Wrong.MISSING]


def test_a_one_off_fault_that_came_and_went_under_an_excuse_is_not_missing() -> None:
    both = NODES | {"node-2"}

    def not_in_cluster(begin: float, end: float, nodes: frozenset[str] = both) -> list[Wrong]:
        cluster = [Sample("cluster", at / 2, both, {}) for at in range(80)]
        samples = sorted([*shown((10.5, 17)), *cluster], key=lambda sample: sample.at)
        paused = Excuse("aggregator-paused", begin, end, nodes, frozenset({"cluster"}))
        return wrongs(samples, paused, faults=(ONE_OFF,))

    assert not_in_cluster(10, 18) == []
    assert not_in_cluster(10, 18, NODES) == [Wrong.MISSING], "the aggregator was not stopped"
    assert not_in_cluster(10, 15.5) == [Wrong.MISSING], "it was visible for some time afterwards"
    assert not_in_cluster(12, 18) == [Wrong.MISSING], "it was visible for some time before"
    assert not_in_cluster(17, 25) == [Wrong.MISSING]


def test_for_how_long_one_off_faults_were_shown_and_they_are_never_unsettled() -> None:
    samples = shown((10.5, 17))
    assert one_off_seconds([ONE_OFF], samples) == [6.0]
    assert one_off_seconds([ONE_OFF], shown()) == []
    assert settled_seconds([ONE_OFF], samples, {CODE: LEVEL}, 12.0) == 0.0


@pytest.mark.parametrize("spans", [[(13, 20)], [(16.5, 20)]])
def test_under_an_excuse_a_document_may_be_late(spans: list[tuple[float, float]]) -> None:
    assert wrongs(shown(*spans), excuse(9, 17)) == []


@pytest.mark.parametrize(
    ("spans", "wrong"),
    [
        ([(10, 12), (14, 20)], Wrong.MISSING),
        ([(10, 15), (16, 20)], Wrong.MISSING),
        ([(10, 20.5), (22, 23)], Wrong.RETURNED),
    ],
)
def test_what_was_shown_goes_only_under_an_excuse_that_forgets(
    spans: list[tuple[float, float]], wrong: Wrong
) -> None:
    assert wrongs(shown(*spans), excuse(9, 24)) == [wrong]
    assert wrongs(shown(*spans), excuse(9, 24, forgets=True)) == []


def test_a_fault_that_ended_before_it_had_to_be_shown_may_be_shown_late() -> None:
    hidden, long = Fault(*KEY, 10.0, 15.0), Fault(*KEY, 4.5, 15.0)
    flash = shown((16, 16.5))
    assert wrongs(flash, faults=(hidden,)) == []
    assert wrongs(flash, faults=(long,)) == [Wrong.MISSING, Wrong.RETURNED]
    assert wrongs(flash, excuse(6, 12), faults=(long,)) == []
    assert wrongs(shown((12, 15), (16, 16.5)), faults=(hidden,)) == [Wrong.RETURNED]
    assert wrongs(shown((16, 30)), faults=(hidden,)) == [Wrong.LATCHED]


def test_what_a_store_forgot_was_not_gone() -> None:
    again = Fault(*KEY, 21.0, 40.0)
    samples = [*timed((11, 1000)), Sample("device", 20.5, NODES, {}), *timed((20.7, 1000))]
    samples += timed((21.5, 1000), (23, 1500))
    assert wrongs(samples, faults=(FAULT, again)) == [Wrong.RETURNED, Wrong.TIME]
    assert wrongs(samples, excuse(20.4, 22, forgets=True), faults=(FAULT, again)) == []


def test_settled_is_when_each_document_shows_what_was_true_at_the_end_of_the_trouble() -> None:
    levels = {CODE: LEVEL}
    assert settled_seconds([FAULT], shown((10, 20)), levels, since=12.0) == 0.0
    assert settled_seconds([FAULT], shown((13, 20)), levels, since=12.0) == 1.0
    later = Fault(*KEY, 14.0)
    assert settled_seconds([later], shown(), levels, since=12.0) == 0.0
    assert settled_seconds([FAULT], shown((10, 20), level="Other"), levels, since=12.0) == 8.0
    lost = Sample("device", 15.0, NODES, {KEY: LEVEL}, NODES)
    back = Sample("device", 15.2, NODES, {KEY: LEVEL})
    assert settled_seconds([FAULT], [lost, back], levels, since=12.0) == pytest.approx(3.2)


def test_an_excuse_moves_the_bound_and_is_of_its_nodes_and_documents() -> None:
    late = shown((22, 30))
    fault = Fault(*KEY, 10.0)
    until_the_end = shown((22, 60))
    assert wrongs(until_the_end, excuse(11, 18), faults=(fault,)) == []
    assert wrongs(late, faults=(fault,)) == [Wrong.MISSING]
    other = Excuse("agent-killed", 9, 30, frozenset({"node-2"}), frozenset({"device"}))
    assert wrongs(until_the_end, other, faults=(fault,)) == [Wrong.MISSING]
    other = Excuse("aggregator-killed", 9, 30, NODES, frozenset({"cluster-info"}))
    assert wrongs(until_the_end, other, faults=(fault,)) == [Wrong.MISSING]


def test_excused_seconds_count_no_time_twice() -> None:
    assert excused_seconds([excuse(0, 10), excuse(5, 15), excuse(30, 90)], 60) == pytest.approx(45)


def test_a_document_that_is_never_shown_is_wrong() -> None:
    plan, nodes = plan_of("directory", 1), frozenset({"node-1", "node-2"})
    device = [Sample("device-info", 1.0, frozenset({node}), {}) for node in nodes]
    cluster = Sample("cluster-info", 1.0, nodes, {})
    absent = [verdict.wrong for verdict in judged_plan(plan, [], device, [])]
    assert absent == [Wrong.ABSENT, Wrong.ABSENT], "both nodes in cluster-info"
    assert judged_plan(plan, [], [*device, cluster], []) == []
    gone = [Sample("device-info", 1.0, frozenset({node}), {}, is_gone=True) for node in nodes]
    assert len(judged_plan(plan, [], [*gone, cluster], [])) == 2
    (wrong,) = judged_plan(plan, [], [device[0], cluster], [])
    assert (wrong.wrong, wrong.document) == (Wrong.ABSENT, "device-info")

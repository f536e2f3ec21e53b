"""Excuses of overlapping troubles compose, and what is outside of them is still wrong.

Each history is forged from troubles of the table. The four compositions are those of plans that had
alarms on the right product.
"""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.chaos.excuses import PastTrouble, excuses_of
from benchmarks.chaos.judge import Excuse, Fault, Sample, Wrong, judge
from benchmarks.chaos.plan import NODES
from benchmarks.chaos.troubles import CLUSTER_INFO, DEVICE_INFO, TROUBLES

NODE, OTHER = NODES
CODE, LEVEL = "80E18402", "SeparateNPU"
KEY = NODE, 3, CODE


def past(name: str, begin: float, end: float, *nodes: str) -> PastTrouble:
    trouble = TROUBLES[name]
    return PastTrouble(trouble, frozenset(nodes or NODES), begin, end, trouble.bounds["simulated"])


def wrongs(
    *troubles: PastTrouble, samples: list[Sample], fault: Fault | None = None
) -> list[Wrong]:
    faults = [] if fault is None else [fault]
    verdicts = judge(faults, samples, excuses_of(troubles), {CODE: LEVEL})
    return [verdict.wrong for verdict in verdicts]


def lost(at: float, node: str = NODE) -> list[Sample]:
    """Return a history in which a node is lost at one time."""
    return [Sample(CLUSTER_INFO, at, frozenset(NODES), {}, frozenset({node}))]


def missing(*times: float, document: str = CLUSTER_INFO) -> list[Sample]:
    """Return a history in which a fault of ``NODE`` is shown, but not at these times."""
    nodes = frozenset(NODES)
    samples = [Sample(document, number / 2, nodes, {KEY: LEVEL}) for number in range(100)]
    return samples + [Sample(document, at + 0.01, nodes, {}) for at in times]


KILLED = past("agent-killed", 5.4, 11.0, NODE)
PAUSED = past("agent-paused", 37.2, 42.3, NODE)


@pytest.mark.parametrize(
    ("stop", "until"),
    [
        (past("store-refuses", 10.9, 14.0), 17.0),
        (past("store-refuses", 12.9, 14.0), 17.0),
        (past("store-late", 10.9, 14.0), 17.0),
        (past("agent-apart", 12.5, 14.0, NODE), 17.0),
        (past("aggregator-killed", 10.9, 14.0), 16.0),
    ],
)
def test_a_node_is_lost_while_the_repair_of_its_loss_is_stopped(
    stop: PastTrouble, until: float
) -> None:
    for at in (11.0, 13.5, until - 0.1):
        assert wrongs(KILLED, stop, samples=lost(at)) == []
    assert wrongs(KILLED, stop, samples=lost(until)) == [Wrong.LOST]
    assert wrongs(KILLED, stop, samples=lost(13.5, OTHER)) == [Wrong.LOST], "it ran all the time"
    assert wrongs(KILLED, samples=lost(13.5)) == [Wrong.LOST], "nothing stops the repair"


@pytest.mark.parametrize(
    "other",
    [
        past("store-refuses", 13.1, 15.0),
        past("agent-paused", 10.9, 12.9, OTHER),
        past("codes-hang", 10.9, 14.0, NODE),
        past("foreign-write", 10.9, 10.9, NODE),
        past("watches-cut", 10.9, 10.9),
    ],
)
def test_a_trouble_that_comes_later_or_stops_others_excuses_no_longer_loss(
    other: PastTrouble,
) -> None:
    assert wrongs(KILLED, other, samples=lost(13.2)) == [Wrong.LOST]


def test_a_store_that_is_set_back_shows_a_loss_again_from_then_on() -> None:
    near = past("store-set-back", 40.6, 43.6)
    assert wrongs(PAUSED, near, samples=lost(48.5)) == [], "the next heartbeat comes 2 s later"
    assert wrongs(PAUSED, near, samples=lost(48.6)) == [Wrong.LOST]
    far = past("store-set-back", 44.0, 48.0)
    assert wrongs(PAUSED, far, samples=lost(45.0)) == [Wrong.LOST], "it is not yet set back"
    assert wrongs(PAUSED, far, samples=lost(52.9)) == []
    assert wrongs(PAUSED, far, samples=lost(53.0)) == [Wrong.LOST]
    around = past("store-set-back", 37.0, 48.0)
    assert wrongs(PAUSED, around, samples=lost(48.5)) == [Wrong.LOST], "its copy has no loss"


@pytest.mark.parametrize(
    ("apart", "until"),
    [
        (past("aggregator-apart", 15.0, 19.7), 22.7),
        (past("aggregator-apart-long", 8.0, 22.3), 25.3),
        (past("aggregator-paused-long", 8.0, 22.3), 25.3),
    ],
)
def test_what_the_store_forgot_is_missing_until_the_leader_repairs_it(
    apart: PastTrouble, until: float
) -> None:
    back, fault = past("store-set-back", 14.2, 16.1), Fault(*KEY, 0.0)
    stopped = missing(18.0, until - 0.1)
    assert wrongs(back, apart, samples=stopped, fault=fault) == []
    assert wrongs(back, apart, samples=missing(until), fault=fault) == [Wrong.MISSING]
    assert wrongs(back, apart, samples=missing(15.5), fault=fault) == [Wrong.MISSING]
    assert wrongs(back, samples=missing(19.5), fault=fault) == [Wrong.MISSING]
    assert wrongs(apart, samples=missing(18.0), fault=fault) == [Wrong.MISSING]
    device = missing(19.5, document=DEVICE_INFO)
    assert wrongs(back, apart, samples=device, fault=fault) == [Wrong.MISSING], "agents write"


def test_what_the_store_forgot_may_come_back_after_its_end_until_the_leader_repairs_it() -> None:
    back, fault = past("store-set-back", 13.5, 18.8), Fault(*KEY, 9.3, 18.7)
    apart = past("aggregator-apart-long", 7.3, 22.3)
    nodes = frozenset(NODES)
    history = [
        Sample(CLUSTER_INFO, at, nodes, {KEY: LEVEL} if at in (12.0, 22.0) else {})
        for at in (9.5, 12.0, 18.75, 21.9, 22.0, 26.0)
    ]
    assert wrongs(back, apart, samples=history, fault=fault) == []
    assert Wrong.RETURNED in wrongs(back, samples=history, fault=fault)


def test_a_chain_of_stops_excuses_until_the_bound_of_the_last_one() -> None:
    chain = past("store-refuses", 12.0, 14.0), past("aggregator-apart", 16.0, 18.0)
    assert wrongs(KILLED, *chain, samples=lost(20.9)) == []
    assert wrongs(KILLED, *chain, samples=lost(21.0)) == [Wrong.LOST]


@pytest.mark.parametrize("name", ["clock-ahead", "clock-behind"])
@pytest.mark.parametrize(
    ("stop", "until"),
    [
        (past("store-refuses", 24.0, 28.0), 34.0),
        (past("aggregator-apart-long", 20.0, 34.0), 40.0),
        (past("store-refuses", 12.0, 16.0), 27.0),
    ],
)
def test_the_time_of_a_fault_changes_until_the_bound_of_the_set_clock_or_late_behind_a_stop(
    name: str, stop: PastTrouble, until: float
) -> None:
    clock, fault = past(name, 5.0, 10.0, NODE), Fault(*KEY, 0.0)

    def changed(at: float) -> list[Sample]:
        """Return a history in which a fault has another time from then on."""
        times = [(1.0, 1000), (at - 0.1, 1000), (at, 2000), (60.0, 2000)]
        nodes = frozenset(NODES)
        return [
            Sample(CLUSTER_INFO, at, nodes, {KEY: LEVEL}, times={KEY: time}) for at, time in times
        ]

    assert wrongs(clock, stop, samples=changed(until - 0.1), fault=fault) == []
    assert wrongs(clock, stop, samples=changed(until), fault=fault) == [Wrong.TIME]
    assert wrongs(stop, samples=changed(until - 0.1), fault=fault) == [Wrong.TIME]


@pytest.mark.parametrize("lists", ["codes-fail", "codes-hang", "codes-slow"])
def test_what_a_lost_journal_had_ended_is_shown_again_only_while_lists_are_hidden(
    lists: str,
) -> None:
    power, fault = past("power-lost", 7.0, 13.0, NODE), Fault(*KEY, 3.0, 12.4)
    back = [
        Sample(DEVICE_INFO, at, frozenset({NODE}), {KEY: LEVEL} if at in (4.0, 20.0) else {})
        for at in (4.0, 12.9, 20.0, 26.0)
    ]
    assert wrongs(power, past(lists, 15.5, 20.0, NODE), samples=back, fault=fault) == []
    for other in (
        (),
        (past(lists, 15.5, 20.0, OTHER),),
        (past(lists, 16.1, 20.0, NODE),),
        (past(lists, 8.0, 12.9, NODE),),
    ):
        assert wrongs(power, *other, samples=back, fault=fault) == [Wrong.RETURNED]
    hidden, holds = past(lists, 15.5, 20.0, NODE), Fault(*KEY, 3.0)
    gone = [*back[:1], *(msgspec.structs.replace(sample, levels={}) for sample in back[1:])]
    assert wrongs(power, hidden, samples=gone, fault=holds) == [Wrong.MISSING]


def test_a_trouble_alone_has_its_own_excuses() -> None:
    nodes, cluster = frozenset({NODE}), frozenset({CLUSTER_INFO})
    assert excuses_of([KILLED]) == [
        Excuse("agent-killed", 5.4, 11.0, nodes, TROUBLES["agent-killed"].documents),
        Excuse("agent-killed", 5.4, 13.0, nodes, cluster, is_late=False, loses=True),
    ]
    assert excuses_of([past("watches-cut", 1.0, 1.0), past("disk-full", 1.0, 4.0, NODE)]) == []


def test_a_recovery_waits_for_lists_that_a_hanging_task_does_not_read() -> None:
    fault, nodes = Fault(*KEY, 1.0, 20.0), frozenset({NODE})
    history = [Sample(DEVICE_INFO, float(at), nodes, {KEY: LEVEL}) for at in range(1, 40)]
    history += [Sample(DEVICE_INFO, 46.0, nodes, {})]
    hidden, hangs = past("codes-hang", 10.0, 13.0, NODE), past("task-hangs", 14.0, 42.0, NODE)
    assert wrongs(hidden, hangs, samples=history, fault=fault) == []
    assert set(wrongs(hidden, samples=history, fault=fault)) == {Wrong.LATCHED}
    assert set(wrongs(hangs, samples=history, fault=fault)) == {Wrong.LATCHED}
    late = past("task-hangs", 20.0, 42.0, NODE)
    assert set(wrongs(hidden, late, samples=history, fault=fault)) == {Wrong.LATCHED}

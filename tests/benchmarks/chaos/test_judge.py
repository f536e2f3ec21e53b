"""The judge calls each forged history by its name, and nothing that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.chaos.judge import Excuse, Fault, Sample, Wrong, excused_share, judge

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


def excuse(begin: float, end: float) -> Excuse:
    return Excuse("agent-killed", begin, end, NODES, frozenset({"device"}))


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


def test_another_level_is_wrong() -> None:
    assert wrongs(shown((10.5, 20), level="SubHealthFault")) == [Wrong.LEVEL]


def test_a_chip_that_never_failed_is_wrong() -> None:
    assert wrongs(shown((10, 20)), faults=()) == [Wrong.INVENTED]


def test_a_lost_node_whose_agent_runs_is_wrong() -> None:
    lost = Sample("device", 30.0, NODES, {}, NODES)
    assert wrongs([*shown((10, 20)), lost]) == [Wrong.LOST]
    assert wrongs([*shown((10, 20)), lost], excuse(29, 31)) == []


@pytest.mark.parametrize(
    "spans", [[(13, 20)], [(10, 12), (14, 20)], [(10, 20.5), (13, 14)], [(10, 15), (16, 20)]]
)
def test_what_an_excuse_covers_is_right(spans: list[tuple[float, float]]) -> None:
    assert wrongs(shown(*spans), excuse(9, 17)) == []


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


def test_the_excused_share_counts_no_time_twice() -> None:
    assert excused_share([excuse(0, 10), excuse(5, 15), excuse(30, 90)], 60) == pytest.approx(0.75)

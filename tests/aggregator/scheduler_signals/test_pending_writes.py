"""The order of writes of one option."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aggregator.scheduler_signals.pending_writes import PendingWrites


def order(pending: PendingWrites, now_ms: int = 0) -> list[str]:
    names = []
    while (turn := pending.first(now_ms)) is not None:
        names.append(turn.target)
        pending.withdraw(turn.target)
    return names


def test_the_worst_is_first_and_of_equal_ones_the_oldest() -> None:
    pending = PendingWrites()
    for name, rank, since in (("b", 1, 5), ("c", 0, 9), ("a", 1, 3), ("d", 0, 7)):
        pending.put(name, rank, since)
    assert pending.oldest_ms() == 3
    assert order(pending) == ["d", "c", "a", "b"]
    assert pending.oldest_ms() is None


def test_an_object_that_changes_has_one_turn() -> None:
    pending = PendingWrites()
    pending.put("a", 5, 0)
    pending.put("b", 3, 0)
    pending.put("a", 1, 0)
    pending.put("a", 1, 0)
    assert len(pending) == 2
    assert order(pending) == ["a", "b"]


def test_a_postponed_object_has_its_turn_later_and_delays_no_other() -> None:
    pending = PendingWrites()
    pending.put("a", 0, 0)
    pending.put("b", 1, 0)
    pending.postpone("a", 100)
    pending.put("a", 0, 50)
    assert pending.next_ms() == 100
    first = pending.first(99)
    assert first is not None
    assert first.target == "b"
    assert order(pending, 100) == ["a", "b"]
    assert pending.next_ms() is None


def test_a_withdrawn_object_is_postponed_no_more() -> None:
    pending = PendingWrites()
    pending.put("a", 0, 0)
    pending.postpone("a", 100)
    pending.withdraw("a")
    pending.put("a", 0, 0)
    assert pending.next_ms() is None
    assert order(pending) == ["a"]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-1, 3), st.integers(0, 3))))
def test_the_order_is_that_of_what_was_put_last(steps: list[tuple[str, int, int]]) -> None:
    pending, model = PendingWrites(), dict[str, tuple[int, int]]()
    for name, rank, since in steps:
        if rank < 0:
            pending.withdraw(name)
            model.pop(name, None)
        else:
            pending.put(name, rank, since)
            model[name] = rank, since
    assert order(pending) == sorted(model, key=lambda name: (*model[name], name))

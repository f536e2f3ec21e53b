"""Never more writes in a second than allowed, no document waits for ever, changes before
touches.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.publish.rate_limited_queue import RateLimitedQueue, WriteKind

START_MS = 1_000_000


def run(pace: RateLimitedQueue, until_ms: int) -> list[tuple[int, str]]:
    """Return when which document may be written, as long as one waits."""
    now_ms, granted = START_MS, []
    while now_ms <= until_ms:
        granted += [(now_ms, name) for name in pace.grant(now_ms)]
        next_ms = pace.next_ms()
        if next_ms is None:
            break
        assert next_ms > now_ms
        now_ms = next_ms
    return granted


def most_in_a_second(times: list[int]) -> int:
    return max(sum(at <= other < at + 1000 for other in times) for at in times)


def test_the_first_change_of_a_quiet_time_goes_at_once() -> None:
    pace = RateLimitedQueue(20)
    pace.enqueue("a", START_MS)
    assert pace.grant(START_MS) == ["a"]
    assert pace.next_ms() is None


def test_a_storm_is_spread_in_the_order_in_which_it_came() -> None:
    pace = RateLimitedQueue(20)
    names = [f"document-{number}" for number in range(60)]
    for name in names:
        pace.enqueue(name, START_MS)
    granted = run(pace, START_MS + 10_000)
    assert [name for _, name in granted] == names
    assert granted[4][0] == START_MS
    assert granted[-1][0] - START_MS == pytest.approx(2750, abs=50)
    assert most_in_a_second([at for at, _ in granted]) == 20


def test_a_storm_of_33_documents_takes_two_seconds_beside_its_state() -> None:
    pace = RateLimitedQueue(16)
    for number in range(33):
        pace.enqueue(f"document-{number}", START_MS)
        pace.enqueue(f"state-{number}", START_MS, WriteKind.STATE)
    granted = run(pace, START_MS + 10_000)
    assert max(at for at, name in granted if name.startswith("document")) - START_MS < 2300
    assert granted[-1][0] - START_MS < 4400
    assert len(granted) == 66
    assert most_in_a_second([at for at, _ in granted]) == 16


def test_written_document_is_last_again() -> None:
    pace = RateLimitedQueue(1)
    for name in "abc":
        pace.enqueue(name, START_MS)
    assert pace.grant(START_MS) == ["a"]
    pace.enqueue("a", START_MS + 1)
    assert [name for _, name in run(pace, START_MS + 9000)] == ["b", "c", "a"]


def test_a_touch_waits_for_changes_but_not_for_ever() -> None:
    pace = RateLimitedQueue(1)
    pace.enqueue("spent", START_MS)
    pace.grant(START_MS)
    pace.enqueue("touched", START_MS, WriteKind.TOUCH)
    order = []
    for second in range(1, 10):
        now_ms = START_MS + second * 1001
        pace.enqueue(f"changed-{second}", now_ms)
        order += pace.grant(now_ms)
    assert order.index("touched") == 4
    assert order[:4] == [f"changed-{second}" for second in range(1, 5)]


def test_state_waits_for_changes_but_in_a_storm_that_lasts_one_write_in_eight_is_state() -> None:
    pace = RateLimitedQueue(1)
    order: list[str] = []
    for second in range(25):
        now_ms = START_MS + second * 1001
        pace.enqueue(f"changed-{second}", now_ms)
        if second == 0 or order[-1] == "kept":
            pace.enqueue("kept", now_ms, WriteKind.STATE)
        order += pace.grant(now_ms)
    assert [number for number, name in enumerate(order) if name == "kept"] == [7, 15, 23]


def test_the_next_change_finds_room_however_much_state_waits() -> None:
    pace = RateLimitedQueue(16)
    written = {WriteKind.CHANGE: 0, WriteKind.STATE: 0}
    for now_ms in range(START_MS, START_MS + 20_000, 10):
        pace.enqueue("state", now_ms, WriteKind.STATE)
        if now_ms % 150 == 0:
            pace.enqueue("change", now_ms)
        granted = pace.grant(now_ms)
        assert ("change" in granted) == (now_ms % 150 == 0)
        written[WriteKind.CHANGE] += "change" in granted
        written[WriteKind.STATE] += "state" in granted
    assert written[WriteKind.CHANGE] == 133
    assert written[WriteKind.STATE] > 100


def test_withdrawn_document_takes_no_turn() -> None:
    pace = RateLimitedQueue(1)
    pace.enqueue("a", START_MS)
    pace.enqueue("b", START_MS)
    pace.withdraw("a")
    pace.withdraw("nobody")
    assert pace.grant(START_MS) == ["b"]
    assert pace.next_ms() is None


@given(
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(0, 700), st.sampled_from(WriteKind)), min_size=1, max_size=150),
)
def test_rate_limit_holds_in_any_second_and_every_document_is_written(
    writes_per_second: int, asked: list[tuple[int, WriteKind]]
) -> None:
    pace = RateLimitedQueue(writes_per_second)
    now_ms, granted = START_MS, []
    for number, (pause_ms, what) in enumerate(asked):
        now_ms += pause_ms
        pace.enqueue(str(number), now_ms, what)
        granted += [(now_ms, name) for name in pace.grant(now_ms)]
    while (next_ms := pace.next_ms()) is not None:
        now_ms = max(now_ms, next_ms)
        granted += [(now_ms, name) for name in pace.grant(now_ms)]
    assert sorted(int(name) for _, name in granted) == list(range(len(asked)))
    assert most_in_a_second([at for at, _ in granted]) <= writes_per_second

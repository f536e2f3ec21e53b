"""Never more in any period than the rate allows, and a token exactly after the returned wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pacing.token_bucket import TokenBucket


def taken(bucket: TokenBucket, now_ms: int) -> bool:
    """Take a token if there is one; return whether there was one."""
    if bucket.wait_ms(now_ms):
        return False
    bucket.take()
    return True


def test_a_burst_goes_through_then_one_at_a_time() -> None:
    bucket = TokenBucket(10, 10)
    assert [taken(bucket, 0) for _ in range(11)] == [True] * 10 + [False]
    assert not taken(bucket, 99)
    assert taken(bucket, 100)
    assert not taken(bucket, 100)
    assert not bucket.is_full(1099)
    assert bucket.is_full(1100)
    assert [taken(bucket, 60_000) for _ in range(11)] == [True] * 10 + [False]


def test_a_token_may_take_longer_than_a_second() -> None:
    bucket = TokenBucket(2, 1, period_ms=3000)
    assert [taken(bucket, 0) for _ in range(2)] == [True, True]
    assert (bucket.wait_ms(0), bucket.wait_ms(1000), bucket.wait_ms(3000)) == (3000, 2000, 0)


def test_a_token_taken_in_advance_makes_the_next_one_wait() -> None:
    bucket = TokenBucket(10, 10)
    waits = []
    while not bucket.wait_ms(0, -49):
        waits.append(bucket.wait_ms(0))
        bucket.take()
    assert waits == [0] * 10 + [100 * n for n in range(1, 51)]
    assert bucket.wait_ms(100) == 5000


def test_a_clock_that_stands_still_gives_nothing_back() -> None:
    bucket = TokenBucket(1, 1)
    assert taken(bucket, 5000)
    assert bucket.wait_ms(0) == 1000
    assert bucket.wait_ms(5999) == 1
    assert bucket.wait_ms(6000) == 0


@given(st.lists(st.integers(0, 2_000), max_size=300), st.integers(0, 5), st.integers(1, 40))
def test_never_more_goes_on_within_a_time_than_the_rate_allows(
    pauses: list[int], waiters: int, rate: int
) -> None:
    bucket, now, gone = TokenBucket(5, rate), 0, list[int]()
    for pause in pauses:
        now += pause
        if not bucket.wait_ms(now, 1 - waiters):
            gone.append(now + bucket.wait_ms(now))
            bucket.take()
    assert gone == sorted(gone)
    for first, last in ((a, b) for a in range(len(gone)) for b in range(a, min(len(gone), a + 60))):
        # Times are rounded up to a millisecond.
        assert last - first + 1 <= 5 + (gone[last] - gone[first] + 1) * rate / 1000 + 1e-6

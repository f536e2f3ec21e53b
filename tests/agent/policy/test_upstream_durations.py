"""The duration rule against upstream's algorithm: the same, but for upstream's cycles and bugs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.policy.step import next_deadline_ms, step
from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel
from contract.codes.policies import FAULT_DURATION, DurationPolicy
from contract.observation import Assertion
from tests.agent.policy.builders import T, healthy, seen
from tests.agent.policy.upstream_durations import UpstreamDuration, Word
from tests.parts.examples import examples

if TYPE_CHECKING:
    from agent.policy.state import PolicyState
    from contract.codes.catalogue import Catalogue
    from tests.agent.policy.upstream_durations import Event

CODE = "80E21007"
WORDS: dict[Word, Assertion] = {
    "O": Assertion.OCCUR,
    "R": Assertion.RECOVER,
    "N": Assertion.ONCE,
}


@cache
def tables(fault_timeout: int, recover_timeout: int) -> Catalogue:
    policy = DurationPolicy(fault_timeout * 1000, recover_timeout * 1000, ChipLevel.SEPARATE_NPU)
    return replace(shipped(), durations={CODE: policy})


@dataclass
class Ours:
    """The real policy, asked as often as upstream's."""

    fault_timeout: int
    recover_timeout: int
    state: PolicyState

    def take(self, now: int, word: Word | None = None) -> None:
        inputs = [] if word is None else [seen(WORDS[word], CODE, at=T + now)]
        rules = tables(self.fault_timeout, self.recover_timeout)
        self.state = step(self.state, inputs, T + now, rules)[0]

    @property
    def reason_ms(self) -> int | None:
        upgrade = self.state.chips[0].upgrade_of(CODE, FAULT_DURATION)
        return None if upgrade is None else upgrade.upgraded_at_ms - T

    @property
    def due_ms(self) -> int | None:
        due = next_deadline_ms(self.state, tables(self.fault_timeout, self.recover_timeout))
        return None if due is None else due - T


def outages(seed: int, length: int, gaps: tuple[int, ...]) -> list[Event]:
    """Return alternating occurrences and recoveries in order of time, never two at once."""
    rng, at, events = Random(seed), 0, list[tuple[Word, int]]()
    for number in range(length):
        at += rng.choice(gaps)
        events.append(("R" if number % 2 else "O", at))
    return events


SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(1, 8)
AROUND_A_SECOND = (1, 2, 400, 999, 1000, 1001, 1300)


@examples(60)
@given(SEEDS, LENGTHS, st.sampled_from([(0, 0), (0, 1), (1, 0), (1, 1)]))
def test_with_cycles_of_a_millisecond_upstream_agrees_at_all_times(
    seed: int, length: int, timeouts: tuple[int, int]
) -> None:
    """Cycles in which nothing can happen are left out, but for one before and two after each.

    Upstream decides that a code is gone in the cycle after the one that upgraded it.
    """
    events = outages(seed, length, AROUND_A_SECOND)
    upstream, ours = UpstreamDuration(*timeouts), Ours(*timeouts, healthy())
    times = {at + about for _, at in events for about in (-1, 0, 1, 2)}
    times |= {at + 1000 + about for _, at in events for about in (-1, 0, 1, 2, 3)}
    by_time = {at: word for word, at in events}
    seen_before: int | None = None
    for now in sorted(times):
        word = by_time.get(now)
        upstream.cycle(now, [] if word is None else [(word, now)])
        ours.take(now, word)
        assert upstream.reason_ms in (ours.reason_ms, seen_before)
        if now - 1 in times and now - 2 in times and not {now, now - 1} & by_time.keys():
            assert upstream.reason_ms == ours.reason_ms
        seen_before = ours.reason_ms


@examples(300)
@given(SEEDS, LENGTHS, st.sampled_from([(20, 60), (8, 6), (5, 6), (0, 60), (30, 0)]))
def test_with_cycles_of_five_seconds_upstream_comes_to_the_same_later(
    seed: int, length: int, timeouts: tuple[int, int]
) -> None:
    events = outages(seed, length, (1, 900, 4_999, 5_001, 7_000, 20_000, 20_001, 27_000, 61_000))
    upstream, ours = UpstreamDuration(*timeouts), Ours(*timeouts, healthy())
    waiting = list(events)
    quiet = 0
    for now in range(0, events[-1][1] + 200_000, 5_000):
        batch = [event for event in waiting if event[1] <= now]
        waiting = waiting[len(batch) :]
        before = ours.reason_ms
        for word, at in batch:
            ours.take(at, word)
        ours.take(now)
        upstream.cycle(now, batch)
        quiet = 0 if batch or ours.reason_ms != before else quiet + 1
        if quiet > 1:
            assert upstream.reason_ms == ours.reason_ms


@examples(200)
@given(SEEDS, LENGTHS)
def test_deadlines_are_exact(seed: int, length: int) -> None:
    """Nothing changes before the deadline, something does at it, and no poll is needed."""
    ours = Ours(20, 60, healthy())
    for word, at in outages(seed, length, (1, 900, 19_999, 20_000, 20_001, 60_000, 60_001)):
        while (due := ours.due_ms) is not None and due < at:
            state = ours.state
            ours.take(due - 1)
            assert ours.state is state
            ours.take(due)
            assert ours.state is not state
        ours.take(at, word)


@pytest.mark.parametrize(
    ("timed_out", "queue", "then_timed_out", "durations", "left"),
    [
        (False, "O50 R81 O82", True, (31_000, 0), "O50 R81 O82"),
        (False, "O50 R80", False, (30_000, 0), ""),
        (False, "O50 R80 O82 R112", False, (30_000, 0), ""),
        (True, "R50 O110", True, (0, 60_000), ""),
        (True, "R50 O111 R112", False, (1_000, 61_000), ""),
        (True, "R50 O111 R142", True, (31_000, 61_000), "O111 R142"),
    ],
)
def test_the_oracle_is_right_about_ex_44(
    timed_out: bool, queue: str, then_timed_out: bool, durations: tuple[int, int], left: str
) -> None:
    upstream = UpstreamDuration(30, 60, timed_out=timed_out)
    upstream.cycle(200_000, events_of(queue))
    assert upstream.timed_out is then_timed_out
    assert (upstream.fault_duration_ms, upstream.recover_duration_ms) == durations
    assert upstream.queue == events_of(left)


def events_of(text: str) -> list[Event]:
    words: dict[str, Word] = {"O": "O", "R": "R"}
    return [(words[part[0]], int(part[1:]) * 1000) for part in text.split()]


@pytest.mark.parametrize(
    ("queue", "reason_s"),
    [
        ("O50 R81 O82", 80),
        ("O50 R80", None),
        ("O50 R80 O82 R112", None),
        ("O10 R50 O110", 40),
        ("O10 R50 O111 R112", None),
        ("O10 R50 O111 R142", 141),
    ],
)
def test_ex_44(queue: str, reason_s: int | None) -> None:
    """The same six queues; the last three begin with the outage that upgraded."""
    ours = Ours(30, 60, healthy())
    for word, at in events_of(queue):
        ours.take(at, word)
    assert ours.reason_ms == (None if reason_s is None else reason_s * 1000)

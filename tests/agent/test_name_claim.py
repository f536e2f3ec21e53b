"""Whose a node name is: the rule case by case, and two agents at all kinds of times."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.name_claim import Claim, ClaimState, claim_after_failed_read, claim_after_read
from stores.base import Beat

NOW_MS = 1_800_000_000_000
LOW, MINE, HIGH = "host-z_1", "host-m_5", "host-a_9"


def a_beat(holder: str = HIGH, at_ms: int = NOW_MS, interval_seconds: float = 5.0) -> Beat:
    return Beat("node-1", holder, interval_seconds, at_ms)


def after(
    claim: Claim, shown: Beat | None, steady_seconds: float = 100.0, *, beats: bool = True
) -> Claim:
    return claim_after_read(claim, MINE, shown, NOW_MS, steady_seconds, beats=beats)


@pytest.mark.parametrize(
    ("shown", "standing"),
    [
        (None, ClaimState.OURS),
        (a_beat(MINE), ClaimState.OURS),
        (a_beat("renamed-since_5", NOW_MS + 60_000), ClaimState.OURS),
        (a_beat(at_ms=NOW_MS - 15_001), ClaimState.OURS),
        (a_beat(at_ms=NOW_MS - 15_000), ClaimState.WAITING),
        (a_beat(at_ms=NOW_MS), ClaimState.WAITING),
        (a_beat(at_ms=NOW_MS + 1), ClaimState.WAITING),
        (a_beat(at_ms=NOW_MS + 10**12), ClaimState.WAITING),
        (a_beat(LOW, NOW_MS), ClaimState.WAITING),
    ],
)
def test_a_first_look(shown: Beat | None, standing: ClaimState) -> None:
    assert after(Claim(), shown).state is standing


@pytest.mark.parametrize("at_ms", [NOW_MS, NOW_MS + 10**12])
def test_a_newcomer_waits_for_silence_and_gives_way_to_any_change(at_ms: int) -> None:
    waiting = after(Claim(), a_beat(at_ms=at_ms), 100.0)
    assert after(waiting, a_beat(at_ms=at_ms), 115.0) == waiting
    assert after(waiting, a_beat(at_ms=at_ms), 115.1).state is ClaimState.OURS
    # A clock that is set back is a change like any other.
    conflict = after(waiting, a_beat(at_ms=at_ms - 5000), 105.0)
    assert conflict.state is ClaimState.CONFLICT
    assert after(conflict, a_beat(at_ms=at_ms - 5000), 119.9) == conflict
    assert after(conflict, a_beat(at_ms=at_ms - 5000), 120.1).state is ClaimState.OURS


def test_no_replica_waits_for_an_interval_that_no_agent_can_have() -> None:
    waiting = after(Claim(), a_beat(interval_seconds=1e9), 100.0)
    assert waiting.state is ClaimState.WAITING
    assert after(waiting, a_beat(interval_seconds=1e9), 115.1).state is ClaimState.OURS
    longest = after(Claim(), a_beat(interval_seconds=300.0), 100.0)
    assert after(longest, a_beat(interval_seconds=300.0), 1000.0) == longest


def test_the_holder_counts_whatever_the_host_is_called() -> None:
    assert after(Claim(ClaimState.OURS), a_beat("other-name_5")).state is ClaimState.OURS


def test_of_two_that_beat_the_lower_stays() -> None:
    ours = Claim(ClaimState.OURS)
    assert after(ours, a_beat(HIGH)).state is ClaimState.OURS
    assert after(ours, a_beat(LOW)) == Claim(ClaimState.CONFLICT, a_beat(LOW), 100.0)


def test_agent_that_does_not_beat_gives_way_to_one_that_does() -> None:
    """Without beats other agents cannot see this one alive, and the other one would never
    give way.
    """
    ours = Claim(ClaimState.OURS)
    assert after(ours, a_beat(HIGH), beats=False).state is ClaimState.CONFLICT


def test_the_beat_that_was_over_is_not_taken_for_a_new_one() -> None:
    over = a_beat(LOW, NOW_MS - 60_000)
    taken = after(Claim(), over)
    assert after(taken, over) == taken
    assert after(taken, a_beat(LOW, NOW_MS)).state is ClaimState.CONFLICT


def test_agent_that_gave_way_ignores_an_old_beat_of_its_own() -> None:
    conflict = after(Claim(ClaimState.OURS), a_beat(LOW), 100.0)
    assert after(conflict, a_beat(MINE, NOW_MS - 1), 110.0) == conflict
    assert after(conflict, a_beat(MINE, NOW_MS - 1), 115.1).state is ClaimState.OURS


def test_a_lease_that_is_deleted_frees_the_name() -> None:
    assert after(Claim(ClaimState.CONFLICT, a_beat(), 100.0), None).state is ClaimState.OURS


def test_silence_that_could_not_be_observed_does_not_count() -> None:
    waiting = claim_after_failed_read(after(Claim(), a_beat(), 100.0), 160.0)
    assert after(waiting, a_beat(), 175.0).state is ClaimState.WAITING
    assert after(waiting, a_beat(), 175.1).state is ClaimState.OURS


@dataclass
class _Host:
    holder: str
    clock_ms: int
    lives: list[tuple[float, float]]
    claim: Claim = field(default_factory=Claim)
    due: float = 0.0


@given(
    clocks_ms=st.tuples(st.integers(-60_000, 60_000), st.integers(-60_000, 60_000)),
    begin=st.floats(0, 30),
    frozen_at=st.floats(0, 60),
    frozen_for=st.floats(0, 60),
    looks_on=st.booleans(),
    names=st.permutations((LOW, HIGH)),
    lag=st.floats(0, 0.5),
    seed=st.integers(0, 10**6),
)
def test_exactly_one_of_two_agents_publishes_after_any_order_of_beats(
    clocks_ms: tuple[int, int],
    begin: float,
    frozen_at: float,
    frozen_for: float,
    looks_on: bool,
    names: list[str],
    lag: float,
    seed: int,
) -> None:
    """Hosts with any clocks and a store that shows things late.

    One host stands still for a while, or only does not beat (``looks_on``).
    """
    end = 250.0
    hosts = (
        _Host(names[0], clocks_ms[0], [(0, frozen_at), (frozen_at + frozen_for, end)]),
        _Host(names[1], clocks_ms[1], [(begin, end)], due=begin),
    )
    written: list[tuple[float, Beat | None]] = [(-1.0, None)]
    jitter = random.Random(seed)
    alone_since = 0.0
    while (host := min(hosts, key=lambda one: one.due)).due < end:
        now = host.due
        host.due = now + 5 * jitter.uniform(0.9, 1.1)
        beats = any(since <= now < until for since, until in host.lives)
        if not beats and not looks_on:
            continue
        now_ms = NOW_MS + host.clock_ms + int(now * 1000)
        shown = next(beat for at, beat in reversed(written) if at <= now - lag or at < 0)
        host.claim = claim_after_read(host.claim, host.holder, shown, now_ms, now, beats=beats)
        if host.claim.state is ClaimState.OURS and beats:
            written.append((now, Beat("node-1", host.holder, 5.0, now_ms)))
        if sum(one.claim.state is ClaimState.OURS for one in hosts) != 1:
            alone_since = now
    assert sum(one.claim.state is ClaimState.OURS for one in hosts) == 1
    # The last trouble begins at 120 s at the latest; then three silent intervals and a few turns.
    assert alone_since < 120 + 15 + 60

"""Limits all times of the state to now after the host's clock was set back.

A later time would delay its effect by as much as the clock was set back: a one-off fault would
stay, an unconfirmed fault would not end, an occurrence that is held back would be shown hours late.
A clock that is set forward makes all of it happen early, by the recorded times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from agent.policy.state import SETTLE_MS, ChipState, SubjectState

if TYPE_CHECKING:
    from agent.policy.state import Counter, Ended, Fault

T = TypeVar("T", bound=msgspec.Struct)


def times_capped(known: SubjectState, now_ms: int) -> SubjectState:
    """Return ``known`` with no time after ``now_ms``; the same object if it has none."""
    after = replace(
        known,
        faults={code: _fault(fault, now_ms) for code, fault in known.faults.items()},
        ended={code: _ended(ended, now_ms) for code, ended in known.ended.items()},
        blind={source: _capped(why, now_ms, "since_ms") for source, why in known.blind.items()},
    )
    if isinstance(known, ChipState):
        after = replace(
            after,
            upgrades=tuple(
                _capped(upgrade, now_ms, "upgraded_at_ms", "gone_since_ms")
                for upgrade in known.upgrades
            ),
            counters={code: _counter(one, now_ms) for code, one in known.counters.items()},
            held_back={
                code: _capped(item, now_ms, "seen_at_ms") for code, item in known.held_back.items()
            },
            settled_at_ms=min(known.settled_at_ms, now_ms + SETTLE_MS),
        )
    return known if after == known else after


def _fault(fault: Fault, now_ms: int) -> Fault:
    return _capped(fault, now_ms, "first_seen_ms", "acknowledged_at_ms", "unconfirmed_at_ms")


def _ended(ended: Ended, now_ms: int) -> Ended:
    fault = None if ended.fault is None else _fault(ended.fault, now_ms)
    return _capped(replace(ended, fault=fault), now_ms, "at_ms")


def _counter(counter: Counter, now_ms: int) -> Counter:
    occurred_ms = tuple(min(at_ms, now_ms) for at_ms in counter.occurred_ms)
    counter = replace(counter, occurred_ms=occurred_ms)
    return _capped(counter, now_ms, "last_ms", "recovered_ms")


def _capped(value: T, now_ms: int, *times: str) -> T:
    """Return ``value`` with its ``times`` not after ``now_ms``."""
    late: dict[str, Any] = {
        name: now_ms for name in times if (getattr(value, name) or now_ms) > now_ms
    }
    return replace(value, **late) if late else value

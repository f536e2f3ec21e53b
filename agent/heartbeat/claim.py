"""Which of two agents with one node name may publish: a pure rule (``docs/decisions/005``).

A new agent gives way to one that continues to beat. Of two that both beat already, the one with the
lower identity stays. An agent that cannot beat gives way to one that does. The age of other agents'
beats is measured by a monotonic clock; only at the start, one that is old by the wall clock is
replaced at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from agent.heartbeat.holder import identity

if TYPE_CHECKING:
    from stores.base import Beat

SILENT_INTERVALS = 3
_LONGEST_SECONDS = 300.0
_FALLBACK_SECONDS = 5.0


class ClaimState(StrEnum):
    """Whether this agent may beat and publish: only when the name is ``OURS``."""

    UNKNOWN = "unknown"
    OURS = "ours"
    WAITING = "waiting"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class NameClaim:
    """What is known: ``other`` is the last beat of another holder.

    ``since`` is the time of a monotonic clock, in seconds, at which ``other`` was first seen.
    """

    state: ClaimState = ClaimState.UNKNOWN
    other: Beat | None = None
    since: float = 0.0


def observe(
    claim: NameClaim,
    holder: str,
    shown: Beat | None,
    now_ms: int,
    steady_seconds: float,
    *,
    beats: bool,
) -> NameClaim:
    """Return the claim of ``holder`` after ``shown`` was read, which may be slightly old.

    ``beats`` is whether others can see ``holder`` alive: its last attempt to beat succeeded.
    """
    other = None if shown is None or identity(shown.holder) == identity(holder) else shown
    if shown is None:
        return replace(claim, state=ClaimState.OURS)
    match claim.state:
        case ClaimState.UNKNOWN:
            if other is None or now_ms - other.beaten_at_ms > duration_seconds(other) * 1000:
                return NameClaim(ClaimState.OURS, other)
            return NameClaim(ClaimState.WAITING, other, steady_seconds)
        case ClaimState.OURS:
            if other is None or other == claim.other:
                return claim
            if beats and identity(holder) < identity(other.holder):
                return replace(claim, other=other)
            return NameClaim(ClaimState.CONFLICT, other, steady_seconds)
        case _:
            if other is not None and other != claim.other:
                return NameClaim(ClaimState.CONFLICT, other, steady_seconds)
            assert claim.other is not None
            if steady_seconds - claim.since > duration_seconds(claim.other):
                return NameClaim(ClaimState.OURS, claim.other)
            return claim


def observe_failure(claim: NameClaim, steady_seconds: float) -> NameClaim:
    """Return the claim after a failed read: time without a read does not count as silence."""
    return replace(claim, since=steady_seconds)


def duration_seconds(beat: Beat) -> float:
    """Return after how many seconds without a change the holder of ``beat`` counts as gone.

    An interval that no agent can have counts as 5 s, as for programs that watch nodes: otherwise
    this agent might wait for years.
    """
    is_sensible = beat.interval_seconds <= _LONGEST_SECONDS
    return SILENT_INTERVALS * (beat.interval_seconds if is_sensible else _FALLBACK_SECONDS)

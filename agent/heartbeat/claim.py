"""Whose a node name is when two agents use it: a pure rule (``docs/decisions/005``).

A newcomer gives way to whoever goes on beating. Of two that both beat already, the one with the
lower identity stays; who cannot beat gives way to who does. Beats of others are compared with
themselves and with a steady clock; only at the start is one that is old by our own clock taken for
over at once.
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
    """Whether this agent may beat and publish: only when the name is ours."""

    UNKNOWN = "unknown"
    OURS = "ours"
    WAITING = "waiting"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class NameClaim:
    """What is known: ``other`` is the last beat of another holder.

    ``since`` says, by a steady clock in seconds, since when it has been the last.
    """

    standing: ClaimState = ClaimState.UNKNOWN
    other: Beat | None = None
    since: float = 0.0


def look(
    claim: NameClaim,
    holder: str,
    shown: Beat | None,
    now_ms: int,
    steady_seconds: float,
    *,
    beats: bool,
) -> NameClaim:
    """The claim of ``holder`` after it saw ``shown``, which may be a moment old.

    ``beats`` says whether others can see that ``holder`` is there: it beat when it last could.
    """
    other = None if shown is None or identity(shown.holder) == identity(holder) else shown
    if shown is None:
        return replace(claim, standing=ClaimState.OURS)
    match claim.standing:
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


def not_seen(claim: NameClaim, steady_seconds: float) -> NameClaim:
    """The claim after a look that failed: silence that could not be heard does not count."""
    return replace(claim, since=steady_seconds)


def duration_seconds(beat: Beat) -> float:
    """How long a heartbeat may stay as it is before whoever made it has gone.

    An interval that no agent can have is senseless and counts as 5 s, as for those who watch nodes:
    nobody is to wait for years.
    """
    is_sensible = beat.interval_seconds <= _LONGEST_SECONDS
    return SILENT_INTERVALS * (beat.interval_seconds if is_sensible else _FALLBACK_SECONDS)

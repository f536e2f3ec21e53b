"""Which of two agents with one node name may publish (``docs/decisions/005``).

A new agent gives way to one that continues to beat. Of two that both beat already, the one with the
lower identity stays. An agent that cannot beat gives way to one that does. The age of other agents'
beats is measured by a monotonic clock; only at the start, one that is old by the wall clock is
replaced at once.

``claim_after_read`` is this rule, as a pure function. ``NameClaim`` keeps its result for this
agent. It is made before all parts that write, and given to each of them; the heartbeat feeds it
with what the store returns. So nothing that writes has to know the heartbeat.

The holder of a heartbeat is this machine since its boot, with the state directory of its agent.
It is not the process: a restarted agent continues its own heartbeat. The name of the machine is in
front for people; only what follows it is compared, because names may change.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from collectors.boot import boot_id, machine_id
from contract.record import Record
from contract.sentences import sentence
from pacing.waiting import now_seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Beat

log = logging.getLogger("agent.heartbeat")

SILENT_INTERVALS = 3
_MAX_INTERVAL_SECONDS = 300.0
_FALLBACK_SECONDS = 5.0
_DIGEST_BYTES = 6


def this_holder(state_dir: Path) -> str:
    """Return the holder for an agent on this machine with this state directory."""
    parts = (machine_id(), boot_id(), str(state_dir.resolve()))
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{os.uname().nodename}_{digest}"


def identity(holder: str) -> str:
    """Return the part of ``holder`` that is compared."""
    return holder.rpartition("_")[2]


class ClaimState(StrEnum):
    """Whether this agent may beat and publish: only when the name is ``OURS``."""

    UNKNOWN = "unknown"
    OURS = "ours"
    WAITING = "waiting"
    CONFLICT = "conflict"


class Claim(Record, frozen=True):
    """The state of a claim: ``other`` is the last beat of another holder.

    ``since`` is the time of a monotonic clock, in seconds, at which ``other`` was first seen.
    """

    state: ClaimState = ClaimState.UNKNOWN
    other: Beat | None = None
    since: float = 0.0


def claim_after_read(
    claim: Claim,
    holder: str,
    shown: Beat | None,
    now_ms: int,
    steady_seconds: float,
    *,
    beats: bool,
) -> Claim:
    """Return the claim of ``holder`` after ``shown`` was read, which may be slightly old.

    ``beats`` is whether others can see ``holder`` alive: its last attempt to beat succeeded.
    """
    other = None if shown is None or identity(shown.holder) == identity(holder) else shown
    if shown is None:
        return replace(claim, state=ClaimState.OURS)
    match claim.state:
        case ClaimState.UNKNOWN:
            if other is None or now_ms - other.beaten_at_ms > duration_seconds(other) * 1000:
                # With that beat: only one that was not there now is a rival (decision 5, rule 3).
                return Claim(ClaimState.OURS, other)
            return Claim(ClaimState.WAITING, other, steady_seconds)
        case ClaimState.OURS:
            if other is None or other == claim.other:
                return claim
            # Both agents compare the same two hashes, so they cannot both give way (decision 5).
            if beats and identity(holder) < identity(other.holder):
                return replace(claim, other=other)
            return Claim(ClaimState.CONFLICT, other, steady_seconds)
        case _:
            # Any change shows that its agent is alive: clocks of hosts may differ by anything.
            if other is not None and other != claim.other:
                return Claim(ClaimState.CONFLICT, other, steady_seconds)
            assert claim.other is not None
            if steady_seconds - claim.since > duration_seconds(claim.other):
                return Claim(ClaimState.OURS, claim.other)
            return claim


def claim_after_failed_read(claim: Claim, steady_seconds: float) -> Claim:
    """Return the claim after a failed read: time without a read does not count as silence."""
    return replace(claim, since=steady_seconds)


def duration_seconds(beat: Beat) -> float:
    """Return after how many seconds without a change the holder of ``beat`` counts as gone.

    An interval that no agent can have counts as 5 s, as for programs that watch nodes: otherwise
    this agent might wait for years.
    """
    is_sensible = beat.interval_seconds <= _MAX_INTERVAL_SECONDS
    return SILENT_INTERVALS * (beat.interval_seconds if is_sensible else _FALLBACK_SECONDS)


class ClaimKeeper(Protocol):
    """The heartbeat, as far as a claim needs it."""

    async def check_claim(self) -> None:
        """Read the beats of others and beat now."""


class NameClaim:
    """Whether this agent may use the name ``node``, for ``holder``."""

    def __init__(self, node: str, holder: str) -> None:
        self.node = node
        self.holder = holder
        self.is_beat_due = asyncio.Event()
        """Set when a beat must not wait for the end of its interval."""
        self._claim = Claim()
        self._refused = False
        self._rival_until = -math.inf
        self._keeper: ClaimKeeper | None = None
        self._on_permitted: list[Callable[[], None]] = []

    @property
    def may_publish(self) -> bool:
        """Whether this agent may write the documents of its node: no other agent does, as far as
        known.

        An agent that may not read heartbeats publishes all the same: faults matter more.
        """
        if self._claim.state is ClaimState.UNKNOWN:
            return self._refused
        return self._claim.state is ClaimState.OURS

    @property
    def has_rival(self) -> bool:
        """Whether another agent with this node name is alive: it beat within its duration."""
        return now_seconds() < self._rival_until

    @property
    def state(self) -> ClaimState:
        """What this agent holds of its node name."""
        return self._claim.state

    @property
    def conflict(self) -> str | None:
        """The sentence about the other agent that keeps this one from publishing.

        ``None`` without one.
        """
        other = self._claim.other
        if other is None:
            return None
        match self._claim.state:
            case ClaimState.CONFLICT:
                return sentence(
                    "conflict: another agent with the node name {node} runs on {holder}",
                    node=self.node,
                    holder=other.holder,
                )
            case ClaimState.WAITING:
                return sentence(
                    "waits to see whether another agent with the node name {node} still runs on "
                    "{holder}. It has gone if its heartbeat does not change for {seconds} s",
                    node=self.node,
                    holder=other.holder,
                    seconds=f"{duration_seconds(other):g}",
                )
        return None

    def notify(self, on_permitted: Callable[[], None]) -> None:
        """Call ``on_permitted`` when publishing may begin, and when a rival appears.

        A rival is another agent with this node name that must give way to this one.
        """
        self._on_permitted.append(on_permitted)

    def keep(self, keeper: ClaimKeeper) -> None:
        """Have ``keeper`` check the claim when ``check`` is called."""
        self._keeper = keeper

    async def check(self) -> None:
        """Find out which agent holds the name now that another program wrote a document of ours.

        Two agents that both hold one node name would otherwise repair each other's documents until
        both give up (``docs/decisions/005``).
        """
        if self._keeper is not None:
            await self._keeper.check_claim()

    def beat_now(self) -> None:
        """Have the next beat sent now instead of at the end of the interval.

        After a standstill of this process another agent may have considered it dead, and have
        claimed the node name. In a store where only the beat shows deletions, a deletion waits for
        it.
        """
        self.is_beat_due.set()

    def record_read(self, shown: Beat | None, now_ms: int, *, beats: bool) -> None:
        """Apply what the store shows; ``beats`` is that of ``claim_after_read``."""
        before, could = self._claim, self.may_publish
        self._claim = claim_after_read(
            before, self.holder, shown, now_ms, now_seconds(), beats=beats
        )
        self._log_change(before)
        had_rival = self.has_rival
        other = self._claim.other
        # The beat found at the start may be of an agent that ended long ago.
        if before.state is not ClaimState.UNKNOWN and other is not None and other != before.other:
            self._rival_until = now_seconds() + duration_seconds(other)
        if self.may_publish and (not could or (self.has_rival and not had_rival)):
            self._permit()

    def record_failed_read(self, *, refused: bool) -> None:
        """Record that the beats of others could not be read, perhaps because it is ``refused``."""
        could = self.may_publish
        self._claim = claim_after_failed_read(self._claim, now_seconds())
        self._refused = self._refused or refused
        if self.may_publish and not could:
            self._permit()

    def _permit(self) -> None:
        for on_permitted in self._on_permitted:
            on_permitted()

    def _log_change(self, before: Claim) -> None:
        now = self._claim
        if self.conflict is not None:
            if now.state is not before.state:
                log.error("%s; nothing is published by this one", self.conflict)
        elif before.state in (ClaimState.WAITING, ClaimState.CONFLICT):
            log.warning("the other agent with the node name %s fell silent", self.node)
        elif (
            before.state is ClaimState.OURS
            and now.other is not None
            and (before.other is None or before.other.holder != now.other.holder)
        ):
            log.error(
                "another agent with the node name %s runs on %s; that agent must stop publishing",
                self.node,
                now.other.holder,
            )

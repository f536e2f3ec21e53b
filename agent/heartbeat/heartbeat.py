"""The heartbeat: proof that this agent is alive and can publish.

It beats while no other root task stalls, whether the driver answers or not: a node whose agent is
alive is not lost, and each beat shows whether the agent is blind. Before each beat it reads whether
another agent uses the node name; only the holder of the name publishes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from agent.heartbeat.claim import (
    SILENT_INTERVALS,
    ClaimState,
    NameClaim,
    duration_seconds,
    observe,
    observe_failure,
)
from contract.errors import StoreConflict, StoreError, StoreRefused
from pacing.backoff import Backoff
from pacing.waiting import is_set_within, now_seconds
from service.log.trouble import Trouble
from service.stalls import going_on
from stores.base import READ_SECONDS, WRITE_SECONDS, Beat
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.heartbeat.old_readers import NodeAnnotations
    from stores.base import Store

log = logging.getLogger("agent.heartbeat")

_JITTER = 0.1
_REQUEST_SECONDS = READ_SECONDS
_DURATIONS_KEPT = 5
_SHARE = 0.6
"""The announced interval as a share of the time that a beat takes: a node is lost after three."""
_MARK_SECONDS = 10.0
_BACKOFF_FIRST_SECONDS = 0.1
_BACKOFF_LAST_SECONDS = 2.0


@dataclass(frozen=True)
class HeartbeatCallbacks:
    """What the heartbeat calls in its daemon. All return at once.

    ``stalled`` names the root tasks that make no progress. ``on_permitted`` is called when
    publishing may begin, and when another agent with this node name appears that must give way.
    ``progress`` is called at least once per interval and request. ``blind``: whether no chip of
    this node gives an answer. ``writes`` is the text about the last writes of our documents.
    """

    stalled: Callable[[], Mapping[str, float]]
    on_permitted: Callable[[], None]
    progress: Callable[[], None]
    blind: Callable[[], bool]
    wall_clock: Callable[[], int]
    writes: Callable[[], str] = lambda: ""


class Heartbeat:
    """Beats for ``node`` on behalf of ``holder``."""

    def __init__(
        self,
        store: Store,
        node: str,
        holder: str,
        interval_seconds: float,
        callbacks: HeartbeatCallbacks,
        *,
        also: NodeAnnotations | None = None,
    ) -> None:
        """``also``: the heartbeat on the Node, for readers of old releases."""
        self.node = node
        self.holder = holder
        self.interval_seconds = interval_seconds
        self.beats = 0
        self.failures = 0
        self.beaten_at_ms: int | None = None
        self.trouble = Trouble(
            log, "%s; retried until it succeeds", "heartbeats work again", level=logging.ERROR
        )
        """Why the store accepts no beat, or does not return those of others."""
        self.withheld: str | None = None
        """Why this agent does not beat although the store would accept it."""
        self._store = store
        self._callbacks = callbacks
        self._claim = NameClaim()
        self._refused = False
        self._last_beat_succeeded = False
        self._rival_until = -math.inf
        self._turn_lock = asyncio.Lock()
        self._is_due = asyncio.Event()
        self._stamp_ms = 0
        self._durations_seconds: deque[float] = deque(maxlen=_DURATIONS_KEPT)
        self._announced = interval_seconds
        self._also = also

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
    def claim_state(self) -> ClaimState:
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
                return (
                    f"conflict: another agent with the node name {self.node} runs on {other.holder}"
                )
            case ClaimState.WAITING:
                return (
                    f"waits to see whether another agent with the node name {self.node} still runs "
                    f"on {other.holder}. It has gone if its heartbeat does not change for "
                    f"{duration_seconds(other):g} s"
                )
        return None

    async def run(self) -> NoReturn:
        """Beat until cancelled."""
        backoff = Backoff(
            _BACKOFF_FIRST_SECONDS, min(_BACKOFF_LAST_SECONDS, max(self.interval_seconds, 0.2) / 2)
        )
        while True:
            began = now_seconds()
            self._callbacks.progress()
            if await going_on(self._turn(), self._callbacks.progress):
                backoff.reset()
                pause = self.interval_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
                await self._wait_until(began + pause)
            else:
                await self._wait_until(now_seconds() + backoff.next_seconds())

    async def check_now(self) -> None:
        """Read the beats of others and beat now, because a document of ours was written by another
        program.

        Two agents that both hold one node name would otherwise repair each other's documents until
        both give up (``docs/decisions/005``).
        """
        if self._turn_lock.locked():
            # A beat is on its way, so others will see that we are there.
            await self._read_others()
        else:
            await self._turn()

    def beat_now(self) -> None:
        """Beat now instead of at the end of the interval: the process stood still for a while.

        Another agent may have considered it dead, and have claimed the node name.
        """
        self._is_due.set()

    async def _wait_until(self, until: float) -> None:
        while (left := until - now_seconds()) > 0 and not self._is_due.is_set():
            await is_set_within(self._is_due, min(left, _MARK_SECONDS))
            self._callbacks.progress()
        self._is_due.clear()

    async def _turn(self) -> bool:
        """Read and beat once; return whether the next turn may wait for the next interval."""
        async with self._turn_lock:
            has_time = await self._read_and_beat()
            if self._also is not None and self.may_publish and not self._is_withheld():
                has_time &= await self._also.beat(self._callbacks.wall_clock() // 1000)
            return has_time

    async def _read_and_beat(self) -> bool:
        began = now_seconds()
        refused = await self._read_others()
        if refused is not None:
            return refused
        if self._claim.state is ClaimState.OURS and not self._is_withheld():
            self._last_beat_succeeded = False
            return await self._beat(began)
        self.trouble.end()
        return True

    async def _read_others(self) -> bool | None:
        """Read the beats of others.

        Returns ``None``, or, where that failed, whether the store refused it.
        """
        try:
            async with answered_within(_REQUEST_SECONDS):
                beats = await self._store.beats(self.node)
        except StoreError as error:
            return self._observe_failure(error)
        self._observe(beats[0] if beats else None)
        return None

    async def _beat(self, began: float) -> bool:
        now_ms = self._callbacks.wall_clock()
        beat = self._next_beat(now_ms, self._announced_seconds(now_seconds() - began))
        try:
            async with answered_within(WRITE_SECONDS):
                await self._store.beat(beat)
        except StoreConflict:
            return False  # another agent beat after our read
        except StoreError as error:
            return self._failed("no heartbeat can be written", error)
        self._durations_seconds.append(now_seconds() - began)
        self.beats += 1
        self.beaten_at_ms = now_ms
        self._last_beat_succeeded = True
        self.trouble.end()
        return True

    def _announced_seconds(self, looked_seconds: float) -> float:
        """Return the interval to announce in seconds: a longer one while beats take long.

        Otherwise readers that wait for the next beat would consider this node dead.
        """
        slowest = max((2 * looked_seconds, *self._durations_seconds))
        before, seconds = self._announced, round(_SHARE * slowest, 3)
        if seconds == before:
            # Aggregators take two equal announcements in a row for the interval of this node, and
            # list its heartbeats no more often than that.
            seconds += 0.001
        self._announced = seconds = max(self.interval_seconds, seconds)
        return seconds

    def _next_beat(self, now_ms: int, interval_seconds: float) -> Beat:
        # Readers compare beats for a change, so two must differ whatever our clock does.
        self._stamp_ms = now_ms if now_ms != self._stamp_ms else now_ms + 1
        return Beat(
            self.node,
            self.holder,
            interval_seconds,
            self._stamp_ms,
            blind=self._callbacks.blind(),
            writes=self._callbacks.writes(),
        )

    async def leave(self, absence_seconds: float) -> None:
        """Beat for the last time: the node is lost only after ``absence_seconds`` of silence.

        So a planned stop (an upgrade that pulls an image) is no loss of the node. An agent that may
        not beat now writes nothing. Raises ``StoreError``.
        """
        interval_seconds = absence_seconds / SILENT_INTERVALS
        may_beat = self._claim.state is ClaimState.OURS and self.withheld is None
        if may_beat and interval_seconds > self.interval_seconds:
            await self._store.beat(self._next_beat(self._callbacks.wall_clock(), interval_seconds))

    def _is_withheld(self) -> bool:
        stalled = self._callbacks.stalled()
        tasks = ", ".join(stalled)
        reason = f"no progress: {tasks}" if stalled else None
        if reason != self.withheld:
            if reason is None:
                log.warning("heartbeats again: all root tasks make progress")
            else:
                log.error("no heartbeat: %s; it continues with their progress", reason)
            self.withheld = reason
        return reason is not None

    # Whose the node name is.

    def _observe(self, shown: Beat | None) -> None:
        before, could = self._claim, self.may_publish
        self._claim = observe(
            before,
            self.holder,
            shown,
            self._callbacks.wall_clock(),
            now_seconds(),
            beats=self._last_beat_succeeded and not self._callbacks.stalled(),
        )
        self._log_change(before)
        had_rival = self.has_rival
        other = self._claim.other
        if before.state is not ClaimState.UNKNOWN and other is not None and other != before.other:
            self._rival_until = now_seconds() + duration_seconds(other)
        if self.may_publish and (not could or (self.has_rival and not had_rival)):
            self._callbacks.on_permitted()

    def _observe_failure(self, error: StoreError) -> bool:
        could = self.may_publish
        self._claim = observe_failure(self._claim, now_seconds())
        self._refused = self._refused or isinstance(error, StoreRefused)
        if self.may_publish and not could:
            self._callbacks.on_permitted()
        return self._failed("heartbeats cannot be read", error)

    def _failed(self, what: str, error: StoreError) -> bool:
        self.failures += 1
        self.trouble.begin(f"{what}: {error}")
        return isinstance(error, StoreRefused)

    def _log_change(self, before: NameClaim) -> None:
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
                "another agent with the node name %s runs on %s; it has to give way to this one",
                self.node,
                now.other.holder,
            )

"""The heartbeat: proof that this agent is alive and can publish.

It beats while no other root task stalls, whether the driver answers or not: a node whose agent is
alive is not lost, and each beat shows whether the agent is blind. Before each beat it reads whether
another agent uses the node name, for ``NameClaim``; only the holder of the name publishes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from typing import TYPE_CHECKING, NoReturn, Protocol

from agent.name_claim import SILENT_INTERVALS, ClaimState
from contract.errors import StoreConflict, StoreError, StoreRefused
from pacing.backoff import Backoff
from pacing.waiting import now_seconds, pause_until_mark, wait_for_event
from service.log.ongoing_failure import OngoingFailure
from service.watchdog import with_progress_marks
from stores.base import READ_SECONDS, WRITE_SECONDS, Beat
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.heartbeat.old_readers import NodeAnnotations
    from agent.name_claim import NameClaim
    from service.watchdog import Watchdog
    from stores.base import Store

log = logging.getLogger("agent.heartbeat")

_JITTER = 0.1
_MAX_DURATIONS = 5
_SHARE = 0.6
"""The announced interval as a share of the time that a beat takes: a node is lost after three."""
_MARK_SECONDS = 10.0
_STALL_SECONDS = 30.0
_BACKOFF_FIRST_SECONDS = 0.1
_BACKOFF_LAST_SECONDS = 2.0


class BeatContent(Protocol):
    """What a beat reports about its agent. Both methods return at once."""

    def is_blind(self) -> bool:
        """Return whether no chip of this node gives an answer."""

    def writes(self) -> str:
        """Return the text about the last writes of our documents."""


class Heartbeat:
    """Beats for the node and the holder of ``claim``.

    It beats while no task of ``stalls`` makes no progress. ``also`` is the heartbeat on the Node,
    for readers of old releases.
    """

    def __init__(
        self,
        store: Store,
        claim: NameClaim,
        interval_seconds: float,
        stalls: Watchdog,
        content: BeatContent,
        wall_clock: Callable[[], int],
        *,
        also: NodeAnnotations | None = None,
    ) -> None:
        self.claim = claim
        self.interval_seconds = interval_seconds
        self.beats = 0
        self.failures = 0
        self.beaten_at_ms: int | None = None
        self.trouble = OngoingFailure(
            log, "%s; retried until it succeeds", "heartbeats work again", level=logging.ERROR
        )
        """Why the store accepts no beat, or does not return those of others."""
        self.withheld: str | None = None
        """Why this agent does not beat although the store would accept it."""
        self._store = store
        self._stalls = stalls
        self._content = content
        self._wall_clock = wall_clock
        self._last_beat_succeeded = False
        self._turn_lock = asyncio.Lock()
        self._stamp_ms = 0
        self._durations_seconds: deque[float] = deque(maxlen=_MAX_DURATIONS)
        self._announced = interval_seconds
        self._also = also
        claim.keep(self)

    async def run(self) -> NoReturn:
        """Beat until cancelled."""
        backoff = Backoff(
            _BACKOFF_FIRST_SECONDS, min(_BACKOFF_LAST_SECONDS, max(self.interval_seconds, 0.2) / 2)
        )
        progress = self._stalls.register("heartbeat", _STALL_SECONDS)
        # Agents that start together, as after a loss of power, use the whole first interval.
        least_share = 0.0
        while True:
            began = now_seconds()
            progress()
            if await with_progress_marks(self._turn(), progress):
                backoff.reset()
                # With jitter, so that the agents of a cluster do not write at the same moment.
                pause = self.interval_seconds * random.uniform(least_share, 1 + _JITTER)
                least_share = 1 - _JITTER
                await self._wait_until(began + pause, progress)
            else:
                await self._wait_until(now_seconds() + backoff.next_seconds(), progress)

    async def check_claim(self) -> None:
        """Read the beats of others and beat now; see ``NameClaim.check``."""
        if self._turn_lock.locked():
            # A beat is on its way, so others will see that we are there.
            await self._read_others()
        else:
            await self._turn()

    async def _wait_until(self, until: float, progress: Callable[[], None]) -> None:
        is_due = self.claim.is_beat_due
        while (remaining_seconds := until - now_seconds()) > 0 and not is_due.is_set():
            await wait_for_event(is_due, pause_until_mark(_MARK_SECONDS, remaining_seconds))
            progress()
        is_due.clear()

    async def _turn(self) -> bool:
        """Read and beat once; return whether the next turn may wait for the next interval."""
        async with self._turn_lock:
            has_time = await self._read_and_beat()
            if self._also is not None and self.claim.may_publish and not self._is_withheld():
                has_time &= await self._also.beat(self._wall_clock() // 1000)
            return has_time

    async def _read_and_beat(self) -> bool:
        began = now_seconds()
        refused = await self._read_others()
        if refused is not None:
            return refused
        if self.claim.state is ClaimState.OURS and not self._is_withheld():
            # Until the store acknowledges it, other agents may not see this one.
            self._last_beat_succeeded = False
            return await self._beat(began)
        self.trouble.end()
        return True

    async def _read_others(self) -> bool | None:
        """Read the beats of others.

        Returns ``None``, or, where that failed, whether the store refused it.
        """
        try:
            async with answered_within(READ_SECONDS):
                beats = await self._store.beats(self.claim.node)
        except StoreError as error:
            is_refused = isinstance(error, StoreRefused)
            self.claim.record_failed_read(refused=is_refused)
            return self._failed("heartbeats cannot be read", error)
        # Who does not beat gives way, because the other agent cannot see it (decision 5, rule 3).
        is_seen_alive = self._last_beat_succeeded and not self._stalls.stalled()
        self.claim.record_read(beats[0] if beats else None, self._wall_clock(), beats=is_seen_alive)
        return None

    async def _beat(self, began: float) -> bool:
        now_ms = self._wall_clock()
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
            self.claim.node,
            self.claim.holder,
            interval_seconds,
            self._stamp_ms,
            blind=self._content.is_blind(),
            writes=self._content.writes(),
        )

    async def leave(self, absence_seconds: float) -> None:
        """Beat for the last time: the node is lost only after ``absence_seconds`` of silence.

        So a planned stop (an upgrade that pulls an image) does not lose the node. An agent that may
        not beat now writes nothing. Raises ``StoreError``.
        """
        interval_seconds = absence_seconds / SILENT_INTERVALS
        may_beat = self.claim.state is ClaimState.OURS and self.withheld is None
        if may_beat and interval_seconds > self.interval_seconds:
            await self._store.beat(self._next_beat(self._wall_clock(), interval_seconds))

    def _is_withheld(self) -> bool:
        stalled = self._stalls.stalled()
        tasks = ", ".join(stalled)
        reason = f"no progress: {tasks}" if stalled else None
        if reason != self.withheld:
            if reason is None:
                log.warning("heartbeats again: all root tasks make progress")
            else:
                log.error("no heartbeat: %s; it continues with their progress", reason)
            self.withheld = reason
        return reason is not None

    def _failed(self, failure: str, error: StoreError) -> bool:
        self.failures += 1
        self.trouble.record_failure(f"{failure}: {error}")
        # A refusal lasts until an operator changes something, so the next interval is soon enough.
        return isinstance(error, StoreRefused)

"""Which of several daemons of a kind leads: by a Lease, by a lock, or the only one there is.

Only the leader writes. A Lease is renewed every third of its duration; a follower that sees it
unchanged for all of it, by its own steady clock, takes it. The holder counts from before its
request to renew and stops a fifth of the duration earlier, so it has stopped before another begins.
A process that was paused finds that out from its clock before it writes; what it had under way is
refused by the version it was computed from (``docs/decisions/010-who-leads.md``). A leader whose
renewals take long, as with slow admission, takes the Lease for longer. Until the first of those is
accepted it reads whose the Lease is, and leads on for as long as a read counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, NoReturn, Protocol

from typing_extensions import override

from contract.errors import StoreConflict, StoreError
from pacing.waiting import wait_for_event
from service.failing_requests import FailingRequests
from service.log.ongoing_failure import OngoingFailure
from stores.base import WRITE_SECONDS, LeaderElectionRecord
from stores.deadline import answered_within
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from service.clock import Clock
    from stores.base import LeaderLease, LeaderLock, Store

_log = logging.getLogger(__name__)

# Two renewals may fail before the Lease runs out (decision 10).
_RENEWALS = 3
# The holder stops after four fifths, a follower waits for all of it (decision 10).
_MARGIN = 5
_RETRY_SECONDS = 1.0
# A follower looks four times a second (decision 38).
_POLL_SECONDS = 0.25
_RELEASE_SECONDS = 1.0
# A renewal without an answer is tried for 120 s (decision 15).
_MAX_LEASE_SECONDS = 120
_READ_MS = 2000
"""For so long after its request a read counts that shows no other holder of the Lease."""
# Reads begin 0.7 s before the time is over, at most 1.3 s apart: 2 s less 0.7 s (decision 15).
_READ_MARGIN_MS = 700
_TIMES = 4
"""A Lease lasts at least so many times as long as its renewal takes, so that it outlasts the next
one, which is begun after a third."""


class Leadership(Protocol):
    """Whether this process may write."""

    elected_by: str | None
    """The store that elects the leader; ``None`` without an election."""

    fences: bool
    """Whether an earlier leader may live on and write: a takeover fences it off."""

    @property
    def leads(self) -> bool:
        """Whether this process may write now; asked before each write."""

    @property
    def holder(self) -> str:
        """The process that leads, as far as is known; empty for none."""

    @property
    def follows(self) -> bool:
        """Whether another process leads, as far as is known."""

    taken_total: int
    """How often this process began to lead."""

    failing: FailingRequests
    """Whether the election fails."""

    async def run(self, on_change: Callable[[], None]) -> NoReturn:
        """Campaign until cancelled; call ``on_change`` when ``leads`` or ``holder`` changes."""

    async def confirm(self) -> bool:
        """Read the leader after a refused write; return whether it is this process."""

    async def release(self) -> None:
        """Let another process lead at once."""


class AlwaysLeader(Leadership):
    """There is nothing to elect by: the operator runs one aggregator."""

    elected_by = None
    fences = False
    leads = True
    follows = False
    taken_total = 1
    holder = ""

    def __init__(self, identity: str) -> None:
        self.holder = identity
        self.failing = FailingRequests()

    @override
    async def run(self, on_change: Callable[[], None]) -> NoReturn:
        on_change()
        while True:
            # Never ends: the root task of an election must not end while the daemon runs.
            await asyncio.Event().wait()

    @override
    async def confirm(self) -> bool:
        return True

    async def release(self) -> None:
        """Do nothing: no other process could lead."""


class LockElection(Leadership):
    """By a lock of the host: its kernel knows whether the holder lives."""

    fences = False
    leads = False

    def __init__(self, lock: LeaderLock, url: str, identity: str) -> None:
        self.elected_by = url
        self.taken_total = 0
        self.failing = FailingRequests()
        self._lock = lock
        self._identity = identity
        self._trouble = OngoingFailure(
            _log,
            "no leader can be elected by %s: %s",
            "the lock of %s can be used again",
            self.elected_by,
        )

    @property
    @override
    def holder(self) -> str:
        return self._identity if self.leads else self._lock.holder()

    @property
    @override
    def follows(self) -> bool:
        return not self.leads and bool(self._lock.holder())

    @override
    async def run(self, on_change: Callable[[], None]) -> NoReturn:
        holder = self.holder
        while not self._take():
            await asyncio.sleep(_POLL_SECONDS)  # the kernel has no callback
            before, holder = holder, self.holder
            if holder != before:
                on_change()
        self.leads = True
        self.taken_total += 1
        on_change()
        # A host lock cannot be lost: the kernel keeps it until this process ends.
        while True:
            await asyncio.Event().wait()

    def _take(self) -> bool:
        try:
            taken = self._lock.take(self._identity)
        except StoreError as error:
            self._trouble.record_failure(str(error))
            return False
        self._trouble.end()
        return taken

    @override
    async def confirm(self) -> bool:
        return self.leads

    @override
    async def release(self) -> None:
        self.leads = False
        self._lock.release()


class LeaseElection(Leadership):
    """By a Lease. One that ``identity`` holds was left by an earlier run of the same place."""

    fences = True

    def __init__(
        self, lease: LeaderLease, url: str, identity: str, duration_seconds: int, clock: Clock
    ) -> None:
        self.elected_by = url
        self.taken_total = 0
        self.failing = FailingRequests()
        self._lease = lease
        self._identity = identity
        self._duration_seconds = duration_seconds
        self._clock = clock
        self._seen: LeaderElectionRecord | None = None
        self._seen_at_ms = 0
        self._own: LeaderElectionRecord | None = None
        self._renewed_at_ms = 0
        self._proven_until_ms = 0
        """Until then a read counts, made while the answer to a renewal is awaited."""
        self._trouble = OngoingFailure(
            _log,
            "the Lease in %s cannot be written: %s",
            "the Lease in %s can be written again",
            self.elected_by,
        )
        self._took_ms = 0
        self._is_late = False
        """Whether the last write was answered too late to lead by it, or not at all."""
        self._wake = asyncio.Event()
        self._on_change: Callable[[], None] = lambda: None

    @property
    def _wanted_seconds(self) -> int:
        """For how long the next write takes the Lease: longer while writes take long."""
        longest = max(self._duration_seconds, _MAX_LEASE_SECONDS)
        # Its answer came too late once; only the longest Lease is sure to outlast the next one.
        if self._is_late:
            return longest
        return max(self._duration_seconds, min(-(-self._took_ms * _TIMES // 1000), longest))

    @property
    @override
    def leads(self) -> bool:
        if self._own is None:
            return False
        now_ms = self._clock().steady_ms
        # Two proofs, a renewal in time or a read; the one that lasts longer counts.
        return now_ms < max(self._renewed_at_ms + _safe_ms(self._own), self._proven_until_ms)

    @property
    @override
    def holder(self) -> str:
        record = self._own or self._seen
        return "" if record is None else record.holder

    @property
    @override
    def follows(self) -> bool:
        return self._own is None and self.holder not in ("", self._identity)

    @override
    async def run(self, on_change: Callable[[], None]) -> NoReturn:
        self._on_change = on_change
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="follow the Lease")
            while True:
                self._wake.clear()
                await wait_for_event(self._wake, await self._act())
        raise AssertionError("the tasks never end")

    async def _follow(self) -> NoReturn:
        async for event in self._lease.watch():
            if not isinstance(event, Interrupted):
                await self._observe(event)
        raise StoreError(f"the watch of the Lease in {self.elected_by} ended")

    async def _observe(self, record: LeaderElectionRecord) -> None:
        # The leader's own renewals come back as events and change nothing.
        if self._own is None:
            self._see_other(record)
        elif record.holder != self._identity:
            # An event from before we took it, or another process took it from us.
            await self.confirm()

    def _see_other(self, record: LeaderElectionRecord) -> None:
        before = self.holder
        self._see(record)
        if self.holder != before:
            self._on_change()

    def _see(self, record: LeaderElectionRecord) -> None:
        # By the version, not by the times in the Lease: those are for people (decision 10).
        if self._seen is None or self._seen.version != record.version:
            self._seen_at_ms = self._clock().steady_ms
        if record.holder not in ("", self._identity):
            self.failing.succeeded()  # another process renews it
        is_news = self._seen is None or self._seen.holder != record.holder
        if is_news and record.holder != self._identity:  # else we are about to lead
            _log.info("follower of %s", record.holder or "nobody")
        self._seen = record
        self._wake.set()

    async def _act(self) -> float | None:
        """Do what is due; return the seconds until the next thing is, ``None`` for no time."""
        now_ms = self._clock().steady_ms
        if self._own is not None:
            safe_ms = self._renewed_at_ms + _safe_ms(self._own) - now_ms
            # Checked before anything is written: a paused process finds here that its time is over.
            if safe_ms <= 0:
                if self._is_late:
                    # Unless another process takes it meanwhile, which refuses this write, we lead
                    # on
                    # from the answer, and until then by reads.
                    return await self._write(self._own, None)
                self._lose(self._own, "its Lease could not be renewed in time")
                return 0
            due_ms = self._renewed_at_ms + self._own.duration_seconds * 1000 // _RENEWALS
            if now_ms < due_ms:
                return (due_ms - now_ms) / 1000
            return await self._write(self._own, safe_ms)
        if self._seen is None:
            return None
        if self._seen.holder not in ("", self._identity):
            free_at_ms = self._seen_at_ms + self._seen.duration_seconds * 1000
            if now_ms <= free_at_ms:
                # A millisecond more: at ``free_at_ms`` itself the Lease still holds.
                return (free_at_ms - now_ms + 1) / 1000
        return await self._write(self._seen, None)

    async def _write(self, before: LeaderElectionRecord, within_ms: int | None) -> float:
        """Take or renew the Lease that is as ``before``; seconds until the next try."""
        # The time counts from before the request, which is the careful end (decision 10).
        began_ms = self._clock().steady_ms
        transitions = before.transitions + (before.holder != self._identity)
        wanted = LeaderElectionRecord(
            self._identity, self._wanted_seconds, transitions, before.version
        )
        # Cleared before the attempt, so that only its own result counts.
        was_late, self._is_late = self._is_late, False
        try:
            async with asyncio.timeout(WRITE_SECONDS if within_ms is None else within_ms / 1000):
                async with self._proving():
                    written = await self._lease.write(wanted)
        except StoreConflict:
            # If it is still ours, the attempt before, which got no answer, was accepted late.
            self._is_late = await self._is_ours() and was_late
            # With chance, so that two followers that met in a conflict do not meet again.
            return 0 if self.leads else _RETRY_SECONDS * random.uniform(0.1, 0.5)
        except (StoreError, TimeoutError) as error:
            trouble = str(error) or "no answer in time"
            self._trouble.record_failure(trouble)
            self.failing.failed("Lease", trouble, began_ms)
            if isinstance(error, TimeoutError) and not was_late:
                self._is_late = True
                return 0
            # At least two tries within the period between two renewals.
            return min(_RETRY_SECONDS, self._duration_seconds / _RENEWALS / 2)
        self._trouble.end()
        self.failing.succeeded()
        led = self.leads
        self._renewed_at_ms = began_ms
        self._took_ms = self._clock().steady_ms - began_ms
        self._is_late = self._took_ms >= _safe_ms(written)
        had, self._own = self._own, written
        if had is None:
            # Takeovers compare it: a term that was lost and won again is another one.
            self.taken_total += 1
            _log.info("leads, as %s", self._identity)
        if self._is_late:
            await self._read()
        if self.leads and not led:
            self._on_change()
        return 0

    @contextlib.asynccontextmanager
    async def _proving(self) -> AsyncIterator[None]:
        """Read the Lease within the block, for a leader whose Lease has nearly run out.

        Another one may take it right after a read. What is written then it finds and follows, or
        has refused (``docs/decisions/010``): that is no more than after a pause of this process.
        """
        task = asyncio.create_task(self._prove())
        try:
            yield
        finally:
            task.cancel()

    async def _prove(self) -> None:
        while self._own is not None:
            safe_until_ms = self._renewed_at_ms + _safe_ms(self._own)
            now_ms = self._clock().steady_ms
            # Before the last proof runs out, with time left for the answer.
            due_ms = max(safe_until_ms, self._proven_until_ms) - _READ_MARGIN_MS
            if now_ms < due_ms:
                await asyncio.sleep((due_ms - now_ms) / 1000)
                continue
            led = self.leads
            if not await self._read():
                await asyncio.sleep(_READ_MARGIN_MS / 1000)
            elif not led:
                self._on_change()

    async def _read(self) -> bool:
        """Read whose the Lease is, to lead by that for a while; return whether that can be done."""
        requested_at_ms = self._clock().steady_ms
        if not await self._is_ours():
            return False
        self._proven_until_ms = requested_at_ms + _READ_MS
        self.failing.succeeded()
        return self.leads

    @override
    async def confirm(self) -> bool:
        await self._is_ours()
        return self.leads

    async def _is_ours(self) -> bool:
        """Read whose the Lease is; return whether it was read and is still ours."""
        try:
            record = await self._lease.read()
        except StoreError:
            return False
        if self._own is None:
            self._see_other(record)
            return False
        if record.holder == self._identity:
            # With the version that was read: the next renewal must demand it.
            self._own = record
            return True
        self._lose(record, f"the Lease is {record.holder or 'nobody'}'s")
        return False

    def _lose(self, record: LeaderElectionRecord, reason: str) -> None:
        _log.warning("leads no more: %s", reason)
        self._own = None
        self._see(record)
        self._on_change()

    @override
    async def release(self) -> None:
        # Cleared first: nothing may be written as the leader while this waits.
        own, self._own = self._own, None
        if own is None:
            return
        try:
            async with answered_within(_RELEASE_SECONDS):
                # An empty holder and a duration of 1 s: the next replica need not wait for the old
                # duration.
                await self._lease.write(LeaderElectionRecord("", 1, own.transitions, own.version))
        except StoreError as error:
            _log.warning("the Lease is not given up and will run out: %s", error)


def _safe_ms(record: LeaderElectionRecord) -> int:
    """Return for how long after it was asked for a Lease proves that no other process leads."""
    return record.duration_seconds * 1000 * (_MARGIN - 1) // _MARGIN


def leadership(
    stores: Iterable[Store], identity: str, duration_seconds: int, clock: Clock
) -> Leadership:
    """Return the way to elect: by the first store with Leases, else by the first with a lock, else
    none.
    """
    stores = tuple(stores)
    for store in stores:
        if (lease := store.leader_lease) is not None:
            return LeaseElection(lease, store.url, identity, duration_seconds, clock)
    for store in stores:
        if (lock := store.leader_lock) is not None:
            return LockElection(lock, store.url, identity)
    return AlwaysLeader(identity)

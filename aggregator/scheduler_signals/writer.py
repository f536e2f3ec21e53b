"""Writes the differences of all options: one limit, one order, only while this replica leads.

The limit is for all options together, apart from that of documents, so that a storm of taints
delays no document. The worst difference is next, then the oldest. Each is planned once more right
before its write. A write names the version and the uid of the object that it was computed from, so
the API server refuses one that comes late (``docs/decisions/010``).

An API server that does not answer pauses all options, a missing right only its own one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from typing_extensions import override

from aggregator.plugin import Led
from aggregator.scheduler_signals.pending_writes import PendingWrites
from aggregator.scheduler_signals.reconciler import BRAKE, Waiting
from contract.errors import (
    StoreConflict,
    StoreError,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
)
from contract.pages.scheduler_signals import SignalStatus, WaitingWrite
from pacing.backoff import Backoff
from pacing.token_bucket import TokenBucket
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure
from service.log.paced_lines import PacedLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aggregator.scheduler_signals.reconciler import PlannedWrite, Reconciler
    from service.clock import Clock
    from service.election.leadership import Leadership

_log = logging.getLogger(__name__)

MAX_WRITES_PER_SECOND = 20
_BURST = 3
_MAX_CONCURRENT = 8
_RETRY_FORBIDDEN_MS = 30_000
_RETRY_REFUSED_MS = 45_000
_MAX_CONFLICTS = 5
"""After so many in a row the next attempt waits: others write faster than we can read."""
_RETRY_CONFLICT_MS = 2000
_BRAKE_PERIOD_SECONDS = 1.0
"""How often it is checked whether what waits for heartbeats may go on."""
_SLICE_NODES = 100
"""So many nodes are looked at before other tasks have a turn, some ten milliseconds."""
_MAX_SHOWN = 100

WRITTEN, CONFLICT, REFUSED, DRY_RUN = "written", "conflict", "refused", "dry-run"
OUTCOMES = (WRITTEN, CONFLICT, REFUSED, DRY_RUN)


class _SignalOption:
    """An option with what waits for it. ``paused_until_ms`` is steady time."""

    def __init__(self, reconciler: Reconciler) -> None:
        self.reconciler = reconciler
        self.pending = PendingWrites()
        self.waiting: dict[str, Waiting] = {}
        self.running: set[str] = set()
        self.again: dict[str, None] = {}
        """Objects to plan again, whatever their nodes are."""
        self.conflicts: dict[str, int] = {}
        self.shown: dict[str, str] = {}
        """In a dry run, what would have been written, by object."""
        self.paused_until_ms = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        name = reconciler.name
        self.forbidden = OngoingFailure(
            _log, "%s: rights are missing, nothing is written: %s", "%s: rights are there", name
        )
        self.refused = OngoingFailure(_log, "%s: a write is refused: %s", "", name)
        self.lines = PacedLines(
            _log,
            logging.INFO,
            6,
            f"{name}: {'would write ' if reconciler.dry_run else ''}%s",
            f"{name}: {'would make ' if reconciler.dry_run else ''}%d writes: %s",
        )


class SignalWriter(Led):
    """Writes for all ``reconcilers`` while this replica leads (``aggregator.plugin.Led``).

    ``why_held`` returns why nothing may get stricter now, see ``brake.why_held``; its argument is
    since when this replica leads (steady milliseconds).
    """

    def __init__(
        self,
        reconcilers: Sequence[Reconciler],
        leadership: Leadership,
        clock: Clock,
        why_held: Callable[[int], str | None],
    ) -> None:
        self._options = tuple(map(_SignalOption, reconcilers))
        self._leadership = leadership
        self._clock = clock
        self._why_held = why_held
        self._wake = asyncio.Event()
        self._bucket = TokenBucket(_BURST, MAX_WRITES_PER_SECOND - _BURST + 1)
        self._backoff = Backoff()
        self._paused_until_ms = 0
        self._unavailable = OngoingFailure(
            _log, "conditions and taints cannot be written, trying again: %s", "they can be written"
        )
        self._changed: dict[str, None] = {}
        """Nodes to look at, in the order in which they changed."""
        self._leads_since_ms: int | None = None
        self._has_braked = False
        """Whether something waits for heartbeats, which ends by time."""

    @override
    async def set_leading(self, leading: bool) -> None:
        now = self._clock()
        self._leads_since_ms = now.steady_ms if leading else None
        for option in self._options:
            option.pending, option.waiting, option.again = PendingWrites(), {}, {}
            if leading:
                self.judge(option.reconciler.begin_leading())
            else:
                option.reconciler.end_leading()
        self._wake.set()

    def judge(self, nodes: Iterable[str]) -> None:
        """Observe that something about these nodes has changed; it is looked at soon."""
        self._changed.update(dict.fromkeys(nodes))
        # Also without nodes: what waits may have to be looked at.
        self._wake.set()

    def plan_again(self, reconciler: Reconciler, targets: Iterable[str]) -> None:
        """Observe that something about objects of an option has changed beside their nodes."""
        for option in self._options:
            if option.reconciler is reconciler and self._leads_since_ms is not None:
                option.again.update(dict.fromkeys(targets))
        self._wake.set()

    def _judge_slice(self) -> bool:
        """Look at some of the nodes and objects that changed; return whether there are more."""
        nodes = tuple(itertools.islice(self._changed, _SLICE_NODES))
        for node in nodes:
            del self._changed[node]
        now = self._clock()
        for option in self._options if nodes else ():
            # A follower observes, too: it can lead at once.
            targets = option.reconciler.judge(nodes, now)
            if self._leads_since_ms is not None:
                self._plan(option, targets)
        for option in self._options:
            again = tuple(itertools.islice(option.again, _SLICE_NODES))
            for target in again:
                del option.again[target]
            self._plan(option, again)
        return bool(self._changed) or any(option.again for option in self._options)

    @property
    def held(self) -> str | None:
        """Why nothing may get stricter now."""
        since_ms = self._leads_since_ms
        return "this aggregator does not lead" if since_ms is None else self._why_held(since_ms)

    def _plan(self, option: _SignalOption, targets: Iterable[str]) -> None:
        brake_reason = self.held
        for target in targets:
            # It is planned again when its write has ended.
            if target not in option.running:
                self._planned(option, target, brake_reason)

    def _planned(
        self, option: _SignalOption, target: str, hold_reason: str | None
    ) -> PlannedWrite | None:
        """Plan an object; where something is to be written, it waits for its turn."""
        now = self._clock()
        plan = option.reconciler.plan(target, now, hold_reason)
        if plan.waiting is None:
            option.waiting.pop(target, None)
        else:
            option.waiting[target] = plan.waiting
            self._has_braked = self._has_braked or plan.waiting.reason == BRAKE
        if plan.write is None:
            option.pending.withdraw(target)
            option.conflicts.pop(target, None)
            option.shown.pop(target, None)
        else:
            option.pending.put(target, plan.write.rank, plan.write.since_ms)
            if plan.write.not_before_ms > now.steady_ms:
                option.pending.postpone(target, plan.write.not_before_ms)
        return plan.write

    async def run(self) -> NoReturn:
        """Write until cancelled, then log the writes that wait for a later line."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._wake.clear()
                    has_more = self._judge_slice()
                    seconds = self._start_writes(tasks)
                    if has_more:
                        # Ten thousand nodes of a new leader delay no other task.
                        await asyncio.sleep(0)
                    else:
                        await wait_for_event(self._wake, seconds)
        finally:
            for option in self._options:
                option.lines.flush()
        raise AssertionError("the loop never ends")

    def _start_writes(self, tasks: asyncio.TaskGroup) -> float | None:
        """Start what may be written now; return after how many seconds to look again."""
        if not self._may_write:
            return None
        self._look_at_brake()
        while sum(len(option.running) for option in self._options) < _MAX_CONCURRENT:
            now_ms = self._clock().steady_ms
            if now_ms < self._paused_until_ms:
                return (self._paused_until_ms - now_ms) / 1000
            option = self._next(now_ms)
            if option is None:
                return self._idle_seconds(now_ms)
            turn = option.pending.first(now_ms)
            assert turn is not None, "_next returns options with a turn"
            write = self._planned(option, turn.target, self.held)
            if write is None or write.not_before_ms > now_ms:
                continue
            if option.reconciler.dry_run:
                self._show(option, turn.target, write)
                continue
            wait_ms = self._bucket.wait_ms(now_ms)
            if wait_ms:
                return wait_ms / 1000
            self._bucket.take()
            option.pending.withdraw(turn.target)
            option.running.add(turn.target)
            name = f"write {option.reconciler.name} of {turn.target}"
            tasks.create_task(self._write(option, turn.target, write), name=name)
        return None  # the end of a write wakes

    @property
    def _may_write(self) -> bool:
        """Whether this replica still leads, by its lease, too: it may have been paused."""
        return self._leads_since_ms is not None and self._leadership.leads

    def _look_at_brake(self) -> None:
        """Plan again what waits for heartbeats, when that has ended."""
        if self._has_braked and self.held is None:
            self._has_braked = False
            for option in self._options:
                self._plan(
                    option, [name for name, w in option.waiting.items() if w.reason == BRAKE]
                )

    def _next(self, now_ms: int) -> _SignalOption | None:
        """Return the option whose first object is next; ``None`` where none may be written."""
        turns = [
            (turn, number)
            for number, option in enumerate(self._options)
            if now_ms >= option.paused_until_ms
            and (turn := option.pending.first(now_ms)) is not None
        ]
        return self._options[min(turns)[1]] if turns else None

    def _idle_seconds(self, now_ms: int) -> float | None:
        """Return when something may be written that may not now."""
        due = [at for option in self._options if (at := option.pending.next_ms()) is not None]
        due += [
            o.paused_until_ms for o in self._options if o.paused_until_ms > now_ms and o.pending
        ]
        seconds = [max(0, at - now_ms) / 1000 for at in due]
        if self._has_braked:
            seconds.append(_BRAKE_PERIOD_SECONDS)
        return min(seconds, default=None)

    def _show(self, option: _SignalOption, target: str, write: PlannedWrite) -> None:
        """Show what would be written, once for each different write."""
        option.pending.withdraw(target)
        if option.shown.get(target) != write.text:
            option.shown[target] = write.text
            option.outcomes[DRY_RUN] += 1
            option.lines.add((write.text,))

    async def _write(self, option: _SignalOption, target: str, write: PlannedWrite) -> None:
        """Write a difference, and plan its object again."""
        postponed_ms = 0
        try:
            await write.send()
        except StoreConflict:
            option.outcomes[CONFLICT] += 1
            option.conflicts[target] = option.conflicts.get(target, 0) + 1
            if option.conflicts[target] % _MAX_CONFLICTS == 0:
                postponed_ms = _RETRY_CONFLICT_MS
            await self._read(option, target)
        except StoreNotFound:
            # It was deleted. The watch shows that, or one of the same name.
            postponed_ms = _RETRY_CONFLICT_MS
        except StoreForbidden as error:
            option.outcomes[REFUSED] += 1
            option.forbidden.record_failure(str(error))
            option.paused_until_ms = self._clock().steady_ms + _RETRY_FORBIDDEN_MS
        except StoreUnavailable as error:
            self._pause(error)
        except StoreError as error:
            option.outcomes[REFUSED] += 1
            option.refused.record_failure(str(error))
            postponed_ms = _RETRY_REFUSED_MS
        else:
            option.outcomes[WRITTEN] += 1
            option.conflicts.pop(target, None)
            option.lines.add((write.text,))
            option.forbidden.end()
            option.refused.end()
            self._unavailable.end()
            self._backoff.reset()
        finally:
            option.running.discard(target)
        if self._leads_since_ms is not None:
            self._plan(option, option.reconciler.written(target, self._clock()))
            if postponed_ms:
                option.pending.postpone(target, self._clock().steady_ms + postponed_ms)
        self._wake.set()

    async def _read(self, option: _SignalOption, target: str) -> None:
        try:
            await option.reconciler.read(target)
        except StoreUnavailable as error:
            self._pause(error)
        except StoreError as error:
            # Without the right to read by name the watch shows the newest version soon.
            _log.debug("%s of %s cannot be read: %s", option.reconciler.name, target, error)

    def _pause(self, error: StoreError) -> None:
        """Write nothing for a while: the API server does not answer."""
        self._unavailable.record_failure(str(error))
        seconds = self._backoff.next_seconds()
        self._paused_until_ms = self._clock().steady_ms + int(seconds * 1000)

    def problems(self) -> tuple[str, ...]:
        """Return what ``/readyz`` warns of."""
        return tuple(
            problem
            for option in self._options
            for problem in (
                *(
                    (f"{option.reconciler.name} are not written: {option.forbidden.reason}",)
                    if option.forbidden.reason is not None
                    else ()
                ),
                *(
                    (f"{option.reconciler.name}: a write is refused: {option.refused.reason}",)
                    if option.refused.reason is not None
                    else ()
                ),
                *option.reconciler.problems(),
            )
        )

    def statuses(self) -> tuple[SignalStatus, ...]:
        """Return how it stands with each option, the first hundred objects of each by name."""
        now_ms, brake_reason = self._clock().steady_ms, self.held
        return tuple(
            SignalStatus(
                option=option.reconciler.name,
                dry_run=option.reconciler.dry_run,
                outcomes=dict(option.outcomes),
                pending=len(option.pending) + len(option.running),
                oldest_seconds=None if oldest is None else max(0, now_ms - oldest) / 1000,
                held=brake_reason,
                would_write=tuple(text for _, text in sorted(option.shown.items())[:_MAX_SHOWN]),
                waiting=tuple(
                    WaitingWrite(target, waiting.reason, waiting.text)
                    for target, waiting in sorted(option.waiting.items())[:_MAX_SHOWN]
                ),
                waiting_total=dict(Counter(w.reason for w in option.waiting.values())),
                problem=option.forbidden.reason or option.refused.reason,
            )
            for option in self._options
            for oldest in (option.pending.oldest_ms(),)
        )

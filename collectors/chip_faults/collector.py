"""Chip faults: the driver's events at once, its code lists and health words as audits.

Faults of chips without events are found by their lists alone, which are asked more often then. The
rules are those of ``docs/packages/collectors.md`` ("Chip faults"); they are decided in
``chip_tracker``, this module only asks the driver and keeps time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, cast

from msgspec import Meta

from collectors.audits import (
    NEVER,
    AuditSchedule,
    UnwatchedChips,
    first_answer,
    run_together,
)
from collectors.base import Collector
from collectors.chip_faults.chip_tracker import QUERIES, ChipQuery, ChipTracker
from collectors.chip_faults.health_word import ChipWord
from collectors.driver_list_tracker import LAG_SECONDS
from collectors.report_batch import ReportBatch
from contract.codes.chip_codes import RESET_FINISHED, code_of
from contract.codes.families import FAMILIES
from contract.errors import DriverCallError, DriverCallStuck, DriverError, DriverGone
from contract.observation import (
    NODE,
    Assertion,
    Gap,
    Observation,
    Subject,
    chip_subject,
)
from contract.settings import Section
from dcmi_shim.library.return_codes import ENVIRONMENT, NOT_READY, SYMBOL_MISSING, UNSUPPORTED
from dcmi_shim.values import DriverGap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from collectors.base import CollectorContext
    from contract.observation import Report
    from dcmi_shim.values import Chip, DriverEvent

T = TypeVar("T")

_log = logging.getLogger(__name__)
HEALTH = "health"
"""The reading for a chip's health word: 0 healthy, 1 minor, 2 major, 3 critical."""

LIST_PERIOD = "list_period_seconds"
"""The reading that shows how often code lists are asked."""

_ASSERTIONS = {0: Assertion.RECOVER, 1: Assertion.OCCUR, 2: Assertion.ONCE}
_UNSUPPORTED = (UNSUPPORTED, SYMBOL_MISSING)
_MAX_BUSY_SHARE = 0.5
"""Without events: the share of time in which the driver may be asked."""
_AFTER_EVENT_SECONDS = 1.0
"""How often health words are asked around an event: a card may drop at the same time."""
_OWN_SECONDS = 0.1
"""The same for the chip that the event is about."""


def real_list_period(configured_seconds: float, round_seconds: float) -> float:
    """Return how often lists are asked without events; a round of them takes ``round_seconds``."""
    return max(configured_seconds, round_seconds / _MAX_BUSY_SHARE)


@dataclass
class _Watched:
    """One chip: its tracked state, and when it is asked next (loop time).

    ``chip`` is ``None`` for one that is known and not listed: where it is is not known, and another
    one may answer in its place.
    """

    subject: Subject
    chip: Chip | None
    tracker: ChipTracker
    due: dict[ChipQuery, float]
    settled_at: float
    """When the list shows all that happened before events arrived (at a start, after a gap)."""
    listed: frozenset[str] | None = None
    """The codes that the driver listed last."""
    word: ChipWord | None = None
    """The health word of a chip whose driver has no events."""
    queried_at: dict[ChipQuery, float] = field(
        default_factory=lambda: dict.fromkeys(QUERIES, float("-inf"))
    )

    def next(self, query: ChipQuery) -> float:
        """Return when ``query`` is due: by its period, or because of an event not audited since."""
        due, queried_at = self.due[query], self.queried_at[query]
        check = self.tracker.next_check(query)
        if check is not None and queried_at < check < due:
            due = check
        if query is ChipQuery.CODES and queried_at < self.settled_at < due:
            due = self.settled_at
        return due


class ChipFaultsSection(Section, frozen=True):
    """How often chips are asked for code lists and health words; times in seconds."""

    audit_period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 15.0
    health_period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    card_lost_after_seconds: Annotated[float, Meta(ge=10, le=86_400)] = 300.0
    list_period_seconds: Annotated[float, Meta(ge=0.5, le=60)] = 1.0


class ChipFaultsCollector(Collector[ChipFaultsSection]):
    """Reports chip faults.

    ``audit_period_seconds`` is that of code lists while events arrive, ``list_period_seconds``
    while none do. Health words, and whatever failed, are asked every ``health_period_seconds``.
    Around an event of any chip, and for a second after it, those of all chips are asked once a
    second. Without events a health word is asked with each change of a list, too. A round without
    events takes at most half of its period, which grows where a driver is slow. A chip of which
    every call failed for ``card_lost_after_seconds`` is reported as dropped. While the driver is
    replaced on disk, no failure is the chip's. A chip that is known (``CollectorContext.chips``)
    and not listed is silent until it is listed again. ``CollectorContext.tracked`` must hold what
    is present now, and no one-off faults: a tracked code that is not listed is reported ABSENT by
    the first audit.
    """

    name = "chip-faults"
    settings = ChipFaultsSection
    about_chips = True
    starts_first = True
    period_option = "health_period_seconds"
    deadline_seconds = 2.0

    def __init__(self, section: ChipFaultsSection, context: CollectorContext) -> None:
        super().__init__(section, context)
        self._driver = context.driver
        self._loop = asyncio.get_running_loop()
        self._chips: dict[int, _Watched] = {}
        self._missing: dict[Subject, _Watched] = {}
        self._unwatched = UnwatchedChips(self.name, context.tracked, context.chips)
        self._answers: dict[tuple[ChipQuery, Chip], tuple[int, ...] | int | DriverError | None] = {}
        """Answers of this round that are not applied yet."""
        self._schedule = AuditSchedule(context.progress, self.period_seconds)
        self._queries: list[tuple[float, _Watched, ChipQuery]] = []
        """All queries, by when they are due."""
        self._batch = ReportBatch(context.report)
        self._event_at = float("-inf")

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        asking = self._driver.listed()
        self._take_over(await first_answer(asking, self.context.progress, self._report_blind))
        # A known chip that the driver does not list may have dropped: it must be counted as silent.
        for subject in self._unwatched.subjects():
            self._missing[subject] = self._watched(subject, None)
        await run_together(
            {
                f"{self.name} events": self._events(),
                f"{self.name} audits": self._schedule.run(self._next_due, self._ask_due),
            }
        )

    def _report_blind(self, reason: str) -> None:
        now_ms = self.context.wall_clock()
        self._batch.send(self._unwatched.report_blind(reason, now_ms, by_driver=True))

    def _take_over(self, listed: Iterable[Chip]) -> None:
        """Watch chips that were not watched yet, and follow their ids."""
        inventory = self._driver.found
        watching = {watched.subject: watched for watched in self._chips.values()}
        for chip in listed:
            subject = chip_subject(chip.physical_id)
            watched = watching.get(subject)
            if watched is None:
                watched = self._missing.pop(subject, None) or self._watched(subject, chip)
                self._ask_now([watched])
            watched.chip = chip
            self._chips[chip.logic_id] = watched
            if (
                inventory is not None
                and not FAMILIES[inventory.family].events
                and watched.word is None
            ):
                # The word counts from the next list on.
                watched.word, watched.listed = ChipWord(self.name, subject), None

    def _watched(self, subject: Subject, chip: Chip | None) -> _Watched:
        tracked = self._unwatched.take(subject)
        lost_after = self.section.card_lost_after_seconds
        tracker = ChipTracker(self.name, subject, tracked, lost_after)
        now, context = self._loop.time(), self.context
        tracker.note_changes(context.tracked, context.ended, now, context.wall_clock())
        return _Watched(subject, chip, tracker, dict.fromkeys(QUERIES, now), now + LAG_SECONDS)

    async def _events(self) -> NoReturn:
        """Report each event of the driver as it arrives."""
        async for item in self._driver.events():
            if isinstance(item, DriverGap):
                self._batch.send([Gap(self.name, item.at_ms, item.reason)])
                # What the gap hid may be a chip that came or went.
                self._take_over(await self._driver.listed())
                self._ask_now(self._chips.values())
            # Upstream ignores the event id 0, too (device-plugin#2.1).
            elif item.code:
                self._event(item)
            self._schedule.wake()
        raise AssertionError("the driver's events never end")

    def _event(self, event: DriverEvent) -> None:
        code = code_of(event.code)
        watched = self._chips.get(event.logic_id)
        assertion = _ASSERTIONS.get(event.assertion)
        if watched is None or assertion is None:
            text = f"event {code} of logic id {event.logic_id} with assertion {event.assertion}"
            reason = "no such chip" if watched is None else "no such assertion"
            _log.warning("%s: %s; every chip is audited", text, reason)
            self._batch.send([Gap(self.name, event.seen_at_ms, f"{text}: {reason}")])
            self._ask_now(self._chips.values())
            return
        seen = Observation(
            source=self.name,
            subject=watched.subject,
            code=code,
            assertion=assertion,
            seen_at_ms=event.seen_at_ms,
            severity=event.severity,
            driver_raised_at_ms=event.driver_raised_at_ms,
            serial=event.serial,
            text=event.name,
        )
        now = self._loop.time()
        # In this turn of the loop: an event is what the latency to the document is measured from.
        self._batch.add_soon(watched.tracker.apply_event(seen, now))
        self._ask_health_soon(watched, now)
        if code == RESET_FINISHED:
            self._ask_now([watched])

    def _ask_health_soon(self, own: _Watched, now: float) -> None:
        """Make the health queries due: no event reports a card that dropped at the same time."""
        self._event_at = now
        for watched in self._chips.values():
            due = watched.due[ChipQuery.HEALTH]
            # A driver without a health query must not be asked because of an event.
            if due != NEVER:
                pause = _OWN_SECONDS if watched is own else _AFTER_EVENT_SECONDS
                # Once in this pause, however many events of a burst ask for it.
                again_at = max(now, watched.queried_at[ChipQuery.HEALTH] + pause)
                watched.due[ChipQuery.HEALTH] = min(due, again_at)

    def _ask_now(self, chips: Iterable[_Watched]) -> None:
        for watched in chips:
            now = self._loop.time()
            watched.due = dict.fromkeys(QUERIES, now)
            watched.settled_at = now + LAG_SECONDS

    def _next_due(self) -> float:
        """Order the queries by when they are due, and return when the first is.

        They are ordered once per round, because an idle agent spends most of its time on that.
        """
        self._queries = sorted(self._all_queries(), key=itemgetter(0))
        return self._queries[0][0] if self._queries else NEVER

    async def _ask_due(self, began: float) -> None:
        """Ask what is due, the longest waiting first, until an event changes what is due next.

        Queries of one round are due again at one time, counted from when the round ``began``, so
        that the next one is one round too.
        """
        await self._ask_together(began)
        for _, watched, query in self._queries:
            due = watched.next(query)
            chip = watched.chip
            if chip is not None and (query, chip) in self._answers:
                await self._ask(watched, chip, query, due, began)
            elif self._schedule.is_due(due) and not self._schedule.is_woken:
                if chip is None:
                    await self._leave_out(watched, began)
                else:
                    await self._ask(watched, chip, query, due, began)
                self.context.progress()
        self._pause_after(began)

    async def _ask_together(self, began: float) -> None:
        """Ask what is due about several chips in one message for each kind of query.

        A query that is missing in the answer stays due, and is asked by itself.
        """
        self._answers = {}
        # Lists first: a health word counts for a list that was read before it.
        for query, ask in (
            (ChipQuery.CODES, self._driver.code_lists),
            (ChipQuery.HEALTH, self._driver.health_words),
        ):
            asked: dict[Chip, tuple[_Watched, float]] = {}
            for at, watched, its_query in self._queries:
                if its_query is query and watched.chip is not None and self._schedule.is_due(at):
                    asked[watched.chip] = watched, at
            if len(asked) < 2:
                continue
            # Before the message: an event meanwhile may make a query due again.
            for watched, due in asked.values():
                self._begin(watched, query, due, began)
            answers: Mapping[Chip, tuple[int, ...] | int | DriverError | None] = {}
            # Without a process, each query finds the reason by itself.
            with contextlib.suppress(DriverGone):
                answers = await ask([*asked])
            self.context.progress()
            self._answers |= {(query, chip): answer for chip, answer in answers.items()}
            missing = asked.keys() - answers.keys()
            for chip in missing:
                watched, due = asked[chip]
                watched.due[query] = min(watched.due[query], due)
            # A chip that is slow in each query delays the others by one of them only.
            if missing:
                return

    def _pause_after(self, began: float) -> None:
        """Without events: pause the queries for as long as the round took that ``began``."""
        if self._driver.polling_reason is None:
            self.context.show(NODE, LIST_PERIOD, self.section.audit_period_seconds)
            return
        # Without events the round is all that there is to report.
        self._batch.send()  # it is whole: nothing follows until the next round
        took = self._loop.time() - began
        period = real_list_period(self.section.list_period_seconds, took)
        self.context.show(NODE, LIST_PERIOD, period)
        for watched in self._chips.values():
            for query, due in watched.due.items():
                # The three questions for a word have 3 s, whatever the period is (decision 20).
                if watched.word is None or watched.word.asks_again_at != due:
                    watched.due[query] = max(due, began + took / _MAX_BUSY_SHARE)

    def _all_queries(self) -> Iterator[tuple[float, _Watched, ChipQuery]]:
        for watched in self._chips.values():
            for query in QUERIES:
                yield watched.next(query), watched, query
        for watched in self._missing.values():
            yield watched.due[ChipQuery.HEALTH], watched, ChipQuery.HEALTH

    def _begin(self, watched: _Watched, query: ChipQuery, due: float, began: float) -> None:
        """Record that ``query`` is asked now, and when it is due again."""
        # Timers may fire early, and an answer asked before ``due`` would not count for the event.
        queried_at = watched.queried_at[query] = max(self._loop.time(), due)
        # Counted from the beginning of the round, so that all queries of a round stay one round.
        watched.due[query] = began + self.period_seconds
        if query is ChipQuery.HEALTH and queried_at < self._event_at + _AFTER_EVENT_SECONDS:
            watched.due[query] = began + _AFTER_EVENT_SECONDS

    async def _ask(
        self, watched: _Watched, chip: Chip, query: ChipQuery, due: float, began: float
    ) -> None:
        if (query, chip) not in self._answers:
            self._begin(watched, query, due, began)
        queried_at = watched.queried_at[query]
        wall_clock, tracker = self.context.wall_clock, watched.tracker
        try:
            if query is ChipQuery.CODES:
                listed = await self._ask_codes(watched, chip, queried_at, began)
                reports = tracker.observe_codes(listed, queried_at, wall_clock())
            else:
                health = await self._health(watched, chip, queried_at)
                # The driver returns 0xFFFFFFFF for a device that is not found or not started
                # (dcmi#2.2).
                if health is None:
                    in_place = await self._driver.is_in_place()
                    reason = "the health is unknown"
                    reports = self._failed(watched, query, reason, by_chip=in_place)
                else:
                    reports = tracker.observe_health(True, queried_at, wall_clock())
        except DriverCallError as error:
            in_place = await self._driver.is_in_place()
            if query is ChipQuery.CODES:
                # A card that dropped is not blind, and its health query shows the drop.
                await self._ask(watched, chip, ChipQuery.HEALTH, queried_at, began)
            reports = self._refused(watched, query, error, queried_at, in_place=in_place)
        except DriverCallStuck as error:
            in_place = await self._driver.is_in_place()
            reports = self._failed(watched, query, str(error), by_chip=in_place, hangs=True)
        except DriverGone as error:
            reports = self._failed(watched, query, str(error), by_chip=False)
        self._batch.add(reports)

    def _refused(
        self,
        watched: _Watched,
        query: ChipQuery,
        error: DriverCallError,
        queried_at: float,
        *,
        in_place: bool,
    ) -> list[Report]:
        """Apply a query that the driver refused with ``error``; return what to report.

        ``in_place``: the loaded library is the installed one, so a failure may be the chip's.
        """
        # -8012 is a card that dropped (device-plugin#2.2).
        if query is ChipQuery.HEALTH and error.return_code == NOT_READY and in_place:
            return watched.tracker.observe_health(False, queried_at, self.context.wall_clock())
        if query is ChipQuery.HEALTH and error.return_code in _UNSUPPORTED:
            # It will never answer. Counted as good, or the chip would never be complete.
            watched.due[query] = NEVER
            return watched.tracker.observe_health(True, queried_at, self.context.wall_clock())
        by_chip = in_place and error.return_code not in ENVIRONMENT
        return self._failed(watched, query, str(error), by_chip=by_chip)

    async def _ask_codes(
        self, watched: _Watched, chip: Chip, queried_at: float, began: float
    ) -> frozenset[str]:
        """Return the code list of ``chip``, from this round's answers or from the driver."""
        codes = await self._answer(ChipQuery.CODES, chip, self._driver.error_codes)
        listed = frozenset(code_of(code) for code in codes)
        if self._driver.polling_reason is None:
            watched.due[ChipQuery.CODES] = began + self.section.audit_period_seconds
        else:
            watched.due[ChipQuery.CODES] = began + self.section.list_period_seconds
            if listed != watched.listed:
                await self._list_changed(watched, chip, listed, queried_at, began)
        watched.listed = listed
        return listed

    async def _answer(self, query: ChipQuery, chip: Chip, ask: Callable[[Chip], Awaitable[T]]) -> T:
        """Return this round's answer to ``query`` about ``chip``, or ask for it."""
        if (query, chip) not in self._answers:
            # Changed lists may ask for many words while this round's answers are applied.
            self.context.progress()
            return await ask(chip)
        answer: Any = self._answers.pop((query, chip))
        if isinstance(answer, DriverError):
            raise answer
        return cast("T", answer)

    async def _leave_out(self, watched: _Watched, began: float) -> None:
        """Count a chip that is not listed as silent: no call can reach it."""
        watched.due = dict.fromkeys(QUERIES, began + self.period_seconds)
        # While the driver is replaced on disk, no silence is the chip's own.
        in_place = await self._driver.is_in_place()
        # The driver may have listed it again during the query above.
        if watched.chip is None:
            reason = "the driver does not list this chip"
            for query in QUERIES:
                self._batch.add(self._failed(watched, query, reason, by_chip=in_place))

    async def _health(self, watched: _Watched, chip: Chip, at: float) -> int | None:
        """Read the health word and show it; without an answer the reading is removed."""
        health = None
        try:
            health = await self._answer(ChipQuery.HEALTH, chip, self._driver.health)
        finally:
            self.context.show(chip_subject(chip.physical_id), HEALTH, health)
            if watched.word is not None:
                self._batch.add(watched.word.observe_word(health, at, self.context.wall_clock()))
                again = watched.word.asks_again_at
                if again is not None:
                    watched.due[ChipQuery.HEALTH] = again
        return health

    async def _list_changed(
        self,
        watched: _Watched,
        chip: Chip,
        listed: frozenset[str],
        queried_at: float,
        began: float,
    ) -> None:
        """Read the health word with a list that has changed."""
        if watched.word is not None:
            watched.word.record_list(listed, queried_at)
        if watched.due[ChipQuery.HEALTH] != NEVER:
            await self._ask(watched, chip, ChipQuery.HEALTH, queried_at, began)

    def _failed(
        self,
        watched: _Watched,
        query: ChipQuery,
        reason: str,
        *,
        by_chip: bool,
        hangs: bool = False,
    ) -> list[Report]:
        now_ms = self.context.wall_clock()
        return watched.tracker.observe_failure(
            query, reason, self._loop.time(), now_ms, by_chip=by_chip, hangs=hangs
        )

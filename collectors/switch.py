"""On-board switches of an A3 (``device-plugin#5.1``): events at once, the list as audit.

The rules are those of ``driver_list_tracker``. The collector uses a library of its own; on other
families it reports nothing.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from pydantic import Field

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.driver_list_tracker import LAG_SECONDS, ListedCode, ListTracker
from contract.codes.switch_codes import NOT_APPLICABLE, SwitchCode, format_switch_code
from contract.documents.switch_info import SwitchPort, port_subject
from contract.errors import DriverCallError, DriverError
from contract.observation import NODE, Assertion, Gap, Observation, SourceBlind
from contract.settings import Section
from dcmi_shim.library.discovery import find_library
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED
from dcmi_shim.library.switch_calls import LIST_LENGTH
from dcmi_shim.library.vendor import LINGQU
from dcmi_shim.switch.driver import SwitchDriver
from dcmi_shim.values import DriverGap
from pacing.waiting import is_set_within, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collectors.base import AgentOptions, CollectorContext
    from collectors.driver_list_tracker import Key
    from dcmi_shim.values import DriverSwitchEvent

_log = logging.getLogger(__name__)
WITH_SWITCHES = "Ascend910A3"
"""The family whose servers have switches on board."""

_ASSERTIONS = {0: Assertion.RECOVER, 1: Assertion.OCCUR, 2: Assertion.ONCE}
_RECOVERED = 0
_UNSUPPORTED = (UNSUPPORTED, SYMBOL_MISSING)
_AGAIN_SECONDS = 5.0
"""How often the list is asked while it fails, or while no events arrive (seconds)."""

_PROGRESS_SECONDS = 1.0
# Timers may fire early by the resolution of their clock; a deadline this near counts as due.
_DUE_SECONDS = 0.001


class SwitchSection(Section):
    """How often the list of faults of on-board switches is read."""

    audit_period_seconds: float = Field(default=30.0, ge=0.1, le=3600)


class SwitchCollector(Collector[SwitchSection]):
    """Reports switch faults; ``audit_period_seconds`` is that of the list."""

    name = "switch"
    settings = SwitchSection
    deadline_seconds = 15.0

    def __init__(self, section: SwitchSection, options: AgentOptions) -> None:
        super().__init__(section, options)
        self.period_seconds = section.audit_period_seconds

    async def run(self, context: CollectorContext) -> NoReturn:
        """Report until cancelled."""
        if not await self._applies(context):
            while True:
                context.progress()
                await asyncio.sleep(self.period_seconds / 2)
        driver = SwitchDriver(partial(find_library, context.paths, LINGQU), context.wall_clock)
        watch = SwitchRun(self.name, self.period_seconds, context, driver)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(driver.run(), name=f"{self.name} driver")
                tasks.create_task(watch.events(), name=f"{self.name} events")
                tasks.create_task(watch.audits(), name=f"{self.name} audits")
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        raise AssertionError("the collector's tasks never end")

    async def _applies(self, context: CollectorContext) -> bool:
        """Return whether this node has switches.

        Until its driver answers, tracked faults are blind.
        """
        is_blind = not context.tracked

        def report_silence() -> None:
            nonlocal is_blind
            context.progress()
            if not is_blind:
                is_blind = True
                reason = "the driver has not answered since the start"
                now_ms = context.wall_clock()
                context.report([SourceBlind(self.name, NODE, now_ms, reason)])

        asking = context.driver.inventory()
        inventory = await result_of(asking, _PROGRESS_SECONDS, report_silence)
        return inventory.family == WITH_SWITCHES


class SwitchRun:
    """One run of the collector on a node with switches."""

    def __init__(
        self,
        source: str,
        period_seconds: float,
        context: CollectorContext,
        driver: SwitchDriver,
    ) -> None:
        self._source = source
        self._period_seconds = period_seconds
        self._context = context
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._tracker = ListTracker(source, context.tracked)
        self._changed = asyncio.Event()
        self._due = self._loop.time()
        self._settled_at = self._due + LAG_SECONDS
        """When the list shows all that happened before events arrived (at a start, after a gap)."""
        self._asked_at = float("-inf")
        self._answers = AnswerTracker(source)
        self._has_list = True

    async def events(self) -> NoReturn:
        """Report each event of the library as it arrives."""
        async for item in self._driver.events():
            if isinstance(item, DriverGap):
                self._gap(item.at_ms, item.reason)
            else:
                self._event(item)
            self._changed.set()
        raise AssertionError("the driver's events never end")

    def _gap(self, at_ms: int, reason: str) -> None:
        self._context.report([Gap(self._source, at_ms, reason)])
        self._due = self._loop.time()
        self._settled_at = self._due + LAG_SECONDS

    def _event(self, event: DriverSwitchEvent) -> None:
        subject, code = _key(event)
        assertion = _ASSERTIONS.get(event.assertion)
        if assertion is None or event.event_type == 0:
            what = f"event {code} on {subject} with assertion {event.assertion}"
            _log.warning("%s: not possible; the list is read", what)
            self._gap(event.seen_at_ms, f"{what}: not possible")
            return
        seen = Observation(
            source=self._source,
            subject=subject,
            code=code,
            assertion=assertion,
            seen_at_ms=event.seen_at_ms,
            severity=event.severity,
            driver_raised_at_ms=event.driver_raised_at_ms,
            serial=event.serial,
            text=event.information,
        )
        at = self._loop.time()
        if assertion is Assertion.ONCE:
            # The list shows whether a notice lasts.
            self._tracker.expect((subject, code), at)
            self._context.report([seen])
            return
        is_blind = not self._answers.is_answering and self._has_list
        reports = self._tracker.apply_event(seen, at, list_is_blind=is_blind)
        if reports:
            self._context.report(reports)

    async def audits(self) -> NoReturn:
        """Ask for the list whenever that is due."""
        while True:
            self._context.progress()
            self._changed.clear()
            due = self._next()
            wait = due - self._loop.time()
            if wait < _DUE_SECONDS:
                await self._ask(due)
                continue
            await is_set_within(self._changed, min(wait, self._period_seconds / 2))

    def _next(self) -> float:
        """Return when the list is due: by its period, or because of events not audited since."""
        checks = (self._tracker.next_check(), self._settled_at)
        waiting = [check for check in checks if check is not None and check > self._asked_at]
        return min([self._due, *waiting])

    async def _ask(self, due: float) -> None:
        asked_at = self._asked_at = max(self._loop.time(), due)
        again = min(self._period_seconds, _AGAIN_SECONDS)
        self._due = asked_at + again
        try:
            faults = await self._driver.faults()
        except DriverError as error:
            if isinstance(error, DriverCallError) and error.return_code in _UNSUPPORTED:
                self._has_list = False
                self._due = asked_at + self._period_seconds
            if begun := self._answers.observe_failure(str(error), self._context.wall_clock()):
                _log.warning("switch: blind: %s", error)
                self._context.report(begun)
            return
        self._has_list = True
        if self._driver.polling_reason is None:
            self._due = asked_at + self._period_seconds
        now_ms = self._context.wall_clock()
        if self._answers.is_answering is False:
            _log.info("switch: the list of faults is answered again")
        reports = self._answers.observe_answer(now_ms)
        complete = len(faults) < LIST_LENGTH
        reports += self._tracker.observe(_entries(faults), asked_at, now_ms, complete=complete)
        if reports:
            self._context.report(reports)


def _key(event: DriverSwitchEvent) -> Key:
    port = SwitchPort(event.chip, event.port, event.peer_device, event.peer_port)
    # A whole chip has no peer, whatever the driver writes there.
    peer = NOT_APPLICABLE if event.port == NOT_APPLICABLE else event.peer_device
    code = SwitchCode(event.event_type, event.sub_type, peer)
    return port_subject(port), format_switch_code(code)


def _entries(faults: Sequence[DriverSwitchEvent]) -> Mapping[Key, ListedCode]:
    """Return the faults in a list; recoveries, and entries without an event type, are none."""
    return {
        _key(fault): ListedCode(fault.severity, fault.driver_raised_at_ms)
        for fault in faults
        if fault.assertion != _RECOVERED and fault.event_type
    }

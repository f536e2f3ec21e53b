"""On-board switches of an A3 (``device-plugin#5.1``): events at once, the list as audit.

The rules are those of ``driver_list_tracker``. The collector uses a library of its own; on other
families it reports nothing.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from collectors.audits import AuditSchedule, first_answer, run_together
from collectors.base import Collector
from collectors.driver_list_tracker import LAG_SECONDS, ListedCode, ListTracker
from contract.codes.switch_codes import NOT_APPLICABLE, SwitchCode, format_switch_code
from contract.documents.switch_info import SwitchPort, port_subject
from contract.errors import DriverCallError, DriverError
from contract.observation import Assertion, Gap, Observation
from contract.settings import Section
from dcmi_shim.library.discovery import find_library
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED
from dcmi_shim.library.switch_calls import LIST_LENGTH
from dcmi_shim.library.vendor import LINGQU
from dcmi_shim.switch.driver import SwitchDriver
from dcmi_shim.values import DriverGap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collectors.base import CollectorContext
    from collectors.driver_list_tracker import Key
    from dcmi_shim.values import DriverSwitchEvent

_log = logging.getLogger(__name__)
WITH_SWITCHES = "Ascend910A3"
"""The family whose servers have switches on board."""

_ASSERTIONS = {0: Assertion.RECOVER, 1: Assertion.OCCUR, 2: Assertion.ONCE}
_RECOVERED = 0
_UNSUPPORTED = (UNSUPPORTED, SYMBOL_MISSING)
_RETRY_SECONDS = 5.0
"""How often the list is asked while it fails, or while no events arrive (seconds)."""


class SwitchSection(Section, frozen=True):
    """How often the list of faults of on-board switches is read."""

    audit_period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0


class SwitchCollector(Collector[SwitchSection]):
    """Reports switch faults; ``audit_period_seconds`` is that of the list."""

    name = "switch"
    settings = SwitchSection
    starts_first = True
    period_option = "audit_period_seconds"
    deadline_seconds = 15.0

    def __init__(self, section: SwitchSection, context: CollectorContext) -> None:
        super().__init__(section, context)
        self._driver = SwitchDriver(
            partial(find_library, context.paths, LINGQU), context.wall_clock
        )
        self._loop = asyncio.get_running_loop()
        # The daemon expects progress once in a period; half of it leaves room.
        self._schedule = AuditSchedule(context.progress, self.period_seconds / 2)
        self._tracker = ListTracker(self.name, context.tracked)
        self._due = self._loop.time()
        now_ms = context.wall_clock()
        self._tracker.note_changes(context.tracked, context.ended, self._due, now_ms)
        self._settled_at = self._due + LAG_SECONDS
        """When the list shows all that happened before events arrived (at a start, after a gap)."""
        self._asked_at = float("-inf")
        self._answers = AnswerTracker(self.name)
        self._has_list = True

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        if not await self._applies():
            while True:
                self.context.progress()
                await asyncio.sleep(self.period_seconds / 2)
        # Counted from here: the driver may have taken long to answer.
        self._ask_now()
        await run_together(
            {
                f"{self.name} driver": self._driver.run(),
                f"{self.name} events": self._events(),
                f"{self.name} audits": self._schedule.run(self._next, self._ask),
            }
        )

    async def _applies(self) -> bool:
        """Return whether this node has switches.

        Until its driver answers, tracked faults are blind.
        """
        context = self.context
        # Without tracked faults nothing is blind: this node may have no switches at all.
        silence = AnswerTracker(self.name, is_answering=None if context.tracked else False)

        def report_silence(reason: str) -> None:
            if reports := silence.observe_failure(reason, context.wall_clock()):
                context.report(reports)

        asking = context.driver.inventory()
        inventory = await first_answer(asking, context.progress, report_silence)
        return inventory.family == WITH_SWITCHES

    async def _events(self) -> NoReturn:
        """Report each event of the library as it arrives."""
        async for item in self._driver.events():
            if isinstance(item, DriverGap):
                self._gap(item.at_ms, item.reason)
            else:
                self._event(item)
            self._schedule.wake()
        raise AssertionError("the driver's events never end")

    def _gap(self, at_ms: int, reason: str) -> None:
        self.context.report([Gap(self.name, at_ms, reason)])
        self._ask_now()

    def _ask_now(self) -> None:
        self._due = self._loop.time()
        self._settled_at = self._due + LAG_SECONDS

    def _event(self, event: DriverSwitchEvent) -> None:
        subject, code = _key(event)
        assertion = _ASSERTIONS.get(event.assertion)
        if assertion is None or event.event_type == 0:
            text = f"event {code} on {subject} with assertion {event.assertion}"
            _log.warning("%s: not possible; the list is read", text)
            self._gap(event.seen_at_ms, f"{text}: not possible")
            return
        seen = Observation(
            source=self.name,
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
            self.context.report([seen])
            return
        # Where there is no list, none will ever show whether a recovery is right.
        is_blind = not self._answers.is_answering and self._has_list
        reports = self._tracker.apply_event(seen, at, list_is_blind=is_blind)
        if reports:
            self.context.report(reports)

    def _next(self) -> float:
        """Return when the list is due: by its period, or because of events not audited since."""
        checks = (self._tracker.next_check(), self._settled_at)
        waiting = [check for check in checks if check is not None and check > self._asked_at]
        return min([self._due, *waiting])

    async def _ask(self, queried_at: float) -> None:
        """Read the list, and apply it."""
        self._asked_at = queried_at
        again = min(self.period_seconds, _RETRY_SECONDS)
        # Set before the call: an error must not leave the list due at once, for ever.
        self._due = queried_at + again
        try:
            faults = await self._driver.faults()
        except DriverError as error:
            if isinstance(error, DriverCallError) and error.return_code in _UNSUPPORTED:
                self._has_list = False
                self._due = queried_at + self.period_seconds
            if begun := self._answers.observe_failure(str(error), self.context.wall_clock()):
                _log.warning("switch: blind: %s", error)
                self.context.report(begun)
            return
        self._has_list = True
        if self._driver.polling_reason is None:
            self._due = queried_at + self.period_seconds
        now_ms = self.context.wall_clock()
        if self._answers.is_answering is False:
            _log.info("switch: the list of faults is answered again")
        reports = self._answers.observe_answer(now_ms)
        # A full list may lack more faults, so it ends none.
        complete = len(faults) < LIST_LENGTH
        reports += self._tracker.observe_list(
            _entries(faults), queried_at, now_ms, complete=complete
        )
        if reports:
            self.context.report(reports)


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

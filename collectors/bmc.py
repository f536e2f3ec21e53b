"""Alarms of the server's BMC: whole lists, compared with the tracked state.

A list that is incomplete, inconsistent or missing changes nothing and is blindness (``noded#10``,
D-09). The device or tool for the BMC is searched each time, so one that appears later is found.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from contract.errors import BmcError, ToolError
from contract.observation import NODE, Assertion, Observation, Subject, host_subject
from contract.settings import Section
from dcmi_shim.ipmi.bmc import Ipmi
from pacing.waiting import await_with_ticks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from contract.codes.levels import Severity
    from contract.observation import Report
    from dcmi_shim.ipmi.alarms import Alarm

_log = logging.getLogger(__name__)
_MIN_CLOCK_MS = 1_577_836_800_000
"""2020-01-01: a BMC with an earlier time had not set its clock."""
_MAX_AHEAD_MS = 300_000
_MIN_PAUSE_SECONDS = 0.1
FAILED_READINGS = "failed_readings"
"""The reading of NODE that counts the lists that were missing, incomplete or inconsistent."""


class BmcSection(Section, frozen=True):
    """How the server's BMC is asked for its alarms; times in seconds."""

    enabled: bool = True
    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    deadline_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 10.0
    device: str = "/dev/ipmi0"


class BmcCollector(Collector[BmcSection]):
    """The collector of BMC alarms.

    ``deadline_seconds`` is that of one command; a reading of several pages takes six at most.
    """

    name = "bmc"
    settings = BmcSection

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        context, loop = self.context, asyncio.get_running_loop()
        ipmi = Ipmi(Path(self.section.device), context.paths, self.deadline_seconds)
        tracker = BmcTracker(self.name, context.tracked)
        before: tuple[Alarm, ...] | None = None
        failed = 0
        context.show(NODE, FAILED_READINGS, failed)
        while True:
            began, began_ms = loop.time(), context.wall_clock()
            context.progress()
            asking = ipmi.alarms(before)
            try:
                before = await await_with_ticks(asking, self.period_seconds, context.progress)
                reports = tracker.observe_alarms(before, context.wall_clock())
            except (BmcError, ToolError) as error:
                failed += 1
                context.show(NODE, FAILED_READINGS, failed)
                reports = tracker.observe_failure(str(error), began_ms)
                if reports:
                    _log.warning("%s: %s; the last known alarms stay", self.name, error)
            if reports:
                context.report(reports)
            context.progress()
            # A slow BMC gets a pause all the same, or it would have no time for others.
            remaining_seconds = began + self.period_seconds - loop.time()
            await asyncio.sleep(max(remaining_seconds, _MIN_PAUSE_SECONDS))


class BmcTracker:
    """The tracked state of the BMC's list, and what readings of it change. Pure."""

    def __init__(self, source: str, tracked: Mapping[tuple[Subject, str], int]) -> None:
        self._source = source
        self._present: dict[tuple[Subject, str], int | None] = dict.fromkeys(tracked)
        self._answers = AnswerTracker(source)
        self._has_a_list = False

    def observe_alarms(self, alarms: tuple[Alarm, ...], now_ms: int) -> list[Report]:
        """Apply the complete list of active alarms; return what changed."""
        reports = self._answers.observe_answer(now_ms)
        alarms_by_key = {
            (host_subject(alarm.device, alarm.index), alarm.code): alarm for alarm in alarms
        }
        # The order in which the process before this one reported its codes is not known.
        anew = (
            alarms_by_key.keys() ^ self._present.keys()
            if self._has_a_list
            else alarms_by_key.keys()
        )
        self._has_a_list = True
        changed = {subject for subject, _ in anew}
        reports += self._changed_alarms(alarms_by_key, changed, now_ms)
        for key in sorted(self._present.keys() - alarms_by_key.keys()):
            raised_at_ms = self._present.pop(key)
            reports.append(self._observation(key, Assertion.ABSENT, now_ms, raised_at_ms))
        return reports

    def observe_failure(self, reason: str, since_ms: int) -> list[Report]:
        """Apply that there is no reading since ``since_ms``: the tracked state stays."""
        return self._answers.observe_failure(reason, since_ms)

    def _changed_alarms(
        self,
        alarms_by_key: Mapping[tuple[Subject, str], Alarm],
        changed: Collection[Subject],
        now_ms: int,
    ) -> Iterator[Observation]:
        """Yield the alarms of changed parts, also those that stayed: their order is new.

        The document lists the codes of a part as the BMC did at its last change or at the start of
        the agent; another order alone is not a change (``docs/spec/noded.md#2.3``, 2.5).
        """
        for place, (key, alarm) in enumerate(alarms_by_key.items()):
            if key[0] not in changed:
                continue
            if key not in self._present:
                self._present[key] = plausible_ms(alarm.raised_at_seconds, now_ms)
            yield self._observation(
                key, Assertion.PRESENT, now_ms, self._present[key], alarm.severity, place
            )

    def _observation(
        self,
        key: tuple[Subject, str],
        assertion: Assertion,
        now_ms: int,
        raised_at_ms: int | None,
        severity: Severity | None = None,
        place: int | None = None,
    ) -> Observation:
        subject, code = key
        return Observation(
            source=self._source,
            subject=subject,
            code=code,
            assertion=assertion,
            seen_at_ms=now_ms,
            severity=severity,
            driver_raised_at_ms=raised_at_ms,
            serial=place,
        )


def plausible_ms(raised_at_seconds: int, now_ms: int) -> int | None:
    """Return the BMC's time of an alarm in milliseconds, unless its clock is evidently wrong."""
    raised_at_ms = raised_at_seconds * 1000
    return raised_at_ms if _MIN_CLOCK_MS <= raised_at_ms <= now_ms + _MAX_AHEAD_MS else None

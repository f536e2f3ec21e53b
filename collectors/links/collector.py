"""Network links: what ``hccn_tool`` reports of them, chip by chip.

Each chip is asked at start, then once per period, staggered, and 2 s after the driver reported
anything about a network code of it. A tool that gives no usable answer is blindness, never a link
that is down (upstream treats it as one, ``docs/spec/device-plugin.md#2.6``).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NoReturn

from pydantic import Field

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.chip_faults.collector import ChipFaultsCollector
from collectors.links.readings import SLOW_ROUND, Readings
from collectors.links.tracker import LinkTracker
from collectors.links.unified_bus import UnifiedBus
from collectors.report_batch import ReportBatch
from contract.codes.chip_codes import (
    LINK_DOWN,
    UB_PORT_DOWN,
    UBOE_PORT_DOWN,
    UBOE_PRE_SEPARATE,
    UBOE_SUB_HEALTH,
    is_network,
)
from contract.codes.families import FAMILIES
from contract.errors import ToolError, ToolMissing, ToolSilent
from contract.observation import Assertion, Gap, Observation, SourceBlind, chip_subject
from contract.settings import Section
from dcmi_shim.hccn.tool import A5_PORT_ENABLED, A5_PORTS, LINK, HccnTool
from pacing.waiting import is_set_within, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collectors.base import CollectorContext
    from contract.observation import Report, Subject
    from dcmi_shim.hccn.tables import A5Port
    from dcmi_shim.values import Chip, Inventory

LINK_UP = "link_up"
"""The reading that is 1 while the tool finds the link of a chip up, 0 while down."""

_log = logging.getLogger(__name__)
_A5 = "Ascend910A5"
_UBOE_BOARDS = frozenset({0x23, 0x25, 0x27})
"""Main boards of an A5 that use its UBoE ports.

Elsewhere the tool's answer about these ports does not count; an event of the driver counts on all
(``docs/spec/device-plugin.md#0``).
"""
_UBOE_DERIVED = (UBOE_SUB_HEALTH, UBOE_PRE_SEPARATE)
_SLOW_ROUND_SECONDS = 300.0
_PROGRESS_SECONDS = 1.0
# Timers may fire early by the resolution of their clock; a deadline this near counts as due.
_DUE_SECONDS = 0.001
_NEVER = float("inf")
_RETRY_SECONDS = 10.0
_FIRST_DEADLINE_SECONDS = 4.0
"""For the first question about a chip: while it hangs, nothing is known of the other links."""


@dataclass
class _Link:
    """One chip: its tracked state, and when it is asked next (loop time)."""

    chip: Chip
    tracker: LinkTracker
    due: float
    slow_due: float
    retry_at: float = _NEVER
    """When it is asked once more because the tool failed quickly, as a busy one does."""
    shown: dict[Readings, set[str]] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return chip_subject(self.chip.physical_id)

    @property
    def check(self) -> float:
        """When it is asked because of an event."""
        return _NEVER if self.tracker.check_at is None else self.tracker.check_at

    @property
    def next(self) -> float:
        return min(self.due, self.check, self.retry_at)


class LinksSection(Section):
    """How often the tool is asked about network links; times in seconds."""

    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=600)


class LinksCollector(Collector[LinksSection]):
    """Reports network links that are down.

    ``deadline_seconds`` is that of one run of the tool; after a missed one the other chips are
    asked all the same. With ``npu_exporter_names`` it also asks, every 5 minutes, for the readings
    of these metrics. With ``hccn_error`` ``"down"`` a tool that fails means a link that is down, as
    upstream.
    """

    name = "links"
    settings = LinksSection
    about_chips = True
    gauges: ClassVar[Mapping[str, str]] = {
        LINK_UP: "Whether hccn_tool finds the link of a chip up."
    }

    async def run(self, context: CollectorContext) -> NoReturn:
        """Report until cancelled."""
        watch = LinksRun(self, context)
        context.listen(watch.observe)
        await watch.begin()
        while True:
            await watch.step()


class LinksRun:
    """One run of the collector."""

    def __init__(self, collector: LinksCollector, context: CollectorContext) -> None:
        self._source = collector.name
        self._period_seconds = collector.period_seconds
        self._deadline = collector.deadline_seconds
        self._telemetry = collector.options.npu_exporter_names
        self._failure_is_down = collector.options.hccn_error == "down"
        self._context = context
        self._tool = HccnTool(context.paths)
        self._loop = asyncio.get_running_loop()
        self._family = ""
        self._links: dict[int, _Link] = {}
        self._tracked: dict[Subject, set[str]] = {}
        for subject, code in context.tracked:
            self._tracked.setdefault(subject, set()).add(code)
        self._has_plane = True
        self._reported: set[int] = {
            subject.id for subject, code in context.tracked if code in _UBOE_DERIVED
        }
        """Chips of an A5 whose driver reports a UBoE port down."""
        self._bus = UnifiedBus(self._source, context.tracked)
        self._logged_missing: set[Subject] = set()
        self._changed = asyncio.Event()
        self._gap = False
        self._tool_answers = AnswerTracker(self._source)
        """Whether there is a tool: one that is missing is reported about the node."""
        self._trouble: str | None = None
        self._batch = ReportBatch(context.report)

    async def begin(self) -> None:
        """Wait for the chips; a link that was down and cannot be asked about is blind."""

        def report_silence() -> None:
            self._context.progress()
            self._log_missing("the driver has not answered since the start")

        asking = self._context.driver.inventory()
        self._take_over(await result_of(asking, _PROGRESS_SECONDS, report_silence))
        if self._links:
            self._log_missing("the driver does not show this chip")

    def _log_missing(self, reason: str) -> None:
        missing = sorted(self._tracked.keys() - self._logged_missing)
        self._logged_missing.update(missing)
        now_ms = self._context.wall_clock()
        self._batch.add(SourceBlind(self._source, chip, now_ms, reason) for chip in missing)

    def _take_over(self, inventory: Inventory) -> None:
        """Watch chips that were not watched yet, and follow their ids.

        A new one is asked at once, and from then on in its own part of the period.
        """
        family = FAMILIES.get(inventory.family)
        if family is None or not family.has_network:
            return
        self._family = family.name
        self._has_plane = family.name != _A5 or inventory.main_board in _UBOE_BOARDS
        now = self._loop.time()
        for place, chip in enumerate(inventory.chips, start=1):
            link = self._links.get(chip.physical_id)
            if link is not None:
                link.chip = chip
                continue
            subject = chip_subject(chip.physical_id)
            tracker = LinkTracker(self._source, subject, self._tracked.pop(subject, set()))
            share = self._period_seconds / len(inventory.chips)
            due = now - self._period_seconds + place * share
            self._links[chip.physical_id] = _Link(chip, tracker, due, now + share / 2)

    def observe(self, batch: Sequence[Report]) -> None:
        """Apply what the driver reports about networks."""
        for report in batch:
            if report.source != ChipFaultsCollector.name:
                continue
            if isinstance(report, Gap):
                self._gap = True
                self._changed.set()
            elif isinstance(report, Observation) and _is_about_links(report):
                self._record_uboe(report)
                link = self._links.get(report.subject.id)
                if link is not None:
                    self._event(link, report)
                    self._changed.set()

    def _record_uboe(self, seen: Observation) -> None:
        """Record of which chips the driver reports a UBoE port down."""
        if seen.code != UBOE_PORT_DOWN:
            return
        if seen.assertion in (Assertion.RECOVER, Assertion.ABSENT):
            self._reported.discard(seen.subject.id)
        else:
            self._reported.add(seen.subject.id)

    def _event(self, link: _Link, seen: Observation) -> None:
        link.tracker.apply_event(self._loop.time())
        if seen.code == UBOE_PORT_DOWN and seen.assertion is Assertion.RECOVER:
            self._batch.add(link.tracker.end_faults(_UBOE_DERIVED, self._context.wall_clock()))
        self._bus.observe(seen)
        self._log_bus()

    def _log_bus(self) -> None:
        if self._family == _A5:
            chips = [link.subject for link in self._links.values()]
            self._batch.add(self._bus.changes(chips, self._context.wall_clock()))

    async def step(self) -> None:
        """Ask about the link that is due most, or wait until one is due."""
        self._context.progress()
        self._changed.clear()
        if self._gap:
            self._gap = False
            self._take_over(await self._context.driver.inventory())
        wait = self._period_seconds / 2
        if self._links:
            now = self._loop.time()
            link = self._next(now)
            if link.next - now < _DUE_SECONDS:
                await self._ask(link, max(now, link.next))
                return
            wait = min(wait, link.next - now)
        await is_set_within(self._changed, wait)

    def _next(self, now: float) -> _Link:
        """Return the link to ask next; what an event made due goes before what time did."""
        links = self._links.values()
        checks = [link for link in links if link.check - now < _DUE_SECONDS]
        if checks:
            return min(checks, key=lambda link: link.check)
        return min(links, key=lambda link: link.next)

    async def _ask(self, link: _Link, asked_at: float) -> None:
        is_round = link.due - asked_at < _DUE_SECONDS
        while link.due - asked_at < _DUE_SECONDS:
            link.due += self._period_seconds
        link.tracker.record_question(asked_at)
        link.retry_at = _NEVER
        try:
            faults = await self._faults(link)
        except ToolMissing as error:
            self._lacks_tool(error)
            if self._failure_is_down:
                self._failed(link, error, asked_at)
            return
        except ToolError as error:
            self._has_tool()
            if not link.tracker.blind and not isinstance(error, ToolSilent):
                link.retry_at = asked_at + _RETRY_SECONDS
            self._failed(link, error, asked_at)
            return
        self._has_tool()
        now_ms = self._context.wall_clock()
        self._batch.add(link.tracker.observe(faults, asked_at, now_ms))
        self._bus.observe_tool(link.subject, down=UB_PORT_DOWN in link.tracker.present)
        self._log_bus()
        self._context.show(link.subject, LINK_UP, 0.0 if any(faults.values()) else 1.0)
        self._trouble = None
        if self._telemetry and is_round and link.slow_due <= asked_at and self._family != _A5:
            link.slow_due = asked_at + _SLOW_ROUND_SECONDS - self._period_seconds / 2
            await self._slow_round(link)

    async def _faults(self, link: _Link) -> Mapping[str, bool]:
        """Return whether each code that the tool can report holds. Raises ``ToolError``."""
        chip, deadline = link.chip, self._deadline
        if link.tracker.is_new:
            deadline = min(deadline, _FIRST_DEADLINE_SECONDS)
        if self._family != _A5:
            return {LINK_DOWN: not await self._tool.ask(LINK, chip.physical_id, deadline)}
        ports = await self._tool.ask_a5(A5_PORTS, chip.logic_id, deadline)
        down = [port for port in ports if not port.up]
        unified = [await self._is_wired(chip, port) for port in down if port.kind == "UB"]
        bonding = 0
        if self._has_plane or chip.physical_id in self._reported:
            bonding = sum(port.kind == "ETH" for port in down)
        return {
            UBOE_PORT_DOWN: bonding > 0,
            UBOE_SUB_HEALTH: bonding == 1,
            UBOE_PRE_SEPARATE: bonding > 1,
            UB_PORT_DOWN: any(unified),
        }

    def _all_down(self) -> tuple[str, ...]:
        """Return what upstream assumes from a tool that fails: nothing about an A5's UB ports."""
        if self._family != _A5:
            return (LINK_DOWN,)
        return (UBOE_PORT_DOWN, UBOE_PRE_SEPARATE) if self._has_plane else ()

    async def _is_wired(self, chip: Chip, port: A5Port) -> bool:
        """Return whether a port that is down should be up.

        Also ``True`` if the tool does not answer.
        """
        place = (port.udie, port.port)
        try:
            return await self._tool.ask_a5(
                A5_PORT_ENABLED, chip.logic_id, self._deadline, port=place
            )
        except ToolSilent:
            raise
        except ToolError:
            return True

    async def _slow_round(self, link: _Link) -> None:
        """Read and show slow readings; after a missed deadline the rest is removed."""
        silent = False
        for readings in SLOW_ROUND:
            values: Mapping[str, float] = {}
            if not silent:
                try:
                    chip = link.chip.physical_id
                    answer = await self._tool.ask(readings.question, chip, self._deadline)
                    values = readings.named(answer)
                except ToolError as error:
                    silent = isinstance(error, ToolSilent)
            self._show(link, readings, values)

    def _show(self, link: _Link, readings: Readings, values: Mapping[str, float]) -> None:
        for name in link.shown.get(readings, set()) - values.keys():
            self._context.show(link.subject, name, None)
        for name, value in values.items():
            self._context.show(link.subject, name, value)
        link.shown[readings] = set(values)

    def _failed(self, link: _Link, error: ToolError, asked_at: float) -> None:
        down = self._all_down() if self._failure_is_down else ()
        what = "the last known state of the link stays"
        if down:
            what = 'the link counts as down, by compatibility.hccn_error = "down"'
        now_ms = self._context.wall_clock()
        reports = link.tracker.observe_failure(str(error), now_ms, down, asked_at)
        if reports and str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("%s: %s; %s", self._source, error, what)
        self._hide(link)
        self._batch.add(reports)

    def _hide(self, link: _Link) -> None:
        """Show no reading of a link that could not be asked about."""
        self._context.show(link.subject, LINK_UP, None)
        for readings in link.shown:
            self._show(link, readings, {})

    def _lacks_tool(self, error: ToolMissing) -> None:
        """Report a missing tool once, about the node, and not about every chip."""
        if begun := self._tool_answers.observe_failure(str(error), self._context.wall_clock()):
            _log.warning("%s: %s; the last known state of links stays", self._source, error)
            self._batch.add(begun)
            for link in self._links.values():
                self._hide(link)

    def _has_tool(self) -> None:
        self._batch.add(self._tool_answers.observe_answer(self._context.wall_clock()))


def _is_about_links(seen: Observation) -> bool:
    codes = (UBOE_PORT_DOWN, UB_PORT_DOWN)
    return seen.subject.kind == "chip" and (is_network(seen.code) or seen.code in codes)

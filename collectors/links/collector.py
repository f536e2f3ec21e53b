"""Network links: what ``hccn_tool`` reports of them, chip by chip.

Each chip is asked at start, then once per period, staggered, and 2 s after the driver reported
anything about a network code of it. A tool that gives no usable answer is blindness, never a link
that is down (upstream treats it as one, ``docs/spec/device-plugin.md#2.6``).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn

from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from collectors.audits import NEVER, AuditSchedule, UnwatchedChips, first_answer
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
from contract.observation import Assertion, Gap, Observation, chip_subject
from contract.settings import Section
from dcmi_shim.hccn.tool import A5_PORT_ENABLED, A5_PORTS, LINK, HccnTool

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
    retry_at: float = NEVER
    """When it is asked once more because the tool failed quickly, as a busy one does."""
    shown: dict[Readings, set[str]] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return chip_subject(self.chip.physical_id)

    @property
    def check(self) -> float:
        """When it is asked because of an event."""
        return NEVER if self.tracker.check_at is None else self.tracker.check_at

    @property
    def next(self) -> float:
        return min(self.due, self.check, self.retry_at)


async def check_once(
    tool: HccnTool, family: str, chip: Chip, deadline_seconds: float, *, counts_uboe: bool
) -> Mapping[str, bool]:
    """Return whether each code that the tool can report about ``chip`` holds.

    ``counts_uboe``: whether the answer about the UBoE ports of an A5 counts. ``deadline_seconds``
    is that of one run of the tool. Raises ``ToolError``.
    """
    if family != _A5:
        return {LINK_DOWN: not await tool.query(LINK, chip.physical_id, deadline_seconds)}
    ports = await tool.query_a5(A5_PORTS, chip.logic_id, deadline_seconds)
    down = [port for port in ports if not port.up]
    unified = [
        await _is_wired(tool, chip, port, deadline_seconds) for port in down if port.kind == "UB"
    ]
    bonding = sum(port.kind == "ETH" for port in down) if counts_uboe else 0
    return {
        UBOE_PORT_DOWN: bonding > 0,
        UBOE_SUB_HEALTH: bonding == 1,
        UBOE_PRE_SEPARATE: bonding > 1,
        UB_PORT_DOWN: any(unified),
    }


async def _is_wired(tool: HccnTool, chip: Chip, port: A5Port, deadline_seconds: float) -> bool:
    """Return whether a port that is down should be up; also ``True`` without a usable answer."""
    place = (port.udie, port.port)
    try:
        # A query that fails counts as enabled, as upstream (device-plugin#2.6).
        return await tool.query_a5(A5_PORT_ENABLED, chip.logic_id, deadline_seconds, port=place)
    except ToolSilent:
        raise
    except ToolError:
        return True


def counts_uboe(inventory: Inventory) -> bool:
    """Return whether the main board of an A5 uses its UBoE ports; ``True`` for other chips."""
    return inventory.family != _A5 or inventory.main_board in _UBOE_BOARDS


class LinksSection(Section, frozen=True):
    """How often the tool is asked about network links; times in seconds."""

    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    deadline_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 10.0


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
    starts_first = True
    gauges: ClassVar[Mapping[str, str]] = {
        LINK_UP: "Whether hccn_tool finds the link of a chip up."
    }

    def __init__(self, section: LinksSection, context: CollectorContext) -> None:
        super().__init__(section, context)
        self._telemetry = context.options.npu_exporter_names
        self._failure_is_down = context.options.hccn_error == "down"
        self._tool = HccnTool(context.paths)
        self._loop = asyncio.get_running_loop()
        self._family = ""
        self._links: dict[int, _Link] = {}
        self._unwatched = UnwatchedChips(self.name, context.tracked)
        self._has_plane = True
        self._reported: set[int] = {
            subject.id for subject, code in context.tracked if code in _UBOE_DERIVED
        }
        """Chips of an A5 whose driver reports a UBoE port down."""
        self._bus = UnifiedBus(self.name, context.tracked)
        self._schedule = AuditSchedule(context.progress, self.period_seconds / 2)
        self._gap = False
        self._tool_answers = AnswerTracker(self.name)
        """Whether there is a tool: one that is missing is reported about the node."""
        self._trouble: str | None = None
        self._batch = ReportBatch(context.report)

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        # Before the driver's answer: an event that comes meanwhile must not be lost.
        self.context.listen(self._observe)
        asking = self.context.driver.inventory()
        self._take_over(await first_answer(asking, self.context.progress, self._report_blind))
        if self._links:
            self._report_blind("the driver does not show this chip")
        await self._schedule.run(self._next_due, self._audit)

    def _report_blind(self, reason: str) -> None:
        """Report the chips that are not watched: their links cannot be queried."""
        self._batch.add(self._unwatched.report_blind(reason, self.context.wall_clock()))

    def _take_over(self, inventory: Inventory) -> None:
        """Watch chips that were not watched yet, and follow their ids.

        A new one is asked at once, and from then on in its own part of the period.
        """
        family = FAMILIES.get(inventory.family)
        if family is None or not family.has_network:
            return
        self._family = family.name
        self._has_plane = counts_uboe(inventory)
        now = self._loop.time()
        for place, chip in enumerate(inventory.chips, start=1):
            link = self._links.get(chip.physical_id)
            if link is not None:
                link.chip = chip
                continue
            subject = chip_subject(chip.physical_id)
            tracker = LinkTracker(self.name, subject, self._unwatched.take(subject))
            share = self.period_seconds / len(inventory.chips)
            # In the past: each chip is due at once, and later at its own place in the period.
            due = now - self.period_seconds + place * share
            self._links[chip.physical_id] = _Link(chip, tracker, due, now + share / 2)

    def _observe(self, batch: Sequence[Report]) -> None:
        """Apply what the driver reports about networks."""
        for report in batch:
            if report.source != ChipFaultsCollector.name:
                continue
            # The driver may have lost an event about a link, and chips may be others than before.
            if isinstance(report, Gap):
                self._gap = True
                self._schedule.wake()
            elif isinstance(report, Observation) and _is_about_links(report):
                self._record_uboe(report)
                link = self._links.get(report.subject.id)
                if link is not None:
                    self._event(link, report)
                    self._schedule.wake()

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
            # As upstream, the recovery of the port removes all codes of its set
            # (device-plugin#2.4).
            self._batch.add(link.tracker.end_faults(_UBOE_DERIVED, self.context.wall_clock()))
        self._bus.observe_driver(seen)
        self._log_bus()

    def _log_bus(self) -> None:
        if self._family == _A5:
            chips = [link.subject for link in self._links.values()]
            self._batch.add(self._bus.changes(chips, self.context.wall_clock()))

    def _next_due(self) -> float:
        """Return when the next link is due; a gap makes the chips due at once."""
        now = self._loop.time()
        if self._gap:
            return now
        return self._next().next if self._links else NEVER

    async def _audit(self, queried_at: float) -> None:
        """Query the link that is due most; after a gap, the driver for its chips before."""
        if self._gap:
            self._gap = False
            self._take_over(await self.context.driver.inventory())
        else:
            await self._ask(self._next(), queried_at)

    def _next(self) -> _Link:
        """Return the link to query next; what an event made due goes before what time did."""
        links = self._links.values()
        checks = [link for link in links if self._schedule.is_due(link.check)]
        if checks:
            return min(checks, key=lambda link: link.check)
        return min(links, key=lambda link: link.next)

    async def _ask(self, link: _Link, queried_at: float) -> None:
        is_round = self._schedule.is_due(link.due)
        # By whole periods: a late question must not move the link out of its own part of them.
        while self._schedule.is_due(link.due):
            link.due += self.period_seconds
        link.tracker.record_question(queried_at)
        link.retry_at = NEVER
        try:
            faults = await self._faults(link)
        except ToolMissing as error:
            self._lacks_tool(error)
            if self._failure_is_down:
                self._failed(link, error, queried_at)
            return
        except ToolError as error:
            self._has_tool()
            # A busy tool fails quickly and answers soon; one that hangs would block others again.
            if not link.tracker.blind and not isinstance(error, ToolSilent):
                link.retry_at = queried_at + _RETRY_SECONDS
            self._failed(link, error, queried_at)
            return
        self._has_tool()
        now_ms = self.context.wall_clock()
        self._batch.add(link.tracker.observe_link_faults(faults, queried_at, now_ms))
        self._bus.observe_tool(link.subject, down=UB_PORT_DOWN in link.tracker.present)
        self._log_bus()
        self.context.show(link.subject, LINK_UP, 0.0 if any(faults.values()) else 1.0)
        # The next failure is news again, even with the text of the last one.
        self._trouble = None
        if self._telemetry and is_round and link.slow_due <= queried_at and self._family != _A5:
            # Half a period early: this round may be late, and the one 5 min later in time.
            link.slow_due = queried_at + _SLOW_ROUND_SECONDS - self.period_seconds / 2
            await self._slow_round(link)

    async def _faults(self, link: _Link) -> Mapping[str, bool]:
        """Return whether each code that the tool can report holds. Raises ``ToolError``."""
        deadline = self.deadline_seconds
        if link.tracker.is_new:
            deadline = min(deadline, _FIRST_DEADLINE_SECONDS)
        has_plane = self._has_plane or link.chip.physical_id in self._reported
        return await check_once(
            self._tool, self._family, link.chip, deadline, counts_uboe=has_plane
        )

    def _all_down(self) -> tuple[str, ...]:
        """Return what upstream assumes from a tool that fails: nothing about an A5's UB ports."""
        if self._family != _A5:
            return (LINK_DOWN,)
        return (UBOE_PORT_DOWN, UBOE_PRE_SEPARATE) if self._has_plane else ()

    async def _slow_round(self, link: _Link) -> None:
        """Read and show slow readings; after a missed deadline the rest is removed."""
        silent = False
        for readings in SLOW_ROUND:
            values: Mapping[str, float] = {}
            if not silent:
                try:
                    chip = link.chip.physical_id
                    answer = await self._tool.query(readings.question, chip, self.deadline_seconds)
                    values = readings.named(answer)
                except ToolError as error:
                    # A tool that hangs would hang again for each of the other readings.
                    silent = isinstance(error, ToolSilent)
            self._show(link, readings, values)

    def _show(self, link: _Link, readings: Readings, values: Mapping[str, float]) -> None:
        for name in link.shown.get(readings, set()) - values.keys():
            self.context.show(link.subject, name, None)
        for name, value in values.items():
            self.context.show(link.subject, name, value)
        link.shown[readings] = set(values)

    def _failed(self, link: _Link, error: ToolError, queried_at: float) -> None:
        down = self._all_down() if self._failure_is_down else ()
        text = "the last known state of the link stays"
        if down:
            text = 'the link counts as down, by compatibility.hccn_error = "down"'
        now_ms = self.context.wall_clock()
        reports = link.tracker.observe_failure(str(error), now_ms, down, queried_at)
        if reports and str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("%s: %s; %s", self.name, error, text)
        self._hide(link)
        self._batch.add(reports)

    def _hide(self, link: _Link) -> None:
        """Show no reading of a link that could not be asked about."""
        self.context.show(link.subject, LINK_UP, None)
        for readings in link.shown:
            self._show(link, readings, {})

    def _lacks_tool(self, error: ToolMissing) -> None:
        """Report a missing tool once, about the node, and not about every chip."""
        if begun := self._tool_answers.observe_failure(str(error), self.context.wall_clock()):
            _log.warning("%s: %s; the last known state of links stays", self.name, error)
            self._batch.add(begun)
            for link in self._links.values():
                self._hide(link)

    def _has_tool(self) -> None:
        self._batch.add(self._tool_answers.observe_answer(self.context.wall_clock()))


def _is_about_links(seen: Observation) -> bool:
    codes = (UBOE_PORT_DOWN, UB_PORT_DOWN)
    return seen.subject.kind == "chip" and (is_network(seen.code) or seen.code in codes)

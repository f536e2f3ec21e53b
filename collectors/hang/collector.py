"""Hang detection: chips whose processes do nothing for minutes (``docs/spec/device-plugin.md#4``).

Every period one message asks all chips for their processes, and only a chip that has some is asked
for more. The answers are judged in ``tracker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collectors.audits import PROGRESS_SECONDS, UnwatchedChips
from collectors.base import Collector
from collectors.hang.tracker import Figures, HangSection, HangTracker
from contract.codes.chip_codes import HANG
from contract.codes.families import FAMILIES
from contract.errors import (
    DriverCallError,
    DriverError,
    DriverGone,
    ToolError,
    ToolInvalidOutput,
    ToolSilent,
)
from contract.observation import Assertion, Observation, chip_subject
from dcmi_shim.hccn.tool import A5_COUNTERS, A5_PORTS, COUNTERS, HccnTool
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED
from dcmi_shim.values import Utilization
from pacing.waiting import await_with_ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from collectors.base import CollectorContext
    from contract.observation import Report
    from dcmi_shim.values import Chip

_FIRST_SECONDS = 10.0
_PACKETS = ("roce_tx_all_pkt_num", "roce_rx_all_pkt_num")
_FLITS = ("tx_busi_flit_num", "rx_busi_flit_num")
_A5 = "Ascend910A5"
_UNSUPPORTED = (UNSUPPORTED, SYMBOL_MISSING)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class HangCollector(Collector[HangSection]):
    """Detects hanging chips.

    Not ``enabled``: nothing is asked, and faults of an earlier run end. ``deadline_seconds`` is
    that of one run of ``hccn_tool``.
    """

    name = "hang"
    settings = HangSection
    about_chips = True

    def __init__(self, section: HangSection, context: CollectorContext) -> None:
        super().__init__(section, context)
        self._driver = context.driver
        self._tool = HccnTool(context.paths)
        hung = [(subject, code) for subject, code in context.tracked if code == HANG]
        self._unwatched = UnwatchedChips(self.name, hung)
        self._chips: dict[int, HangTracker] = {}
        self._without: set[int] = set()
        self._has_network = True
        self._is_a5 = False
        self._tool_is_silent = False

    @classmethod
    def is_enabled(cls, *_: object) -> bool:
        """Return ``True``: also without detection, faults of an earlier run must end."""
        return True

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        if not self.section.enabled:
            self._end_faults()
        pause = min(_FIRST_SECONDS, self.period_seconds)
        loop = asyncio.get_running_loop()
        while True:
            self.context.progress()
            await asyncio.sleep(pause)
            began = loop.time()
            if self.section.enabled:
                await self._round()
            pause = max(0.0, began + self.period_seconds - loop.time())

    def _end_faults(self) -> None:
        """End all reported hangs, because detection is off."""
        now_ms = self.context.wall_clock()
        gone = [
            # A recovery and not an absence: hangs are reported as events, which no list ends.
            Observation(self.name, chip, HANG, Assertion.RECOVER, now_ms)
            for chip in self._unwatched.subjects()
        ]
        if gone:
            self.context.report(gone)

    async def _round(self) -> None:
        """Ask all chips for their processes at once, and those with processes one by one."""
        self.context.progress()
        asking = self._driver.inventory()
        inventory = await await_with_ticks(asking, PROGRESS_SECONDS, self.context.progress)
        family = FAMILIES.get(inventory.family)
        self._has_network = family is not None and family.has_network
        self._is_a5 = inventory.family == _A5
        # Once a round: a tool that hangs for one chip hangs for the others, too.
        self._tool_is_silent = False
        asked = [chip for chip in inventory.chips if chip.physical_id not in self._without]
        lists = await self._process_lists(asked)
        for chip in inventory.chips:
            tracker = self._tracker(chip)
            if chip.physical_id not in self._without:
                self._report(await self._ask(chip, tracker, lists.get(chip)))
            self.context.progress()
        not_shown = "the driver does not show this chip"
        self._report(self._unwatched.report_blind(not_shown, self.context.wall_clock()))

    async def _process_lists(
        self, chips: Sequence[Chip]
    ) -> Mapping[Chip, tuple[int, ...] | DriverError]:
        """Return the processes of ``chips``, or the error, as far as one message has them."""
        # Without a process of the driver, each call has the reason by itself.
        with contextlib.suppress(DriverGone):
            return await self._driver.process_lists(chips)
        return {}

    def _tracker(self, chip: Chip) -> HangTracker:
        tracker = self._chips.get(chip.physical_id)
        if tracker is None:
            subject = chip_subject(chip.physical_id)
            tracker = HangTracker(
                self.name,
                subject,
                self.section,
                hung=bool(self._unwatched.take(subject)),
                blind=self._unwatched.is_blind(subject),
            )
            self._chips[chip.physical_id] = tracker
        return tracker

    async def _ask(
        self, chip: Chip, tracker: HangTracker, listed: tuple[int, ...] | DriverError | None
    ) -> list[Report]:
        try:
            if isinstance(listed, DriverError):
                raise listed
            # Those of a chip in use again, just before its figures: a round takes seconds, and a
            # process that has ended meanwhile has no figures.
            processes = frozenset(() if listed == () else await self._driver.processes(chip))
        except DriverError as error:
            if isinstance(error, DriverCallError) and error.return_code in _UNSUPPORTED:
                # A driver without this call has no hang detection; that is not blindness.
                self._without.add(chip.physical_id)
                if not tracker.hung:
                    return []
            return tracker.observe_failure(str(error), self.context.wall_clock())
        if not processes:
            return tracker.observe_idle(self.context.wall_clock())
        troubles: list[str] = []
        figures = Figures(
            aicore=await self._utilization(chip, Utilization.AI_CORE, troubles),
            hbm=await self._utilization(chip, Utilization.HBM, troubles),
            traffic=await self._traffic(chip, troubles),
            cpu_seconds=_cpu_seconds(processes, troubles),
        )
        now_ms = self.context.wall_clock()
        return tracker.observe_figures(processes, figures, "; ".join(troubles), now_ms)

    async def _utilization(self, chip: Chip, kind: Utilization, troubles: list[str]) -> int | None:
        try:
            return await self._driver.utilization(chip, kind)
        except DriverCallError as error:
            if kind is Utilization.HBM and error.return_code in _UNSUPPORTED:
                return 0  # a chip without such memory: there is nothing that could move
            troubles.append(str(error))
        except DriverError as error:
            troubles.append(str(error))
        return None

    async def _traffic(self, chip: Chip, troubles: list[str]) -> int | None:
        """Return packets in both directions (A5: flits of UB ports).

        Without a network there are none.
        """
        if not self._has_network:
            return 0
        if self._tool_is_silent:
            troubles.append("hccn_tool hung in this round")
            return None
        try:
            return await (self._flits(chip) if self._is_a5 else self._packets(chip))
        except ToolError as error:
            # It would hang for the other chips, too, and the round would never end.
            self._tool_is_silent = isinstance(error, ToolSilent)
            troubles.append(str(error))
            return None

    async def _packets(self, chip: Chip) -> int:
        counters = await self._tool.query(COUNTERS, chip.physical_id, self.deadline_seconds)
        return _sum(counters, _PACKETS)

    async def _flits(self, chip: Chip) -> int:
        total = 0
        for port in await self._tool.query_a5(A5_PORTS, chip.logic_id, self.deadline_seconds):
            if port.kind == "UB":
                place = (port.udie, port.port)
                counters = await self._tool.query_a5(
                    A5_COUNTERS, chip.logic_id, self.deadline_seconds, port=place
                )
                total += _sum(counters, _FLITS)
        return total

    def _report(self, reports: Iterable[Report]) -> None:
        batch = list(reports)
        if batch:
            self.context.report(batch)


def _sum(counters: Mapping[str, int], names: tuple[str, ...]) -> int:
    missing = [name for name in names if name not in counters]
    if missing:
        raise ToolInvalidOutput(f"hccn_tool has no counter {', '.join(missing)}", "")
    return sum(counters[name] for name in names)


def _cpu_seconds(processes: frozenset[int], troubles: list[str]) -> int | None:
    """Return the CPU time of ``processes``, each in whole seconds as upstream has it."""
    try:
        return sum(map(_seconds_of, sorted(processes)))
    except (OSError, ValueError, IndexError) as error:
        troubles.append(f"CPU time: {error}; the agent must see the processes of the host")
        return None


def _seconds_of(process: int) -> int:
    # The name of the program, in parentheses, may hold blanks and parentheses (proc(5)).
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system = int(after_name[11]), int(after_name[12])
    return (user + system) // _TICKS_PER_SECOND

"""A driver for virtual time: lists that lag behind events, calls that fail on demand."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from contract.codes.chip_codes import format_code
from contract.codes.levels import Severity
from contract.errors import DriverCallError, DriverCallStuck, DriverError, DriverGone
from contract.observation import HealthRead, Observation, SourceAnswered, SourceBlind, chip_subject
from dcmi_shim.values import Chip, DriverEvent, DriverGap, Inventory, StuckCall
from tests.parts.collector_context import SavedInMemory, collector_context
from tests.parts.deadlines import stand_in_waits
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from collectors.base import Collector, CollectorContext, Sink
    from contract.observation import Report, Subject
    from dcmi_shim.values import Utilization

T = TypeVar("T")

STUCK = DriverCallStuck("dcmi_get_device_health", None, 0)
GONE = DriverGone("the driver process was ended by SIGSEGV")
DROPPED = DriverCallError("dcmi_get_device_health", None, -8012, "not ready")
UNSUPPORTED = DriverCallError("dcmi_get_device_health", None, -8255, "not supported")
REFUSED = DriverCallError("dcmi_get_device_errorcode_v2", None, -8009, "ioctl failed")


def virtual_ms() -> int:
    """Return the wall-clock time that follows virtual time (ms)."""
    return 1_000_000 + round(asyncio.get_running_loop().time() * 1000)


async def ask_each(
    chips: Sequence[Chip], ask: Callable[[Chip], Awaitable[T]]
) -> dict[Chip, T | DriverError]:
    """Return the answer or error of those of ``chips`` that are asked within 0.1 s."""
    answers: dict[Chip, T | DriverError] = {}
    end = asyncio.get_running_loop().time() + 0.1
    for chip in chips:
        if asyncio.get_running_loop().time() > end:
            break
        try:
            answers[chip] = await ask(chip)
        except DriverGone:
            raise
        except DriverError as error:
            answers[chip] = error
    return answers


class ScriptedDriver:
    """A ``ChipDriver`` that a test turns. Occurrences are listed 50 ms late, recoveries 300 ms."""

    def __init__(self, chips: int = 2) -> None:
        self.chips = [Chip(number, number, number, 0) for number in range(chips)]
        self.family = "Ascend910B"
        self.polling_reason: str | None = None
        self.ready = asyncio.Event()
        self.ready.set()
        self.in_place = True
        self.trouble: dict[tuple[str, int], DriverError] = {}
        self.slow_seconds: dict[tuple[str, int], float] = {}
        self.healthless: set[int] = set()
        self.words: dict[int, int] = {}
        self.network: dict[int, int] = {}
        self.users: dict[int, tuple[int, ...]] = {}
        self.percent: dict[tuple[Utilization, int], int] = {}
        self.asked: list[tuple[float, str, int]] = []
        self.lists: dict[int, dict[int, float]] = {number: {} for number in range(chips)}
        self.ends: dict[int, dict[int, float]] = {number: {} for number in range(chips)}
        self.queue: asyncio.Queue[DriverEvent | DriverGap] = asyncio.Queue()
        self.serial = 0

    @property
    def found(self) -> Inventory | None:
        if not self.ready.is_set():
            return None
        return Inventory(tuple(self.chips), self.family, "910B3", 0x32, None, None, "scripted")

    async def inventory(self) -> Inventory:
        await self.ready.wait()
        assert self.found is not None
        return self.found

    async def listed(self) -> tuple[Chip, ...]:
        await self.ready.wait()
        return tuple(self.chips)

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        await self._ask("codes", chip)
        now = asyncio.get_running_loop().time()
        ends = self.ends[chip.logic_id]
        return tuple(
            code
            for code, since in self.lists[chip.logic_id].items()
            if since <= now and ends.get(code, now + 1) > now
        )

    async def code_lists(self, chips: Sequence[Chip]) -> dict[Chip, tuple[int, ...] | DriverError]:
        return await ask_each(chips, self.error_codes)

    async def health_words(self, chips: Sequence[Chip]) -> dict[Chip, int | DriverError | None]:
        return await ask_each(chips, self.health)

    async def health(self, chip: Chip) -> int | None:
        await self._ask("health", chip)
        return None if chip.logic_id in self.healthless else self.words.get(chip.logic_id, 0)

    async def network_health(self, chip: Chip) -> int:
        await self._ask("network", chip)
        return self.network.get(chip.logic_id, 0)

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        await self._ask("processes", chip)
        return self.users.get(chip.logic_id, ())

    async def process_lists(
        self, chips: Sequence[Chip]
    ) -> dict[Chip, tuple[int, ...] | DriverError]:
        return await ask_each(chips, self.processes)

    async def utilization(self, chip: Chip, kind: Utilization) -> int:
        await self._ask(kind.name, chip)
        return self.percent.get((kind, chip.logic_id), 0)

    async def _ask(self, query: str, chip: Chip) -> None:
        self.asked.append((asyncio.get_running_loop().time(), query, chip.logic_id))
        await stand_in_waits(self.slow_seconds.get((query, chip.logic_id), 0.001))
        trouble = self.trouble.get((query, chip.logic_id))
        if trouble is not None:
            raise trouble

    async def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        while True:
            yield await self.queue.get()

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        return ()

    async def is_in_place(self) -> bool:
        return self.in_place

    def occur(self, chip: int, code: int, *, push: bool = True) -> None:
        self.lists[chip][code] = asyncio.get_running_loop().time() + 0.05
        self.ends[chip].pop(code, None)
        if push:
            self.push(chip, code, 1)

    def recover(self, chip: int, code: int, *, push: bool = True) -> None:
        self.ends[chip][code] = asyncio.get_running_loop().time() + 0.3
        if push:
            self.push(chip, code, 0)

    def push(self, chip: int, code: int, assertion: int) -> None:
        self.serial += 1
        now_ms = virtual_ms()
        self.queue.put_nowait(
            DriverEvent(
                code,
                chip,
                Severity.MAJOR,
                assertion,
                now_ms,
                now_ms,
                self.serial,
                *(0, 0, 0, 0),
                name="scripted",
                information="",
            )
        )

    def gap(self, reason: str) -> None:
        self.queue.put_nowait(DriverGap(virtual_ms(), reason))


class RecordedReports:
    """Collects what a collector reports, with the time of each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[float, Sequence[Report]]] = []

    def __call__(self, batch: Sequence[Report]) -> None:
        self.batches.append((asyncio.get_running_loop().time(), batch))

    def words(self, since: float = 0.0) -> list[str]:
        """Return each report from ``since`` on in a few words."""
        return [word(item) for at, batch in self.batches if at >= since for item in batch]


def word(item: Report) -> str:
    if isinstance(item, Observation):
        return f"{item.subject} {item.assertion} {item.code}"
    if isinstance(item, SourceBlind):
        return f"{item.subject} blind: {item.reason}"
    if isinstance(item, SourceAnswered):
        return f"{item.subject} answered"
    if isinstance(item, HealthRead):
        return f"{item.subject} health {item.word} with {' '.join(item.codes) or 'no code'}"
    return f"gap: {item.reason}"


HBM = 0x80E01801
HBM_CODE = format_code(HBM)
CHIP_1 = chip_subject(1)


@contextlib.asynccontextmanager
async def beside_others(
    make: Callable[[CollectorContext], Collector[Any]],
    memory: SavedInMemory | None = None,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
) -> AsyncIterator[tuple[RecordedReports, Sink]]:
    """Run the collector; yield its reports, and the sink for other collectors' reports."""
    recorded = RecordedReports()
    listeners: list[Sink] = []

    def push(reports: Sequence[Report]) -> None:
        for listener in listeners:
            listener(reports)

    around = collector_context(
        recorded,
        virtual_ms,
        ScriptedDriver(),
        saved_state=memory,
        tracked=tracked,
        listen=listeners.append,
    )
    async with beside(make(around).run()):
        yield recorded, push

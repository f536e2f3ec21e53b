"""The writer of all options: one limit, one order, and what an error of one does to others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from aggregator.scheduler_signals.reconciler import (
    BRAKE,
    NOTHING,
    PlannedWrite,
    SignalPlan,
    Waiting,
)
from aggregator.scheduler_signals.service import why_held
from aggregator.scheduler_signals.writer import SignalWriter
from contract.errors import StoreConflict, StoreForbidden, StoreNotFound, StoreUnavailable
from tests.aggregator.scheduler_signals.leading import Lead, clock
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from contract.errors import StoreError
    from service.clock import Instant

pytestmark = pytest.mark.looptime


class Objects:
    """Objects of one option; each has a number, and is to have another one."""

    def __init__(self, name: str, *, dry_run: bool = False) -> None:
        self.name = name
        self.dry_run = dry_run
        self.wanted: dict[str, tuple[int, int]] = {}
        """Rank and number."""
        self.stored: dict[str, int] = {}
        self.strict: set[str] = set()
        self.errors: dict[str, list[StoreError]] = {}
        self.reads: list[str] = []
        self.writes: list[tuple[float, str]] = []
        self.seconds = 0.001

    def begin_leading(self) -> Iterable[str]:
        return self.wanted

    def end_leading(self) -> None:
        """Do nothing."""

    def judge(self, nodes: Iterable[str], now: Instant) -> Iterable[str]:
        return nodes

    def written(self, target: str, now: Instant) -> Iterable[str]:
        return (target,)

    def plan(self, target: str, now: Instant, held: str | None) -> SignalPlan:
        rank, number = self.wanted.get(target, (0, self.stored.get(target, 0)))
        if self.stored.get(target, 0) == number:
            return NOTHING
        if held is not None and target in self.strict:
            return SignalPlan(waiting=Waiting(BRAKE, held))

        async def send() -> None:
            await asyncio.sleep(self.seconds)
            self.writes.append((asyncio.get_running_loop().time(), target))
            if self.errors.get(target):
                raise self.errors[target].pop(0)
            self.stored[target] = number

        return SignalPlan(PlannedWrite(rank, 0, f"{target}={number}", send))

    async def read(self, target: str) -> None:
        self.reads.append(target)

    def problems(self) -> Iterable[str]:
        return ()


class Bench:
    def __init__(self, *options: Objects) -> None:
        self.lead = Lead()
        self.held: str | None = None
        self.writer = SignalWriter(options, self.lead, clock, lambda _: self.held)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def writing(*options: Objects) -> AsyncIterator[Bench]:
    bench = Bench(*options)
    async with beside(bench.writer.run()):
        yield bench


async def test_only_the_leader_writes() -> None:
    objects = Objects("conditions")
    objects.wanted = {"n1": (0, 1)}
    async with writing(objects) as bench:
        bench.writer.judge(["n1"])
        await asyncio.sleep(10)
        assert objects.writes == []
        bench.lead.leads = False
        await bench.writer.set_leading(True)
        await asyncio.sleep(10)
        assert objects.writes == []
        bench.lead.leads = True
        bench.writer.judge(["n1"])
        await asyncio.sleep(1)
        assert objects.stored == {"n1": 1}


async def test_all_options_share_20_writes_a_second_and_the_worst_is_first() -> None:
    first, second = Objects("conditions"), Objects("taints")
    first.wanted = {f"n{number}": (1, 1) for number in range(100)}
    second.wanted = {f"n{number}": (number % 2 * 2, 1) for number in range(100)}
    async with writing(first, second) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(30)
    times = sorted(at for at, _ in first.writes + second.writes)
    assert len(times) == 200
    assert all(later - earlier >= 0.999 for earlier, later in zip(times, times[20:], strict=False))
    assert times[-1] < 13.5
    best = max(at for at, name in second.writes if second.wanted[name][0] == 0)
    worst = min(at for at, name in second.writes if second.wanted[name][0] == 2)
    assert best <= min(at for at, _ in first.writes) + 0.1
    assert max(at for at, _ in first.writes) <= worst + 0.1


async def test_a_dry_run_shows_each_difference_once_and_writes_nothing() -> None:
    objects = Objects("taints", dry_run=True)
    objects.wanted = {"n1": (0, 1), "n2": (0, 1)}
    async with writing(objects) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(1)
        bench.writer.judge(["n1"])
        await asyncio.sleep(1)
        (status,) = bench.writer.statuses()
        assert status.outcomes["dry-run"] == 2
        assert status.would_write == ("n1=1", "n2=1")
        objects.wanted["n1"] = (0, 0)
        bench.writer.judge(["n1"])
        await asyncio.sleep(1)
        (status,) = bench.writer.statuses()
        assert status.would_write == ("n2=1",)
    assert objects.writes == []


async def test_at_its_end_it_logs_the_writes_that_wait_for_a_later_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    objects = Objects("taints")
    objects.wanted = {f"n{number}": (0, 1) for number in range(10)}
    async with writing(objects) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(1)
        assert len(caplog.messages) == 6
    assert caplog.messages[6].startswith("taints: 4 writes: n")


async def test_what_is_stricter_waits_for_heartbeats_and_all_else_does_not() -> None:
    objects = Objects("taints")
    objects.wanted, objects.strict = {"n1": (0, 1), "n2": (5, 1)}, {"n1"}
    async with writing(objects) as bench:
        bench.held = "heartbeats cannot be read"
        await bench.writer.set_leading(True)
        await asyncio.sleep(60)
        assert objects.stored == {"n2": 1}
        (status,) = bench.writer.statuses()
        assert [(w.target, w.reason) for w in status.waiting] == [("n1", "brake")]
        assert status.held == "heartbeats cannot be read"
        bench.held = None
        await asyncio.sleep(2)
        assert objects.stored == {"n1": 1, "n2": 1}


async def test_what_was_held_briefly_is_not_forgotten() -> None:
    objects = Objects("taints")
    objects.wanted, objects.strict = {"n1": (0, 1)}, {"n1"}
    async with writing(objects) as bench:
        await bench.writer.set_leading(True)
        objects.wanted["n1"] = (0, 0)
        await asyncio.sleep(5)
        objects.wanted["n1"] = (0, 1)
        bench.held = "heartbeats cannot be read"
        bench.writer.judge(["n1"])
        await asyncio.sleep(0.1)
        bench.held = None
        await asyncio.sleep(2)
        assert objects.stored == {"n1": 1}


async def test_a_conflict_is_read_and_tried_again() -> None:
    objects = Objects("taints")
    objects.wanted = {"n1": (0, 1)}
    objects.errors = {"n1": [StoreConflict("later"), StoreConflict("later")]}
    async with writing(objects) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(1)
        assert objects.reads == ["n1", "n1"]
        assert objects.stored == {"n1": 1}
        assert bench.writer.problems() == ()


async def test_a_missing_right_is_named_and_stops_only_its_own_option() -> None:
    first, second = Objects("node_conditions"), Objects("node_taints")
    first.wanted = second.wanted = {f"n{number}": (0, 1) for number in range(9)}
    first.errors = {f"n{number}": [StoreForbidden("cannot patch nodes")] for number in range(9)}
    async with writing(first, second) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(20)
        assert len(second.stored) == 9
        assert len(first.writes) < 9
        assert bench.writer.problems() == ("node_conditions are not written: cannot patch nodes",)
        first.errors = {}
        await asyncio.sleep(40)
        assert len(first.stored) == 9
        assert bench.writer.problems() == ()


async def test_an_api_server_that_is_away_loses_nothing() -> None:
    objects = Objects("taints")
    objects.wanted = {f"n{number}": (0, 1) for number in range(20)}
    objects.errors = {f"n{number}": [StoreUnavailable("away")] for number in range(20)}
    async with writing(objects) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(0.1)
        assert len(objects.writes) <= 8
        objects.errors = {}
        await asyncio.sleep(20)
    assert len(objects.stored) == 20


async def test_an_object_that_is_gone_delays_no_other() -> None:
    objects = Objects("taints")
    objects.wanted = {"n1": (0, 1), "n2": (1, 1)}
    objects.errors = {"n1": [StoreNotFound("gone")] * 3}
    async with writing(objects) as bench:
        await bench.writer.set_leading(True)
        await asyncio.sleep(1)
        assert objects.stored == {"n2": 1}
        del objects.wanted["n1"]
        bench.writer.judge(["n1"])
        await asyncio.sleep(30)
    assert [name for _, name in objects.writes].count("n1") == 1


@pytest.mark.parametrize(
    ("leads_for_ms", "alarm", "unread", "reason"),
    [
        (None, False, (), "does not lead"),
        (14_999, False, (), "less than 15 s"),
        (15_000, True, (), "at once"),
        (15_000, False, ("b", "a"), "a, b"),
        (15_000, False, (), None),
    ],
)
def test_nothing_gets_stricter_while_silence_may_be_our_own(
    leads_for_ms: int | None, alarm: bool, unread: tuple[str, ...], reason: str | None
) -> None:
    held = why_held(leads_for_ms=leads_for_ms, silence_alarm=alarm, unread=unread)
    assert held is None if reason is None else held is not None and reason in held

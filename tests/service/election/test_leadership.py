"""Who leads by a Lease, in virtual time: candidates whose clocks and connections are played."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreConflict, StoreUnavailable
from service.clock import Instant, system_clock
from service.election.identity import Identity
from service.election.leadership import AlwaysLeader, LeaseElection, LockElection, leadership
from stores.base import LeaderElectionRecord
from stores.directory.lock import DirectoryLock
from stores.directory.store import DirectoryStore
from stores.interruption import Interrupted
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NEVER_MS = 10**12
DURATION = 10


class Server:
    """The Lease as an API server keeps it."""

    def __init__(self) -> None:
        self.record = LeaderElectionRecord("", 0)
        self.history: list[str] = []
        self._more = asyncio.Condition()
        self._version = 0

    async def put(self, record: LeaderElectionRecord) -> LeaderElectionRecord:
        if record.version != self.record.version:
            raise StoreConflict("somebody else was faster")
        self._version += 1
        self.record = LeaderElectionRecord(
            record.holder, record.duration_seconds, record.transitions, str(self._version)
        )
        self.history.append(record.holder)
        async with self._more:
            self._more.notify_all()
        return self.record

    async def changed(self, version: str) -> LeaderElectionRecord:
        async with self._more:
            await self._more.wait_for(lambda: self.record.version != version)
        return self.record


class Link:
    """The way of one candidate to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_up = True
        self.seconds = 0.0
        """What the server takes to accept a write."""
        self.seconds_once: float | None = None
        """The same of the next write alone."""
        self.sees = True
        """Whether its watch shows what the others write."""
        self.reads = 0
        self.accepts_what_was_given_up = False
        self._late: set[asyncio.Task[LeaderElectionRecord]] = set()

    async def watch(self) -> AsyncIterator[LeaderElectionRecord | Interrupted]:
        yield self.server.record
        while True:
            record = await self.server.changed(self.server.record.version)
            if self.is_up and self.sees:
                yield record
            elif not self.is_up:
                yield Interrupted("away")

    async def read(self) -> LeaderElectionRecord:
        self._demand()
        self.reads += 1
        return self.server.record

    async def write(self, record: LeaderElectionRecord) -> LeaderElectionRecord:
        self._demand()
        seconds = self.seconds if self.seconds_once is None else self.seconds_once
        self.seconds_once = None
        if not self.accepts_what_was_given_up:
            return await self._accept(record, seconds)
        task = asyncio.create_task(self._accept(record, seconds))
        self._late.add(task)
        return await asyncio.shield(task)

    async def _accept(self, record: LeaderElectionRecord, seconds: float) -> LeaderElectionRecord:
        await asyncio.sleep(seconds)
        return await self.server.put(record)

    def _demand(self) -> None:
        if not self.is_up:
            raise StoreUnavailable("away")


class Candidate:
    """One aggregator, whose wall clock is anything."""

    def __init__(self, server: Server, name: str) -> None:
        self.link = Link(server)
        self.on_change = 0
        self.leadership = LeaseElection(self.link, "k:", name, DURATION, self._clock)
        self.task = asyncio.create_task(self.leadership.run(self._send))

    def _clock(self) -> Instant:
        return Instant(hash(self) % 1000, int(asyncio.get_running_loop().time() * 1000))

    def _send(self) -> None:
        self.on_change += 1

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def candidates(server: Server, *names: str) -> AsyncIterator[list[Candidate]]:
    found = []
    for name in names:
        found.append(Candidate(server, name))
        await asyncio.sleep(0.1)
    yield found
    for one in found:
        await one.end()


pytestmark = pytest.mark.looptime


async def test_one_leads_and_renews_and_the_other_follows() -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(60)
        assert (a.leadership.leads, b.leadership.leads) == (True, False)
        assert b.leadership.holder == "a"
        assert (a.leadership.follows, b.leadership.follows) == (False, True)
        assert set(server.history) == {"a"}
        assert 17 <= len(server.history) <= 20, "every third of its duration"
        assert (a.on_change, b.on_change) == (1, 1), (
            "also who follows is called when the holder is another"
        )


async def test_lease_that_is_given_up_is_taken_at_once() -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        await a.end()
        await a.leadership.release()
        await asyncio.sleep(0.2)
        assert b.leadership.leads
        assert not a.leadership.leads
        assert server.record.transitions == 2


async def test_one_that_dies_is_waited_for_and_no_longer() -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        await a.end()
        await asyncio.sleep(DURATION - 4)
        assert not b.leadership.leads
        await asyncio.sleep(4.5)
        assert b.leadership.leads


async def test_never_two_at_once_while_one_cannot_reach_the_store() -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        a.link.is_up = False
        stopped = began = None
        for tick in range(300):
            await asyncio.sleep(0.1)
            assert not (a.leadership.leads and b.leadership.leads)
            if stopped is None and not a.leadership.leads:
                stopped = tick
            if began is None and b.leadership.leads:
                began = tick
        assert stopped is not None
        assert began is not None
        assert began - stopped >= 15, "a fifth of the duration earlier"
        assert a.on_change == 2
        assert a.leadership.failing.seconds(NEVER_MS) > 0
        a.link.is_up = True
        await asyncio.sleep(5)
        assert (a.leadership.leads, a.leadership.holder) == (False, "b")
        assert a.leadership.failing.seconds(NEVER_MS) == 0, "who follows asks for nothing"


async def test_a_short_outage_changes_nothing_and_a_long_one_begins_anew() -> None:
    server = Server()
    async with candidates(server, "a") as (a,):
        for seconds, taken in ((4, 1), (20, 2)):
            await asyncio.sleep(5)
            a.link.is_up = False
            await asyncio.sleep(seconds)
            a.link.is_up = True
            await asyncio.sleep(2)
            assert a.leadership.leads
            assert a.leadership.taken_total == taken


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3.0, 10.0, 30.0])
async def test_one_leads_on_while_renewals_take_long(seconds: float) -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        for one in (a, b):
            one.link.seconds = seconds
        led = []
        for _ in range(3000):
            await asyncio.sleep(0.1)
            assert not b.leadership.leads
            assert server.record.duration_seconds <= patience(120)
            led.append(a.leadership.leads)
        assert all(led)
        assert a.leadership.failing.seconds(NEVER_MS) == 0
        assert (a.on_change, a.leadership.taken_total) == (1, 1)
        a.link.seconds = b.link.seconds = 0
        await asyncio.sleep(130)
        assert server.record.duration_seconds == DURATION


async def test_one_whose_first_slow_renewal_comes_late_stops_when_it_reads_that() -> None:
    """The other one is quicker: only a read can show that to the first one."""
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        a.link.seconds, b.link.seconds = 30.0, 1.0
        a.link.sees = False
        both = 0
        for _ in range(600):
            await asyncio.sleep(0.1)
            both += a.leadership.leads and b.leadership.leads
        assert b.leadership.leads
        assert not a.leadership.leads
        assert both <= 20, "no longer than a read counts"
        assert a.on_change == 2


async def test_a_renewal_that_is_accepted_after_it_was_given_up_ends_nothing() -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        a.link.seconds = b.link.seconds = 10.0
        a.link.accepts_what_was_given_up = True
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert (a.leadership.leads, b.leadership.leads) == (True, False)
        assert a.on_change == 1


async def test_one_that_begins_while_writes_take_long_leads_from_the_first() -> None:
    server = Server()
    one = Candidate(server, "a")
    one.link.seconds = 3.0 * DURATION
    await asyncio.sleep(3.0 * DURATION + 0.1)
    for _ in range(1000):
        assert one.leadership.leads
        await asyncio.sleep(0.1)
    assert (one.on_change, one.leadership.taken_total) == (1, 1)
    await one.end()


@pytest.mark.slow
async def test_one_leads_on_when_renewals_take_long_again() -> None:
    """After a single slow one its Lease is long, and the next renewal asks for a short one."""
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        a.link.seconds_once = 1000.0
        await asyncio.sleep(DURATION)
        assert server.record.duration_seconds == 120
        a.link.seconds = b.link.seconds = DURATION
        for _ in range(1500):
            await asyncio.sleep(0.1)
            assert (a.leadership.leads, b.leadership.leads) == (True, False)
        assert a.on_change == 1


@pytest.mark.parametrize("duration", [2, DURATION])
async def test_no_read_is_made_while_renewals_are_quick(
    duration: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.service.election.test_leadership.DURATION", duration)
    server = Server()
    async with candidates(server, "a") as (a,):
        a.link.seconds = 0.1
        await asyncio.sleep(300)
        assert a.leadership.leads
        assert a.link.reads == 0


@pytest.mark.slow
async def test_one_whose_renewals_never_return_is_waited_for_and_no_longer() -> None:
    server = Server()
    async with candidates(server, "a", "b") as (a, b):
        await asyncio.sleep(5)
        a.link.seconds = 1000.0
        for _ in range(1000):
            await asyncio.sleep(0.1)
            assert not (a.leadership.leads and b.leadership.leads)
        assert b.leadership.leads
        assert a.on_change == 2


async def test_leader_stops_when_it_reads_that_the_lease_is_taken() -> None:
    server = Server()
    async with candidates(server, "a") as (a,):
        await asyncio.sleep(1)
        server.record = LeaderElectionRecord("b", DURATION, 7, "99")
        assert not await a.leadership.confirm()
        assert (a.leadership.leads, a.leadership.holder) == (False, "b")
        assert a.on_change == 2
        await asyncio.sleep(DURATION + 1)
        assert a.leadership.leads, "b never renewed it"


async def test_an_edit_of_the_own_lease_takes_it_from_no_leader() -> None:
    server = Server()
    async with candidates(server, "a") as (a,):
        await asyncio.sleep(1)
        server.record = LeaderElectionRecord("a", DURATION, 1, "99")
        await asyncio.sleep(10)
        assert a.leadership.leads
        assert a.leadership.taken_total == 1


async def test_one_that_is_started_again_at_its_place_does_not_wait() -> None:
    server = Server()
    async with candidates(server, "a") as (a,):
        await asyncio.sleep(1)
        await a.end()
    async with candidates(server, "a") as (again,):
        assert again.leadership.leads


async def test_no_replica_follows_the_lease_that_an_earlier_run_of_its_own_left() -> None:
    server = Server()
    async with candidates(server, "a") as (a,):
        await a.end()
    again = Candidate(server, "a")
    again.link.is_up = False
    await asyncio.sleep(1)
    assert again.leadership.holder == "a"
    assert not again.leadership.leads
    assert not again.leadership.follows
    await again.end()


async def test_a_lock_is_led_by_one_and_let_go(tmp_path: Path) -> None:
    one, other = (LockElection(DirectoryLock(tmp_path), "d:", name) for name in "ab")
    tasks = [asyncio.create_task(each.run(lambda: None)) for each in (one, other)]
    await asyncio.sleep(1)
    assert (one.leads, other.leads) == (True, False)
    assert other.holder == "a"
    assert (one.follows, other.follows) == (False, True)
    await one.release()
    await asyncio.sleep(1)
    assert (one.leads, other.leads) == (False, True)
    assert one.holder == "b"
    await other.release()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lock_that_cannot_be_made_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "file"
    place.write_text("")
    one = LockElection(DirectoryLock(place), "d:", "a")
    task = asyncio.create_task(one.run(lambda: None))
    await asyncio.sleep(3)
    assert one.taken_total == 0
    assert caplog.text.count("no leader can be elected") == 1
    place.unlink()
    await asyncio.sleep(1)
    assert one.leads
    await one.release()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_by_what_one_is_elected(tmp_path: Path) -> None:
    directory = DirectoryStore("directory:x", tmp_path)
    assert isinstance(leadership([directory], "a", 10, system_clock), LockElection)
    always = leadership([], "a", 10, system_clock)
    assert isinstance(always, AlwaysLeader)
    assert (always.leads, always.holder, always.elected_by) == (True, "a", None)


def test_a_name_is_of_a_place_and_of_one_process(tmp_path: Path) -> None:
    first = Identity(tmp_path)
    second = Identity(tmp_path)
    assert first.name != second.name
    first.close()
    second.close()
    again = Identity(tmp_path)
    assert again.name == first.name
    again.close()
    (tmp_path / "identity").write_text("nonsense")
    assert len({Identity(tmp_path).name, first.name, Identity(None).name}) == 3

"""Which storage faults are sent and when: nothing that a real ClusterD would misread.

In virtual time against ClusterD's handling of messages (``docs/spec/clusterd.md#4.4``).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.journal.rows import JournalRow, RowKind
from agent.policy.state import PolicyState
from agent.publishing.fault_service import FaultServiceClient
from agent.publishing.fault_service_address import FaultServiceAddress
from agent.publishing.public_fault import PublicFaultDocument
from agent.publishing.unacknowledged_faults import (
    NodePublicFaults,
    SentFault,
    UnacknowledgedFaults,
    queued,
)
from contract.documents.public_fault import decode_public_fault
from contract.observation import Assertion, Observation, SourceAnswered, storage_subject
from service.watchdog import Watchdog
from tests.agent.held_claim import held_claim
from tests.agent.policy.builders import NODE, after
from tests.parts.clusterd import Cache
from tests.parts.examples import mostly_slow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contract.documents.public_fault import PublicFault

PROCESS, MEMORY, LINK = "110001020", "110001021", "110001023"
DPC = storage_subject("DPC")
T = 1_790_000_000_000
BEGIN_SECONDS = 0.002942
"""Ten seconds later it is a little less than ten seconds later, as floats go."""

virtual = [pytest.mark.asyncio, pytest.mark.looptime]
pytestmark = virtual


def wall_ms() -> int:
    return T + round(asyncio.get_running_loop().time() * 1000)


class Journal:
    """Takes rows, as an ``agent.journal.journal.Journal`` does; a next process gets the last."""

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []

    def append(self, entries: Iterable[tuple[RowKind, str]], at_ms: int) -> int:
        for kind, body in entries:
            self.rows.append(JournalRow(len(self.rows) + 1, at_ms, kind, body))
        return len(self.rows)


class Bench:
    """A node whose storage faults come and go, and the sender of them."""

    def __init__(self, *, queues: bool = False) -> None:
        self.state: PolicyState = PolicyState(NODE, "boot")
        self.journal = Journal()
        self.chips: tuple[int, ...] | None = (0, 1)
        self.queues = queues
        for subject in (DPC, storage_subject("DTFS")):
            self.report(SourceAnswered("storage", subject, T))
        self.begin()

    def begin(self) -> None:
        """Begin a process with the state that the journal has."""
        self.faults = NodePublicFaults(
            NODE,
            lambda: self.chips,
            self.journal,  # type: ignore[arg-type]
            wall_ms,
            queues=self.queues,
        )
        self.faults.restore_ledger(self.journal.rows[-1] if self.journal.rows else None)
        self.woken = asyncio.Event()
        self.document = PublicFaultDocument(
            "DPC", self.faults, lambda: self.state, lambda: self.woken.set()
        )

    def report(self, item: Observation | SourceAnswered) -> None:
        self.state = after(self.state, [item], T)

    def turn(self, code: str, *, stands: bool) -> None:
        """Begin or end a fault now."""
        assertion = Assertion.PRESENT if stands else Assertion.ABSENT
        subject = DPC if code in (PROCESS, MEMORY) else storage_subject("DTFS")
        self.report(Observation("storage", subject, code, assertion, wall_ms()))
        self.faults.update(self.state)
        self.woken.set()

    def shown(self) -> dict[str, bool] | None:
        """Return the desired content of the document now."""
        wanted = self.document.desired()
        if wanted is None or wanted.stamped is None:
            return None
        document = wanted.stamped(wall_ms() // 1000)
        self.document.verify(document)
        message = decode_public_fault("document", document.data)
        return {fault.fault_code: fault.assertion == "occur" for fault in message.faults or ()}


async def test_nothing_is_reported_of_a_fault_that_never_was() -> None:
    bench = Bench()
    bench.faults.update(bench.state)
    assert not bench.faults.ledger.newest
    assert bench.document.desired() is None
    assert bench.journal.rows == []


async def test_an_occurrence_waits_until_a_recovery_had_its_effect() -> None:
    bench = Bench()
    bench.turn(PROCESS, stands=True)
    assert bench.shown() == {PROCESS: True}
    await asyncio.sleep(1)
    bench.turn(PROCESS, stands=False)
    assert bench.shown() == {PROCESS: False}
    await asyncio.sleep(3)
    bench.turn(PROCESS, stands=True)
    bench.turn(MEMORY, stands=True)
    assert bench.shown() == {MEMORY: True}
    bench.woken.clear()
    async with asyncio.timeout(7.1):
        await bench.woken.wait()
    assert bench.shown() == {PROCESS: True, MEMORY: True}


async def test_one_that_waits_alone_leaves_what_is_there() -> None:
    bench = Bench()
    for stands, shown in (True, {PROCESS: True}), (False, {PROCESS: False}), (True, None):
        bench.turn(PROCESS, stands=stands)
        assert bench.shown() == shown


async def test_a_wait_that_is_over_but_for_rounding_is_not_spun_away() -> None:
    bench = Bench()
    await asyncio.sleep(BEGIN_SECONDS)
    for stands in (True, False, True):
        bench.turn(PROCESS, stands=stands)
        bench.shown()
    wakes = 0
    while bench.shown() is None:
        wakes += 1
        assert wakes < 5
        bench.woken.clear()
        await bench.woken.wait()
    assert bench.shown() == {PROCESS: True}


async def test_after_a_start_what_is_there_stays_briefly() -> None:
    bench = Bench()
    bench.turn(PROCESS, stands=True)
    bench.begin()
    bench.turn(PROCESS, stands=False)
    assert bench.document.desired() is None
    async with asyncio.timeout(10.1):
        await bench.woken.wait()
    await asyncio.sleep(10)
    assert bench.shown() == {PROCESS: False}


async def test_unchanged_document_is_refreshed_ever_more_rarely() -> None:
    bench = Bench()
    bench.turn(PROCESS, stands=True)
    pauses = []
    for _ in range(12):
        bench.shown()
        wanted = bench.document.desired()
        assert wanted is not None
        pauses.append(wanted.refresh_seconds)
    assert 11 <= pauses[0] <= 19
    assert 22 <= pauses[1] <= 38
    assert 1350 <= pauses[11] <= 2250
    bench.turn(PROCESS, stands=False)
    for _ in range(13):
        bench.shown()
    wanted = bench.document.desired()
    assert wanted is not None
    assert wanted.refresh_seconds == float("inf")


async def test_the_inventory_is_waited_for_and_then_remembered() -> None:
    bench = Bench()
    bench.chips = None
    bench.turn(PROCESS, stands=True)
    assert bench.document.desired() is None
    await asyncio.sleep(29)
    bench.chips = (7, 3, 40, -1)
    bench.faults.update(bench.state)
    assert bench.faults.ledger.newest[PROCESS].devices == (3, 7)
    bench.begin()
    bench.chips = None
    bench.turn(MEMORY, stands=True)
    await asyncio.sleep(31)
    assert bench.faults.ledger.newest[MEMORY].devices == (3, 7)
    bench.turn(PROCESS, stands=False)
    assert bench.faults.ledger.newest[PROCESS].devices == (3, 7)


async def test_a_driver_that_never_answers_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    bench.chips = None
    bench.turn(PROCESS, stands=True)
    await asyncio.sleep(31)
    assert bench.faults.ledger.newest[PROCESS].devices == (0,)


async def test_a_state_that_was_lost_is_no_recovery() -> None:
    bench = Bench()
    bench.turn(PROCESS, stands=True)
    bench.state = PolicyState(NODE, "boot")
    bench.begin()
    bench.faults.update(bench.state)
    assert bench.faults.ledger.newest[PROCESS].occurs
    bench.report(SourceAnswered("storage", DPC, T))
    bench.faults.update(bench.state)
    assert not bench.faults.ledger.newest[PROCESS].occurs


async def test_a_journal_row_that_makes_no_sense() -> None:
    bench = Bench()
    bench.journal.append([(RowKind.PUBLIC_FAULTS, '{"newest":1}')], T)
    bench.begin()
    assert bench.faults.ledger == UnacknowledgedFaults()


FIRST, OVER, AGAIN = (
    SentFault(PROCESS, True, 1),
    SentFault(PROCESS, False, 2),
    SentFault(PROCESS, True, 3),
)
LATER, ANOTHER = SentFault(PROCESS, False, 4), SentFault(MEMORY, False, 4)


@pytest.mark.parametrize(
    ("waiting", "sent_fault", "after_it"),
    [
        ((), FIRST, (FIRST,)),
        ((FIRST,), OVER, (FIRST, OVER)),
        ((FIRST, OVER), AGAIN, (FIRST,)),
        ((OVER,), AGAIN, (OVER, AGAIN)),
        ((OVER, AGAIN), LATER, (OVER, AGAIN, LATER)),
        ((OVER, AGAIN, LATER), FIRST, (OVER, AGAIN)),
        ((ANOTHER,), FIRST, (ANOTHER, FIRST)),
    ],
)
async def test_queue_withdraws_a_recovery_with_the_next_occurrence(
    waiting: tuple[SentFault, ...], sent_fault: SentFault, after_it: tuple[SentFault, ...]
) -> None:
    assert queued(waiting, sent_fault) == after_it


class RecordingClient(FaultServiceClient):
    """A service whose messages a ``Cache`` accepts a moment later, or one without answers."""

    def __init__(self, bench: Bench, cache: Cache, chance: random.Random) -> None:
        address = FaultServiceAddress("127.0.0.1:1")
        super().__init__(address, bench.faults, held_claim(), Watchdog(), wall_ms)
        self.cache = cache
        self.chance = chance
        self.is_away = False
        self.messages: list[PublicFault] = []

    async def _answer(self, message: PublicFault) -> tuple[int | None, str]:
        if self.is_away:
            return None, "away"
        await asyncio.sleep(self.chance.uniform(0, 0.2))
        deliver(message, self.cache)
        self.messages.append(message)
        if self.chance.random() < 0.2:
            return None, "the answer was lost"
        return 0, ""


def deliver(message: PublicFault, cache: Cache) -> None:
    now = asyncio.get_running_loop().time()
    for fault in message.faults or ():
        cache.take(fault.fault_code, fault.assertion == "occur", now)


def true_of(state: PolicyState) -> set[str]:
    return {code for _, known in state.subjects() for code in known.faults}


@pytest.mark.parametrize("seed", mostly_slow(range(12), 4))
async def test_over_grpc_a_real_clusterd_ends_up_with_the_truth(seed: int) -> None:
    chance, cache = random.Random(seed), Cache()
    bench = Bench(queues=True)
    service = RecordingClient(bench, cache, chance)
    running = asyncio.create_task(service.run())
    for _ in range(chance.randrange(5, 30)):
        action = chance.random()
        if action < 0.1:
            service.is_away = not service.is_away
        elif action < 0.2:  # kill -9: the journal has all that was acknowledged
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            bench.begin()
            bench.faults.update(bench.state)
            service = RecordingClient(bench, cache, chance)
            running = asyncio.create_task(service.run())
        else:
            code = chance.choice([PROCESS, MEMORY, LINK])
            bench.turn(code, stands=code not in true_of(bench.state))
        await asyncio.sleep(chance.choice([0.0, 0.5, 3.0, 5.0, 30.0]))
    service.is_away = False
    await asyncio.sleep(120)
    assert bench.faults.ledger.waiting == ()
    assert cache.until(asyncio.get_running_loop().time()) == true_of(bench.state)
    before = len(service.messages)
    await asyncio.sleep(3600)
    assert len(service.messages) == before
    running.cancel()


@pytest.mark.parametrize("seed", range(12))
async def test_through_the_store_a_real_clusterd_ends_up_with_the_truth(seed: int) -> None:
    """Its watch lags, breaks, skips states, and drops what exceeds its limits."""
    chance, cache = random.Random(seed), Cache()
    bench = Bench()

    async def publish() -> None:
        written: object = None
        while True:
            bench.woken.clear()
            wanted = bench.document.desired()
            pause = 300.0
            if wanted is not None and wanted.stamped is not None:
                if wanted.content != written:
                    written = wanted.content
                    document = wanted.stamped(wall_ms() // 1000)
                    bench.document.verify(document)
                    message = decode_public_fault("document", document.data)
                    arrival = chance.uniform(0, 2)
                    if chance.random() < 0.7 or settled:
                        asyncio.get_running_loop().call_later(arrival, deliver, message, cache)
                wanted = bench.document.desired()
                assert wanted is not None
                pause = wanted.refresh_seconds
            try:
                async with asyncio.timeout(pause):
                    await bench.woken.wait()
            except TimeoutError:
                written = None

    settled = False
    running = asyncio.create_task(publish())
    for _ in range(chance.randrange(5, 30)):
        code = chance.choice([PROCESS, MEMORY])
        bench.turn(code, stands=code not in true_of(bench.state))
        await asyncio.sleep(chance.choice([0.0, 0.5, 3.0, 5.0, 30.0]))
    settled = True
    await asyncio.sleep(120)
    assert cache.until(asyncio.get_running_loop().time()) == true_of(bench.state)
    running.cancel()


async def test_a_message_has_the_faults_of_one_resource_each_once() -> None:
    bench = Bench(queues=True)
    cache = Cache()
    service = RecordingClient(bench, cache, random.Random(1))
    service.chance.random = lambda: 1.0  # type: ignore[method-assign]
    for code in (MEMORY, LINK, PROCESS):
        bench.turn(code, stands=True)
    bench.turn(PROCESS, stands=False)
    running = asyncio.create_task(service.run())
    await asyncio.sleep(1)
    sent: Sequence[tuple[str, list[tuple[str, str]]]] = [
        (
            message.resource,
            [(fault.fault_code, fault.assertion) for fault in message.faults or ()],
        )
        for message in service.messages
    ]
    assert sent == [
        ("dpcStorage", [(PROCESS, "occur"), (MEMORY, "occur")]),
        ("dtfsStorage", [(LINK, "occur")]),
        ("dpcStorage", [(PROCESS, "recover")]),
    ]
    assert msgspec.json.decode(bench.journal.rows[-1].body, type=UnacknowledgedFaults).waiting == ()
    running.cancel()

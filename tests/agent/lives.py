"""Lives of an agent that a test begins and ends: its fault state, documents, or heartbeat alone."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from agent.fault_state import FaultState, configured_by, restored_state
from agent.heartbeat.heartbeat import Heartbeat
from agent.journal.file import FILE_NAME, read_restored
from agent.journal.journal import Journal
from agent.name_claim import NameClaim
from agent.node_documents import NodeDocuments
from agent.own_documents import DocumentsContext
from agent.policy.state import PolicyState
from agent.publishing.device_info import DeviceInfoDocument
from contract.codes import catalogue
from contract.codes.chip_codes import LINK_DOWN
from contract.observation import Assertion, Observation
from contract.operator_rules.fault_configuration import catalogue_of
from service.watchdog import Watchdog
from tests.agent.held_claim import held_claim
from tests.agent.policy.builders import NODE, after, healthy, inventory, seen
from tests.agent.publishing.published import TroubledStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agent.heartbeat.old_readers import NodeAnnotations
    from agent.policy.step import Input
    from contract.codes.catalogue import Catalogue
    from stores.base import Document, Store

TABLES = catalogue.shipped()
DOWN_SECONDS = 30
AGE_SECONDS = 40


class Clock:
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def seen_now(
    clock: Clock, assertion: Assertion, chip: int = 3, code: str = "80E01801"
) -> Observation:
    """Return a report about a chip at the time of the clock."""
    return seen(assertion, code, chip, clock())


class FaultStateLife:
    """One life of an agent's verdicts over a journal, by its configuration or by ``tables``."""

    def __init__(self, directory: Path, clock: Clock, tables: Catalogue | None = None) -> None:
        remembered = read_restored(directory / FILE_NAME)
        state = restored_state(remembered, NODE, "boot", TABLES)
        texts = configured_by(remembered)
        self.clock = clock
        self.woken: list[int] = []
        self.fault_state = FaultState(
            state, tables or catalogue_of(texts), clock, self.woken.append, texts
        )
        self.journal = Journal(
            directory,
            first_sequence=remembered.last_sequence + 1,
            wall_clock=clock,
            on_recovered=self.fault_state.complete_journal,
        )
        self.fault_state.start_journaling(self.journal)

    async def take(self, *inputs: Input) -> None:
        self.fault_state.apply_inputs(inputs)
        assert await self.journal.committed(self.journal.last_sequence, 5)


def now_ms() -> int:
    return int(time.time() * 1000)


def upgraded_link(ahead_seconds: int, stamp: int | None) -> tuple[Document, int]:
    """Return an earlier agent's document about a link that was down too long, and since when (ms).

    The clock of that agent was ahead of ours.
    """
    end_ms = now_ms() + (ahead_seconds - AGE_SECONDS) * 1000
    down_ms = end_ms - DOWN_SECONDS * 1000
    down = seen(Assertion.OCCUR, LINK_DOWN, at=down_ms)
    state = after(healthy(), [down], down_ms + DOWN_SECONDS * 1000)
    made = DeviceInfoDocument(NODE, lambda: state)
    made.identify(inventory())
    wanted = made.desired()
    assert wanted is not None
    assert wanted.stamped is not None
    return wanted.stamped(end_ms // 1000 if stamp is None else stamp), down_ms


class DocumentsLife:
    """An agent's documents, without a journal."""

    def __init__(self, directory: Path, store: TroubledStore) -> None:
        self.fault_state = FaultState(
            PolicyState(NODE, "boot"), TABLES, now_ms, lambda ms: self.woken(ms)
        )
        self.journal = Journal(
            directory, first_sequence=1, wall_clock=now_ms, on_recovered=self.fault_state.snapshot
        )
        desk = DocumentsContext(
            store,
            self.fault_state,
            self.journal,
            Watchdog(),
            held_claim(NODE),
            now_ms,
            on_chips_restored=lambda: None,
        )
        self.documents = NodeDocuments(NODE, ["device-info"], desk)
        self.documents.device_info.identify(inventory())

    def woken(self, ms: int) -> None:
        self.documents.wake(ms)


@asynccontextmanager
async def upgraded_life(
    directory: Path, get_delay_seconds: float, ahead_seconds: int = 0, stamp: int | None = None
) -> AsyncIterator[tuple[DocumentsLife, int]]:
    """Yield a life that finds an upgraded link in the store, and when the link failed (ms)."""
    root = directory / "store"
    store = TroubledStore(f"directory:{root}", root)
    document, down_ms = upgraded_link(ahead_seconds, stamp)
    await store.put(document)
    store.get_delay_seconds = get_delay_seconds
    this = DocumentsLife(directory, store)
    this.fault_state.start_journaling(this.journal)
    (kind,) = this.documents.publishers
    task = asyncio.create_task(this.documents.publish(kind))
    try:
        yield this, down_ms
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        this.fault_state.end()
        await this.journal.close()
        await store.close()


class SetWatchdog(Watchdog):
    """A watchdog whose stalled tasks a test sets; it counts the marks of progress."""

    def __init__(self) -> None:
        super().__init__()
        self.stalls: dict[str, float] = {}
        self.marks = 0

    @override
    def register(self, task: str, timeout_seconds: float) -> Callable[[], None]:
        def mark() -> None:
            self.marks += 1

        return mark

    @override
    def stalled(self) -> dict[str, float]:
        return self.stalls


class HeartbeatLife:
    """One heartbeat and the daemon around it."""

    def __init__(
        self,
        store: Store,
        holder: str,
        interval_seconds: float,
        wall_clock: Callable[[], int],
        also: NodeAnnotations | None = None,
    ) -> None:
        self.watchdog = SetWatchdog()
        self.blind = False
        self.claim = NameClaim(NODE, holder)
        self.heartbeat = Heartbeat(
            store, self.claim, interval_seconds, self.watchdog, self, wall_clock, also=also
        )

    def is_blind(self) -> bool:
        return self.blind

    def writes(self) -> str:
        return ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        task = asyncio.create_task(self.heartbeat.run(), name="heartbeat")
        try:
            yield self
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

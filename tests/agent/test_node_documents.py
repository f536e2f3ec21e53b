"""What stored documents remember for an agent without a journal, however late they are read."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from agent import own_documents as documents_module
from agent.fault_state import FaultState
from agent.journal.journal import Journal
from agent.node_documents import NodeDocuments
from agent.own_documents import DocumentsContext
from agent.policy.state import CHIP_SOURCE, PolicyState
from agent.publishing.device_info import DeviceInfoDocument
from agent.publishing.ownership import other_program, owned_by
from contract.codes import catalogue
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel
from contract.observation import Assertion, SourceAnswered, chip_subject
from service.watchdog import Watchdog
from stores.base import LastWriter
from tests.agent.held_claim import held_claim
from tests.agent.policy.builders import NODE, after, answered, healthy, inventory, seen
from tests.agent.publishing.test_publisher import TroubledStore
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Document

TABLES = catalogue.shipped()
DOWN_SECONDS = 30
AGE_SECONDS = 40


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


class Life:
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
async def life(
    directory: Path, get_delay_seconds: float, ahead_seconds: int = 0, stamp: int | None = None
) -> AsyncIterator[tuple[Life, int]]:
    """Yield a life that finds an upgraded link in the store, and when the link failed (ms)."""
    root = directory / "store"
    store = TroubledStore(f"directory:{root}", root)
    document, down_ms = upgraded_link(ahead_seconds, stamp)
    await store.put(document)
    store.get_delay_seconds = get_delay_seconds
    this = Life(directory, store)
    this.fault_state.begin(this.journal)
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


async def test_restored_faults_have_no_latency_of_this_process(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as (this, down_ms):
        await this.documents.wait_until_read()
        fault = this.fault_state.state.chips[0].faults[LINK_DOWN]
        assert fault.first_seen_ms >= down_ms
        chips = map(chip_subject, this.fault_state.state.chips)
        answers = [SourceAnswered(CHIP_SOURCE, chip, now_ms()) for chip in chips]
        this.fault_state.apply(answers, now_ms())
        record = this.documents.records["device-info"]
        await until(lambda: record.acknowledged_at_ms is not None, "the first write")
        assert record.durations.sum_seconds < AGE_SECONDS / 2


async def test_restored_times_are_not_in_the_future(tmp_path: Path) -> None:
    async with life(tmp_path, 0, ahead_seconds=3600) as (this, _):
        await this.documents.wait_until_read()
        chip = this.fault_state.state.chips[0]
        (upgrade,) = chip.upgrades
        assert chip.faults[LINK_DOWN].first_seen_ms <= now_ms()
        assert upgrade.upgraded_at_ms <= now_ms()


@pytest.mark.parametrize("owner", [None, "device-plugin"])
async def test_a_one_off_fault_waits_for_the_store_unless_another_program_writes(
    tmp_path: Path, owner: str | None
) -> None:
    """While the API server was away at a start, it counted as published, and ended unseen."""
    root = tmp_path / "store"
    store = TroubledStore(f"directory:{root}", root)
    this = Life(tmp_path, store)
    (ownership,) = this.documents.ownership.values()
    if owner is not None:
        writer = LastWriter(owner, now_ms())
        ownership.other = other_program(owned_by(NODE, ["device-info"])[0], writer, now_ms())
        ownership.decided.set()
    this.fault_state.begin(this.journal)
    this.fault_state.apply(answered(0, at=now_ms()))
    this.fault_state.apply([seen(Assertion.ONCE, "80E3A201", at=now_ms())], now_ms())
    await asyncio.sleep(0)
    (fault,) = this.fault_state.state.chips[0].faults.values()
    assert fault.once
    assert (fault.acknowledged_at_ms is None) == (owner is None)
    this.fault_state.end()
    await this.journal.close()
    await store.close()


@pytest.mark.parametrize("stamp", [2**62, -(2**62), 0])
async def test_a_stamp_that_no_clock_shows_ends_nothing(tmp_path: Path, stamp: int) -> None:
    async with life(tmp_path, 0, stamp=stamp) as (this, _):
        await this.documents.wait_until_read()
        this.fault_state.apply(answered(0, 1, at=now_ms()))
        record = this.documents.records["device-info"]
        await until(lambda: record.acknowledged_at_ms is not None, "the first write")


@pytest.mark.slow
@pytest.mark.parametrize("link", ["up", "down"])
async def test_an_upgrade_outlives_a_slow_store(
    tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "_MEMORY_SECONDS", 0.1)
    async with life(tmp_path, 0.6) as (this, down_ms):
        await this.documents.wait_until_read()
        assert this.fault_state.state.chips == {}, "the store was not fast enough"
        this.fault_state.apply(answered(0, 1, at=now_ms()))
        if link == "down":
            this.fault_state.apply([seen(Assertion.PRESENT, LINK_DOWN, at=now_ms())])
        await until(
            lambda: this.fault_state.state.chips[0].upgrades != (), "what the document says"
        )
        chip = this.fault_state.state.chips[0]
        assert list(chip.faults) == ([LINK_DOWN] if link == "down" else [])
        (upgrade,) = chip.upgrades
        assert upgrade.level is chip.level is ChipLevel.PRE_SEPARATE_NPU
        assert upgrade.upgraded_at_ms == down_ms + 20_000
        assert (upgrade.gone_since_ms is None) == (link == "down")


@pytest.mark.slow
async def test_a_slow_store_is_the_memory_of_chips_that_gave_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document has chips 0, whose link is down, and 1; this driver lists chip 1 alone."""
    monkeypatch.setattr(documents_module, "_MEMORY_SECONDS", 0.1)
    async with life(tmp_path, 0.6) as (this, _):
        found = inventory()
        this.documents.device_info.identify(replace(found, chips=found.chips[1:]))
        await this.documents.wait_until_read()
        this.fault_state.apply(answered(1, at=now_ms()))
        record = this.documents.records["device-info"]
        await until(lambda: record.acknowledged_at_ms is not None, "the first write")
        chip = this.fault_state.state.chips[0]
        assert chip.silent
        assert list(chip.faults) == [LINK_DOWN]
        assert this.documents.device_info.missing() == (0,)
        wanted = this.documents.device_info.desired()
        assert wanted is not None
        assert wanted.stamped is not None
        assert LINK_DOWN in str(wanted.stamped(now_ms() // 1000).data)

"""What stored documents remember for an agent without a journal, however late they are read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from agent import own_documents as documents_module
from agent.policy.state import CHIP_SOURCE
from agent.publishing.ownership import other_program, owned_by
from contract.codes import catalogue
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel
from contract.observation import Assertion, SourceAnswered, chip_subject
from stores.base import LastWriter
from tests.agent.lives import AGE_SECONDS, DocumentsLife, now_ms, upgraded_life
from tests.agent.policy.builders import NODE, answered, inventory, seen
from tests.agent.publishing.published import TroubledStore
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from pathlib import Path


TABLES = catalogue.shipped()


async def test_restored_faults_have_no_latency_of_this_process(tmp_path: Path) -> None:
    async with upgraded_life(tmp_path, 0) as (this, down_ms):
        await this.documents.wait_until_read()
        fault = this.fault_state.state.chips[0].faults[LINK_DOWN]
        assert fault.first_seen_ms >= down_ms
        chips = map(chip_subject, this.fault_state.state.chips)
        answers = [SourceAnswered(CHIP_SOURCE, chip, now_ms()) for chip in chips]
        this.fault_state.apply_inputs(answers, now_ms())
        record = this.documents.records["device-info"]
        await until(lambda: record.acknowledged_at_ms is not None, "the first write")
        assert record.durations.sum_seconds < AGE_SECONDS / 2


async def test_restored_times_are_not_in_the_future(tmp_path: Path) -> None:
    async with upgraded_life(tmp_path, 0, ahead_seconds=3600) as (this, _):
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
    this = DocumentsLife(tmp_path, store)
    (ownership,) = this.documents.ownership.values()
    if owner is not None:
        writer = LastWriter(owner, now_ms())
        ownership.other = other_program(owned_by(NODE, ["device-info"])[0], writer, now_ms())
        ownership.decided.set()
    this.fault_state.start_journaling(this.journal)
    this.fault_state.apply_inputs(answered(0, at=now_ms()))
    this.fault_state.apply_inputs([seen(Assertion.ONCE, "80E3A201", at=now_ms())], now_ms())
    await asyncio.sleep(0)
    (fault,) = this.fault_state.state.chips[0].faults.values()
    assert fault.once
    assert (fault.acknowledged_at_ms is None) == (owner is None)
    this.fault_state.end()
    await this.journal.close()
    await store.close()


@pytest.mark.parametrize("stamp", [2**62, -(2**62), 0])
async def test_a_stamp_that_no_clock_shows_ends_nothing(tmp_path: Path, stamp: int) -> None:
    async with upgraded_life(tmp_path, 0, stamp=stamp) as (this, _):
        await this.documents.wait_until_read()
        this.fault_state.apply_inputs(answered(0, 1, at=now_ms()))
        record = this.documents.records["device-info"]
        await until(lambda: record.acknowledged_at_ms is not None, "the first write")


@pytest.mark.slow
@pytest.mark.parametrize("link", ["up", "down"])
async def test_an_upgrade_outlives_a_slow_store(
    tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "_MEMORY_SECONDS", 0.1)
    async with upgraded_life(tmp_path, patience(0.6)) as (this, down_ms):
        await this.documents.wait_until_read()
        assert this.fault_state.state.chips == {}, "the store was not fast enough"
        this.fault_state.apply_inputs(answered(0, 1, at=now_ms()))
        if link == "down":
            this.fault_state.apply_inputs([seen(Assertion.PRESENT, LINK_DOWN, at=now_ms())])
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
    async with upgraded_life(tmp_path, patience(0.6)) as (this, _):
        found = inventory()
        this.documents.device_info.identify(replace(found, chips=found.chips[1:]))
        await this.documents.wait_until_read()
        this.fault_state.apply_inputs(answered(1, at=now_ms()))
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

"""A start judges what the journal has by the tables that were in force then."""

from __future__ import annotations

import json
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.fault_state import configured_by, restored_state
from agent.journal.file import FILE_NAME, JournalFile, read_restored
from agent.journal.rows import RowKind
from contract.codes.catalogue import shipped
from contract.observation import Assertion, Observation, chip_subject
from contract.operator_rules.fault_configuration import FaultTexts, catalogue_of
from tests.agent.lives import Clock, FaultStateLife
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from pathlib import Path

    from agent.policy.state import PolicyState

NODE = "node-1"
CODE = "80E21007"


def table(level: str) -> FaultTexts:
    return FaultTexts(fault_code=json.dumps({f"{level}Codes": [CODE]}))


class Life(FaultStateLife):
    """One life, in which a chip gets and loses faults with one code."""

    @property
    def state(self) -> PolicyState:
        return msgspec.structs.replace(self.fault_state.state, settled_at_ms=0)

    def level(self, chip: int = 3) -> str:
        return self.fault_state.state.chips[chip].level.value

    def see(self, assertion: Assertion, chip: int = 3) -> None:
        self.clock.now_ms += 20_000
        at_ms = self.clock.now_ms
        self.fault_state.apply_inputs(
            [Observation("chip-faults", chip_subject(chip), CODE, assertion, at_ms)]
        )

    def configure(self, texts: FaultTexts) -> None:
        self.clock.now_ms += 1_000
        self.fault_state.configure(texts, catalogue_of(texts))

    async def committed(self) -> None:
        assert await self.journal.committed(self.journal.last_sequence, 5)


async def test_a_live_fault_is_judged_again_and_stays_so(tmp_path: Path) -> None:
    life = Life(tmp_path, Clock())
    life.see(Assertion.OCCUR)
    assert life.level() == "NotHandleFault"
    for level in ("SeparateNPU", "RestartNPU", "SeparateNPU"):
        life.configure(table(level))
        assert life.level() == level
    await life.committed()
    again = Life(tmp_path, life.clock)
    assert again.state == life.state
    assert again.fault_state.texts == table("SeparateNPU")
    again.see(Assertion.OCCUR, 4)
    assert again.level(4) == "SeparateNPU"
    again.configure(FaultTexts())
    await again.committed()
    third = Life(tmp_path, life.clock)
    assert (third.level(3), third.level(4)) == ("NotHandleFault", "NotHandleFault")
    assert third.fault_state.texts == FaultTexts()


async def test_a_configuration_that_is_in_force_already_is_no_input(tmp_path: Path) -> None:
    life = Life(tmp_path, Clock())
    life.configure(table("SeparateNPU"))
    before = life.journal.last_sequence
    life.configure(table("SeparateNPU"))
    assert life.journal.last_sequence == before


@pytest.mark.parametrize("seed", range(6))
async def test_a_pruned_journal_leads_to_the_same_state(tmp_path: Path, seed: int) -> None:
    chance, clock = Random(seed), Clock()
    life = Life(tmp_path, clock)
    for _ in range(60):
        match chance.randrange(6):
            case 0:
                life.configure(
                    table(chance.choice(["SeparateNPU", "RestartNPU", "RestartRequest"]))
                )
            case 1:
                life.fault_state.snapshot()
            case 2:
                life.configure(FaultTexts())
            case _:
                chip = chance.randrange(4)
                life.see(chance.choice([Assertion.OCCUR, Assertion.RECOVER]), chip)
    await life.committed()
    assert await life.journal.close()
    with closing(JournalFile(tmp_path / FILE_NAME)) as file:
        while file.prune(older_than_ms=clock.now_ms + 1, max_bytes=0).may_be_more:
            pass
    remembered = read_restored(tmp_path / FILE_NAME)
    restored = restored_state(remembered, NODE, "boot", shipped())
    assert msgspec.structs.replace(restored, settled_at_ms=0) == life.state
    assert configured_by(remembered) == life.fault_state.texts


@pytest.mark.slow
async def test_a_journal_that_comes_back_has_the_configuration(tmp_path: Path) -> None:
    """What was written while it failed may be lost; a snapshot needs its tables."""
    life = Life(tmp_path, Clock())
    life.see(Assertion.OCCUR)
    life.configure(table("SeparateNPU"))
    await life.committed()
    for file in tmp_path.glob(f"{FILE_NAME}*"):
        file.unlink()
    life.see(Assertion.OCCUR, 4)
    await until(lambda: life.journal.status().gaps and life.journal.status().trouble is None)
    await life.committed()
    remembered = read_restored(tmp_path / FILE_NAME)
    assert configured_by(remembered) == table("SeparateNPU")
    restored = restored_state(remembered, NODE, "boot", shipped())
    assert {chip: known.level for chip, known in restored.chips.items()} == {
        3: "SeparateNPU",
        4: "SeparateNPU",
    }


async def test_texts_of_a_later_release_that_cannot_be_read(tmp_path: Path) -> None:
    life = Life(tmp_path, Clock())
    life.configure(table("SeparateNPU"))
    life.journal.append([(RowKind.FAULT_CONFIGURATION, '{"fault_code":"{"}')], life.clock())
    await life.committed()
    remembered = read_restored(tmp_path / FILE_NAME)
    assert configured_by(remembered) == table("SeparateNPU")
    assert restored_state(remembered, NODE, "boot", shipped()).chips == {}

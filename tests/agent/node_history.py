"""A journal as an agent writes it: real verdicts over a real journal, with a clock set by hand."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from agent.fault_state import SHIPPED, FaultState, configured_by, restored_state
from agent.journal.file import FILE_NAME, read_restored
from agent.journal.journal import Journal
from agent.journal.rows import RowKind
from agent.policy.state import CHIP_SOURCE, Acknowledged
from contract.codes import catalogue
from contract.names import device_info_name
from contract.observation import Assertion, Observation, SourceAnswered, chip_subject
from contract.operator_rules.fault_configuration import catalogue_of

if TYPE_CHECKING:
    from pathlib import Path

    from agent.policy.step import Input
    from contract.operator_rules.fault_configuration import FaultTexts

NODE = "node-1"
BEGIN_MS = 1_799_971_200_000
"""2027-01-15 00:00 UTC."""
AIC = "80E3A201"
"""``SeparateNPU`` in the shipped table, and no rule names it."""
MILD = "80818201"
"""``NotHandleFault`` in the shipped table."""


class NodeHistory:
    """One node whose agent lives, is killed, lives again, while hours pass in no time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = BEGIN_MS

    async def begin(self, texts: FaultTexts = SHIPPED) -> None:
        """Begin a process; one that ran was killed. ``texts`` is the configuration in force."""
        remembered = read_restored(self.directory / FILE_NAME)
        state = restored_state(remembered, NODE, "boot", catalogue.shipped())
        assert configured_by(remembered) == texts
        self.fault_state = FaultState(
            state, catalogue_of(texts), lambda: self.now_ms, lambda _: None, texts
        )
        self.journal = Journal(
            self.directory,
            first_sequence=remembered.last_sequence + 1,
            wall_clock=lambda: self.now_ms,
            on_recovered=self.fault_state.snapshot,
        )
        self.write(RowKind.START, {"node": NODE, "boot_id": "boot", "version": "1"})
        self.fault_state.start_journaling(self.journal)

    async def end(self) -> None:
        """End the process in the regular way."""
        self.fault_state.end()
        self.write(RowKind.STOP, {"reason": "a signal"})
        assert await self.journal.close()

    async def killed(self) -> None:
        """Kill the process; what is committed remains."""
        await self.committed()
        assert await self.journal.close()

    async def committed(self) -> None:
        assert await self.journal.committed(self.journal.last_sequence, 5)

    def write(self, kind: RowKind, body: object) -> None:
        self.journal.append([(kind, msgspec.json.encode(body).decode())], self.now_ms)

    def take(self, *inputs: Input) -> None:
        self.fault_state.apply_inputs(inputs)

    def see(self, assertion: Assertion, code: str, chip: int = 3) -> None:
        self.take(Observation(CHIP_SOURCE, chip_subject(chip), code, assertion, self.now_ms))

    def answer(self, chips: int = 8) -> None:
        self.take(
            *(SourceAnswered(CHIP_SOURCE, chip_subject(chip), self.now_ms) for chip in range(chips))
        )

    def acknowledge(self) -> None:
        """Acknowledge the current revision as the store does."""
        revision = self.fault_state.state.revision
        self.take(Acknowledged(device_info_name(NODE), revision, self.now_ms))

    async def wait(self, *, hours: float = 0, seconds: float = 0) -> None:
        """Let time pass; timers of the agent fire when they are due."""
        self.now_ms += round(hours * 3_600_000 + seconds * 1000)
        self.take()
        await asyncio.sleep(0)


def changed(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        assert connection.execute(statement).rowcount
        connection.commit()


async def a_history(directory: Path) -> NodeHistory:
    """Return a history: a fault from 23:00 until 02:00, a one-off event, a restart between."""
    node = NodeHistory(directory)
    await node.begin()
    node.answer()
    await node.wait(hours=23)
    node.see(Assertion.OCCUR, AIC)
    node.acknowledge()
    await node.killed()
    await node.wait(hours=1.5)
    await node.begin()
    node.answer()
    node.see(Assertion.ONCE, MILD, 5)
    node.acknowledge()
    await node.wait(seconds=6)
    await node.wait(seconds=1800 - 6)
    await node.wait(hours=1)
    node.see(Assertion.RECOVER, AIC)
    await node.wait(hours=1)
    await node.end()
    return node

"""A journal as an agent writes it: real verdicts over a real journal, with a clock set by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from agent.fault_state import SHIPPED, FaultState, configured_by, restore
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


class NodeHistory:
    """One node whose agent lives, is killed, lives again, while hours pass in no time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = BEGIN_MS

    async def begin(self, texts: FaultTexts = SHIPPED) -> None:
        """Begin a process; one that ran was killed. ``texts`` is the configuration in force."""
        remembered = read_restored(self.directory / FILE_NAME)
        state = restore(remembered, NODE, "boot", catalogue.shipped())
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
        self.fault_state.begin(self.journal)

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
        self.fault_state.apply(inputs)

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

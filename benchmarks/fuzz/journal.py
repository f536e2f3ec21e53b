"""A journal of which one row is nonsense: a start goes on, and so does a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from agent.fault_state import restored_state
from agent.journal.file import RestoredJournal
from agent.journal.rows import JournalRow, RowKind
from agent.policy.state import CHIP_SOURCE, Acknowledged, PolicyState
from agent.policy.step import step
from agent.replay.level_history import Span
from agent.replay.replay import replay
from contract.codes.catalogue import shipped
from contract.errors import JournalError
from contract.names import device_info_name
from contract.observation import (
    Assertion,
    Gap,
    Observation,
    SourceAnswered,
    SourceBlind,
    chip_subject,
    host_subject,
)
from contract.operator_rules.fault_configuration import FaultTexts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.policy.step import Input

_NODE = "node-1"
_NOW_MS = 1_800_000_000_000


def _inputs() -> list[list[Input]]:
    chip = chip_subject(3)
    return [
        [SourceAnswered(CHIP_SOURCE, chip_subject(number), _NOW_MS) for number in range(4)],
        [
            Observation(CHIP_SOURCE, chip, "80E01801", Assertion.OCCUR, _NOW_MS + 1, None, 1, 7),
            Observation(CHIP_SOURCE, chip, "81078603", Assertion.OCCUR, _NOW_MS + 1),
            Observation("bmc", host_subject("Fan", 3), "28000009", Assertion.PRESENT, _NOW_MS + 1),
        ],
        [Observation(CHIP_SOURCE, chip, "80818201", Assertion.ONCE, _NOW_MS + 2)],
        [Acknowledged(device_info_name(_NODE), 4, _NOW_MS + 3)],
        [SourceBlind("links", chip, _NOW_MS + 4, "hangs"), Gap(CHIP_SOURCE, _NOW_MS + 4, "full")],
        [Observation(CHIP_SOURCE, chip, "80E01801", Assertion.RECOVER, _NOW_MS + 30_000)],
    ]


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


@dataclass
class JournalRows:
    """Rows as texts, their kind before the first blank."""

    name: str = "journal"
    seeds: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = PolicyState(_NODE, "boot")
        rows = [(RowKind.START, _text({"node": _NODE, "boot_id": "boot", "version": "1"}))]
        snapshots = []
        for inputs in _inputs():
            state, changes = step(state, inputs, _NOW_MS + 40_000, shipped())
            rows += [(RowKind.REPORTS, _text(inputs)), (RowKind.CHANGES, _text(changes))]
            snapshots.append((RowKind.SNAPSHOT, _text(state)))
        rows += snapshots
        rows.append((RowKind.FAULT_CONFIGURATION, _text(FaultTexts('{"SeparateNPUCodes":[]}'))))
        rows.append((RowKind.USAGE, _text({"used": ["Ascend910-3"], "assigned": []})))
        rows.append((RowKind.GAP, _text({"since_ms": _NOW_MS, "reason": "full", "rows_lost": 3})))
        self.seeds = [f"{kind} {body}" for kind, body in rows]
        self._state = state

    def feed(self, text: str) -> None:
        """See ``Target``. What follows the bad row is a snapshot, which makes both whole again."""
        kind, _, body = text.partition(" ")
        good = _text(self._state)
        rows = [
            JournalRow(1, _NOW_MS, RowKind.START, _text({"node": _NODE, "boot_id": "boot"})),
            JournalRow(2, _NOW_MS, RowKind.SNAPSHOT, good),
            JournalRow(3, _NOW_MS, kind, body),
            JournalRow(4, _NOW_MS + 1, RowKind.SNAPSHOT, good),
        ]
        found = replay(rows, shipped(), Span())
        self._restore(kind, body, good)
        assert found.rows == len(rows)
        assert len(found.days) <= 400
        if any("cannot be decoded" in one.what for one in found.breaks):
            raise JournalError(found.breaks[0].what)

    def _restore(self, kind: str, body: str, good: str) -> None:
        """Start from the row."""
        if kind not in (RowKind.SNAPSHOT, RowKind.REPORTS):
            return
        is_snapshot = kind == RowKind.SNAPSHOT
        snapshot = JournalRow(1, _NOW_MS, RowKind.SNAPSHOT, body if is_snapshot else good)
        inputs = () if is_snapshot else (JournalRow(2, _NOW_MS, RowKind.REPORTS, body),)
        state = restored_state(RestoredJournal(snapshot, inputs, None, 2), _NODE, "boot", shipped())
        assert state.node == _NODE
        assert msgspec.json.decode(msgspec.json.encode(state), type=PolicyState) == state

"""Rows that no agent of ours can have written are refused, with their number."""

from __future__ import annotations

import pytest

from agent.journal.rows import JournalRow, RowKind, body_of, state_of
from agent.policy.state import Fault, PolicyState, SubjectState
from contract.errors import JournalError


def snapshot(subject: str) -> JournalRow:
    """Return a snapshot in which a part of the server with a fault is called ``subject``."""
    fault = Fault("28000009", "episode", "bmc", "SeparateNPU", "a table", 1, 1)
    others = {subject: SubjectState(faults={fault.code: fault})}
    return JournalRow(7, 1, RowKind.SNAPSHOT, body_of(PolicyState("node-1", "boot", others=others)))


def test_a_part_of_the_server_is_no_chip() -> None:
    assert list(state_of(snapshot("host 3 Fan")).others) == ["host 3 Fan"]
    with pytest.raises(JournalError, match=r"row 7 \(snapshot\).*'chip 3 Fan'"):
        state_of(snapshot("chip 3 Fan"))

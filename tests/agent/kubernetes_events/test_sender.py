"""When Events are sent, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from agent.journal.file import RestoredJournal
from agent.kubernetes_events.sender import EventSender
from agent.kubernetes_events.text import Reporter
from agent.policy.state import PolicyState
from agent.policy.step import PolicyCall
from contract.codes.catalogue import shipped
from contract.codes.levels import Severity
from contract.observation import Assertion, Observation, chip_subject
from tests.agent.held_claim import held_claim
from tests.replay.journal import RecordedJournal
from tests.replay.objects import RecordedObjects

if TYPE_CHECKING:
    from pathlib import Path

    from agent.journal.journal import Journal
    from stores.base import ClusterObjects

NOW_MS = 1_700_000_000_000
FAULT = Observation(
    "chip-faults", chip_subject(3), "80E01801", Assertion.OCCUR, NOW_MS, Severity.CRITICAL
)


@pytest.mark.looptime
async def test_the_document_goes_before_them(tmp_path: Path) -> None:
    async def nothing() -> None:
        return None

    objects = RecordedObjects(nothing, lambda: True)
    journal = RecordedJournal(
        tmp_path, first_sequence=1, wall_clock=lambda: NOW_MS, on_recovered=lambda: None
    )
    events = EventSender(
        cast("ClusterObjects", objects),
        Reporter("node-1"),
        cast("Journal", journal),
        held_claim(),
        lambda: NOW_MS,
        inventory=asyncio.Event().wait,  # type: ignore[arg-type]
    )
    events.resume_from_journal(RestoredJournal(), PolicyState("node-1", "boot"), shipped())
    sending = asyncio.create_task(events.run())
    await asyncio.sleep(60)
    events.record_changes(PolicyCall([FAULT], (), shipped(), 1))
    await asyncio.sleep(0.03)
    assert not objects.events, "its document is being written"
    await asyncio.sleep(0.1)
    assert [event.reason for event in objects.events.values()] == ["Occur"]
    sending.cancel()

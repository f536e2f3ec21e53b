"""Reports of one moment in one batch. Times are virtual."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from collectors.report_batch import ReportBatch
from contract.observation import Gap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.observation import Report

pytestmark = pytest.mark.looptime
ONE, TWO, THREE = (Gap("links", at_ms, "") for at_ms in (1, 2, 3))


async def test_reports_within_20_ms_are_one_batch() -> None:
    sent: list[Sequence[Report]] = []
    batch = ReportBatch(sent.append)
    batch.add([ONE])
    batch.add([])
    await asyncio.sleep(0.01)
    batch.add([TWO])
    assert sent == []
    await asyncio.sleep(0.02)
    assert sent == [[ONE, TWO]]
    await asyncio.sleep(1)
    assert len(sent) == 1


async def test_an_event_reports_what_waits_in_the_same_turn() -> None:
    sent: list[Sequence[Report]] = []
    batch = ReportBatch(sent.append)
    batch.add([ONE])
    batch.add_soon([TWO])
    batch.add_soon([THREE])
    await asyncio.sleep(0)
    assert sent == [[ONE, TWO, THREE]]
    await asyncio.sleep(1)
    assert len(sent) == 1


async def test_send_reports_at_once_and_never_an_empty_batch() -> None:
    sent: list[Sequence[Report]] = []
    batch = ReportBatch(sent.append)
    batch.send()
    batch.add([ONE])
    batch.send([TWO])
    assert sent == [[ONE, TWO]]
    await asyncio.sleep(1)
    assert len(sent) == 1

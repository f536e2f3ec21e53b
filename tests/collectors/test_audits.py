"""When audits of a driver's lists are due."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from collectors.audits import AuditSchedule

PERIOD_SECONDS = 5.0
MAX_WAIT_SECONDS = 2.0


@pytest.mark.looptime
async def test_a_round_at_rest_looks_once_and_an_event_makes_it_look_again() -> None:
    loop = asyncio.get_running_loop()
    looks, audits, progress = list[float](), list[float](), list[float]()
    due = PERIOD_SECONDS

    def next_due() -> float:
        looks.append(loop.time())
        return due

    async def audit(at: float) -> None:
        nonlocal due
        audits.append(at)
        due = at + PERIOD_SECONDS

    schedule = AuditSchedule(lambda: progress.append(loop.time()), MAX_WAIT_SECONDS)
    task = asyncio.create_task(schedule.run(next_due, audit))
    await asyncio.sleep(2 * PERIOD_SECONDS + 0.5)
    assert audits == [PERIOD_SECONDS, 2 * PERIOD_SECONDS]
    assert looks == [0.0, *audits], "nothing else is due after a wait without an event"
    silences = [later - before for before, later in itertools.pairwise(progress)]
    assert max(silences) <= MAX_WAIT_SECONDS, "the daemon expects progress meanwhile"
    due = loop.time() + 1.0
    for _ in range(3):
        schedule.wake()
    await asyncio.sleep(1.5)
    assert audits == [PERIOD_SECONDS, 2 * PERIOD_SECONDS, 2 * PERIOD_SECONDS + 1.5]
    assert looks == [0.0, PERIOD_SECONDS, 10.0, 10.52, 11.5], "behind the document of the event"
    task.cancel()

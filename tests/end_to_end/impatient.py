"""``vigil`` whose agent has a collector that stands still, and whose aggregator has no patience.

For stalls that are real and do not take a minute: ``python -m tests.end_to_end.impatient VERB …``.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

import service.watchdog
from collectors import registry
from collectors.base import Collector
from contract.settings import Section
from vigil.main import main


class StandsStill(Collector[Section]):
    """A collector that makes no progress."""

    name = "stands-still"
    period_seconds = 0.5
    deadline_seconds = 0.5

    async def run(self) -> NoReturn:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody ends the wait")


if __name__ == "__main__":
    service.watchdog.BUSY_SECONDS = 0.5
    registry.COLLECTORS = (*registry.COLLECTORS, StandsStill)
    main()

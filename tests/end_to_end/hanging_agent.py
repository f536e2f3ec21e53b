"""``vigil`` with one more collector; it hangs while the file ``HANGS_WHILE_THERE_IS`` is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from collectors import registry
from collectors.base import Collector
from contract.settings import Section
from tests.parts.deadlines import stand_in_waits
from vigil.main import main

_STEP_SECONDS = 0.02


class Hangs(Collector[Section]):
    """Makes progress, but for the time in which it does not."""

    name = "hangs"
    period_seconds = 0.1
    deadline_seconds = 0.1

    async def run(self) -> NoReturn:
        """Watch the file."""
        file = Path(os.environ["HANGS_WHILE_THERE_IS"])
        while True:
            await stand_in_waits(_STEP_SECONDS)
            if not file.exists():
                self.context.progress()


if __name__ == "__main__":
    registry.COLLECTORS = (*registry.COLLECTORS, Hangs)
    main()

"""``vigil`` with one more collector; it hangs while the file ``HANGS_WHILE_THERE_IS`` is there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from collectors import registry
from contract.settings import Section
from vigil.main import main

if TYPE_CHECKING:
    from collectors.base import AgentOptions, CollectorContext

_STEP_SECONDS = 0.02


class Hangs:
    """Makes progress, but for the time in which it does not."""

    name = "hangs"
    settings: ClassVar[type[Section]] = Section
    enabled = True
    period_seconds = 0.1
    deadline_seconds = 0.1

    def __init__(self, _: Section, __: AgentOptions) -> None:
        pass

    async def run(self, context: CollectorContext) -> NoReturn:
        """Watch the file."""
        file = Path(os.environ["HANGS_WHILE_THERE_IS"])
        while True:
            await asyncio.sleep(_STEP_SECONDS)
            if not file.exists():
                context.progress()


if __name__ == "__main__":
    registry.COLLECTORS = (*registry.COLLECTORS, Hangs)
    main()

"""Whether the root tasks of the daemon still make progress: what ``/healthz`` answers from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress:
    """When each root task last said that it goes on."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._patience: dict[str, float] = {}

    def of(self, task: str, patience_seconds: float) -> Callable[[], None]:
        """What ``task`` calls at least once in ``patience_seconds`` while all is well."""
        self._patience[task] = patience_seconds

        def mark() -> None:
            self._last[task] = time.monotonic()

        mark()
        return mark

    def stalled(self) -> dict[str, float]:
        """The tasks that are silent for too long, and for how many seconds."""
        now = time.monotonic()
        silence = {task: now - last for task, last in self._last.items()}
        return {
            task: seconds for task, seconds in silence.items() if seconds > self._patience[task]
        }

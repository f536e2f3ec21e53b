"""Gathers reports of a collector, so that those of one moment make one document."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collectors.base import Sink
    from contract.observation import Report

_TOGETHER_SECONDS = 0.02


class ReportBatch:
    """Passes reports to ``sink``, in their order."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Report] = []
        self._later: asyncio.Handle | None = None
        self._soon: asyncio.Handle | None = None

    def add(self, reports: Iterable[Report]) -> None:
        """Report with what follows within 20 ms, so that a round of queries makes one document."""
        self._gathered += reports
        if self._gathered and self._later is None:
            self._later = self._loop.call_later(_TOGETHER_SECONDS, self.send)

    def add_soon(self, reports: list[Report]) -> None:
        """Report in this turn of the loop, with other events that have arrived already."""
        self._gathered += reports
        if reports and self._soon is None:
            self._soon = self._loop.call_soon(self.send)

    def send(self, reports: Iterable[Report] = ()) -> None:
        """Report at once, after what was gathered before."""
        for handle in (self._soon, self._later):
            if handle is not None:
                handle.cancel()
        # Before the sink is called: what it adds needs a timer of its own.
        self._soon = self._later = None
        batch, self._gathered = [*self._gathered, *reports], []
        if batch:
            self._sink(batch)

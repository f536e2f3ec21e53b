"""Jobs whose faults ended while no replica served clients.

A subscriber that received such a fault from the leader before would hold it for ever: a job without
faults is in no other message (``docs/spec/clusterd.md#5.4``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.grpc.fault_messages import NORMAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.grpc.interfaces import JobFaultLookup

FOR_MS = 600_000
"""Clients whose leader was lost come back within two minutes as a rule."""

MOST = 10_000
"""Beyond that the oldest is forgotten."""


class Recoveries:
    """Recoveries that subscribers may have missed. Times are steady milliseconds."""

    def __init__(self, faults: JobFaultLookup) -> None:
        self._faults = faults
        self._ill: dict[str, bool] = {}
        """Jobs and MindIE's jobIDs with faults, each with whether it is a job."""
        self._over: dict[str, tuple[int, bool]] = {}

    def record(self, jobs: Iterable[str], now_ms: int, *, sent: bool) -> None:
        """Record jobs whose message changed; ``sent``: subscribers received it."""
        for job in jobs:
            message = self._faults.message(job)
            if message is not None and message.signal_type != NORMAL:
                self._ill[job] = job in self._faults.faulty()
                self._over.pop(job, None)
                continue
            is_job = self._ill.pop(job, None)
            if is_job is None or sent:
                continue
            self._over[job] = now_ms, is_job
            while len(self._over) > MOST:
                del self._over[next(iter(self._over))]

    def of(self, job: str, now_ms: int) -> Iterator[str]:
        """Yield the job, if its recovery may have been missed."""
        self._forget(now_ms)
        if job in self._over:
            yield job

    def of_all(self, now_ms: int) -> Iterator[str]:
        """Yield those of all missed recoveries that are jobs."""
        self._forget(now_ms)
        return (job for job, (_, is_job) in self._over.items() if is_job)

    def _forget(self, now_ms: int) -> None:
        while self._over:
            oldest = next(iter(self._over))
            if self._over[oldest][0] + FOR_MS > now_ms:
                return
            del self._over[oldest]

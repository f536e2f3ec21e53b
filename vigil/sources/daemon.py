"""An agent or an aggregator as a source, over HTTP."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from typing_extensions import override

from contract.errors import StoreError
from vigil.daemon_client import NOT_FOUND, DaemonClient
from vigil.reports.explanation import NodeExplanation, explain_node, report_of
from vigil.reports.fault_history import DaemonHistory
from vigil.reports.job_report import JobReport, job_report
from vigil.sources.source import AnswerSource

if TYPE_CHECKING:
    from vigil.reports.status_report import StatusReport
    from vigil.sources.source import FaultHistory, Signal

_RETRY_SECONDS = 1.0


class _Pace(NamedTuple):
    """How often a daemon is asked: after an event, and without one.

    Streams have no events of heartbeats, documents and readiness.
    """

    least_seconds: float
    longest_seconds: float


_AGENT = _Pace(0.1, 1.0)
_AGGREGATOR = _Pace(0.25, 2.0)


class DaemonSource(AnswerSource):
    """What the daemon behind ``client`` answers."""

    def __init__(self, client: DaemonClient) -> None:
        self._client = client

    @override
    def report(self, node: str | None) -> StatusReport:
        return report_of(self._client, node)

    @override
    def explanation(self, node: str, part: str) -> NodeExplanation:
        return explain_node(self._client, node, part)

    @override
    def jobs(self) -> JobReport:
        return job_report(self._client)

    @override
    def history(self, node: str | None, part: str, since_ms: int | None) -> FaultHistory:
        return DaemonHistory(self._client, node, part, since_ms)

    @override
    def signal(self, node: str | None) -> Signal:
        """See ``AnswerSource``. A daemon is asked after an event of its stream."""
        path = "/api/v1/stream" + (f"?node={quote(node, safe='')}" if node else "")
        # Only an aggregator has this page.
        is_agent = self._client.fetch("/api/v1/leader")[0] == NOT_FOUND
        return _Stream(self._client, path, _AGENT if is_agent else _AGGREGATOR)

    @override
    def close(self) -> None:
        self._client.close()


class _Stream:
    """Waits for an event of the stream at ``path``."""

    def __init__(self, client: DaemonClient, path: str, pace: _Pace) -> None:
        self._client = client
        self._path = path
        self._pace = pace
        self._came = threading.Event()
        self._last = 0.0
        # A daemon thread, because it waits in a read that nothing ends.
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self) -> None:
        """Wait for an event, and until the last return is long enough ago."""
        self._came.wait(self._pace.longest_seconds)
        time.sleep(max(0.0, self._last + self._pace.least_seconds - time.monotonic()))
        self._came.clear()
        self._last = time.monotonic()

    def _follow(self) -> None:
        while True:
            with suppress(StoreError):
                for line in self._client.follow(self._path):
                    # The first line comes when the stream begins: what changed before is asked for.
                    if line.startswith((b"retry:", b"event:")):
                        self._came.set()
            time.sleep(_RETRY_SECONDS)

"""An agent or an aggregator as a source, over HTTP."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from contract.errors import StoreError
from vigil.daemon_client import NOT_FOUND, DaemonClient
from vigil.reports.explanation import NodeExplanation, explain_node
from vigil.reports.fault_history import DaemonHistory
from vigil.reports.job_report import JobReport, job_report
from vigil.reports.node_report import report_of

if TYPE_CHECKING:
    from vigil.reports.status_report import StatusReport
    from vigil.sources.source import FaultHistory, Signal

_AGENT_SECONDS = 0.2
_AGGREGATOR_SECONDS = 0.25
_WITHOUT_SIGNAL_SECONDS = 2.0
"""The stream of an aggregator has no events of heartbeats."""
_AGAIN_SECONDS = 1.0


class DaemonSource:
    """What the daemon behind ``client`` answers."""

    def __init__(self, client: DaemonClient) -> None:
        self._client = client

    def report(self, node: str | None) -> StatusReport:
        """See ``AnswerSource``."""
        return report_of(self._client, node)

    def explanation(self, node: str, part: str) -> NodeExplanation:
        """See ``AnswerSource``."""
        return explain_node(self._client, node, part)

    def jobs(self) -> JobReport:
        """See ``AnswerSource``."""
        return job_report(self._client)

    def history(self, node: str | None, part: str, since_ms: int | None) -> FaultHistory:
        """See ``AnswerSource``."""
        return DaemonHistory(self._client, node, part, since_ms)

    def signal(self, node: str | None) -> Signal:
        """See ``AnswerSource``. An agent is asked every 0.2 s.

        An aggregator is asked after an event of its stream, at most 4 times a second.
        """
        if self._client.ask("/api/v1/leader")[0] == NOT_FOUND:
            return _Pause()
        path = "/api/v1/stream" + (f"?node={quote(node, safe='')}" if node else "")
        return _Stream(self._client, path)

    def close(self) -> None:
        """See ``AnswerSource``."""
        self._client.close()


class _Pause:
    def wait(self) -> None:
        time.sleep(_AGENT_SECONDS)


class _Stream:
    """Waits for an event of the stream at ``path``."""

    def __init__(self, client: DaemonClient, path: str) -> None:
        self._client = client
        self._path = path
        self._came = threading.Event()
        self._last = 0.0
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self) -> None:
        """Wait for an event, and until the last return is long enough ago."""
        self._came.wait(_WITHOUT_SIGNAL_SECONDS)
        time.sleep(max(0.0, self._last + _AGGREGATOR_SECONDS - time.monotonic()))
        self._came.clear()
        self._last = time.monotonic()

    def _follow(self) -> None:
        while True:
            with suppress(StoreError):
                for line in self._client.follow(self._path):
                    # The first line comes when the stream begins: what changed before is asked for.
                    if line.startswith((b"retry:", b"event:")):
                        self._came.set()
            time.sleep(_AGAIN_SECONDS)

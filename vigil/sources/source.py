"""The interface of all sources of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.reports.explanation import NodeExplanation
    from vigil.reports.fault_history import Timeline, TimelineRow
    from vigil.reports.job_report import JobReport
    from vigil.reports.status_report import StatusReport


class Signal(Protocol):
    """Wakes when a source is worth asking again."""

    def wait(self) -> None:
        """Wait until something may have changed."""


class FaultHistory(Protocol):
    """What happened to faults."""

    def about(self) -> Timeline:
        """Return the source that answers; without rows."""

    def read(self) -> Iterator[TimelineRow]:
        """Yield what came since the last call, oldest first."""


class AnswerSource(Protocol):
    """A daemon, or documents.

    Each method raises ``StoreError`` where there is no answer, and ``UnknownNode`` for a node that
    the source does not know.
    """

    def report(self, node: str | None) -> StatusReport:
        """Return what is known, of ``node`` only with one."""

    def explanation(self, node: str, part: str) -> NodeExplanation:
        """Return why ``node``, or ``part`` of it, is in its state.

        Raises ``ConfigurationError`` for a part that the node lacks.
        """

    def jobs(self) -> JobReport:
        """Return which jobs are hit."""

    def history(self, node: str | None, part: str, since_ms: int | None) -> FaultHistory:
        """Return what happened from ``since_ms`` on (epoch milliseconds)."""

    def signal(self, node: str | None) -> Signal:
        """Return the signal to ask again, about ``node`` only with one."""

    def close(self) -> None:
        """Give back what the source keeps open."""

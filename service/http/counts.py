"""What a server counts, and its metrics."""

from __future__ import annotations

import time
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from service.metric_families import counter, single_counter, single_gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

_TRACEBACK_SECONDS = 60.0


class ConnectionEnd(Enum):
    """Why the server closed a connection."""

    CROWDED = "crowded"
    """All places were taken.

    It was the oldest waiting one of the address with the most, among those with nothing unread.
    """
    ADDRESS = "address"
    """Its address had too many unfinished requests."""
    LATE = "late"
    """Its request was not whole in time."""
    UNSENT = "unsent"
    """Its client did not take an answer in time."""
    REFUSED = "refused"
    """All places were taken by whole requests."""
    DESCRIPTORS = "descriptors"
    """Only reserved descriptors were left."""
    HANDSHAKE = "handshake"
    """Its TLS handshake failed, or was not whole in time."""


class RequestResult(Enum):
    """What came of a request."""

    ANSWERED = "answered"
    BAD = "bad"
    """It is not a valid HTTP request."""
    FAILED = "failed"
    """A page could not be made."""


class LoginResult(Enum):
    """What came of a user and a password, or of a token."""

    RIGHT = "right"
    WRONG = "wrong"
    BUSY = "busy"
    """Too many others waited to be compared or reviewed."""
    FORBIDDEN = "forbidden"
    """The token is right, but its user may not get the page."""
    UNREVIEWED = "unreviewed"
    """The API server did not review the token."""


class Counts(Collector):
    """Counts of all listeners of a daemon. ``steady_seconds`` is a clock that is never set."""

    def __init__(self, steady_seconds: Callable[[], float] = time.monotonic) -> None:
        self._steady_seconds = steady_seconds
        self._traceback_at: float | None = None
        self.listening: bool | None = None
        """Whether the address of ``--listen`` is served; ``None`` without one."""
        self.connections = 0
        self.accept_failures = 0
        self.requests: Counter[RequestResult] = Counter()
        self.closed: Counter[ConnectionEnd] = Counter()
        self.logins: Counter[LoginResult] = Counter()

    def wants_traceback(self) -> bool:
        """Return whether an error may be logged with its traceback: once a minute."""
        now = self._steady_seconds()
        if self._traceback_at is not None and now < self._traceback_at + _TRACEBACK_SECONDS:
            return False
        self._traceback_at = now
        return True

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        if self.listening is not None:
            yield single_gauge(
                "npu_vigil_http_listening",
                "Whether the address of --listen is served; it is tried again while it is not.",
                self.listening,
            )
        yield single_gauge("npu_vigil_http_connections", "Open HTTP connections.", self.connections)
        yield single_counter(
            "npu_vigil_http_accept_failures",
            "Connections that could not be accepted, or were closed for lack of descriptors.",
            self.accept_failures,
        )
        yield counter(
            "npu_vigil_http_requests",
            "HTTP requests by result.",
            ["result"],
            (([result.value], self.requests[result]) for result in RequestResult),
        )
        yield counter(
            "npu_vigil_http_closed_connections",
            "HTTP connections that the server closed to protect itself, by reason.",
            ["reason"],
            (
                ([reason.value], self.closed[reason])
                for reason in ConnectionEnd
                if self.closed[reason]
            ),
        )
        # Without a login configured there is no such family.
        if self.logins:
            yield counter(
                "npu_vigil_http_logins",
                "HTTP requests with a user and a password, or with a token, by result.",
                ["result"],
                (([result.value], count) for result, count in self.logins.items()),
            )

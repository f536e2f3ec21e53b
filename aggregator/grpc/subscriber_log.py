"""Logs which clients subscribe and leave."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aggregator.grpc.subscriptions import SubscriptionEnd

if TYPE_CHECKING:
    from aggregator.grpc.subscriptions import Subscriber
    from service.clock import Clock

_log = logging.getLogger(__name__)

_PERIOD_MS = 60_000


class _Replaced:
    """A client whose place was taken by another one with the same job and role."""

    def __init__(self, now_ms: int) -> None:
        self.logged_at_ms = now_ms
        self.last_at_ms = now_ms
        self.count = 0
        """How often since the last line."""


class SubscriberLog:
    """Logs which clients subscribe to ``subject`` and leave.

    Two clients with the same job and role replace each other for as long as both run, several times
    a second. They have one line a minute, with a count.
    """

    def __init__(self, subject: str, clock: Clock) -> None:
        self._what = subject
        self._clock = clock
        self._replaced: dict[Subscriber, _Replaced] = {}

    def subscribed(self, client: Subscriber) -> None:
        """Log that ``client`` listens, unless it was replaced within the last minute."""
        if not self._is_quiet(client):
            _log.info("%s: listens to %s", _name(client), self._what)

    def ended(self, client: Subscriber, closed: SubscriptionEnd | None) -> None:
        """Log that ``client`` left; ``closed`` is why the service ended its stream."""
        if closed is SubscriptionEnd.REPLACED:
            self._count(client)
        elif not self._is_quiet(client):
            self._replaced.pop(client, None)
            _log.info("%s: listens to %s no more", _name(client), self._what)

    def _is_quiet(self, client: Subscriber) -> bool:
        latest = self._replaced.get(client)
        return latest is not None and self._clock().steady_ms < latest.last_at_ms + _PERIOD_MS

    def _count(self, client: Subscriber) -> None:
        now_ms = self._clock().steady_ms
        latest = self._replaced.get(client)
        if latest is None:
            # A registration that was replaced long ago is of no interest any more.
            self._replaced = {
                other: replaced
                for other, replaced in self._replaced.items()
                if now_ms < replaced.last_at_ms + 2 * _PERIOD_MS
            }
            self._replaced[client] = _Replaced(now_ms)
            _log.info(
                "%s: a newer client with the same job and role takes its place", _name(client)
            )
            return
        latest.count += 1
        latest.last_at_ms = now_ms
        if now_ms >= latest.logged_at_ms + _PERIOD_MS:
            _log.warning(
                "%s: clients with the same job and role replaced each other %d times since the "
                "last line about it. Run one of them, or give each its own role",
                _name(client),
                latest.count,
            )
            latest.logged_at_ms, latest.count = now_ms, 0


def _name(client: Subscriber) -> str:
    if not client.role:
        return f"jobID {client.job!r}"
    return f"job {client.job!r}, role {client.role!r}"

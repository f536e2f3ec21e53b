"""Registrations and subscriptions of clients (``docs/spec/clusterd.md#5.4``, defect B30).

A client registers with a job and a role, then subscribes with the same two. A new registration of
the two ends the subscription before it. A client that does not subscribe within ``LEASE_MS`` is
forgotten, and so is one that ends its subscription: it registers again.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.clock import Clock

MAX_JOBS = 10_000
MAX_ROLES = 64
"""Of one job. Upstream has no such bound; its clients know of about three."""

LEASE_MS = 60_000
MAX_ID_BYTES = 256
"""Of a job or a role that is registered."""
_log = logging.getLogger(__name__)
_PERIOD_MS = 60_000


class SubscriptionEnd(enum.Enum):
    """Why a workqueue was closed."""

    REPLACED = "a newer registration took its place"
    STOPPING = "this replica does not lead (any more)"


class SubscriberWorkqueue:
    """The jobs with a message for a subscriber, in the order in which they changed first.

    Only the name is kept, each once; the state is looked up when it is popped. So a subscriber that
    reads slowly, or never, costs a name per job, and gets the newest state. For one loop.
    """

    def __init__(self) -> None:
        self.closed: SubscriptionEnd | None = None
        self._waiting: dict[str, None] = {}
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str) -> None:
        """Add a name that changed."""
        if self.closed is None:
            self._waiting[name] = None
            self._woken.set()

    def close(self, reason: SubscriptionEnd) -> None:
        """Let ``pop`` end, and drop what waits. The first reason counts."""
        if self.closed is None:
            self.closed = reason
            self._waiting.clear()
            self._woken.set()

    async def pop(self) -> str | None:
        """Wait for the next name; ``None`` once it is closed."""
        while self.closed is None:
            if self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                return name
            self._woken.clear()
            await self._woken.wait()
        return None


class Subscriber(NamedTuple):
    """The job and role of a client."""

    job: str
    role: str


class _Registered:
    """A client that registered; it is subscribed once it has a workqueue."""

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self.workqueue: SubscriberWorkqueue | None = None


class Subscriptions:
    """The clients of one service. Times are steady ms."""

    def __init__(self) -> None:
        self._clients: dict[str, dict[str, _Registered]] = {}
        self._sweep_at_ms = 0

    @property
    def registered(self) -> int:
        """How many clients registered, listening or not."""
        return sum(len(roles) for roles in self._clients.values())

    def listening(self, job: str) -> list[SubscriberWorkqueue]:
        """Return the workqueues of all subscriptions to exactly this job."""
        return [
            registered.workqueue
            for registered in self._clients.get(job, {}).values()
            if registered.workqueue is not None
        ]

    @property
    def subscribed(self) -> frozenset[Subscriber]:
        """All clients with a subscription."""
        return frozenset(
            Subscriber(job, role)
            for job, roles in self._clients.items()
            for role, registered in roles.items()
            if registered.workqueue is not None
        )

    def is_registered(self, client: Subscriber, now_ms: int) -> bool:
        """Return whether this client registered and was not forgotten."""
        self._sweep(now_ms)
        return client.role in self._clients.get(client.job, {})

    def has_room(self, client: Subscriber, now_ms: int) -> bool:
        """Return whether one more client may register."""
        self._sweep(now_ms)
        roles = self._clients.get(client.job)
        if roles is None:
            return len(self._clients) < MAX_JOBS
        return client.role in roles or len(roles) < MAX_ROLES

    def register(self, client: Subscriber, now_ms: int) -> None:
        """Register a client, and end the subscription of an earlier one with the same job
        and role.
        """
        roles = self._clients.setdefault(client.job, {})
        before = roles.get(client.role)
        if before is not None and before.workqueue is not None:
            before.workqueue.close(SubscriptionEnd.REPLACED)
        roles[client.role] = _Registered(now_ms + LEASE_MS)

    def subscribe(self, client: Subscriber) -> SubscriberWorkqueue:
        """Listen as a registered client; the newest of several listens alone."""
        registered = self._clients[client.job][client.role]
        if registered.workqueue is not None:
            registered.workqueue.close(SubscriptionEnd.REPLACED)
        registered.workqueue = SubscriberWorkqueue()
        return registered.workqueue

    def end(self, client: Subscriber, workqueue: SubscriberWorkqueue) -> None:
        """Forget the client after its subscription ended, unless another took its place already."""
        roles = self._clients.get(client.job, {})
        registered = roles.get(client.role)
        if registered is not None and registered.workqueue is workqueue:
            self._forget([client])

    def close(self) -> None:
        """End all subscriptions and forget all clients."""
        for roles in self._clients.values():
            for registered in roles.values():
                if registered.workqueue is not None:
                    registered.workqueue.close(SubscriptionEnd.STOPPING)
        self._clients.clear()

    def _sweep(self, now_ms: int) -> None:
        if now_ms < self._sweep_at_ms:
            return
        self._sweep_at_ms = now_ms + LEASE_MS // 10
        self._forget(
            [
                Subscriber(job, role)
                for job, roles in self._clients.items()
                for role, registered in roles.items()
                if registered.workqueue is None and registered.until_ms <= now_ms
            ]
        )

    def _forget(self, clients: Iterable[Subscriber]) -> None:
        for client in clients:
            roles = self._clients[client.job]
            del roles[client.role]
            if not roles:
                del self._clients[client.job]


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

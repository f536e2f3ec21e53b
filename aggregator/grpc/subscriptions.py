"""Registrations and subscriptions of clients (``docs/spec/clusterd.md#5.4``, defect B30).

A client registers with a job and a role, then subscribes with the same two. A new registration of
the two ends the subscription before it. A client that does not subscribe within ``LEASE_MS`` is
forgotten, and so is one that ends its subscription: it registers again.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_JOBS = 10_000
MAX_ROLES = 64
"""Of one job. Upstream has no such bound; its clients know of about three."""

LEASE_MS = 60_000
MAX_ID_BYTES = 256
"""Of a job or a role that is registered."""


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

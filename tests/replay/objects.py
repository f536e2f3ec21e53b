"""What only Kubernetes has, in memory: the Events of a cluster, and one Node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.errors import StoreConflict, StoreRefused
from stores.base import NodeObject
from stores.interruption import Interrupted
from tests.parts.recording_player import merged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from stores.base import KubernetesEvent


class RecordedObjects:
    """The ``ClusterObjects`` of a recorded cluster; ``request`` fails while it is away.

    A ``node`` without a version is none.
    """

    def __init__(self, request: Callable[[], Awaitable[None]], is_up: Callable[[], bool]) -> None:
        self.events: dict[str, KubernetesEvent] = {}
        self.node = NodeObject({}, {}, "1")
        self.own_node_only_looks = 0
        self._request = request
        self._is_up = is_up
        self._watches: list[asyncio.Queue[NodeObject | Interrupted]] = []

    def change_node(
        self, labels: dict[str, str | None], annotations: dict[str, str | None]
    ) -> None:
        """Set labels and annotations of the Node as an operator does; ``None`` removes one."""
        self.node = NodeObject(
            merged(self.node.labels, labels),
            merged(self.node.annotations, annotations),
            str(int(self.node.version or 0) + 1),
        )
        if self._is_up():
            self._send(self.node)

    def came(self) -> None:
        """Send the Node object to all watches, because the API server is available again."""
        self._send(self.node)

    def went(self) -> None:
        """Interrupt all watches, because the API server is unavailable."""
        self._send(Interrupted("connection refused"))

    async def record(self, event: KubernetesEvent) -> None:
        await self._request()
        self.events.setdefault(event.name, event)

    async def get_node(self, node: str) -> NodeObject:
        await self._request()
        self._check()
        return self.node

    async def commands(self, node: str) -> tuple[tuple[str, str, str], ...]:
        del node
        return ()

    async def is_own_node_only(self, node: str) -> bool | None:
        """Return ``True``: it is in force; count the requests in ``own_node_only_looks``."""
        del node
        await self._request()
        self.own_node_only_looks += 1
        return True

    async def set_node(
        self,
        node: str,
        labels: dict[str, str],
        annotations: dict[str, str],
        *,
        expected: str | None = None,
    ) -> None:
        await self._request()
        self._check()
        if expected not in (None, self.node.version):
            raise StoreConflict("somebody else was faster")
        self.change_node({**labels}, {**annotations})

    async def watch_node(self, node: str) -> AsyncIterator[NodeObject | Interrupted]:
        queue: asyncio.Queue[NodeObject | Interrupted] = asyncio.Queue()
        self._watches.append(queue)
        try:
            yield self.node if self._is_up() else Interrupted("connection refused")
            while True:
                yield await queue.get()
        finally:
            self._watches.remove(queue)

    def _check(self) -> None:
        if not self.node.version:
            raise StoreRefused("there is no such Node")

    def _send(self, node: NodeObject | Interrupted) -> None:
        for queue in self._watches:
            queue.put_nowait(node)

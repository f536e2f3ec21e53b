"""What an agent asks of an API server: two documents, heartbeats, watches; without a driver."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import TYPE_CHECKING, NoReturn

from agent.heartbeat import heartbeat as beating
from agent.heartbeat.heartbeat import Heartbeat
from agent.publishing import publisher as publishing
from agent.publishing.publisher import DesiredDocument, DocumentPublisher
from stores.address import open_store
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_CHANGE_SECONDS = (15.0, 25.0)
_REFRESH_SECONDS = 300.0
_INTERVAL_SECONDS = 5.0


async def _nothing() -> None:
    """There is no journal to wait for."""


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class Client:
    """One agent called ``node``."""

    def __init__(self, kubeconfig: Path, node: str) -> None:
        self._store = open_store("kubernetes:", kubeconfig)
        self._node = node
        self._revision = 0
        edges = beating.HeartbeatCallbacks(
            stalled=dict,
            on_permitted=lambda: None,
            progress=lambda: None,
            blind=lambda: False,
            wall_clock=_wall_clock,
        )
        self.heartbeat = Heartbeat(self._store, node, f"host_{node}", _INTERVAL_SECONDS, edges)
        self._publishers = [
            self._publisher(namespace, f"{name}-{node}")
            for namespace, name in (
                ("kube-system", "mindx-dl-deviceinfo"),
                ("mindx-dl", "mindx-dl-nodeinfo"),
            )
        ]

    async def run(self) -> NoReturn:
        """Beat, publish and watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.heartbeat.run())
            for publisher in self._publishers:
                tasks.create_task(publisher.run())
            usage = self._store.usage(self._node)
            assert usage is not None
            tasks.create_task(_follow(usage))
            while True:
                await asyncio.sleep(random.uniform(*_CHANGE_SECONDS))
                self._revision += 1
                self._publishers[0].wake(_wall_clock())
        raise AssertionError("these tasks never end")

    async def close(self) -> None:
        """Give connections back."""
        await self._store.close()

    def _publisher(self, namespace: str, name: str) -> DocumentPublisher:
        stamps = itertools.count()

        def wanted() -> DesiredDocument:
            revision = self._revision if namespace == "kube-system" else 0

            def stamped(stamp: int) -> Document:
                text = f"{revision} {next(stamps)} {stamp}"
                return Document(namespace, name, {"DeviceInfoCfg": text}, {"bench": "true"})

            return DesiredDocument(revision, revision, stamped, _REFRESH_SECONDS)

        return DocumentPublisher(
            self._store,
            namespace,
            name,
            publishing.PublisherCallbacks(
                desired=wanted,
                stamp_of=lambda _: None,
                verify=lambda _: None,
                before_write=_nothing,
                before_repair=_nothing,
                on_first_read=lambda _: None,
                on_foreign=lambda _: False,
                on_acknowledged=lambda *_: None,
                on_shown=lambda: None,
                wall_clock=_wall_clock,
                progress=lambda: None,
            ),
        )


async def _follow(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass

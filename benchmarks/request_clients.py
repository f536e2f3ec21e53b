"""What an agent asks of an API server: two documents, heartbeats, watches; without a driver."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import TYPE_CHECKING, NoReturn

from agent.heartbeat.heartbeat import Heartbeat
from agent.name_claim import NameClaim
from agent.publishing.publisher import DesiredDocument, DocumentPublisher
from service.watchdog import Watchdog
from stores.address import open_store
from stores.base import Document
from tests.agent.publishing.published import PlainDocument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_CHANGE_SECONDS = (15.0, 25.0)
_REFRESH_SECONDS = 300.0
_INTERVAL_SECONDS = 5.0


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class Client:
    """One agent called ``node``."""

    def __init__(self, kubeconfig: Path, node: str) -> None:
        self._store = open_store("kubernetes:", kubeconfig)
        self._node = node
        self.revision = 0
        claim = NameClaim(node, f"host_{node}")
        self.heartbeat = Heartbeat(
            self._store, claim, _INTERVAL_SECONDS, Watchdog(), _BeatContent(), _wall_clock
        )
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
                self.revision += 1
                self._publishers[0].wake(_wall_clock())
        raise AssertionError("these tasks never end")

    async def close(self) -> None:
        """Give connections back."""
        await self._store.close()

    def _publisher(self, namespace: str, name: str) -> DocumentPublisher:
        document = _CountingDocument(self, namespace, name)
        return DocumentPublisher(self._store, document, _wall_clock, lambda: None)


class _BeatContent:
    def is_blind(self) -> bool:
        return False

    def writes(self) -> str:
        return ""


class _CountingDocument(PlainDocument):
    """A document of ``client`` whose text is another one in each write."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        super().__init__(namespace, name)
        self._client = client
        self._stamps = itertools.count()

    def desired(self) -> DesiredDocument:
        revision = self._client.revision if self.namespace == "kube-system" else 0

        def stamped(stamp: int) -> Document:
            text = f"{revision} {next(self._stamps)} {stamp}"
            data = {"DeviceInfoCfg": text}
            return Document(self.namespace, self.name, data, {"bench": "true"})

        return DesiredDocument(revision, revision, stamped, _REFRESH_SECONDS)

    def stamp_of(self, document: Document) -> int | None:  # noqa: ARG002
        return None


async def _follow(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass

"""Several aggregators on one API server in memory and in virtual time: who ends, who follows."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from aggregator import daemon, process
from tests.cluster.grpc_server import MemoryServer
from tests.cluster.pausing import Pauses
from tests.cluster.player import InMemory, Missing
from tests.cluster.playing import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from aggregator.config import AggregatorConfiguration
    from aggregator.daemon import Aggregator
    from tests.cluster.apiserver import Client
    from tests.cluster.player import Services

LEASE_SECONDS = 10


@dataclass(eq=False)
class Replica:
    """One life of one of them."""

    name: str
    life: asyncio.Task[None] | None = None
    client: Client | None = None
    aggregator: Aggregator | None = None
    servers: list[MemoryServer] = field(default_factory=list)
    stop: Callable[[], object] = lambda: None

    @property
    def leads(self) -> bool:
        """Return whether this replica writes."""
        return self.made.publication.takeover.leads

    @property
    def made(self) -> Aggregator:
        """Return the aggregator of this replica."""
        assert self.aggregator is not None
        return self.aggregator

    @property
    def services(self) -> Services:
        """Return the gRPC services of this replica."""
        serving = [server for server in self.servers if server.serves]
        return InMemory(serving[-1]) if serving else Missing()


_WHO: ContextVar[Replica] = ContextVar("who")
"""Set in everything that belongs to a life."""


class Replicas(Cluster):
    """A cluster in which aggregators are begun by name, and end one by one."""

    def __init__(self, place: Path, **configuration: Any) -> None:
        super().__init__(place, configuration=configuration)
        self._replicas: list[Replica] = []
        self._pauses: Pauses | None = None

    async def begin(self, name: str, seconds: float = 1.0) -> Replica:
        """Begin a life, and let time pass."""
        replica = Replica(name)
        (self._place / name).mkdir(parents=True, exist_ok=True)
        options = self._configuration().model_dump() | {"state_dir": self._place / name}
        configuration = type(self._configuration())(**options)
        self._replicas.append(replica)
        replica.life = asyncio.create_task(_live(replica, configuration), name=name)
        await self.pass_time(seconds)
        return replica

    @override
    async def until(self, seconds: float) -> None:
        await super().until(seconds)
        for replica in self._replicas:
            if replica.life is not None and replica.life.done():
                await replica.life
                raise AssertionError(f"{replica.name} ended")

    async def stop(self, replica: Replica) -> None:
        """Stop a replica as SIGTERM does, and wait for its end."""
        life, replica.life = replica.life, None
        assert life is not None
        replica.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await life

    def pause(self, replica: Replica) -> None:
        """Pause a replica as SIGSTOP does."""
        assert self._pauses is not None
        self._pauses.pause(replica)

    def go_on(self, replica: Replica) -> None:
        """Continue a replica as SIGCONT does."""
        assert self._pauses is not None
        self._pauses.go_on(replica)

    def may_pause(self, patch: pytest.MonkeyPatch) -> None:
        """Allow pauses of all replicas that begin from now on."""
        self._pauses = Pauses(_WHO, patch)

    async def killed(self, replica: Replica) -> None:
        """Kill a replica as SIGKILL does, even if it is paused."""
        life, replica.life = replica.life, None
        assert life is not None
        assert replica.client is not None
        replica.client.cut()
        self.go_on(replica)
        for server in replica.servers:
            server.serves = False
        life.cancel()
        with contextlib.suppress(BaseException):
            await life

    async def close(self) -> None:
        """End all of them."""
        for replica in self._replicas:
            self.go_on(replica)
            if replica.life is not None:
                await self.stop(replica)
        await super().close()

    def _connect(self) -> Client:
        replica = _WHO.get()
        replica.client = self.api.client(replica.name)
        return replica.client

    def _serve(self, *_: object, interceptors: Any = (), **__: object) -> MemoryServer:
        server = MemoryServer(interceptors or ())
        _WHO.get().servers.append(server)
        return server

    def _take_stop(self, options: Callable[[], object]) -> None:
        _WHO.get().stop = options


async def _live(replica: Replica, configuration: AggregatorConfiguration) -> None:
    _WHO.set(replica)
    await process._run(configuration)


@contextlib.asynccontextmanager
async def replicas(place: Path, **configuration: Any) -> AsyncIterator[Replicas]:
    """Yield an empty cluster without a running replica."""
    made = Replicas(place, **configuration)
    original = daemon.Aggregator

    def make(*arguments: Any, **named: Any) -> Aggregator:
        aggregator = original(*arguments, **named)
        _WHO.get().aggregator = aggregator
        return aggregator

    with made.replaced() as patch:
        made.may_pause(patch)
        patch.setattr("aggregator.process.Aggregator", make)
        try:
            yield made
        finally:
            await made.close()

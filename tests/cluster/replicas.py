"""Several aggregators on one API server in memory and in virtual time: who ends, who follows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typing_extensions import override

from aggregator import daemon, process
from tests.aggregator.nodes import T0
from tests.cluster.grpc_server import MemoryServer
from tests.cluster.pausing import Pauses
from tests.cluster.player import InMemory, Missing
from tests.cluster.playing import Cluster
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aggregator.config import AggregatorConfiguration
    from aggregator.daemon import Aggregator
    from stores.kubernetes_api.client.attempts import ApiAnswer
    from tests.cluster.apiserver import Client
    from tests.cluster.player import Services

LEASE_SECONDS = 10
EITHER_END = pytest.mark.parametrize("killed", [True, False], ids=["killed", "told to end"])
DEVICE = "cluster-info-device-0"


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
        place = self._place / name
        configuration = msgspec.structs.replace(self._configuration(), state_dir=place)
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


async def begin_two(site: Replicas) -> tuple[Replica, Replica]:
    """Start a leader and a follower; return both."""
    one = await site.begin("one", 3)
    other = await site.begin("other", 3)
    assert one.leads
    assert not other.leads
    return one, other


async def end_leader(site: Replicas, leader: Replica, other: Replica, *, killed: bool) -> None:
    """Stop the leader, and wait until the other one leads."""
    await (site.killed(leader) if killed else site.stop(leader))
    await site.pass_time(LEASE_SECONDS + 2 if killed else 1)
    assert other.leads


def numbered_state(number: int) -> dict[str, str]:
    """Return a node's document in this state, whose number is published."""
    return config(update_time=T0 + number, SuperPodID=number)


def nothing_older_came(site: Replicas) -> bool:
    """Return whether neither the state nor the stamp of a node ever went back."""
    last: dict[str, tuple[int, int]] = {}
    for shown in site.played.shown:
        if shown.name != DEVICE or not shown.data:
            continue
        for key, entry in json.loads(shown.data[DEVICE] or "{}").items():
            now = entry["SuperPodID"], entry["UpdateTime"]
            before = last.get(key, now)
            if now[0] < before[0] or now[1] < before[1]:
                return False
            last[key] = now
    return True


def pause_when_it_asks(site: Replicas, replica: Replica, method: str, name: str) -> None:
    """Pause a replica while its next such request is on its way."""
    client = replica.client
    assert client is not None
    real = client.request

    async def request(asked: str, path: str, *arguments: Any, **named: Any) -> ApiAnswer:
        if asked == method and name in path:
            do_not_pause(replica)
            site.pause(replica)
        return await real(asked, path, *arguments, **named)

    client.request = request  # type: ignore[assignment, method-assign]


def do_not_pause(replica: Replica) -> None:
    """Allow all requests of the replica again, without a pause."""
    vars(replica.client).pop("request", None)

"""Plays a recording of the real ClusterD: our whole aggregator in virtual time, without I/O.

Only its edges are replaced: the network to the API server, the listening sockets, the clock, the
signals. The daemon is made as ``vigil aggregator`` makes it, from its configuration alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from typing_extensions import override

from aggregator import process
from aggregator.config import AggregatorConfiguration
from tests.cluster import steps, wire
from tests.cluster.apiserver import ApiServer, Client
from tests.cluster.grpc_server import MemoryServer, Refused
from tests.parts.recording_player import RecordingPlayer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    import pytest

    from tests.cluster.apiserver import Change

AT_LAST_SECONDS = 60.0
"""How long a recording goes on after its last step: longer than a deleted node is shown healthy."""

_JITTERS = ("pacing.backoff", "stores.kubernetes_api.watch")
_CONFIG_MAPS = "api/v1/configmaps"
_PODS = "api/v1/pods"
OURS = "npu-vigil-"
"""Documents by which our leaders remember; upstream has none of them."""
LABEL = "fault-type"


class Services(Protocol):
    """The gRPC services of an aggregator, as a client of upstream's numbers asks them.

    Messages are those of the recordings: JSON with all members.
    """

    async def call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        """Ask once. Raises ``Refused``."""

    def subscribe(self, method: str, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Ask for a stream. Raises ``Refused``, also at its end."""


@dataclass(frozen=True)
class Shown:
    """What an output shows from ``at_ms`` on; no ``data``: it is gone."""

    at_ms: int
    name: str
    data: dict[str, str] | None
    labels: dict[str, str]
    by_hand: bool = False


@dataclass(frozen=True)
class Sent:
    """What came of a call, or one message of a stream. ``step`` is the number of the step."""

    at_ms: int
    step: int
    method: str
    client: dict[str, Any]
    message: dict[str, Any]


@dataclass
class Played:
    """What our aggregator did."""

    shown: list[Shown] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    lives: int = 0
    unix_ms_at_0: int | None = None
    """Where time was real: when it began."""


class Missing:
    """Instead of ``Services`` where the daemon has none: every call fails."""

    async def call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        raise NoServices(method)

    def subscribe(self, method: str, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        raise NoServices(method)


class NoServices(Exception):
    """The daemon serves nothing."""


class InMemory:
    """Services by the bytes of messages, without a network."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    async def call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = await self._server.call(method, wire.request(method, request))
        return wire.answer(method, answer)

    async def subscribe(
        self, method: str, request: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        messages = self._server.subscribe(method, wire.request(method, request))
        async for message in messages:
            yield wire.answer(method, message)


class Player(RecordingPlayer):
    """A cluster in memory and the aggregators that live in it, one after the other."""

    def __init__(
        self,
        place: Path,
        unix_ms_at_0: int = 1_760_000_500_000,
        *,
        without: tuple[str, ...] = (),
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.played = Played()
        self.api = ApiServer(self._changed, without)
        self.configuration = dict(configuration or {})
        self.inputs: set[tuple[str, str]] = set()
        """Namespace and name of ConfigMaps that are given, not made."""
        self._unix_ms_at_0 = unix_ms_at_0
        self._place = place
        self._client: Client | None = None
        self._grpc: list[MemoryServer] = []
        self._streams: list[asyncio.Task[None]] = []
        self._step = -1
        steps.prepare(self.api)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[pytest.MonkeyPatch]:
        """Replace the edges of aggregators by those of this place within the block."""
        now = SimpleNamespace(time_ns=lambda: self.wall_ms * 1_000_000)
        with self.edges("service.tasks.on_stop", "aggregator.process.serving", _JITTERS) as patch:
            patch.delenv("NOTIFY_SOCKET", raising=False)
            patch.setenv("POD_NAME", "aggregator-0")
            patch.setenv("KUBECONFIG", "in-memory")
            patch.setattr("stores.address.kubeconfig_files", lambda _: None)
            patch.setattr("stores.kubernetes_api.store.ApiConnection", lambda _: self._connect())
            patch.setattr("service.clock.time", now)
            patch.setattr("aggregator.process.set_up_logging", lambda: None)
            patch.setattr("grpc.aio.server", self._serve)
            yield patch

    @property
    def wall_ms(self) -> int:
        """Return the time as Unix epoch milliseconds."""
        return self._unix_ms_at_0 + self.at_ms

    @property
    def runs(self) -> bool:
        """Return whether an aggregator runs."""
        return self._life is not None

    @property
    def services(self) -> Services:
        """Return the gRPC services of the running aggregator."""
        serving = [server for server in self._grpc if server.serves]
        return InMemory(serving[-1]) if serving else Missing()

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        """Return the data of all documents that the test did not write: name to keys."""
        found = self.api.objects.get(_CONFIG_MAPS, {})
        return {
            name: one.get("data", {})
            for (namespace, name), one in sorted(found.items())
            if self._is_output(namespace, name)
        }

    async def play(self, recording: Mapping[str, Any]) -> Played:
        """Do the steps at their times, and go on until everything has come to rest."""
        for number, step in enumerate(recording["steps"]):
            await self.until(step["at_ms"] / 1000)
            self._step = number
            await self.do(step)
        seen = [one["at_ms"] for one in recording["observed"]]
        last_ms = max([recording["steps"][-1]["at_ms"], *seen])
        await self.until(last_ms / 1000 + AT_LAST_SECONDS)
        await self.close()
        return self.played

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass from now on."""
        await self.until(self._loop.time() - self._begin + seconds)

    @override
    async def do(self, step: Mapping[str, Any]) -> None:
        step = dict(step)
        match step["do"]:
            case "restart-aggregator":
                await (self.kill() if step.get("signal") == "KILL" else self.end())
                await self.pass_time(step.get("down_ms", 0) / 1000)
                self.start()
            case "stop-aggregator":
                await (self.kill() if step.get("signal") == "KILL" else self.end())
            case "send-public-fault":
                for message in steps.objects_of(step):
                    await self._call(wire.SEND, message)
            case "get-fault":
                for client in steps.objects_of(step):
                    await self._call(wire.GET, client)
            case "subscribe-fault-stream":
                for client in steps.objects_of(step):
                    await self._call(wire.REGISTER, client)
                    self._streams.append(asyncio.create_task(self._follow(client, self._step)))
            case other if steps.changes_cluster(step):
                if other in ("put-configmap", "delete-configmap"):
                    self.inputs |= {
                        (one["namespace"], one["name"]) for one in steps.objects_of(step)
                    }
                steps.do(self.api, step)
            case other:
                raise steps.CannotPlay(f"nobody knows the step {other}")

    def start(self) -> None:
        """Begin a life of the aggregator."""
        assert self._life is None
        self.played.lives += 1
        (self._place / "state").mkdir(parents=True, exist_ok=True)
        run = process._run(self._configuration())
        self._life = asyncio.create_task(run, name=f"aggregator {self.played.lives}")

    def _configuration(self) -> AggregatorConfiguration:
        sent: dict[str, Any] = {"state_dir": self._place / "state"}
        if "grpc" in AggregatorConfiguration.__struct_fields__:
            sent["grpc"] = {"listen": "127.0.0.1:0", "plaintext": True}
        return msgspec.convert(sent | self.configuration, AggregatorConfiguration)

    async def end(self) -> None:
        """End the aggregator with SIGTERM, if one runs."""
        if self._life is not None:
            self._stop()
            with contextlib.suppress(asyncio.CancelledError):
                await self._life
            self._gone()

    async def kill(self) -> None:
        """Kill the aggregator; none of its later requests reaches the cluster."""
        if self._life is not None:
            assert self._client is not None
            self._client.cut()
            self._life.cancel()
            with contextlib.suppress(BaseException):
                await self._life
            self._gone()

    async def close(self) -> None:
        """End everything."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await self.end()

    def _gone(self) -> None:
        self._life = None
        for server in self._grpc:
            server.serves = False

    def _connect(self) -> Client:
        self._client = self.api.client(f"aggregator {self.played.lives}")
        return self._client

    def _serve(self, *_: object, interceptors: Any = (), **__: object) -> MemoryServer:
        self._grpc.append(MemoryServer(interceptors or ()))
        return self._grpc[-1]

    async def _call(self, method: str, request: dict[str, Any]) -> None:
        try:
            message = await self.services.call(method, request)
        except Refused as error:
            message = {"error": {"code": error.code.name, "details": error.details}}
        except NoServices:
            message = {"error": {"code": "UNAVAILABLE", "details": "nothing is served"}}
        self._send(method, request, message, self._step)

    async def _follow(self, client: dict[str, Any], step: int) -> None:
        try:
            async for message in self.services.subscribe(wire.SUBSCRIBE, client):
                self._send(wire.SUBSCRIBE, client, message, step)
            self._send(wire.SUBSCRIBE, client, {"end": True}, step)
        except Refused as error:
            message = {"error": {"code": error.code.name, "details": error.details}}
            self._send(wire.SUBSCRIBE, client, message, step)
        except NoServices:
            message = {"error": {"code": "UNAVAILABLE", "details": "nothing is served"}}
            self._send(wire.SUBSCRIBE, client, message, step)

    def _send(self, method: str, client: Any, message: dict[str, Any], step: int) -> None:
        self.played.sent.append(Sent(self.at_ms, step, method.lstrip("/"), client, message))

    def _changed(self, change: Change) -> None:
        place, new = change.place, change.new
        name = place.name or ""
        if place.resource == _PODS:
            labels = {} if new is None else new["metadata"].get("labels") or {}
            if change.by and LABEL in labels:
                where = f"Pod {place.namespace}/{name}"
                data = {"labels": labels[LABEL]}
                self.played.shown.append(Shown(self.at_ms, where, data, {}))
        if place.resource != _CONFIG_MAPS or not self._is_output(place.namespace or "", name):
            return
        self.played.shown.append(_shown(self.at_ms, name, new, by_hand=not change.by))

    def _is_output(self, namespace: str, name: str) -> bool:
        return (namespace, name) not in self.inputs and not name.startswith(OURS)


def _shown(at_ms: int, name: str, new: dict[str, Any] | None, *, by_hand: bool) -> Shown:
    if new is None:
        return Shown(at_ms, name, None, {}, by_hand)
    labels = dict(new["metadata"].get("labels") or {})
    return Shown(at_ms, name, dict(new.get("data", {})), labels, by_hand)

"""Plays a recording of the real ClusterD in real time: a real aggregator on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from typing_extensions import override

from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from tests.cluster import steps, wire
from tests.cluster.grpc_server import Refused
from tests.cluster.player import LABEL, OURS, Played, Sent, Services, Shown
from tests.cluster.recorded import last_ms
from tests.parts.deadlines import patience, time_passes, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.base import Store
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

AT_LAST_SECONDS = 5.0
AT_LAST_WITH_DELETIONS_SECONDS = 50.0
"""A deleted node is shown healthy for 45 s."""
_LOOK_SECONDS = 0.1
_CRDS = (
    ("podgroups", "PodGroup", "scheduling.volcano.sh", "v1beta1"),
    ("jobs", "Job", "batch.volcano.sh", "v1alpha1"),
)


def _is_served(plane: ControlPlane, path: str) -> bool:
    return plane.ask("GET", path)[0] == 200


def install_volcano(plane: ControlPlane) -> None:
    """Make the API server take PodGroups and Volcano jobs, whatever is in them."""
    for plural, kind, group, version in _CRDS:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {"plural": plural, "kind": kind, "listKind": f"{kind}List"}
        one = {
            "name": version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, answer = plane.ask(
            "POST",
            path,
            {
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": names | {"singular": kind.lower()},
                    "versions": [one],
                },
            },
        )
        assert status in (201, 409), answer
        path = f"/apis/{group}/{version}/{plural}"
        wait_until(partial(_is_served, plane, path), f"{plural} are served")


class Network(Services):
    """The services of an aggregator that listens on ``address``, without TLS."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)

    @override
    async def call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)
        try:
            answer = await ask(
                wire.request(method, request), wait_for_ready=True, timeout=patience(10)
            )
        except grpc.aio.AioRpcError as error:
            raise Refused(error.code(), error.details() or "") from error
        return wire.answer(method, answer)

    @override
    async def subscribe(
        self, method: str, request: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        ask: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(method)
        try:
            async for message in ask(wire.request(method, request)):
                yield wire.answer(method, message)
        except grpc.aio.AioRpcError as error:
            raise Refused(error.code(), error.details() or "") from error

    async def close(self) -> None:
        """Give the connection back."""
        await self._channel.close()


class RealPlay:
    """A recording, a daemon that is not started, and an API server with nothing in it."""

    def __init__(
        self,
        recording: Mapping[str, Any],
        plane: ControlPlane,
        store: Store,
        daemon: Daemon,
        grpc_address: str | None = None,
    ) -> None:
        self.played = Played()
        self._recording = recording
        self._plane = plane
        self._store = store
        self._daemon = daemon
        self._services = None if grpc_address is None else Network(grpc_address)
        self._begin = time.monotonic()
        self._step = -1
        self._runs = False
        self._inputs: set[tuple[str, str]] = set()
        self._by_hand: dict[str, dict[str, str] | None] = {}
        self._labels: dict[str, str] = {}

    @property
    def at_last_seconds(self) -> float:
        """Return how long the recording continues after its last step (s)."""
        deletes = any(step["do"].startswith("delete") for step in self._recording["steps"])
        return AT_LAST_WITH_DELETIONS_SECONDS if deletes else AT_LAST_SECONDS

    async def run(self) -> Played:
        """Do all steps at their times."""
        steps.prepare(self._plane)
        if any(step["do"].endswith(("-podgroup", "-job")) for step in self._recording["steps"]):
            await asyncio.to_thread(install_volcano, self._plane)
        for step in self._recording["steps"]:
            if step["do"] in ("put-configmap", "delete-configmap"):
                self._inputs |= {(o["namespace"], o["name"]) for o in steps.objects_of(step)}
        looking = [asyncio.create_task(self._watch()), asyncio.create_task(self._look_at_pods())]
        self._begin = time.monotonic()
        self.played.unix_ms_at_0 = time.time_ns() // 1_000_000
        try:
            for number, step in enumerate(self._recording["steps"]):
                await self._until(step["at_ms"] / 1000, looking)
                self._step = number
                await self._do(step, looking)
            await self._until(last_ms(self._recording) / 1000 + self.at_last_seconds, looking)
        finally:
            for task in looking:
                task.cancel()
            await asyncio.gather(*looking, return_exceptions=True)
            await asyncio.to_thread(self._daemon.stop)
            if self._services is not None:
                await self._services.close()
        return self.played

    async def _until(self, seconds: float, looking: list[asyncio.Task[None]]) -> None:
        await time_passes(seconds - (time.monotonic() - self._begin))
        for task in looking[:2]:
            if task.done():
                await task
        if self._runs and self._daemon.process.status is not None:
            raise AssertionError(f"the aggregator ended with {self._daemon.process.status}")

    @property
    def _at_ms(self) -> int:
        return round((time.monotonic() - self._begin) * 1000)

    async def _do(self, step: dict[str, Any], looking: list[asyncio.Task[None]]) -> None:
        match step["do"]:
            case "restart-aggregator" | "stop-aggregator":
                self._runs = False
                stop = self._daemon.kill if step.get("signal") == "KILL" else self._daemon.stop
                if self.played.lives:
                    await asyncio.to_thread(stop)
                await time_passes(step.get("down_ms", 0) / 1000)
                if step["do"] == "restart-aggregator":
                    self.played.lives += 1
                    await asyncio.to_thread(self._daemon.spawn)
                    self._runs = True
            case "send-public-fault":
                for message in steps.objects_of(step):
                    await self._call(wire.SEND, message)
            case "get-fault":
                for client in steps.objects_of(step):
                    await self._call(wire.GET, client)
            case "subscribe-fault-stream":
                for client in steps.objects_of(step):
                    await self._call(wire.REGISTER, client)
                    looking.append(asyncio.create_task(self._follow(client, self._step)))
            case other if steps.changes_cluster(step):
                if other == "edit-output":
                    for one in steps.objects_of(step):
                        gone = one.get("delete") or step.get("delete")
                        self._by_hand[one["name"]] = None if gone else one["data"]
                await asyncio.to_thread(steps.do, self._plane, step)
            case other:
                raise steps.CannotPlay(f"nobody knows the step {other}")

    async def _call(self, method: str, request: dict[str, Any]) -> None:
        if self._services is None:
            raise steps.CannotPlay("this aggregator serves no gRPC")
        try:
            message = await self._services.call(method, request)
        except Refused as error:
            message = {"error": {"code": error.code.name, "details": error.details}}
        self._send(method, request, message, self._step)

    async def _follow(self, client: dict[str, Any], step: int) -> None:
        assert self._services is not None
        with contextlib.suppress(Refused):
            async for message in self._services.subscribe(wire.SUBSCRIBE, client):
                self._send(wire.SUBSCRIBE, client, message, step)

    def _send(self, method: str, client: Any, message: dict[str, Any], step: int) -> None:
        self.played.sent.append(Sent(self._at_ms, step, method.lstrip("/"), client, message))

    async def _watch(self) -> None:
        there: dict[tuple[str, str], Document] = {}
        async for event in self._store.watch(Selection()):
            match event:
                case DocumentsListed(documents):
                    now = {(one.namespace, one.name): one for one in documents}
                    for gone in there.keys() - now.keys():
                        self._show(*gone, None)
                    for key, one in now.items():
                        if there.get(key) != one:
                            self._show(*key, one)
                    there = now
                case Changed(document):
                    there[document.namespace, document.name] = document
                    self._show(document.namespace, document.name, document)
                case Deleted(namespace, name):
                    there.pop((namespace, name), None)
                    self._show(namespace, name, None)

    def _show(self, namespace: str, name: str, document: Document | None) -> None:
        if namespace not in steps.NAMESPACES or name.startswith(OURS):
            return
        if (namespace, name) in self._inputs or name == "kube-root-ca.crt":
            return
        data = None if document is None else document.data
        labels = {} if document is None else document.labels
        by_hand = name in self._by_hand and self._by_hand[name] == data
        self.played.shown.append(Shown(self._at_ms, name, data, labels, by_hand))

    async def _look_at_pods(self) -> None:
        while True:
            path = f"/api/v1/pods?labelSelector={LABEL}"
            _, found = await asyncio.to_thread(self._plane.ask, "GET", path)
            for one in found["items"]:
                metadata = one["metadata"]
                where = f"Pod {metadata['namespace']}/{metadata['name']}"
                label = metadata["labels"][LABEL]
                if self._labels.get(where) != label:
                    self._labels[where] = label
                    self.played.shown.append(Shown(self._at_ms, where, {"labels": label}, {}))
            await time_passes(_LOOK_SECONDS)

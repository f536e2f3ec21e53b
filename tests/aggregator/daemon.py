"""A real ``vigil aggregator`` process for tests, and what is published in a store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.absence.last_known import FILE_NAME as LAST_KNOWN
from contract.documents.cluster_info import cluster_device_index
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.address import open_store
from stores.base import Document, Selection
from tests.aggregator.nodes import published
from tests.parts import deadlines
from tests.parts.deadlines import patience
from tests.parts.processes import Running
from tests.parts.service_proxy import host_address
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane
    from tests.parts.watching import Watching

OUTPUTS = Selection(namespace=CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
_UP_SECONDS = 30.0
_TEXT_SECONDS = 5.0


class Daemon:
    """``vigil aggregator`` with a state directory, restarted at will."""

    def __init__(self, directory: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.program = "vigil"
        self.environment: dict[str, str] = {}
        self.output: int | None = None
        """A descriptor that takes what it prints, in place of ``log``."""
        self.log = directory / "aggregator.log"
        self._listen = directory / "listen"
        self._options = (*options, "--state-dir", str(directory), "--listen", listen)
        self._process: Running | None = None

    @property
    def process(self) -> Running:
        """Return the running process."""
        assert self._process is not None
        return self._process

    def spawn(self) -> None:
        """Start it and wait until it answers."""
        self._listen.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")}
        self._process = Running(
            [sys.executable, "-m", self.program, "aggregator", *self._options],
            self.log,
            environment | self.environment,
            self.output,
        )
        self._process.wait_until(self._listen.exists, _UP_SECONDS)

    def start(self) -> None:
        """Start it and wait until it has published everything."""
        self.spawn()
        self.process.wait_until(lambda: self.ask("/readyz")[0] == 200, _UP_SECONDS)

    def waits_for_text(self, what: str) -> None:
        """Wait until the log has ``what``: a thread of its own writes each line a little later."""
        self.process.wait_until(lambda: what in self.log.read_text(), _TEXT_SECONDS)

    def kill(self) -> None:
        """End it without warning."""
        self.process.kill()

    def stop(self) -> None:
        """End it if it runs."""
        if self._process is not None:
            self._process.stop()

    @property
    def url(self) -> str:
        """Return the URL of the aggregator's pages."""
        return self._listen.read_text().strip()

    def ask(self, path: str) -> tuple[int, Any]:
        """Read a page; return its status and content, decoded if it is JSON."""
        url = self.url + path
        try:
            with urllib.request.urlopen(url, timeout=patience(10)) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def node(self, name: str) -> dict[str, Any]:
        """Return what the API shows of a node."""
        nodes = self.ask("/api/v1/nodes")[1]["nodes"]
        found: dict[str, Any] = next(node for node in nodes if node["node"] == name)
        return found

    def known_documents(self) -> dict[tuple[str, str], Mapping[str, str]]:
        """Return the data of documents in its state directory, by namespace and name.

        A run that begins after a kill knows these.
        """
        path = self.log.parent / LAST_KNOWN
        data: dict[tuple[str, str], Mapping[str, str]] = {}
        # Without a file or a table nothing is written yet.
        with contextlib.suppress(sqlite3.OperationalError):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                rows = connection.execute("SELECT body FROM known WHERE kind = 'document'")
                documents = [msgspec.msgpack.decode(body, type=Document) for (body,) in rows]
            data = {(document.namespace, document.name): document.data for document in documents}
        return data

    def metric(self, begins: str) -> float:
        """Return the sum of the samples whose line begins with ``begins``."""
        lines = self.ask("/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(begins))


def entries(seen: Watching) -> dict[str, Any]:
    """Return node to entry, of all documents that a watch shows together."""
    found: dict[str, Any] = {}
    for (_, name), document in seen.documents.items():
        if cluster_device_index(name) is not None:
            found |= published(document.data[name])
    return found


async def values(store: Store) -> dict[str, str]:
    """Return the value of every stored device document, by its name."""
    documents = await store.list(OUTPUTS)
    return {d.name: d.data[d.name] for d in documents if cluster_device_index(d.name) is not None}


def put_documents(place: ControlPlane | str, *documents: Document) -> None:
    """Write documents as an agent does, to an API server or a store with this address."""

    async def put(store: Store) -> None:
        for document in documents:
            await store.put(document)

    _run_on(place, put)


def delete_documents(place: ControlPlane | str, *documents: Document) -> None:
    """Delete documents as an administrator does."""

    async def delete(store: Store) -> None:
        for document in documents:
            await store.delete(document.namespace, document.name)

    _run_on(place, delete)


def _run_on(place: ControlPlane | str, work: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        if isinstance(place, str):
            store = open_store(place)
        else:
            store = open_store("kubernetes:", place.kubeconfig)
        await work(store)
        await store.close()

    asyncio.run(run())


async def until(happened: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a change on a page, while other work of the test goes on."""
    await deadlines.until(lambda: asyncio.to_thread(happened), seconds=seconds)


class AnsweringCluster:
    """An API server with a Service whose aggregator runs here; ``ask`` runs a verb far from it."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        kubeconfig = str(plane.kubeconfig)
        self.daemon = Daemon(
            directory / "aggregator",
            *("--store", "kubernetes:", "--kubeconfig", kubeconfig),
            listen=f"{host_address()}:0",
        )
        self.away = ("--state-dir", str(directory / "away"))

    def ask(self, *arguments: str, kubeconfig: Path | None = None) -> tuple[int, list[str], str]:
        chosen = str(kubeconfig or self.plane.kubeconfig)
        where = (*self.away, "--kubeconfig", chosen)
        return run_vigil(*arguments, *where, COLUMNS="300")

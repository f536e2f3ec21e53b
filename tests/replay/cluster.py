"""A store in memory for virtual time: an API server that can be away, or take calls and be silent.

Real stores are tested for themselves; a real one would make virtual time stand still.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.errors import StoreConflict, StoreRefused, StoreUnavailable
from stores.base import (
    Changed,
    Deleted,
    DocumentsListed,
    LastWriter,
    PodUsage,
)
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted
from stores.refusals import Refusals
from tests.replay.objects import RecordedObjects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from stores.base import Beat, Document, Selection, UsageEvent, WatchEvent

    Watcher = tuple[Selection, asyncio.Queue[WatchEvent]]

REQUEST_SECONDS = 2**-8
"""How long a request takes that is answered."""


class RecordedCluster:
    """A ``Store``. ``on_change`` is called with every document that changes, and who did it:
    the ``agent``, an ``operator`` or a program by its name; with ``None`` when it is gone."""

    url = "recording"
    channel = None
    absence_is_deletion = True
    missed_changes = None
    certificate_ends_ms: Mapping[str, int] = {}

    def __init__(
        self, on_change: Callable[[str, Document | None, str], None] = lambda *_: None
    ) -> None:
        self.documents: dict[tuple[str, str], Document] = {}
        self.writes = 0
        self._on_change = on_change
        self._version = 0
        self._is_up = True
        self._answers = asyncio.Event()
        self._answers.set()
        self._watches: list[Watcher] = []
        self._pods: dict[str, PodUsage] = {}
        self._usages: list[asyncio.Queue[UsageEvent]] = []
        self._beats: dict[str, Beat] = {}
        self._programs: dict[tuple[str, str], LastWriter] = {}
        self._by_agent: set[tuple[str, str]] = set()
        self.refusals = Refusals()
        self.objects = RecordedObjects(self._request, lambda: self._is_up)

    # What happens to the cluster.

    def change(self, document: Document) -> None:
        """Write a document as an operator."""
        self._put(document, "operator")

    def write_as(self, writer: LastWriter, document: Document) -> None:
        """Write a document as another program."""
        place = document.namespace, document.name
        self._programs[place] = writer
        self._by_agent.discard(place)
        self._put(document, writer.name)

    def beaten_at_ms(self, node: str) -> int:
        """Return when ``node`` last sent a heartbeat (ms)."""
        return self._beats[node].beaten_at_ms

    def remove(self, namespace: str, name: str) -> None:
        """Delete a document as an operator."""
        self._remove(namespace, name, "operator")

    def run(self, pod: PodUsage) -> None:
        """Start a pod that uses chips."""
        self._pods[pod.uid] = pod
        self._send_usages(Update(pod.uid, pod))

    def end(self, uid: str) -> None:
        """End a pod, so that it uses no chips."""
        self._pods.pop(uid, None)
        self._send_usages(Update(uid, None))

    def do(self, action: str) -> None:
        """Apply an action of the recording to the API server."""
        match action:
            case "stop":
                self._is_up = False
                self._send_all(Interrupted("connection refused"))
                self.objects.went()
            case "start" | "start (answering)":
                self._is_up = True
                self._send_all(None)
                self.objects.came()
            case "pause":
                self._answers.clear()
            case "resume":
                self._answers.set()
            case other:
                raise AssertionError(f"the recorded API server cannot {other}")

    # What the agent asks.

    async def get(self, namespace: str, name: str) -> Document | None:
        await self._request()
        return self.documents.get((namespace, name))

    async def list(self, selection: Selection) -> tuple[Document, ...]:
        await self._request()
        return self._listed(selection).documents

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        await self._request()
        there = self.documents.get((document.namespace, document.name))
        if expected not in (None, "" if there is None else there.version):
            raise StoreConflict("somebody else was faster")
        if there is not None and there.immutable:
            # As the real store does; the request for it takes its time.
            self._remove(document.namespace, document.name, "agent")
            await self._request()
        self.writes += 1
        self._by_agent.add((document.namespace, document.name))
        self._put(document, "agent")
        return str(self._version)

    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        await self._request()
        self.writes += 1
        self._remove(namespace, name, "agent")

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        watcher = (selection, events)
        self._watches.append(watcher)
        try:
            yield self._listed(selection) if self._is_up else Interrupted("connection refused")
            while True:
                yield await events.get()
        finally:
            self._watches.remove(watcher)

    async def usage(self, node: str | None = None) -> AsyncIterator[UsageEvent]:
        events: asyncio.Queue[UsageEvent] = asyncio.Queue()
        self._usages.append(events)
        try:
            yield self._used() if self._is_up else Interrupted("connection refused")
            while True:
                yield await events.get()
        finally:
            self._usages.remove(events)

    async def beat(self, beat: Beat) -> None:
        await self._request()
        self._beats[beat.node] = beat

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        await self._request()
        return tuple(beat for beat in self._beats.values() if node in (None, beat.node))

    async def dry_run_beat(self, node: str) -> None:
        raise AssertionError("an agent makes no dry run of beats")

    async def forget_beat(self, node: str) -> None:
        await self._request()
        self._beats.pop(node, None)

    async def touch(self, namespace: str, name: str) -> None:
        raise AssertionError("an agent touches nothing")

    async def annotate_node(self, node: str, annotations: dict[str, str]) -> None:
        raise StoreRefused("the recording has no heartbeat on the Node")

    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        """Return the last writer: the agent or a program.

        The operator's documents of recordings have no owner.
        """
        other = await self.other_writer(namespace, name)
        return LastWriter("npu-vigil", 0) if (namespace, name) in self._by_agent else other

    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        """Return the program other than the agent that wrote last; ``None`` if there is none."""
        await self._request()
        return self._programs.get((namespace, name))

    async def close(self) -> None:
        """Do nothing, as there is nothing to release."""

    async def _request(self) -> None:
        await self._answers.wait()
        await asyncio.sleep(REQUEST_SECONDS)
        if not self._is_up:
            raise StoreUnavailable("connection refused")

    def _put(self, document: Document, by: str) -> None:
        self._version += 1
        there = replace(document, version=str(self._version))
        self.documents[document.namespace, document.name] = there
        self._on_change(document.name, there, by)
        self._send(there.namespace, there.name, Changed(there))

    def _remove(self, namespace: str, name: str, by: str) -> None:
        self._programs.pop((namespace, name), None)
        self._by_agent.discard((namespace, name))
        if self.documents.pop((namespace, name), None) is not None:
            self._on_change(name, None, by)
            self._send(namespace, name, Deleted(namespace, name))

    def _listed(self, selection: Selection) -> DocumentsListed:
        return DocumentsListed(tuple(d for d in self.documents.values() if _selects(selection, d)))

    def _used(self) -> Snapshot[PodUsage]:
        return Snapshot(dict(self._pods))

    def _send(self, namespace: str, name: str, event: WatchEvent) -> None:
        if not self._is_up:
            return
        for selection, events in self._watches:
            # A label that a document has lost makes its watchers see it go; ours select by name.
            if selection.namespace in (None, namespace) and selection.name in (None, name):
                events.put_nowait(event)

    def _send_usages(self, event: UsageEvent) -> None:
        if self._is_up:
            for usages in self._usages:
                usages.put_nowait(event)

    def _send_all(self, interrupted: Interrupted | None) -> None:
        """Interrupt all watches; if ``interrupted`` is ``None``, begin them again with a list."""
        for selection, events in self._watches:
            events.put_nowait(interrupted or self._listed(selection))
        for usages in self._usages:
            usages.put_nowait(interrupted or self._used())


def _selects(selection: Selection, document: Document) -> bool:
    label = selection.label
    return (
        selection.namespace in (None, document.namespace)
        and selection.name in (None, document.name)
        and (label is None or document.labels.get(label[0]) == label[1])
    )

"""Writes the cluster documents to one store until it has them, and keeps them as they are.

The first change of a document goes out at once; what changes while a write is in flight, and for
as long again, goes out together in the next one. A failed write is tried again with backoff and
jitter. What others change or delete is written again. A document that was not written for a touch
period is touched, so that its readers hear of it (M8). Of several documents each has its turn, so
that the store is not asked for more than so many writes in a second; only what nobody has seen yet
does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from aggregator.kinds import kind_of
from aggregator.output import LATE_MS, Output, Shown
from aggregator.touches import Touches
from aggregator.turns import Turns
from contract.errors import DocumentError, StoreError
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.backoff import Backoff
from stores.base import Changed, Deleted, Document, Interrupted, Listed, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.moment import Clock
    from aggregator.shards import Value
    from service.stalls import Stalls
    from stores.base import Store, WatchEvent

_log = logging.getLogger(__name__)

SELECTION = Selection(namespace=CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
"""What to watch in every store that is published to."""

_RECHECK_SECONDS = 60.0
_LONGEST_WINDOW_SECONDS = 0.2


class Publisher:
    """Owns the documents of one store.

    ``value`` says what a document must say, ``acknowledged`` is told what the store has,
    ``appeared`` is told of documents that somebody else made.
    """

    def __init__(
        self,
        store: Store,
        *,
        value: Callable[[str], Value],
        acknowledged: Callable[[Publisher, str, int], None],
        appeared: Callable[[Iterable[Document]], None],
        touch_period_seconds: float,
        writes_per_second: int,
        clock: Clock,
        stalls: Stalls,
    ) -> None:
        self.store = store
        self.outputs: dict[str, Output] = {}
        self.interrupted: str | None = None
        self.interruptions_total = 0
        self._value = value
        self._acknowledged = acknowledged
        self._appeared = appeared
        self._clock = clock
        self._stalls = stalls
        self._touches = Touches(touch_period_seconds)
        self._turns = Turns(writes_per_second, clock)
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._seen: asyncio.Future[tuple[Document, ...]] | None = None

    async def run(self) -> NoReturn:
        """Watch and write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._watch()
        raise AssertionError("a watch never ends")

    async def documents(self) -> tuple[Document, ...]:
        """What the store held when it was first seen; waits for a store that is away."""
        return await self._first()

    @property
    def found(self) -> tuple[Document, ...]:
        """What the store held when it was first seen; nothing if that is yet to come."""
        return self._seen.result() if self._seen is not None and self._seen.done() else ()

    def _first(self) -> asyncio.Future[tuple[Document, ...]]:
        if self._seen is None:
            self._seen = asyncio.get_running_loop().create_future()
        return self._seen

    def wake(self, names: Iterable[str]) -> None:
        """Look at these documents: what they must say may have changed."""
        assert self._tasks is not None
        for name in names:
            if name not in self._wakes:
                self._wakes[name] = asyncio.Event()
                task = self._write(name)
                self._tasks.create_task(task, name=f"publish {name} to {self.store.url}")
            self._wakes[name].set()

    async def _watch(self) -> NoReturn:
        async for event in self.store.watch(SELECTION):
            with self._stalls.busy(f"watch own documents in {self.store.url}"):
                self._take(event)
        raise StoreError(f"the watch of {self.store.url} ended")

    def _take(self, event: WatchEvent) -> None:
        match event:
            case Listed(documents):
                if self.interrupted is not None:
                    _log.info("%s answers again", self.store.url)
                    self.interrupted = None
                self._list(documents)
            case Changed(document):
                self._shows(document.name, document)
                self._stray((document,))
            case Deleted(_, name):
                self._shows(name, Shown.NOTHING)
            case Interrupted(reason):
                if self.interrupted is None:
                    self.interruptions_total += 1
                    _log.warning("own documents in %s cannot be seen: %s", self.store.url, reason)
                self.interrupted = reason
                for output in self.outputs.values():
                    output.shows(Shown.UNKNOWN)

    def _list(self, documents: tuple[Document, ...]) -> None:
        there = {document.name: document for document in documents}
        for name in self.outputs.keys() | there.keys():
            self._shows(name, there.get(name, Shown.NOTHING))
        if not self._first().done():
            self._first().set_result(documents)
        self._stray(documents)

    def _shows(self, name: str, shown: Document | Shown) -> None:
        if kind_of(name) is None:
            return
        self._output(name).shows(shown)
        if name in self._wakes:
            self._wakes[name].set()

    def _stray(self, documents: Iterable[Document]) -> None:
        strange = [one for one in documents if kind_of(one.name) and one.name not in self._wakes]
        if strange and self._wakes:
            self._appeared(strange)

    def _output(self, name: str) -> Output:
        if name not in self.outputs:
            self.outputs[name] = Output(name)
        return self.outputs[name]

    async def _write(self, name: str) -> NoReturn:
        """Keep one document as it must be."""
        output, wake, backoff = self._output(name), self._wakes[name], Backoff()
        while True:
            wake.clear()
            value = self._value(name)
            before = output.acknowledged
            was_conflict = output.conflict
            must = output.must_write(value, self._clock())
            if output.conflict and not was_conflict:
                _log.error(
                    "conflict: somebody else writes %s in %s all the time; not written until "
                    "that has stopped for 5 minutes. Is there a second aggregator?",
                    output.name,
                    self.store.url,
                )
            if output.acknowledged != before:
                self._acknowledged(self, name, output.acknowledged)
            if not must:
                await self._rest(output, value, wake)
                continue
            if output.was_seen:
                await self._turns.write(name)
                value = self._value(name)  # what changed meanwhile goes with it
            if (took_ms := await self._put(output, value)) is not None:
                backoff.reset()
                self._touches.written(name, self._clock())
                self._acknowledged(self, name, value.revision)
                # A storm of changes must not keep the store busy more than half of the time.
                await asyncio.sleep(min(took_ms / 1000, _LONGEST_WINDOW_SECONDS))
            else:
                await asyncio.sleep(backoff.next_seconds())

    async def _rest(self, output: Output, value: Value, wake: asyncio.Event) -> None:
        """Nothing is to be written now: wait, and touch the document when that is due."""
        if not output.settled:
            await self._wait(wake, LATE_MS / 1000)
        elif output.conflict:
            await self._wait(wake, _RECHECK_SECONDS)
        elif (due_ms := self._touches.due_ms(output.name, self._clock())) > 0:
            await self._wait(wake, due_ms / 1000)
        elif await self._turns.touch(output.name, wake):
            await self._touch(output, value)

    async def _touch(self, output: Output, value: Value) -> None:
        output.touched(value)
        was = output.touch_error
        try:
            with self._stalls.busy(f"touch {output.name} in {self.store.url}"):
                await self.store.touch(CLUSTER_NAMESPACE, output.name)
        except StoreError as error:
            self._touches.failed(output.name, self._clock())
            output.touch_error = str(error)
            if was is None:
                _log.warning("%s is not touched, trying again: %s", output.name, error)
            return
        self._touches.written(output.name, self._clock())
        output.touch_error = None
        output.touches_total += 1

    async def _wait(self, wake: asyncio.Event, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await wake.wait()
        except TimeoutError:
            pass

    async def _put(self, output: Output, value: Value) -> int | None:
        """Write once; the milliseconds it took, or ``None`` where it failed."""
        document = Document(
            namespace=CLUSTER_NAMESPACE,
            name=output.name,
            data={output.name: value.text},
            labels=dict([CLUSTER_LABEL]),
            annotations=value.annotations,
        )
        kind = kind_of(output.name)
        assert kind is not None, "every document is of a kind"
        was = output.error
        began_ms = self._clock().steady_ms
        try:
            kind.verify(value.text, output.name, value.nodes)
            with self._stalls.busy(f"write {output.name} to {self.store.url}"):
                version = await self.store.put(document)
        except (StoreError, DocumentError) as error:
            output.failed(str(error), value)
            if was is None:
                _log.warning("%s is not published, trying again: %s", output.name, error)
            return None
        output.written(version, value)
        if was is not None:
            _log.info("%s is published again", output.name)
        return self._clock().steady_ms - began_ms

"""Keeps what the next leader must know as documents of ours in the first store published to.

A change is in the store within a second: each document is written at once and then at most twice a
second, and all of them together at most 20 times. Each write replaces the version that was seen
last. A new leader first marks each document, so that what an earlier one still has under way is
refused, and then restores from it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

import msgspec

from aggregator.part import LAST
from aggregator.writing import compares_versions, ended
from contract.errors import StoreConflict, StoreError
from contract.names import STATE_LABEL, STATE_NAMESPACE, STATE_PREFIX
from stores.backoff import Backoff
from stores.base import Document, Selection
from stores.touch import touched_now

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.leading import Leadership
    from aggregator.moment import Clock
    from aggregator.part import Keeper
    from service.stalls import Stalls
    from stores.base import Store

_log = logging.getLogger(__name__)

KEY = "state"
TAKEN_OVER = "npu-vigil/taken-over"
"""The annotation that fences an earlier leader off."""
LARGEST_BYTES = 900 * 1024
"""The API server's own limit is 1 MiB for the whole object."""

_SPACING_MS = 500
_PACE_SECONDS = 0.05
_AT_ONCE = 8
_ATTEMPTS = 5
_LAST_SECONDS = 2.0

_Key = tuple[str, str]


class KeptStatus(msgspec.Struct, frozen=True):
    """The state of one part: its documents, and those that cannot be read or written."""

    name: str
    documents: int
    bytes: int
    writes: int
    problems: tuple[str, ...]


class Keeping:
    """The documents of all ``keepers``. Only the leader writes them."""

    def __init__(
        self,
        store: Store,
        keepers: Iterable[Keeper],
        leadership: Leadership,
        clock: Clock,
        stalls: Stalls,
    ) -> None:
        self._store = store
        self._keepers = {keeper.name: keeper for keeper in keepers}
        self._leadership = leadership
        self._clock = clock
        self._stalls = stalls
        self._is_conditional = compares_versions(store)
        self._there: dict[_Key, Document] = {}
        self._dirty: dict[_Key, int] = {}
        """What is to be written, with the number of the look that found it."""
        self._writing_now: dict[_Key, int] = {}
        self._looks = 0
        self._next_ms: dict[_Key, int] = {}
        self._writes = dict.fromkeys(self._keepers, 0)
        self._unreadable: dict[str, tuple[str, ...]] = {}
        self._trouble: dict[_Key, str] = {}
        self._wake = asyncio.Event()
        self._done = asyncio.Condition()
        self._task: asyncio.Task[NoReturn] | None = None

    async def restore(self, *, fence: bool) -> None:
        """Give every keeper what was kept last. Raises ``StoreError``.

        ``fence``: we begin to lead, and an earlier leader may have a write under way.
        """
        for name, keeper in self._keepers.items():
            keeper.take_changed()
            found = await self._store.list(
                Selection(namespace=STATE_NAMESPACE, label=(STATE_LABEL, name))
            )
            prefix = f"{STATE_PREFIX}{name}-"
            found = tuple(one for one in found if one.name.startswith(prefix))
            if fence:
                found = await self._fenced(found)
            there = {(name, one.name.removeprefix(prefix)): one for one in found}
            self._there = {k: v for k, v in self._there.items() if k[0] != name} | there
            texts = {bucket: one.data.get(KEY, "") for (_, bucket), one in there.items()}
            problems = tuple(keeper.restore(texts, self._clock()))
            for problem in problems:
                _log.error("kept state %s cannot be read, and is begun anew: %s", name, problem)
            self._unreadable[name] = problems
            for bucket in keeper.take_changed() | texts.keys():
                self._mark((name, bucket))

    async def _fenced(self, documents: tuple[Document, ...]) -> tuple[Document, ...]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(document: Document) -> Document | None:
            async with gate:
                return await self._fence(document)

        marked = await asyncio.gather(*(one(document) for document in documents))
        return tuple(document for document in marked if document is not None)

    async def _fence(self, document: Document) -> Document | None:
        there: Document | None = document
        for _ in range(_ATTEMPTS):
            if there is None:
                return None
            marked = msgspec.structs.replace(there, annotations={TAKEN_OVER: touched_now()})
            try:
                version = await self._store.put(marked, expected=there.version)
                return msgspec.structs.replace(marked, version=version)
            except StoreConflict:
                there = await self._store.get(document.namespace, document.name)
        raise StoreConflict(f"{document.name} is written by somebody else all the time")

    def look(self) -> None:
        """Ask the keepers what changed."""
        self._looks += 1
        for name, keeper in self._keepers.items():
            for bucket in keeper.take_changed():
                self._mark((name, bucket))

    def _mark(self, key: _Key) -> None:
        self._dirty.setdefault(key, self._looks)
        self._wake.set()

    async def kept(self, name: str) -> None:
        """Wait until everything that this keeper has changed so far is in the store."""
        self.look()
        upto = self._looks
        async with self._done:
            await self._done.wait_for(
                lambda: (
                    not any(
                        key[0] == name and look <= upto
                        for book in (self._dirty, self._writing_now)
                        for key, look in book.items()
                    )
                )
            )

    def lead(self, tasks: asyncio.TaskGroup) -> None:
        """Write from now on."""
        self._next_ms.clear()
        self._task = tasks.create_task(self._run(), name=f"keep state in {self._store.url}")

    async def follow(self) -> None:
        """Write no more, after what is still to be written, if we may and it goes quickly."""
        task, self._task = self._task, None
        if task is None:
            return
        await ended([task])
        self.look()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                for key in sorted(self._dirty, key=_is_last):
                    if self._leadership.leads and not self._must_wait(key):
                        await self._write(key)
        except TimeoutError:
            _log.warning("not all state is kept: %s gives no answer in time", self._store.url)

    async def _run(self) -> NoReturn:
        backoff = Backoff()
        while True:
            self._wake.clear()
            key = self._next_due()
            if key is None or not self._leadership.leads:
                await self._wait()
            elif await self._write(key):
                backoff.reset()
                self._next_ms[key] = self._clock().steady_ms + _SPACING_MS
                await asyncio.sleep(_PACE_SECONDS)
            else:
                # Others go first: one that is refused must not hold them up.
                again_ms = int(backoff.next_seconds() * 1000)
                self._next_ms[key] = self._clock().steady_ms + again_ms

    def _next_due(self) -> _Key | None:
        now_ms = self._clock().steady_ms
        due = [
            key
            for key in self._dirty
            if self._next_ms.get(key, now_ms) <= now_ms and not self._must_wait(key)
        ]
        return min(due, key=lambda key: self._dirty[key], default=None)

    def _must_wait(self, key: _Key) -> bool:
        """Whether what it says is whole is not in the store yet."""
        return _is_last(key) and any(one[0] == key[0] and not _is_last(one) for one in self._dirty)

    async def _wait(self) -> None:
        now_ms = self._clock().steady_ms
        free = (key for key in self._dirty if not self._must_wait(key))
        at_ms = min((self._next_ms.get(key, now_ms) for key in free), default=None)
        seconds = None if at_ms is None else max(_PACE_SECONDS, (at_ms - now_ms + 1) / 1000)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _write(self, key: _Key) -> bool:
        """Write one document as it must be now; whether it is there."""
        self._writing_now[key] = self._dirty.pop(key)
        is_kept = False
        try:
            with self._stalls.busy(f"keep state {key[0]} in {self._store.url}"):
                is_kept = await self._try(key)
        except StoreConflict as error:
            await self._read_again(key, error)
        except StoreError as error:
            self._say(key, str(error))
        finally:
            look = self._writing_now.pop(key)
            if not is_kept:
                self._dirty[key] = look
        async with self._done:
            self._done.notify_all()
        return is_kept

    async def _try(self, key: _Key) -> bool:
        name, bucket = key
        text = self._keepers[name].text(bucket)
        there = self._there.get(key)
        if (None if there is None else there.data.get(KEY)) == text:
            return True
        full = f"{STATE_PREFIX}{name}-{bucket}"
        version = "" if there is None else there.version
        if text is None:
            expected = version if self._is_conditional else None
            await self._store.delete(STATE_NAMESPACE, full, expected=expected)
            self._there.pop(key, None)
        else:
            size = len(text.encode())
            if size > LARGEST_BYTES:
                self._say(key, f"has {size} bytes, at most {LARGEST_BYTES} fit into a document")
                return True  # until it changes
            document = Document(STATE_NAMESPACE, full, {KEY: text}, {STATE_LABEL: name})
            expected = version if self._is_conditional else None
            stored = await self._store.put(document, expected=expected)
            self._there[key] = msgspec.structs.replace(document, version=stored)
        self._writes[name] += 1
        if self._trouble.pop(key, None) is not None:
            _log.info("state %s is kept again", full)
        return True

    async def _read_again(self, key: _Key, error: StoreConflict) -> None:
        """Somebody else wrote it: an edit by hand, which is replaced, or the next leader."""
        if not await self._leadership.confirm():
            return
        name = f"{STATE_PREFIX}{key[0]}-{key[1]}"
        _log.warning("somebody else wrote state of ours, it is replaced: %s", error)
        try:
            there = await self._store.get(STATE_NAMESPACE, name)
        except StoreError as trouble:
            self._say(key, str(trouble))
            return
        if there is None:
            self._there.pop(key, None)
        else:
            self._there[key] = there

    def _say(self, key: _Key, problem: str) -> None:
        if key not in self._trouble:
            _log.error("state %s%s-%s is not kept: %s", STATE_PREFIX, *key, problem)
        self._trouble[key] = problem

    def statuses(self) -> tuple[KeptStatus, ...]:
        """What is kept, by part."""
        return tuple(
            KeptStatus(
                name=name,
                documents=sum(key[0] == name for key in self._there),
                bytes=sum(
                    len(one.data.get(KEY, "").encode())
                    for key, one in self._there.items()
                    if key[0] == name
                ),
                writes=self._writes[name],
                problems=(
                    *self._unreadable.get(name, ()),
                    *(why for key, why in self._trouble.items() if key[0] == name),
                ),
            )
            for name in self._keepers
        )


def _is_last(key: _Key) -> bool:
    return key[1].startswith(LAST)

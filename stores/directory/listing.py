"""Lists a directory store: what changed there that no event showed.

inotify does not show what other machines change on a file system that they share, and FUSE may
show nothing. So name, inode, size and time of the files are compared every 10 s, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from contract.errors import StoreUnavailable
from stores.base import Selection
from stores.directory import files

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from pathlib import Path
    from typing import Self

    from pacing.cooperative import Work
    from stores.directory.one_thread import OneThread

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
IDENTITY_SECONDS = 4.0
"""The time between two checks whether the path still leads to the same directory."""
SHOWN_SECONDS = 2.0
"""The time in which the event of a change that a listing found may still come."""
_SHARED_SECONDS = 1.0
_PIECE = 200
"""Files that are looked at in one piece of work, which takes some milliseconds."""

_Key: TypeAlias = tuple[str, str]
Identity: TypeAlias = tuple[int, int]
"""Device and inode of a directory."""


class Stamp(NamedTuple):
    """The attributes of a file that change when it is replaced or edited."""

    inode: int
    size: int
    modified_ns: int


class DirectoryListing(NamedTuple):
    """The files there are, and in which directory."""

    identity: Identity
    namespaces: tuple[str, ...]
    stamps: Mapping[_Key, Stamp]


def listed(root: Path, selection: Selection) -> Work[DirectoryListing]:
    """List what may be selected; of a selection by name nothing else is looked at. Blocks.

    The work is counted in files. Raises ``StoreUnavailable`` where the directory is not there.
    """
    identity = _identity(root)
    listed = files.namespaces(root, selection.namespace)
    stamps: dict[_Key, Stamp] = {}
    for namespace in listed:
        if selection.name is None:
            for key, stamp in _stamps(root, namespace):
                stamps[key] = stamp
                yield 1
        else:
            # One that cannot be looked at is found by its reader.
            with contextlib.suppress(OSError):
                status = files.document_path(root, namespace, selection.name).stat()
                stamps[namespace, selection.name] = _stamp(status)
    return DirectoryListing(identity, listed, stamps)


def _identity(root: Path) -> Identity:
    try:
        status = root.stat()
    except OSError as error:
        raise StoreUnavailable(f"cannot read {root}: {error.strerror}") from error
    return status.st_dev, status.st_ino


def _stamps(root: Path, namespace: str) -> Iterable[tuple[_Key, Stamp]]:
    try:
        with os.scandir(root / namespace) as entries:
            for entry in entries:
                name = files.name_in(entry.name)
                if name is not None:
                    with contextlib.suppress(OSError):
                        yield (namespace, name), _stamp(entry.stat())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StoreUnavailable(f"cannot read {root / namespace}: {error.strerror}") from error


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


class Lister:
    """Lists for all watches of a store; those that list at the same time share one."""

    def __init__(self, root: Path, thread: OneThread) -> None:
        self._root = root
        self._thread = thread
        self._shared: dict[str | None, tuple[float, DirectoryListing]] = {}
        self._turn = asyncio.Lock()
        self._identity_turn = asyncio.Lock()
        self._seen: tuple[float, Identity] | None = None
        self.missed = 0
        """Changes that no event showed."""

    async def list(self, selection: Selection) -> DirectoryListing:
        """Return the files there are. Raises ``StoreUnavailable``."""
        if selection.name is not None:
            return await self._list(selection)
        async with self._turn:
            if selection.namespace is None:
                return await self._shared_listing(None, self._list_all)
            return await self._list_namespace(selection.namespace)

    async def compared(
        self, selection: Selection, before: DirectoryListing
    ) -> tuple[DirectoryListing, frozenset[_Key]]:
        """Return the files there are, and the documents whose files are other ones than ``before``.

        Raises ``StoreUnavailable``.
        """
        listing = await self.list(selection)
        work = _different(before.stamps, listing.stamps)
        return listing, await self._thread.run_in_pieces(work, _PIECE)

    async def _list_all(self) -> DirectoryListing:
        """List namespace by namespace, so that watches of one of them share its listing."""
        identity = await self._thread.run(_identity, self._root)
        namespaces = await self._thread.run(files.namespaces, self._root)
        stamps: dict[_Key, Stamp] = {}
        for namespace in namespaces:
            part = await self._list_namespace(namespace)
            # A listing of the directory that was there before, or that came meanwhile.
            if part.identity != identity:
                raise StoreUnavailable(f"{self._root} is another directory than before")
            stamps.update(part.stamps)
        return DirectoryListing(identity, namespaces, stamps)

    async def _list_namespace(self, namespace: str) -> DirectoryListing:
        selection = Selection(namespace)
        return await self._shared_listing(namespace, lambda: self._list(selection))

    async def _shared_listing(
        self, namespace: str | None, make: Callable[[], Awaitable[DirectoryListing]]
    ) -> DirectoryListing:
        began = time.monotonic()
        shared = self._shared.get(namespace)
        if shared is not None and began - shared[0] <= _SHARED_SECONDS:
            return shared[1]
        listing = await make()
        self._shared[namespace] = began, listing
        return listing

    async def _list(self, selection: Selection) -> DirectoryListing:
        return await self._thread.run_in_pieces(listed(self._root, selection), _PIECE)

    async def identity(self, *, fresh: bool = False) -> Identity:
        """Return which directory there is. Raises ``StoreUnavailable``.

        Unless it is to be ``fresh``, the answer may be a second old.
        """
        async with self._identity_turn:
            began = time.monotonic()
            if fresh or self._seen is None or began - self._seen[0] > _SHARED_SECONDS:
                self._seen = began, await self._thread.run(_identity, self._root)
            return self._seen[1]

    def count_missed(self, count: int, key: _Key) -> None:
        """Count changes that no event showed; ``key`` is one of the documents."""
        if not self.missed:
            _log.warning(
                "the kernel reports no changes in %s, as on network file systems or FUSE. "
                "Changes, such as of %s/%s, are found only every %g s",
                *(self._root, *key, PERIOD_SECONDS),
            )
        self.missed += count


class ListingComparison:
    """The files that one watch knows, compared with those of a listing.

    Times are those of the loop. ``listing`` was made before the documents were read, and
    ``identity`` read before the kernel was asked to report changes.
    """

    def __init__(self, identity: Identity, listing: DirectoryListing, now: float) -> None:
        self.listing = listing
        self.identity = identity
        self.identity_due = _next_turn(now, IDENTITY_SECONDS)
        self._shown: set[_Key] = set()
        self._unshown: dict[_Key, float] = {}
        """Changes that a listing found, and until when their event may come."""
        self._gone: set[_Key] = set()
        """Documents that a list lacked before the kernel reported that they were deleted."""
        self.due = _next_turn(now, PERIOD_SECONDS)
        """When the next listing begins; never while it is made."""

    def wakes_at(self) -> float:
        """Return when something is to be done next."""
        return min((self.due, self.identity_due, *self._unshown.values()))

    def is_same(self, identity: Identity, now: float) -> bool:
        """Return whether the path leads to the same directory; to be asked again after a while."""
        self.identity_due = _next_turn(now, IDENTITY_SECONDS)
        return identity == self.identity

    def shown(self, keys: Iterable[_Key]) -> None:
        """Record that events showed these documents."""
        for key in keys:
            self._shown.add(key)
            self._unshown.pop(key, None)

    def reported(self, key: _Key, is_by_list: bool) -> None:
        """Record a change that is reported, and whether only a list shows a deletion."""
        (self._gone.add if is_by_list else self._gone.discard)(key)

    def late_deletions(self, keys: Iterable[_Key]) -> tuple[_Key, ...]:
        """Return those of ``keys`` that a list lacked before the kernel reported their change."""
        return tuple(key for key in keys if key in self._gone)

    def listing_begins(self) -> None:
        """Record that the next listing is being made."""
        self.due = math.inf

    def compare(
        self, listing: DirectoryListing, different: frozenset[_Key], now: float
    ) -> tuple[_Key, ...]:
        """Take the next listing, with the documents whose files are ``different``.

        Return those of them that no event showed so far. A change that was made, and shown, while
        the listing was made may be in the next one: to read it again then gives nothing new.
        """
        unseen = tuple(sorted(different - self._shown))
        self.listing = listing
        self._shown.clear()
        self.due = _next_turn(now, PERIOD_SECONDS)
        return unseen

    def found(self, keys: Iterable[_Key], now: float) -> None:
        """Record that these changes are news for the watch."""
        for key in keys:
            self._unshown.setdefault(key, now + SHOWN_SECONDS)

    def pop_missed(self, now: float) -> tuple[_Key, ...]:
        """Return the changes whose event did not come in time, each once."""
        missed = tuple(key for key, until in self._unshown.items() if until <= now)
        for key in missed:
            del self._unshown[key]
        return missed


class BackgroundListing:
    """The next listing of a watch, which reports events of the kernel meanwhile.

    ``make`` lists; ``done`` is called when that has ended.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[None, None, tuple[DirectoryListing, frozenset[_Key]]]],
        done: Callable[[], None],
    ) -> None:
        self._make = make
        self._done = done
        self._task: asyncio.Task[tuple[DirectoryListing, frozenset[_Key]]] | None = None

    def start_listing(self) -> None:
        """List; one listing at a time."""
        self._task = asyncio.create_task(self._make(), name="list a directory")
        self._task.add_done_callback(lambda _: self._done())

    def pop(self) -> tuple[DirectoryListing, frozenset[_Key]] | None:
        """Return what ``make`` returned, once; ``None`` before. Raises its error."""
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None and not self._task.cancel() and not self._task.cancelled():
            # The watch ended for another reason; asyncio logs an error that nobody looks at.
            self._task.exception()


def _different(before: Mapping[_Key, Stamp], after: Mapping[_Key, Stamp]) -> Work[frozenset[_Key]]:
    """Return the keys whose stamps differ; the work is counted in keys."""
    different = set(before.keys() - after.keys())
    for key, stamp in after.items():
        if before.get(key) != stamp:
            different.add(key)
        yield 1
    return frozenset(different)


def _next_turn(now: float, period: float) -> float:
    """Return the time of the next turn: all watches have theirs at the same times."""
    return (now // period + 1) * period

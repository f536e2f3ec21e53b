"""The store that is a directory: for the demo, for tests and for servers without Kubernetes.

A file that is not a document (see ``files``) never replaces one that was good: a watch goes
on as if the good one were still there, and the log names once what is wrong with which file. Its
owner, and a reader that has not seen a good one, take it for absent, so that it is written anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec
from typing_extensions import override

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from pacing.backoff import Backoff
from stores.base import (
    Changed,
    Deleted,
    Document,
    DocumentsListed,
    Selection,
    Store,
    WatchEvent,
    malformed_document,
)
from stores.directory import files
from stores.directory import mark as directory_mark
from stores.directory.beats import DirectoryHeartbeats
from stores.directory.inotify import Inotify
from stores.directory.listing import BackgroundListing, Lister, ListingComparison
from stores.directory.lock import DirectoryLock
from stores.directory.mark import DirectoryMark
from stores.directory.one_thread import OneThread
from stores.directory.owner import OwnerCheck
from stores.document_names import check_names
from stores.interruption import Interrupted
from stores.json_documents import demand_version, touched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable
    from pathlib import Path

    from pacing.cooperative import Work
    from stores.base import Beat, LastWriter
    from stores.directory.listing import DirectoryListing, Identity

_log = logging.getLogger(__name__)

_LOCK_PATIENCE_SECONDS = 5.0
_LOCK_STEP_SECONDS = 0.01
_PIECE = 200
"""Files that are looked at in one piece of work, which takes some milliseconds."""
_READ_COST = 20
"""How many files are looked at in the time in which one is read."""

_Key: TypeAlias = tuple[str, str]
T = TypeVar("T")
P = ParamSpec("P")


class DirectoryStore(Store):
    """Documents as files under ``root``, which must be on a local file system."""

    absence_is_deletion = False
    """A directory may be unmounted, replaced or not mounted yet."""
    largest_document = None
    """None of ours is too large."""
    objects = None
    """A directory has neither Events nor Nodes."""
    cluster = None
    """A directory knows neither Nodes nor pods."""
    channel = None
    leader_lease = None

    def __init__(self, url: str, root: Path, *, others_may_write: bool = True) -> None:
        self.url = url
        self._root = root
        self._owner = OwnerCheck(root, others_may_write=others_may_write)
        self._complained: dict[_Key, str] = {}
        self._thread = OneThread(str(root))
        self._lister = Lister(root, self._thread)
        self._scans = asyncio.Lock()
        self._in_use: WeakValueDictionary[_Key, Document] = WeakValueDictionary()
        """Documents that a watch holds, of files that had been settled when they were read."""
        self._heartbeats = DirectoryHeartbeats(root, self._owner)
        self.refusals = self._heartbeats.refusals
        self.leader_lock = DirectoryLock(root)
        self.mark = DirectoryMark(root, self._owner, self._thread)

    @property
    @override
    def missed_changes(self) -> int:
        return self._lister.missed

    @override
    async def get(self, namespace: str, name: str) -> Document | None:
        _check(namespace, name)
        return await self._thread.run(self._read_or_complain, namespace, name)

    @override
    async def list(self, selection: Selection) -> tuple[Document, ...]:
        documents = await self._scanned(selection, {})
        return tuple(documents.values())

    @override
    async def put(self, document: Document, *, expected: str | None = None) -> str:
        _check(document.namespace, document.name)
        return await self._write(self._put, document, expected)

    @override
    async def put_shown(self, document: Document, *, expected: str | None = None) -> Document:
        """See ``Store``. A file has what was written."""
        version = await self.put(document, expected=expected)
        return msgspec.structs.replace(document, version=version)

    @override
    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        _check(namespace, name)
        await self._write(self._delete, namespace, name, expected)

    @override
    def usage(self, node: str) -> None:
        """See ``Store``. A directory knows nothing of pods."""
        return

    @override
    async def beat(self, beat: Beat) -> None:
        await self._write(self._heartbeats.beat, beat)

    @override
    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        return await self._thread.run(self._heartbeats.beats, node)

    @override
    async def dry_run_beat(self, node: str) -> None:
        """See ``Store``. Nothing is in the way of a beat."""

    @override
    async def forget_beat(self, node: str) -> None:
        await self._write(self._heartbeats.forget, node)

    @override
    async def touch(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        del expected  # nothing arrives late
        _check(namespace, name)
        await self._write(self._touch, namespace, name)

    @override
    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        """See ``Store``. A file does not name its writer."""
        _check(namespace, name)
        return None

    @override
    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        """See ``Store``. A file has no writer's name."""
        _check(namespace, name)
        return None

    @override
    async def close(self) -> None:
        self._thread.close()

    async def _write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what needs a lock, in turn with writers of other processes."""
        give_up = _now() + _LOCK_PATIENCE_SECONDS
        while True:
            try:
                return await self._thread.run(work, *args, **kwargs)
            except files.Locked as locked:
                if _now() >= give_up:
                    raise StoreUnavailable(
                        f"{locked.path} has been locked by another process for "
                        f"{_LOCK_PATIENCE_SECONDS:g} s"
                    ) from None
            await asyncio.sleep(_LOCK_STEP_SECONDS)

    @override
    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """See ``Store``. A missing directory is made at the start, but not when it goes later."""
        current: dict[_Key, Document] = {}
        backoff = Backoff()
        reason = ""
        make = True
        while True:
            try:
                with Inotify() as inotify:
                    if make:
                        await self._thread.run(files.make, self._root)
                        make = False
                    # In this order (decision 4): what changes after one of these steps is shown by
                    # the next one.
                    identity = await self._lister.identity()
                    await self._thread.run(self._add_all, inotify, selection)
                    comparison = ListingComparison(
                        identity, await self._lister.list(selection), _now()
                    )
                    current = await self._scanned(selection, current)
                    backoff.reset()
                    reason = ""
                    yield DocumentsListed(tuple(current.values()))
                    with self._next_listing(inotify, comparison, selection) as listing:
                        while True:
                            for event in await self._changes(
                                inotify, comparison, listing, selection, current
                            ):
                                _apply(current, event)
                                comparison.reported(_key(event), _is_by_list(event))
                                yield event
            except (OSError, StoreError) as error:
                if str(error) != reason:
                    reason = str(error)
                    yield Interrupted(reason)
            await asyncio.sleep(backoff.next_seconds())

    def _next_listing(
        self, inotify: Inotify, comparison: ListingComparison, selection: Selection
    ) -> BackgroundListing:
        return BackgroundListing(
            lambda: self._lister.compared(selection, comparison.listing), inotify.wake
        )

    async def _changes(
        self,
        inotify: Inotify,
        comparison: ListingComparison,
        next_listing: BackgroundListing,
        selection: Selection,
        current: dict[_Key, Document],
    ) -> tuple[Changed | Deleted, ...]:
        """Wait for events of the kernel or the next listing; what is other than ``current``."""
        try:
            async with asyncio.timeout_at(comparison.wakes_at()):
                changed, everything = await inotify.changes()
        except TimeoutError:
            # Events that came while the loop was held were in time.
            changed, everything = inotify.taken()
        if everything or _now() >= comparison.identity_due:
            # What is missing in another directory was not deleted.
            self._demand_same(comparison, await self._lister.identity(fresh=everything))
        keys = self._keys(changed, selection)
        comparison.shown(keys)
        late = comparison.late_deletions(keys)
        if everything:
            await self._thread.run(self._add_all, inotify, selection)
            # The scan below reads all of these, so the next listing must not count them as missed.
            comparison.shown(comparison.listing.stamps)
            documents = await self._scanned(selection, current)
            gone = (Deleted(*key) for key in late if key not in documents)
            return (*_by_list(_difference(current, documents), keys), *gone)
        events = await self._updates(keys, selection, current) if keys else ()
        if any(isinstance(event, Deleted) for event in events):
            # The kernel watches directories, not their path, which may lead elsewhere by now.
            self._demand_same(comparison, await self._lister.identity(fresh=True))
            # Read again, because the first time may have read the other directory.
            events = await self._updates(keys, selection, current)
        there = {_key(event) for event in events}
        events += tuple(Deleted(*key) for key in late if key not in there)
        missed = comparison.pop_missed(_now())
        if missed:
            self._lister.count_missed(len(missed), missed[0])
        if _now() >= comparison.due:
            comparison.listing_begins()
            next_listing.start_listing()
        listed = next_listing.pop()
        if listed is None:
            return events
        for event in events:
            _apply(current, event)
        return (*events, *await self._look(inotify, comparison, selection, current, *listed))

    async def _look(
        self,
        inotify: Inotify,
        comparison: ListingComparison,
        selection: Selection,
        current: dict[_Key, Document],
        listing: DirectoryListing,
        different: frozenset[_Key],
    ) -> tuple[Changed | Deleted, ...]:
        """Report what a new listing has and no event has shown."""
        self._demand_same(comparison, listing.identity)
        if listing.namespaces != comparison.listing.namespaces:
            await self._thread.run(self._add_all, inotify, selection)
        keys = comparison.compare(listing, different, _now())
        events = await self._updates(keys, selection, current) if keys else ()
        comparison.found((_key(event) for event in events), _now())
        return _by_list(events)

    def _demand_same(self, comparison: ListingComparison, identity: Identity) -> None:
        if not comparison.is_same(identity, _now()):
            raise StoreUnavailable(f"{self._root} is another directory than before")

    async def _updates(
        self, keys: tuple[_Key, ...], selection: Selection, current: dict[_Key, Document]
    ) -> tuple[Changed | Deleted, ...]:
        return await self._thread.run_in_pieces(self._read_again(keys, selection, current), _PIECE)

    def _add_all(self, inotify: Inotify, selection: Selection) -> None:
        """Watch the directory and its namespaces. What is read after that is reported."""
        try:
            inotify.add(self._root)
        except OSError as error:
            raise StoreUnavailable(f"cannot watch {self._root}: {error.strerror}") from error
        for namespace in files.namespaces(self._root, selection.namespace):
            try:
                inotify.add(self._root / namespace)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                where = self._root / namespace
                raise StoreUnavailable(f"cannot watch {where}: {error.strerror}") from error

    def _keys(self, changed: Iterable[tuple[Path, str]], selection: Selection) -> tuple[_Key, ...]:
        keys = []
        for directory, file_name in sorted(changed):
            name = files.name_in(file_name)
            if directory == self._root or name is None:
                continue
            if selection.name in (None, name):
                keys.append((directory.name, name))
        return tuple(keys)

    async def _scanned(
        self, selection: Selection, current: dict[_Key, Document]
    ) -> dict[_Key, Document]:
        """Return all documents of a selection."""
        # One after the other, so that each uses what the ones before have read. Other work of the
        # thread is done in between: ten thousand documents take seconds.
        async with self._scans:
            return await self._thread.run_in_pieces(self._scan(selection, current), _PIECE)

    def _scan(
        self, selection: Selection, current: dict[_Key, Document]
    ) -> Work[dict[_Key, Document]]:
        documents = {}
        for namespace in files.namespaces(self._root, selection.namespace):
            for name in files.names(self._root, namespace):
                if selection.name in (None, name):
                    document = self._in_use.get((namespace, name))
                    if document is not None and files.is_unchanged(self._root, document):
                        self._complained.pop((namespace, name), None)
                        yield 1
                    else:
                        document = self._read(namespace, name, current, selection)
                        yield _READ_COST
                    if document is not None and selection.fits(document.labels):
                        documents[namespace, name] = document
        return documents

    def _read_again(
        self, keys: Iterable[_Key], selection: Selection, current: dict[_Key, Document]
    ) -> Work[tuple[Changed | Deleted, ...]]:
        before = {key: current[key] for key in keys if key in current}
        after = {}
        malformed = []
        for key in keys:
            document = self._read(*key, current, selection)
            if document is not None and selection.fits(document.labels):
                after[key] = document
            elif selection.owned and key not in before and key in self._complained:
                # It was spoilt, written anew and malformed again between two reads.
                malformed.append(Deleted(*key))
            yield _READ_COST
        return (*_difference(before, after), *malformed)

    def _read(
        self,
        namespace: str,
        name: str,
        current: dict[_Key, Document],
        selection: Selection,
    ) -> Document | None:
        """Return the document now.

        Of a malformed file return the problem, or the known document but for its owner, as
        ``selection`` needs it.
        """
        try:
            document = files.read(self._root, namespace, name)
        except files.MalformedFile as error:
            if selection.shows_malformed:
                return malformed_document((namespace, name), str(error), error.digest, selection)
            self._complain(namespace, name, error)
            return None if selection.owned else current.get((namespace, name))
        self._complained.pop((namespace, name), None)
        if document is not None and files.is_settled(document):
            self._in_use[namespace, name] = document
        return document

    def _read_or_complain(self, namespace: str, name: str) -> Document | None:
        return self._read(namespace, name, {}, Selection())

    def _complain(self, namespace: str, name: str, error: files.MalformedFile) -> None:
        complaint = f"{error.digest} {error}"
        if self._complained.get((namespace, name)) != complaint:
            self._complained[namespace, name] = complaint
            path = self._path(namespace, name)
            _log.warning("%s is left out, it is not a valid document: %s", path, error)

    def _put(self, document: Document, expected: str | None) -> str:
        namespace, name = document.namespace, document.name
        content = files.encode(document)
        self._owner.check()
        with files.locked(self._root, namespace) as directory:
            self._demand(namespace, name, expected)
            # With the first document, so that a first set-up has no step for it (decision 22).
            directory_mark.make(self._root)
            return files.replace(directory, self._path(namespace, name), content)

    def _demand(self, namespace: str, name: str, expected: str | None) -> None:
        if expected is None:
            return
        current = self._read_or_complain(namespace, name)
        demand_version(self._path(namespace, name), current, expected)

    def _touch(self, namespace: str, name: str) -> None:
        # Checked before the lock as well, because ``locked``
        # would make the directory of the namespace.
        if not self._path(namespace, name).exists():
            return
        self._owner.check()
        with files.locked(self._root, namespace) as directory:
            document = self._read_or_complain(namespace, name)
            if document is not None:
                content = files.encode(touched(document))
                files.replace(directory, self._path(namespace, name), content)

    def _delete(self, namespace: str, name: str, expected: str | None) -> None:
        if (self._root / namespace).is_dir():
            self._owner.check()
            with files.locked(self._root, namespace) as directory:
                if self._path(namespace, name).exists():
                    self._demand(namespace, name, expected)
                files.remove(directory, self._path(namespace, name))

    def _path(self, namespace: str, name: str) -> Path:
        return files.document_path(self._root, namespace, name)


def _check(namespace: str, name: str) -> None:
    check_names(namespace, name)
    if namespace == files.BEATS:
        raise StoreRefused(
            f"no document can be in a namespace {files.BEATS}: heartbeats are there in a directory"
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(event: Changed | Deleted) -> _Key:
    if isinstance(event, Changed):
        return event.document.namespace, event.document.name
    return event.namespace, event.name


def _difference(
    before: dict[_Key, Document], after: dict[_Key, Document]
) -> tuple[Changed | Deleted, ...]:
    events: list[Changed | Deleted] = [Deleted(*key) for key in before if key not in after]
    for key, document in after.items():
        if key not in before or before[key].version != document.version:
            events.append(Changed(document))
    return tuple(events)


def _by_list(
    events: Iterable[Changed | Deleted], shown: Collection[_Key] = ()
) -> tuple[Changed | Deleted, ...]:
    """Return ``events`` that a list found; the kernel has reported those of ``shown`` besides."""
    return tuple(
        msgspec.structs.replace(event, by_list=True)
        if isinstance(event, Deleted) and _key(event) not in shown
        else event
        for event in events
    )


def _is_by_list(event: Changed | Deleted) -> bool:
    return isinstance(event, Deleted) and event.by_list


def _apply(current: dict[_Key, Document], event: Changed | Deleted) -> None:
    if isinstance(event, Changed):
        current[event.document.namespace, event.document.name] = event.document
    else:
        current.pop((event.namespace, event.name), None)

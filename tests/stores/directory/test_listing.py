"""A directory whose changes cause no event, and one that does not answer."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreUnavailable
from pacing.cooperative import run_to_completion
from stores.address import open_store
from stores.base import Beat, Deleted, Document, DocumentsListed, Selection
from stores.directory import listing, one_thread
from stores.interruption import Interrupted
from tests.parts.deadlines import patience, stays, time_passes, until, until_succeeds
from tests.parts.fuse import Mirror, mounts
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.watching import Watching

LABELS = {"mx-consumer-cim": "true"}
OWN = Selection("kube-system", "own")

pytestmark = mounts


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PERIOD_SECONDS", 0.3)
    monkeypatch.setattr(listing, "SHOWN_SECONDS", 0.2)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    with Mirror(tmp_path) as mounted:
        yield mounted


@pytest.fixture
async def here(mirror: Mirror) -> AsyncIterator[Store]:
    """Return the store as a daemon opens it."""
    store = open_store(f"directory:{mirror.place}")
    yield store
    await store.close()


@pytest.fixture
async def there(mirror: Mirror) -> AsyncIterator[Store]:
    """Open the same store as on another machine, whose writes cause no event here."""
    store = open_store(f"directory:{mirror.behind}")
    yield store
    await store.close()


def document(name: str, text: str, namespace: str = "kube-system") -> Document:
    return Document(namespace, name, {"text": text}, LABELS)


def shows(text: str, seen: Watching) -> bool:
    return {one.data["text"] for one in seen.documents.values()} == {text}


def has_missed(store: Store, count: int) -> bool:
    return store.missed_changes == count


@pytest.mark.server
@pytest.mark.parametrize("selection", [Selection(label=("mx-consumer-cim", "true")), OWN])
async def test_changes_without_events_arrive_and_are_named_once(
    here: Store, there: Store, selection: Selection, caplog: pytest.LogCaptureFixture
) -> None:
    await there.put(document("own", "first"))
    assert here.missed_changes == 0
    async with watching(here, selection) as seen:
        assert seen.documents["kube-system", "own"].data["text"] == "first"
        # A change is counted when its event may no longer come. Another one until then is not.
        for count, text in enumerate(("other", "again"), 1):
            await there.put(document("own", text))
            await seen.until(partial(shows, text))
            await until(partial(has_missed, here, count), seconds=10)
        await there.delete("kube-system", "own")
        await seen.until(lambda seen: not seen.documents)
        await until(lambda: here.missed_changes == 3, seconds=10)
        await there.put(document("own", "back"))
        await seen.until(lambda seen: bool(seen.documents))
        await until(lambda: here.missed_changes == 4, seconds=10)
    assert seen.of(Interrupted) == []
    assert len(seen.of(DocumentsListed)) == 1
    (line,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert "reports no changes" in line.getMessage()
    assert here.url.removeprefix("directory:") in line.getMessage()


@pytest.mark.server
async def test_a_namespace_that_comes_and_goes_without_events(
    here: Store, there: Store, mirror: Mirror
) -> None:
    async with watching(here) as seen:
        await there.put(document("one", "x", "mindx-dl"))
        await seen.until(lambda seen: ("mindx-dl", "one") in seen.documents)
        await there.put(document("one", "y", "mindx-dl"))
        await seen.until(lambda seen: seen.documents["mindx-dl", "one"].data["text"] == "y")
        shutil.rmtree(mirror.behind / "mindx-dl")
        await seen.until(lambda seen: not seen.documents)
        assert len(seen.of(Deleted)) == 1


@pytest.mark.slow
async def test_change_that_an_event_showed_is_not_counted_as_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listing, "PERIOD_SECONDS", 0.02)
    store = open_store(f"directory:{tmp_path / 'local'}")
    async with watching(store) as seen:
        began = time.monotonic()
        number = 0
        while time.monotonic() < began + 2:
            number += 1
            await store.put(document(f"n{number % 5}", str(number)))
            if number % 7 == 0:
                await store.delete("kube-system", f"n{number % 5}")
                await store.put(document("one", str(number), f"namespace-{number}"))
        last = document("last", "")
        await store.put(last)
        await seen.until(lambda seen: ("kube-system", "last") in seen.documents)
        await stays(0.5, because="the directory is listed several times")
    assert store.missed_changes == 0
    assert caplog.records == []


async def test_an_owner_lists_its_own_files_only(tmp_path: Path) -> None:
    place = tmp_path / "store"
    for number in range(20):
        (place / "kube-system").mkdir(parents=True, exist_ok=True)
        (place / "kube-system" / f"n{number}.json").write_text("{}")
    listed = run_to_completion(listing.listed(place, Selection("kube-system", "n7")))
    assert set(listed.stamps) == {("kube-system", "n7")}
    assert len(run_to_completion(listing.listed(place, Selection("kube-system"))).stamps) == 20


@pytest.mark.server
async def test_a_directory_that_is_replaced_is_listed_anew(here: Store, mirror: Mirror) -> None:
    """By another one, with a mount over it that causes no event."""
    await here.put(document("one", "x"))
    async with watching(here) as seen:
        (mirror.behind.parent / "over").mkdir()
        with Mirror(mirror.behind.parent / "over") as other:
            mounted = ["mount", "--bind", str(other.place), str(mirror.place)]
            began = time.monotonic()
            assert os.spawnvp(os.P_WAIT, "mount", mounted) == 0
            try:
                await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
                assert time.monotonic() - began <= patience(5)
                assert "another directory" in seen.of(Interrupted)[0].reason
            finally:
                assert os.spawnvp(os.P_WAIT, "umount", ["umount", str(mirror.place)]) == 0
    assert seen.of(Deleted) == []


@pytest.mark.server
async def test_a_mount_that_hangs_holds_one_thread(
    here: Store, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_thread, "PATIENCE_SECONDS", patience(0.5))
    await here.put(document("one", "x"))
    async with watching(here) as seen, watching(here, OWN):
        before = threading.active_count()
        mirror.freeze()
        try:
            await seen.until(lambda seen: bool(seen.of(Interrupted)))
            assert "does not answer" in seen.of(Interrupted)[0].reason
            for _ in range(3):
                for work in (
                    here.put(document("one", "lost")),
                    here.beat(Beat("n", "h", 5.0, 1)),
                    here.beats(),
                    here.get("kube-system", "one"),
                ):
                    began = time.monotonic()
                    with pytest.raises(StoreUnavailable, match="does not answer"):
                        await work
                    assert time.monotonic() - began < patience(5)
            assert threading.active_count() == before
        finally:
            mirror.thaw()
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) >= 2)
        await until_succeeds(lambda: here.put(document("one", "after")), StoreUnavailable)
        await seen.until(lambda seen: seen.documents["kube-system", "one"].data["text"] == "after")


async def test_a_writer_that_waits_for_a_lock_blocks_no_other(tmp_path: Path) -> None:
    store = open_store(f"directory:{tmp_path / 'local'}")
    await store.put(document("one", "x"))
    with (tmp_path / "local/kube-system/.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = asyncio.create_task(store.put(document("one", "y")))
        await time_passes(0.1)
        began = time.monotonic()
        await store.beat(Beat("n", "h", 5.0, 1))
        assert len(await store.beats()) == 1
        assert time.monotonic() - began < patience(1)
        assert not waiting.done()
    await waiting
    await store.close()

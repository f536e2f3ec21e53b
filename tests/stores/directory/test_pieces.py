"""A directory with many documents: reading and listing it holds up no other work."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from stores.base import Document, DocumentsListed, Selection
from stores.directory import files, listing, one_thread
from stores.directory import store as directory_store
from stores.interruption import Interrupted
from tests.parts.deadlines import patience, stand_in_takes, until
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Store

pytestmark = pytest.mark.slow

COUNT = 30
READ_SECONDS = patience(0.02)
"""A piece of work takes longer on a busy machine, and its deadline is a multiple of this."""
LABELS = {"a": "b"}
OTHER_LABEL = Selection(label=("another", "label"))


def name(number: int) -> str:
    return f"n{number:02}"


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Store]:
    """Return a store with documents that have not changed for an hour."""
    store = open_store(f"directory:{tmp_path}")
    for number in range(COUNT):
        await store.put(Document("kube-system", name(number), {"text": "x"}, LABELS))
    for path in (tmp_path / "kube-system").glob("*.json"):
        settle(path)
    yield store
    await store.close()


def settle(path: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the documents whose files are read from now on, slowly, one a piece."""
    names: list[str] = []
    read_file = files.read

    def reads(root: Path, namespace: str, name: str) -> Document | None:
        names.append(name)
        stand_in_takes(READ_SECONDS)
        return read_file(root, namespace, name)

    monkeypatch.setattr(files, "read", reads)
    monkeypatch.setattr(directory_store, "_PIECE", 1)
    return names


async def test_a_list_that_takes_long_is_no_store_without_an_answer(
    filled: Store, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_thread, "PATIENCE_SECONDS", COUNT * READ_SECONDS * 2 / 3)
    async with watching(filled, Selection("kube-system")) as seen:
        assert len(seen.documents) == len(read) == COUNT
    assert seen.of(Interrupted) == []


async def test_a_write_waits_for_a_piece_of_a_list_only(filled: Store, read: list[str]) -> None:
    listed = asyncio.create_task(filled.list(Selection()))
    await until(lambda: len(read) > 0, "the list has begun", step_seconds=READ_SECONDS)
    await filled.put(Document("mindx-dl", "urgent", {}, LABELS))
    assert len(read) < COUNT / 2
    await listed


@pytest.mark.parametrize("selection", [Selection(), Selection("kube-system")])
async def test_a_change_is_written_and_reported_while_all_files_are_compared(
    filled: Store, selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    stamp = listing._stamp

    def looks(status: os.stat_result) -> listing.Stamp:
        looked.append(status)
        stand_in_takes(READ_SECONDS)
        return stamp(status)

    monkeypatch.setattr(listing, "_PIECE", 1)
    monkeypatch.setattr(listing, "PERIOD_SECONDS", 0.5)
    monkeypatch.setattr(listing, "_SHARED_SECONDS", 0.0)
    async with watching(filled, selection) as seen:
        # The next listing is the last.
        monkeypatch.setattr(listing, "PERIOD_SECONDS", 3600.0)
        monkeypatch.setattr(listing, "_stamp", looks)
        await until(lambda: len(looked) > 0, "files are compared", step_seconds=READ_SECONDS)
        await filled.put(Document("kube-system", "urgent", {}, LABELS))
        await seen.until(lambda seen: ("kube-system", "urgent") in seen.documents)
        assert len(looked) < COUNT
        await until(lambda: len(looked) >= COUNT, "all files were compared")


async def test_a_second_watch_reads_no_file_that_the_first_has(
    filled: Store, read: list[str]
) -> None:
    async with watching(filled, Selection("kube-system")) as seen:
        await seen.until(lambda seen: len(seen.documents) == COUNT)
        assert len(read) == COUNT
        async with watching(filled, OTHER_LABEL) as other:
            await other.until(lambda other: bool(other.of(DocumentsListed)))
        async with watching(filled) as same:
            await same.until(lambda same: len(same.documents) == COUNT)
    assert len(read) == COUNT
    assert same.documents == seen.documents


async def test_a_file_that_was_changed_is_read_again(
    filled: Store, tmp_path: Path, read: list[str]
) -> None:
    path = tmp_path / "kube-system" / "n07.json"
    held = await filled.list(Selection())
    read.clear()
    # In place and of the same size, with a time that is as old.
    path.write_text(path.read_text().replace('"x"', '"y"'))
    settle(path)
    listed = {document.name: document for document in await filled.list(Selection())}
    assert len(held) == len(listed)
    assert listed["n07"].data == {"text": "y"}
    assert read == ["n07"]


async def test_a_file_that_changes_now_is_read_for_each_list(
    filled: Store, tmp_path: Path, read: list[str]
) -> None:
    """Two changes within one step of the file system's clock have the same time."""
    path = tmp_path / "kube-system" / "n07.json"
    path.touch()
    held = await filled.list(Selection())
    changed_ns = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace('"x"', '"y"'))
    os.utime(path, ns=(changed_ns, changed_ns))
    listed = {document.name: document for document in await filled.list(Selection())}
    assert len(held) == len(listed)
    assert listed["n07"].data == {"text": "y"}
    assert len(read) == COUNT + 1


async def test_documents_of_no_watch_are_not_kept(filled: Store, read: list[str]) -> None:
    for _ in range(2):
        assert len(await filled.list(Selection())) == COUNT
    assert len(read) == 2 * COUNT

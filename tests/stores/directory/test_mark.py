"""The mark that distinguishes a directory store from another one at the same path."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreRefused
from stores.address import open_store
from stores.base import Beat, Deleted, Document, DocumentsListed, FoundMark
from stores.directory.mark import MARK_NAME
from stores.interruption import Interrupted
from tests.parts.deadlines import patience
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store

ONE = Document("mindx-dl", "one", {"text": "x"})
OTHER = "0123456789abcdef" * 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create the directory of the fixture ``directory``; return it."""
    place = tmp_path / "store"
    place.mkdir()
    return place


async def mark(store: Store) -> FoundMark:
    assert store.mark is not None
    return await store.mark.read()


async def test_the_first_document_makes_it_and_no_later_one_changes_it(
    directory: Store, root: Path
) -> None:
    await directory.beat(Beat("node-1", "host", 5.0, 1))
    async with watching(directory):
        assert await mark(directory) == FoundMark()
    await directory.put(ONE)
    first = await mark(directory)
    assert (len(first.id), first.problem) == (32, None)
    await directory.put(ONE)
    await directory.delete("mindx-dl", "one")
    assert await mark(directory) == first
    (root / MARK_NAME).unlink()
    await directory.put(ONE)
    assert (await mark(directory)).id not in ("", first.id)


async def test_of_many_who_write_first_one_makes_it(root: Path) -> None:
    stores = [open_store(f"directory:{root}") for _ in range(20)]
    documents = [Document("mindx-dl", f"n{number}", {}) for number in range(len(stores))]
    await asyncio.gather(*(one.put(its) for one, its in zip(stores, documents, strict=True)))
    assert len({await mark(one) for one in stores}) == 1
    for one in stores:
        await one.close()
    assert [file.name for file in root.iterdir() if file.name.startswith(".npu")] == [MARK_NAME]


async def test_no_directory_has_no_mark(directory: Store) -> None:
    assert await mark(directory) == FoundMark()


def garbage(place: Path, _: Path) -> None:
    place.write_bytes(b"\xff{")


def empty(place: Path, _: Path) -> None:
    place.touch()


def long(place: Path, _: Path) -> None:
    place.write_text(f'{{"id": "{OTHER}"{" " * 5000}}}')


def no_id(place: Path, _: Path) -> None:
    place.write_text('{"id": "mine"}')


def pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


def folder(place: Path, _: Path) -> None:
    place.mkdir()


def link(place: Path, target: Path) -> None:
    target.write_text(f'{{"id": "{OTHER}"}}')
    place.symlink_to(target)


def dangling_link(place: Path, target: Path) -> None:
    place.symlink_to(target)


@pytest.mark.parametrize("spoil", [garbage, empty, long, no_id, pipe, folder, link, dangling_link])
async def test_one_that_cannot_be_read_holds_up_no_document(
    directory: Store, root: Path, tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    target = tmp_path / "target"
    spoil(root / MARK_NAME, target)
    there = target.read_text() if target.exists() else None
    await directory.put(ONE)
    assert await directory.get("mindx-dl", "one") is not None
    found = await mark(directory)
    assert found.id == ""
    assert found.problem is not None
    assert str(root / MARK_NAME) in found.problem
    assert (target.read_text() if target.exists() else None) == there


async def test_an_operator_puts_a_directory_in_the_place_of_another(
    directory: Store, root: Path
) -> None:
    assert directory.mark is not None
    await directory.put(ONE)
    before = await mark(directory)
    after = await directory.mark.replace(OTHER)
    assert after == await mark(directory) == FoundMark(before.id, OTHER)
    with pytest.raises(StoreRefused, match="is not a valid mark"):
        await directory.mark.replace("mine")
    (root / MARK_NAME).write_text("garbage")
    made = await directory.mark.replace(before.id)
    assert made == await mark(directory)
    assert made.id not in (before.id, OTHER)


async def test_another_directory_at_the_path_is_no_deletion(directory: Store, root: Path) -> None:
    await directory.put(ONE)
    other = root.with_name("other")
    shutil.copytree(root, other)
    (other / "mindx-dl/one.json").unlink()
    async with watching(directory) as seen:
        began = time.monotonic()
        root.rename(root.with_name("before"))
        other.rename(root)
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        assert time.monotonic() - began <= patience(5)
        assert seen.of(Deleted) == []
        assert not seen.documents
        assert len(seen.of(Interrupted)) == 1

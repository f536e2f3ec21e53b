"""A store that is only read: what reads goes through, what writes is refused before it is sent."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from stores.base import Beat, Document, DocumentsListed, Selection, Store
from stores.directory.store import DirectoryStore
from stores.read_only import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

DOCUMENT = Document("space", "name", {"key": "value"})
WRITES: dict[str, Callable[[ReadOnly], Awaitable[object]]] = {
    "put": lambda store: store.put(DOCUMENT),
    "put_shown": lambda store: store.put_shown(DOCUMENT),
    "delete": lambda store: store.delete("space", "name"),
    "beat": lambda store: store.beat(Beat("n", "host", 5, 1)),
    "dry_run_beat": lambda store: store.dry_run_beat("n"),
    "forget_beat": lambda store: store.forget_beat("n"),
    "touch": lambda store: store.touch("space", "name"),
}
READS = {
    "url",
    "refusals",
    "absence_is_deletion",
    "missed_changes",
    "largest_document",
    "certificate_ends_ms",
    "get",
    "list",
    "watch",
    "watch_by_page",
    "usage",
    "beats",
    "writer",
    "other_writer",
    "close",
}
NONE = {"objects", "cluster", "device_taints", "channel", "leader_lease", "leader_lock", "mark"}


async def test_every_part_of_a_store_is_read_or_refused(tmp_path: Path) -> None:
    parts = {name for name in (*vars(Store), *Store.__annotations__) if not name.startswith("_")}
    assert parts == READS | NONE | WRITES.keys()
    inner = DirectoryStore(f"directory:{tmp_path}", tmp_path)
    own = {name for name, _ in inspect.getmembers(ReadOnly(inner)) if not name.startswith("_")}
    assert own == parts


async def test_reading_goes_through(tmp_path: Path) -> None:
    inner = DirectoryStore(f"directory:{tmp_path}", tmp_path)
    await inner.put(DOCUMENT)
    await inner.beat(Beat("n", "host", 5, 1))
    store = ReadOnly(inner)
    assert store.url == inner.url
    found = await store.get("space", "name")
    assert found is not None
    assert found.data == DOCUMENT.data
    selection = Selection("space", "name")
    assert await store.list(selection) == (found,)
    async for event in store.watch(selection):
        assert event == DocumentsListed((found,))
        break
    assert [beat.node for beat in await store.beats("n")] == ["n"]
    assert await store.writer("space", "name") == await inner.writer("space", "name")
    assert await store.other_writer("space", "name") is None
    assert store.usage("n") is None
    assert all(getattr(store, name) is None for name in NONE)
    await store.close()


@pytest.mark.parametrize("name", WRITES)
async def test_writing_is_a_mistake_of_the_program(name: str, tmp_path: Path) -> None:
    inner = DirectoryStore(f"directory:{tmp_path}", tmp_path)
    await inner.put(DOCUMENT)
    await inner.beat(Beat("n", "host", 5, 1))
    before = sorted(tmp_path.rglob("*")), await inner.get("space", "name"), await inner.beats()
    with pytest.raises(AssertionError, match="only to be read"):
        await WRITES[name](ReadOnly(inner))
    after = sorted(tmp_path.rglob("*")), await inner.get("space", "name"), await inner.beats()
    assert after == before
    await inner.close()

"""Heartbeats, touches and writers: the contract of every store about them, on real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import StoreRefused
from stores.base import Beat, Changed, Document, Selection
from stores.interruption import Interrupted
from tests.parts.deadlines import until
from tests.parts.watching import watching

if TYPE_CHECKING:
    from stores.base import Store

LABELS = {"mx-consumer-cim": "true"}
NOW_MS = 1_800_000_000_123


def a_beat(node: str = "node-1", holder: str = "host-a", at_ms: int = NOW_MS) -> Beat:
    return Beat(node, holder, 5.0, at_ms)


def as_made(beats: tuple[Beat, ...]) -> tuple[Beat, ...]:
    """Remove what only some stores know: how and how long ago they received a beat."""
    return tuple(msgspec.structs.replace(beat, age_ms=None, is_retained=False) for beat in beats)


async def shows(store: Store, *expected: Beat) -> None:
    """Wait until the store, whose answers may be a moment old, shows exactly these beats."""
    found: set[Beat] = set()

    async def is_so() -> bool:
        nonlocal found
        found = set(as_made(await store.beats()))
        return found == set(expected)

    await until(is_so, lambda: f"the store shows {found}")


async def test_there_are_no_beats_at_first(store: Store) -> None:
    await shows(store)
    assert await store.beats("node-1") == ()


async def test_beats_are_read_as_they_were_made(store: Store) -> None:
    beats = {a_beat(), Beat("node-2.example", "host-b", 0.1, 1), Beat("n", "c", 300.0, NOW_MS + 1)}
    for beat in beats:
        await store.beat(beat)
    await shows(store, *beats)
    for beat in beats:
        assert as_made(await store.beats(beat.node)) == (beat,)
    assert await store.beats("node") == ()


async def test_a_beat_shows_whether_its_agent_is_blind(store: Store) -> None:
    for blind in (True, False, None):
        beat = msgspec.structs.replace(a_beat(), blind=blind)
        await store.beat(beat)
        await shows(store, beat)
        await store.forget_beat("node-1")


async def test_a_beat_names_the_last_writes_of_its_agent(store: Store) -> None:
    for writes in ('{"version":1,"device-info":1764000000}', '{"version":2}', ""):
        beat = msgspec.structs.replace(a_beat(), writes=writes)
        await store.beat(beat)
        await shows(store, beat)


async def test_a_beat_replaces_the_one_before_of_any_holder(store: Store) -> None:
    for beat in (a_beat(), a_beat(at_ms=NOW_MS + 5000), a_beat(holder="host-b"), a_beat(at_ms=7)):
        await store.beat(beat)
        await shows(store, beat)


async def test_a_beat_is_forgotten(store: Store) -> None:
    await store.beat(a_beat())
    await store.beat(a_beat("node-2"))
    for _ in range(2):
        await store.forget_beat("node-1")
        await shows(store, a_beat("node-2"))
    await store.beat(a_beat())
    await shows(store, a_beat(), a_beat("node-2"))
    with pytest.raises(StoreRefused, match="node name"):
        await store.forget_beat("../other")


async def test_a_beat_of_no_node_is_refused(store: Store) -> None:
    for node in ("", "Upper", "../other", "a" * 231):
        with pytest.raises(StoreRefused, match="node name"):
            await store.beat(a_beat(node))
        with pytest.raises(StoreRefused, match="node name"):
            await store.beats(node)


async def test_beats_are_no_documents(store: Store) -> None:
    await store.put(Document("mindx-dl", "one", {"text": "x"}, LABELS))
    async with watching(store, Selection()) as seen:
        await store.beat(a_beat())
        await store.put(Document("mindx-dl", "two", {"text": "x"}, LABELS))
        await seen.until(lambda seen: ("mindx-dl", "two") in seen.documents)
    assert not any("node-1" in name for _, name in seen.documents)
    assert seen.of(Interrupted) == []


async def test_a_touch_is_seen_and_changes_nothing_else(store: Store) -> None:
    document = Document("mindx-dl", "one", {"text": "x"}, LABELS, {"other": "kept"})
    await store.put(document)
    async with watching(store, Selection("mindx-dl", "one")) as seen:
        await store.touch("mindx-dl", "one")
        await seen.until(lambda seen: len(seen.of(Changed)) == 1)
        await store.touch("mindx-dl", "one")
        await seen.until(lambda seen: len(seen.of(Changed)) == 2)
    shown = [event.document for event in seen.of(Changed)]
    for one in shown:
        assert (one.data, one.labels) == (document.data, document.labels)
        assert one.annotations["other"] == "kept"
    touches = [one.annotations["npu-vigil/touched"] for one in shown]
    assert touches[0] < touches[1]


async def test_a_touch_of_nothing_makes_nothing(store: Store) -> None:
    await store.touch("mindx-dl", "one")
    await store.touch("no-such-namespace", "one")
    assert await store.get("mindx-dl", "one") is None
    assert await store.list(Selection("no-such-namespace")) == ()


async def test_no_program_wrote_what_is_not_there(store: Store) -> None:
    assert await store.writer("mindx-dl", "one") is None

"""What is known of a document that we own, and how it is written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreConflict, StoreUnavailable
from service.owned_documents.foreign_parts import MAX_BYTES
from service.owned_documents.foreign_writes import UNKNOWN
from service.owned_documents.owned_document import (
    OwnedDocument,
    Preempted,
    StoreContent,
    run_preemptibly,
)
from stores.base import Document, LastWriter
from stores.directory.store import DirectoryStore
from tests.parts.deadlines import patience, stand_in_waits

if TYPE_CHECKING:
    from pathlib import Path

SPACE, NAME = "kube-system", "mindx-dl-deviceinfo-n"
OURS = Document(SPACE, NAME, {"DeviceInfoCfg": "ours"}, {"mx-consumer-cim": "true"})


class NamingStore(DirectoryStore):
    """A directory store that knows who wrote, as an API server does."""

    found: LastWriter | None = None
    fails = False

    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        assert (namespace, name) == (SPACE, NAME)
        if self.fails:
            raise StoreUnavailable("no answer")
        return self.found


@pytest.fixture
def store(tmp_path: Path) -> NamingStore:
    return NamingStore(f"directory:{tmp_path}", tmp_path)


async def written(store: DirectoryStore, owned: OwnedDocument, document: Document | None) -> bool:
    """Write as a writer does; return whether the write changed the document."""
    version = await owned.replace(store, document, demands=True)
    return owned.acknowledge(document, version)


def seen(owned: OwnedDocument) -> tuple[Document | StoreContent, str | None]:
    return owned.shown, owned.version


def is_answer(owned: OwnedDocument) -> bool:
    return owned.is_own_answer


async def test_a_write_replaces_only_what_was_seen_last(store: NamingStore) -> None:
    owned = OwnedDocument(SPACE, NAME)
    assert seen(owned) == (StoreContent.UNKNOWN, None)
    owned.record_stored(None)
    assert seen(owned) == (StoreContent.NOTHING, "")
    assert await written(store, owned, OURS)
    assert owned.differences(OURS) == ()
    theirs = Document(SPACE, NAME, {"DeviceInfoCfg": "theirs"}, OURS.labels)
    await store.put(theirs)
    for document in (OURS, None):
        with pytest.raises(StoreConflict):
            await owned.replace(store, document, demands=True)
    owned.record_stored(await store.get(SPACE, NAME))
    assert owned.differences(OURS) == ("key DeviceInfoCfg",)
    assert await written(store, owned, OURS)
    await store.put(theirs)
    owned.acknowledge(OURS, await owned.replace(store, OURS, demands=False))
    assert await store.get(SPACE, NAME) == owned.stored
    assert await written(store, owned, None)
    assert await store.get(SPACE, NAME) is None
    assert seen(owned) == (StoreContent.NOTHING, "")


async def test_a_write_keeps_what_others_added(
    store: NamingStore, caplog: pytest.LogCaptureFixture
) -> None:
    owned = OwnedDocument(SPACE, NAME)
    large = "x" * MAX_BYTES
    data, labels = {"more": "theirs", **OURS.data}, {"team": "a", **OURS.labels}
    await store.put(Document(SPACE, NAME, data, labels, {"large": large}))
    owned.record_stored(await store.get(SPACE, NAME))
    assert owned.differences(OURS) == ()
    for _ in range(2):
        await written(store, owned, OURS)
    there = await store.get(SPACE, NAME)
    assert there is not None
    assert (there.data, there.labels, there.annotations) == (data, labels, {})
    assert caplog.text.count("no room for what others added, it is removed: annotation large") == 1


def test_the_answer_to_our_own_write_is_known_by_its_version() -> None:
    owned = OwnedDocument(SPACE, NAME)
    owned.record_stored(None)
    assert not is_answer(owned), "nothing was written"
    assert owned.acknowledge(OURS, "7")
    assert is_answer(owned)
    owned.record_stored(
        Document(SPACE, NAME, {"DeviceInfoCfg": "a webhook's"}, OURS.labels, version="7")
    )
    assert is_answer(owned)
    assert owned.differences(OURS) == ("key DeviceInfoCfg",)
    assert not owned.acknowledge(OURS, "7"), "the next write changed nothing"
    assert owned.differences(OURS) == ("key DeviceInfoCfg",), "it is still there"
    owned.record_stored(Document(SPACE, NAME, OURS.data, OURS.labels, version="8"))
    assert not is_answer(owned)
    owned.acknowledge(None, "")
    owned.record_stored(Document(SPACE, NAME, OURS.data, OURS.labels))
    assert not is_answer(owned), "a deletion has no answer"


async def test_other_writer_is_the_webhook_or_the_one_in_the_store(store: NamingStore) -> None:
    owned = OwnedDocument(SPACE, NAME)
    await owned.find_writer(store)
    assert owned.foreign.writer == UNKNOWN
    store.found = LastWriter("kubectl-edit", 1)
    await owned.find_writer(store)
    assert owned.foreign.writer.name == "kubectl-edit"
    store.fails = True
    await owned.find_writer(store)
    assert owned.foreign.writer.name == "kubectl-edit", "a store that fails changes nothing"
    owned.differing = ("label a",)
    await owned.find_writer(store)
    assert owned.foreign.writer.name == "admission"


@pytest.mark.slow
async def test_a_request_without_news_gives_way_when_it_takes_long() -> None:
    assert await run_preemptibly(asyncio.sleep(0, "done"), lambda: True) == "done"
    asked: list[int] = []

    def is_overtaken() -> bool:
        asked.append(1)
        return len(asked) == 2

    ended = asyncio.Event()

    async def takes_long() -> None:
        try:
            await stand_in_waits(60)
        finally:
            ended.set()

    with pytest.raises(Preempted):
        await run_preemptibly(takes_long(), is_overtaken)
    await asyncio.wait_for(ended.wait(), patience(5))
    assert len(asked) == 2

    async def fails() -> None:
        raise StoreUnavailable("no answer")

    with pytest.raises(StoreUnavailable):
        await run_preemptibly(fails(), lambda: False)

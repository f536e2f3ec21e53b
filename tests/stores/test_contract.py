"""The contract of every store (``stores/base.py``), on real ones."""

from __future__ import annotations

import asyncio
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreConflict, StoreRefused
from contract.topics import document_topic
from stores.base import (
    Changed,
    Deleted,
    Document,
    DocumentsListed,
    ListedPage,
    Selection,
)
from stores.interruption import Interrupted
from stores.kubernetes_api import watch as kubernetes_watch
from tests.parts.processes import program
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store
    from tests.parts.broker import Broker

    Spoil = Callable[[str, str, bytes], None]

LABEL = ("mx-consumer-cim", "true")
LABELS = dict([LABEL])


def a_document(name: str = "one", text: str = "x", namespace: str = "mindx-dl") -> Document:
    return Document(namespace, name, {"text": text}, LABELS)


async def test_nothing_is_none(store: Store) -> None:
    assert await store.get("mindx-dl", "one") is None
    assert await store.list(Selection("mindx-dl")) == ()


async def test_document_that_was_put_is_read(store: Store) -> None:
    document = Document(
        "mindx-dl",
        "mindx-dl-deviceinfo-node.1",
        {"DeviceInfoCfg": '{"a":"<&>\u2028é漢"}', "empty": ""},
        LABELS,
        {"npu-vigil/touched": "1"},
    )
    version = await store.put(document)
    got = await store.get("mindx-dl", "mindx-dl-deviceinfo-node.1")
    assert version
    assert got == Document(
        document.namespace,
        document.name,
        document.data,
        document.labels,
        document.annotations,
        version,
    )


async def test_put_replaces_the_whole_document(store: Store) -> None:
    first = await store.put(Document("mindx-dl", "one", {"a": "1", "b": "2"}, LABELS, {"c": "3"}))
    second = await store.put(Document("mindx-dl", "one", {"a": "4"}))
    got = await store.get("mindx-dl", "one")
    assert got == Document("mindx-dl", "one", {"a": "4"}, version=second)
    assert first != second


async def test_namespaces_are_made_when_needed(store: Store) -> None:
    await store.put(a_document(namespace="never-seen-before"))
    got = await store.get("never-seen-before", "one")
    assert got is not None
    assert got.data == {"text": "x"}


async def test_a_list_holds_only_what_was_selected(store: Store) -> None:
    await store.put(a_document("one"))
    await store.put(a_document("two"))
    await store.put(a_document("one", namespace="default"))
    await store.put(Document("mindx-dl", "unlabelled", {"text": "x"}))

    async def places(selection: Selection) -> set[str]:
        return {f"{one.namespace}/{one.name}" for one in await store.list(selection)}

    labelled = {"mindx-dl/one", "mindx-dl/two", "default/one"}
    assert await places(Selection(label=LABEL)) == labelled
    assert await places(Selection("mindx-dl", label=LABEL)) == {"mindx-dl/one", "mindx-dl/two"}
    assert await places(Selection(name="one")) == {"mindx-dl/one", "default/one"}
    assert await places(Selection("mindx-dl", "unlabelled")) == {"mindx-dl/unlabelled"}
    assert await places(Selection("mindx-dl", "unlabelled", LABEL)) == set()
    assert await places(Selection("mindx-dl", label=("mx-consumer-cim", "false"))) == set()


async def test_a_label_may_have_any_value(store: Store) -> None:
    jobs = Selection(label=LABEL, has_label="jobID")
    key, value = LABEL
    await store.put(a_document("one"))
    await store.put(Document("default", "job-a", {"text": "x"}, {key: value, "jobID": "a"}))
    await store.put(Document("default", "alone", {"text": "x"}, {"jobID": "a"}))
    assert [one.name for one in await store.list(jobs)] == ["job-a"]
    async with watching(store, jobs) as seen:
        await store.put(Document("other", "job-b", {"text": "x"}, {key: value, "jobID": ""}))
        await seen.until(lambda seen: len(seen.documents) == 2)
        await store.put(Document("other", "job-b", {"text": "x"}, {key: value}))
        await seen.until(lambda seen: len(seen.documents) == 1)
    assert {document.name for document in seen.documents.values()} == {"job-a"}


async def test_a_write_answers_with_what_the_store_has(store: Store) -> None:
    first = await store.put_shown(a_document(text="1"), expected="")
    assert first == await store.get("mindx-dl", "one")
    assert first.data == {"text": "1"}
    second = await store.put_shown(a_document(text="2"), expected=first.version)
    assert second == await store.get("mindx-dl", "one")
    with pytest.raises(StoreConflict):
        await store.put_shown(a_document(text="3"), expected=first.version)


async def test_the_expected_version_is_demanded(store: Store) -> None:
    first = await store.put(a_document(text="1"), expected="")
    with pytest.raises(StoreConflict):
        await store.put(a_document(text="2"), expected="")
    second = await store.put(a_document(text="2"), expected=first)
    with pytest.raises(StoreConflict):
        await store.put(a_document(text="3"), expected=first)
    got = await store.get("mindx-dl", "one")
    assert got is not None
    assert (got.data, got.version) == ({"text": "2"}, second)


async def test_the_expected_version_of_a_deleted_document_is_a_conflict(store: Store) -> None:
    version = await store.put(a_document())
    await store.delete("mindx-dl", "one")
    with pytest.raises(StoreConflict):
        await store.put(a_document(text="2"), expected=version)
    assert await store.get("mindx-dl", "one") is None


async def test_a_delete_of_another_version_is_a_conflict(store: Store) -> None:
    first = await store.put(a_document(text="1"))
    second = await store.put(a_document(text="2"))
    with pytest.raises(StoreConflict):
        await store.delete("mindx-dl", "one", expected=first)
    assert await store.get("mindx-dl", "one") is not None
    await store.delete("mindx-dl", "one", expected=second)
    assert await store.get("mindx-dl", "one") is None
    await store.delete("mindx-dl", "one", expected=second)


async def test_delete_twice_is_no_error(store: Store) -> None:
    await store.put(a_document())
    await store.delete("mindx-dl", "one")
    await store.delete("mindx-dl", "one")
    assert await store.get("mindx-dl", "one") is None


_BAD_NAMES = ("Upper", "", "../other", "..", "a/b", "a_b", "-a", "a" * 254, "a\n")
_BAD_NAMESPACES = ("", "..", "mindx.dl", "n" * 64)


async def test_names_that_kubernetes_refuses_are_refused(store: Store) -> None:
    places = [("mindx-dl", name) for name in _BAD_NAMES]
    for namespace, name in places + [(namespace, "one") for namespace in _BAD_NAMESPACES]:
        with pytest.raises(StoreRefused):
            await store.put(Document(namespace, name, {}))
        with pytest.raises(StoreRefused):
            await store.get(namespace, name)
        with pytest.raises(StoreRefused):
            await store.delete(namespace, name)


async def test_text_that_is_no_unicode_is_refused_and_changes_nothing(store: Store) -> None:
    await store.put(a_document(text="good"))
    with pytest.raises(StoreRefused, match="mindx-dl/one"):
        await store.put(a_document(text="\ud800"))
    got = await store.get("mindx-dl", "one")
    assert got is not None
    assert got.data == {"text": "good"}


async def test_a_watch_begins_with_everything_and_shows_each_change(store: Store) -> None:
    await store.put(a_document("one"))
    async with watching(store, Selection("mindx-dl", label=LABEL)) as seen:
        assert [one.name for one in seen.of(DocumentsListed)[0].documents] == ["one"]
        version = await store.put(a_document("two", "1"))
        await seen.until(lambda seen: ("mindx-dl", "two") in seen.documents)
        assert seen.documents["mindx-dl", "two"].version == version
        await store.put(a_document("two", "2"))
        await seen.until(lambda seen: seen.documents["mindx-dl", "two"].data == {"text": "2"})
        await store.delete("mindx-dl", "one")
        await seen.until(lambda seen: ("mindx-dl", "one") not in seen.documents)
    assert seen.of(Interrupted) == []
    assert seen.of(Deleted) == [Deleted("mindx-dl", "one")]


async def test_a_watch_shows_only_what_was_selected(store: Store) -> None:
    async with watching(store, Selection("mindx-dl", "one", LABEL)) as seen:
        await store.put(a_document("two"))
        await store.put(a_document("one", namespace="default"))
        await store.put(Document("mindx-dl", "one", {"text": "no label yet"}))
        await store.put(a_document("one", "1"))
        await seen.until(lambda seen: len(seen.documents) == 1)
        # Taking the label away takes it out of the selection.
        await store.put(Document("mindx-dl", "one", {"text": "no label"}))
        await seen.until(lambda seen: not seen.documents)
    assert [event.document.data for event in seen.of(Changed)] == [{"text": "1"}]
    assert len(seen.of(Deleted)) == 1


async def test_a_watch_may_begin_before_there_is_anything(store: Store) -> None:
    async with watching(store, Selection(label=LABEL)) as seen:
        assert seen.of(DocumentsListed) == [DocumentsListed(())]
        await store.put(a_document(namespace="made-later"))
        await seen.until(lambda seen: ("made-later", "one") in seen.documents)


@pytest.mark.slow
async def test_two_writers_who_expect_versions_lose_no_write(store: Store) -> None:
    await store.put(a_document(text="0"))

    async def add(times: int) -> None:
        done = 0
        while done < times:
            got = await store.get("mindx-dl", "one")
            assert got is not None
            try:
                text = str(int(got.data["text"]) + 1)
                await store.put(a_document(text=text), expected=got.version)
            except StoreConflict:
                continue
            done += 1

    async with watching(store, Selection("mindx-dl")) as seen:
        await asyncio.gather(add(15), add(15))
        await seen.until(lambda seen: seen.documents["mindx-dl", "one"].data == {"text": "30"})


@pytest.mark.slow
async def test_documents_of_two_pages_are_all_listed_and_watched(store: Store) -> None:
    # The API server is asked for pages of 500.
    names = [f"node-{number}" for number in range(510)]

    async def put(part: list[str]) -> None:
        for name in part:
            await store.put(a_document(name))

    async with watching(store, Selection(label=LABEL)) as seen:
        await asyncio.gather(*(put(names[start::8]) for start in range(8)))
        await seen.until(lambda seen: len(seen.documents) == len(names))
    listed = await store.list(Selection("mindx-dl", label=LABEL))
    assert sorted(one.name for one in listed) == sorted(names)
    async with watching(store, Selection(label=LABEL)) as seen:
        assert len(seen.documents) == len(names)


@pytest.mark.apiserver
async def test_an_api_server_lists_by_page_where_that_is_asked(
    kubernetes: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_watch, "_PAGE", 2)
    names = [f"node-{number}" for number in range(5)]
    for name in names:
        await kubernetes.put(a_document(name))
    async with watching(kubernetes, Selection("mindx-dl", label=LABEL), by_page=True) as seen:
        pages = seen.of(ListedPage)
        assert [len(page.documents) for page in pages] == [2, 2, 1]
        assert [page.is_first for page in pages] == [True, False, False]
        assert [document.name for page in pages for document in page.documents] == names
        assert seen.of(DocumentsListed) == [DocumentsListed(())]
        # What changes after the first page is shown after the list.
        await kubernetes.put(a_document("node-3", "y"))
        await seen.until(lambda seen: len(seen.of(Changed)) == 1)


async def test_a_watcher_that_takes_pages_sees_all_documents(store: Store) -> None:
    await store.put(a_document("one"))
    await store.put(a_document("two"))
    async with watching(store, Selection("mindx-dl", label=LABEL), by_page=True) as seen:
        listed = [document for page in seen.of(ListedPage) for document in page.documents]
        listed += [document for event in seen.of(DocumentsListed) for document in event.documents]
        assert sorted(document.name for document in listed) == ["one", "two"]


SPOILT = (b"[]", b'{"labels":{"mx-con', b"{}", b"\xff\x00", b" ")


@pytest.fixture(
    params=[
        "directory",
        pytest.param("mqtt_5", marks=pytest.mark.server),
        pytest.param("mqtt_3", marks=pytest.mark.server),
    ]
)
def keeps_anything(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Spoil]:
    """Return each store that keeps what is not a document, and what puts that there."""
    store: Store = request.getfixturevalue(request.param)

    def write(namespace: str, name: str, content: bytes) -> None:
        folder = tmp_path / "store" / namespace
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_bytes(content)

    if request.param == "directory":
        return store, write
    broker: Broker = request.getfixturevalue("broker")

    def publish(namespace: str, name: str, content: bytes) -> None:
        arguments = ("-h", "127.0.0.1", "-p", str(broker.port), "-r", "-q", "1", "-s")
        sending: list[str | Path] = [
            program("mosquitto_pub"),
            *arguments,
            "-t",
            document_topic(namespace, name),
        ]
        subprocess.run(sending, input=content, check=True)

    return store, publish


@pytest.mark.slow
async def test_malformed_document_is_deleted_for_its_owner_and_stays_for_others(
    keeps_anything: tuple[Store, Spoil],
) -> None:
    store, put_content = keeps_anything
    name = "cluster-info-device-0"
    spoil = partial(put_content, "mindx-dl", name)
    right = Document("mindx-dl", name, {name: "{}"}, {"mx-consumer-volcano": "true"})
    selection = Selection("mindx-dl", label=("mx-consumer-volcano", "true"))
    owned = Selection("mindx-dl", label=("mx-consumer-volcano", "true"), owned=True)
    await store.put(right)
    async with watching(store, owned) as owner, watching(store, selection) as reader:
        for number, content in enumerate(SPOILT, 1):
            await owner.until(lambda seen: len(seen.documents) == 1)
            spoil(content)
            await owner.until(lambda seen: not seen.documents)
            assert await store.get("mindx-dl", name) is None
            spoil(content + b"]")
            deleted = [event for event in owner.events if isinstance(event, Deleted)]
            await store.put(right, expected="")
            assert len(deleted) >= number
        await owner.until(lambda seen: len(seen.documents) == 1)
        assert len(reader.documents) == 1
        assert not [event for event in reader.events if isinstance(event, Deleted)]
    spoil(b"[]")
    async with watching(store, owned) as owner:
        await owner.until(lambda seen: bool(seen.events))
        assert owner.events[0] == DocumentsListed(())


async def test_malformed_document_is_shown_to_watches_with_spoilt(
    keeps_anything: tuple[Store, Spoil],
) -> None:
    store, put_content = keeps_anything
    namespace, name = "kube-system", "mindx-dl-deviceinfo-n1"
    spoil = partial(put_content, namespace, name)
    spoil(b"[]")
    selection = Selection(namespace, label=LABEL, shows_malformed=True)
    async with watching(store, selection) as seen:
        await seen.until(lambda seen: (namespace, name) in seen.documents)
        first = seen.documents[namespace, name]
        assert first.problem
        assert (first.data, first.labels) == ({}, LABELS)
        await store.put(Document(namespace, name, {"text": "x"}, LABELS))
        await seen.until(lambda seen: not seen.documents[namespace, name].problem)
        for content in SPOILT[1:]:
            spoil(content)
            await seen.until(lambda seen: bool(seen.documents[namespace, name].problem))
            await store.put(Document(namespace, name, {"text": content.hex()}, LABELS))
            await seen.until(lambda seen: not seen.documents[namespace, name].problem)
        await store.delete(namespace, name)
        await seen.until(lambda seen: not seen.documents)

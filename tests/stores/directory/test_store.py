"""The directory store: its files, foreign hands in them, several processes, malformed content."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from stores.address import open_store
from stores.base import Beat, Changed, Deleted, Document, DocumentsListed, Selection, Store
from stores.directory import files as directory_files
from stores.directory.lock import DirectoryLock
from stores.directory.store import DirectoryStore
from stores.interruption import Interrupted
from tests.parts.watching import watching

GOOD = Document("mindx-dl", "one", {"text": "good"}, {"a": "b"})
PLACE = ("mindx-dl", "one")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the directory of the fixture ``directory``."""
    return tmp_path / "store"


@pytest.fixture
def file(root: Path) -> Path:
    """Return the path of the file of ``GOOD``."""
    return root / "mindx-dl" / "one.json"


async def test_the_file_is_as_documented(directory: Store, file: Path) -> None:
    await directory.put(GOOD)
    assert json.loads(file.read_bytes()) == {"labels": {"a": "b"}, "data": {"text": "good"}}
    await directory.put(Document(*PLACE, {}, {}, {"c": "d"}))
    assert json.loads(file.read_bytes()) == {"labels": {}, "data": {}, "annotations": {"c": "d"}}


async def test_a_directory_has_nothing_of_a_cluster(directory: Store) -> None:
    assert directory.cluster is None
    assert directory.objects is None
    assert directory.device_taints is None
    assert directory.usage("n1") is None


async def test_a_write_leaves_nothing_else_behind(directory: Store, root: Path) -> None:
    for number in range(5):
        await directory.put(Document(*PLACE, {"n": str(number)}))
    assert {path.name for path in (root / "mindx-dl").iterdir()} == {"one.json", ".lock"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"labels":{},"data":{"a":1}}',
        b'{"labels":{"a":null},"data":{}}',
        b'{"labels":{},"data":{"a":"\xff"}}',
        b"[" * 100_000,
    ],
    ids=range(6),
)
async def test_a_malformed_file_never_replaces_a_good_one(
    directory: Store, file: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await directory.put(GOOD)
    with caplog.at_level(logging.WARNING):
        async with watching(directory, Selection("mindx-dl")) as seen:
            file.write_bytes(content)
            await directory.put(Document("mindx-dl", "marker", {}))
            await seen.until(lambda seen: ("mindx-dl", "marker") in seen.documents)
            # Again the same: logged once.
            file.write_bytes(content)
            await directory.put(Document("mindx-dl", "marker-2", {}))
            await seen.until(lambda seen: ("mindx-dl", "marker-2") in seen.documents)
            assert seen.documents[PLACE].data == {"text": "good"}
            complaints = [one.getMessage() for one in caplog.records]
            # Whoever has not seen the good one takes it for absent, and its owner writes it anew.
            assert await directory.get(*PLACE) is None
            await directory.put(Document(*PLACE, {"text": "repaired"}), expected="")
            await seen.until(lambda seen: seen.documents[PLACE].data == {"text": "repaired"})
    assert len(complaints) == 1
    assert str(file) in complaints[0]
    assert seen.of(Deleted) == []


async def test_only_regular_files_with_valid_names_are_documents(
    directory: Store, root: Path
) -> None:
    await directory.put(GOOD)
    folder = root / "mindx-dl"
    os.mkfifo(folder / "fifo.json")
    (folder / "folder.json").mkdir()
    (folder / "dangling.json").symlink_to("nowhere")
    (folder / "notes.txt").write_text("{}")
    (folder / "Upper.json").write_bytes((folder / "one.json").read_bytes())
    (root / "file").touch()
    (root / "Not-A-Namespace").mkdir()
    assert [one.name for one in await directory.list(Selection())] == ["one"]
    assert await directory.get("mindx-dl", "fifo") is None
    assert await directory.get("mindx-dl", "folder") is None
    with pytest.raises(StoreRefused, match="not a directory"):
        await directory.put(Document("file", "one", {}))
    with pytest.raises(StoreRefused, match=r"folder\.json"):
        await directory.put(Document("mindx-dl", "folder", {}))


async def test_foreign_hands_are_seen(directory: Store, file: Path) -> None:
    await directory.put(GOOD)
    async with watching(directory) as seen:
        file.write_text('{"labels":{},"data":{"text":"edited in place"}}')
        await seen.until(lambda seen: seen.documents[PLACE].data["text"] == "edited in place")
        draft = file.with_name("draft")
        draft.write_text('{"labels":{},"data":{"text":"renamed into place"}}')
        draft.rename(file)
        await seen.until(lambda seen: seen.documents[PLACE].data["text"] == "renamed into place")
        file.rename(file.with_name("two.json"))
        await seen.until(lambda seen: set(seen.documents) == {("mindx-dl", "two")})
        folder = file.parent
        folder.rename(folder.with_name("other"))
        await seen.until(lambda seen: set(seen.documents) == {("other", "two")})
        (folder.with_name("other") / "two.json").unlink()
        await seen.until(lambda seen: not seen.documents)
    assert seen.of(Interrupted) == []


async def test_old_content_put_back_is_a_change(directory: Store) -> None:
    """A repair between two equal foreign writes may be too short to be seen."""
    versions = [await directory.put(GOOD)]
    async with watching(directory) as seen:
        for _ in range(3):
            versions.append(await directory.put(GOOD))
            await seen.until(lambda seen: seen.documents[PLACE].version == versions[-1])
    assert len(set(versions)) == len(versions)


async def test_a_directory_that_goes_away_is_waited_for(directory: Store, root: Path) -> None:
    await directory.put(GOOD)
    async with watching(directory) as seen:
        away = root.rename(root.with_name("away"))
        await seen.until(lambda seen: bool(seen.of(Interrupted)))
        assert str(root) in seen.of(Interrupted)[0].reason
        assert not root.exists()
        # No event reported that the document is gone.
        assert PLACE in seen.documents
        away.rename(root)
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        await directory.put(Document(*PLACE, {"text": "after"}))
        await seen.until(lambda seen: seen.documents[PLACE].data == {"text": "after"})


@pytest.mark.slow
async def test_more_changes_than_the_kernel_keeps_lose_nothing(
    directory: Store, root: Path
) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    folder = root / "mindx-dl"
    folder.mkdir(parents=True)
    async with watching(directory) as seen:
        # The loop stands still meanwhile, so the kernel's queue is not read. Each turn makes
        # four events of different kinds, which the kernel cannot merge.
        for number in range(limit // 4 + 100):
            draft = folder / "draft"
            draft.write_text(f'{{"labels":{{}},"data":{{"n":"{number}"}}}}')
            draft.rename(folder / f"n{number % 7}.json")
        (folder / "last.json").write_text('{"labels":{},"data":{}}')
        await seen.until(lambda seen: ("mindx-dl", "last") in seen.documents)
        assert len(seen.documents) == 8
        assert seen.documents["mindx-dl", f"n{number % 7}"].data == {"n": str(number)}


async def test_a_lock_that_is_held_too_long_is_unavailable(
    directory: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await directory.put(GOOD)
    monkeypatch.setattr("stores.directory.store._LOCK_PATIENCE_SECONDS", 0.1)
    with (file.parent / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="locked by another process"):
            await directory.put(Document(*PLACE, {}))
    assert await directory.get(*PLACE) is not None
    await directory.put(GOOD)


WRITER = """
import asyncio, sys
from contract.errors import StoreConflict
from stores.address import open_store
from stores.base import Document

async def main():
    store = open_store(sys.argv[1])
    done = 0
    while done < 100:
        got = await store.get("mindx-dl", "one")
        number = int(got.data["text"]) + 1
        try:
            await store.put(
                Document("mindx-dl", "one", {"text": str(number)}), expected=got.version
            )
            done += 1
        except StoreConflict:
            pass

asyncio.run(main())
"""


@pytest.mark.slow
async def test_writers_in_several_processes_lose_no_write(directory: Store) -> None:
    await directory.put(Document(*PLACE, {"text": "0"}))
    async with watching(directory) as seen:
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, directory.url)
            for _ in range(3)
        ]
        assert [await process.wait() for process in processes] == [0, 0, 0]
        await seen.until(lambda seen: seen.documents[PLACE].data == {"text": "300"})
    numbers = [int(event.document.data["text"]) for event in seen.of(Changed)]
    assert numbers == sorted(numbers)


@pytest.mark.slow
async def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    program = """
import asyncio, resource, signal, sys
from contract.errors import StoreUnavailable
from stores.address import open_store
from stores.base import Document

async def main():
    store = open_store(sys.argv[1])
    good = Document("mindx-dl", "one", {"text": "good"})
    await store.put(good)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        await store.put(Document("mindx-dl", "one", {"text": "x" * 5000}))
    except StoreUnavailable as error:
        print(error)
    assert (await store.get("mindx-dl", "one")).data == good.data

asyncio.run(main())
"""
    # The limit on the size of a file makes writes fail as a full disk does.
    done = subprocess.run(
        [sys.executable, "-c", program, f"directory:{tmp_path}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"cannot write {tmp_path}/mindx-dl/one.json: File too large" in done.stdout
    assert {path.name for path in (tmp_path / "mindx-dl").iterdir()} == {"one.json", ".lock"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ALMOST = st.fixed_dictionaries({"labels": JSON, "data": JSON}, optional={"annotations": JSON})


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | ALMOST.map(lambda value: json.dumps(value).encode())
)
def test_no_content_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, x: bytes) -> None:
    root = tmp_path_factory.getbasetemp() / "fuzz"
    (root / "mindx-dl").mkdir(parents=True, exist_ok=True)
    (root / "mindx-dl" / "one.json").write_bytes(x)
    try:
        document = directory_files.read(root, *PLACE)
    except directory_files.MalformedFile:
        return
    assert document is not None
    value = json.loads(x)
    assert (document.labels, document.data) == (value["labels"], value["data"])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_no_name_leads_out_of_the_directory(
    tmp_path_factory: pytest.TempPathFactory, namespace: str, name: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "names" / "store"
    store = open_store(f"directory:{root}")
    try:
        asyncio.run(store.put(Document(namespace, name, {})))
    except StoreError:
        assert not (root / namespace / f"{name}.json").exists()
        return
    written = directory_files.document_path(root, namespace, name)
    assert written.resolve().relative_to(root.resolve()).parts == (namespace, f"{name}.json")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027])
async def test_locks_are_closed_to_others_and_documents_are_not(tmp_path: Path, umask: int) -> None:
    """Whoever can open a lock can hold it, and with it every document and heartbeat."""
    before = os.umask(umask)
    try:
        for folder in ("kube-system", "mindx-dl", "beats"):
            (tmp_path / folder).mkdir()
        old = [tmp_path / "kube-system/.lock", tmp_path / "mindx-dl/.lock"]
        leader = tmp_path / ".aggregator.lock"
        for lock in (*old, leader):
            lock.touch()
            lock.chmod(0o644)
        store = open_store(f"directory:{tmp_path}")
        await store.beat(Beat("node-1", "holder", 5.0, 1))
        locks = [*old, leader, tmp_path / "beats/.lock"]
        assert {oct(lock.stat().st_mode & 0o777) for lock in locks} == {oct(0o600)}
        await store.put(Document("kube-system", "one", {"a": "b"}))
        assert store.leader_lock is not None
        assert store.leader_lock.take("me")
        store.leader_lock.release()
        for document in ("kube-system/one.json", "beats/node-1.json"):
            assert (tmp_path / document).stat().st_mode & 0o777 == 0o666 & ~umask
        assert {oct(lock.stat().st_mode & 0o777) for lock in locks} == {oct(0o600)}
        await store.close()
    finally:
        os.umask(before)


def test_a_new_lock_of_the_leader_is_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        lock = DirectoryLock(tmp_path / "new")
        assert lock.take("me")
        assert (tmp_path / "new/.aggregator.lock").stat().st_mode & 0o777 == 0o600
        lock.release()
    finally:
        os.umask(before)


async def test_a_deletion_beside_a_new_directory_is_no_finding_of_a_list(
    directory: Store, root: Path, file: Path
) -> None:
    await directory.put(GOOD)
    async with watching(directory) as seen:
        # Both are in the kernel's queue before the watch runs again.
        (root / "another").mkdir()
        file.unlink()
        await seen.until(lambda seen: not seen.documents)
    assert seen.of(Deleted) == [Deleted(*PLACE)]


async def test_a_deletion_during_a_list_is_reported_by_its_event(
    directory: Store, root: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await directory.put(GOOD)
    scan = DirectoryStore._scan

    def deletes(*arguments: object) -> object:
        file.unlink(missing_ok=True)
        return scan(*arguments)  # type: ignore[arg-type]

    async with watching(directory) as seen:
        monkeypatch.setattr(DirectoryStore, "_scan", deletes)
        (root / "another").mkdir()
        await seen.until(lambda seen: len(seen.of(Deleted)) == 2)
    assert seen.of(Deleted) == [Deleted(*PLACE, by_list=True), Deleted(*PLACE)]


async def test_documents_that_another_directory_at_the_path_lacks_are_not_deleted(
    tmp_path: Path,
) -> None:
    """The kernel still reports changes of the one that was there, as after an unmount."""
    link, moved = tmp_path / "link", tmp_path / "moved"
    for one in ("first", "second"):
        (tmp_path / one / "store").mkdir(parents=True)
    link.symlink_to("first")
    store = open_store(f"directory:{link / 'store'}")
    await store.put(GOOD)
    async with watching(store) as seen:
        moved.symlink_to("second")
        moved.rename(link)
        other = open_store(f"directory:{tmp_path / 'first' / 'store'}")
        await other.put(Document(*PLACE, {"text": "newer"}))
        await seen.until(lambda seen: bool(seen.of(Interrupted)))
        moved.symlink_to("first")
        moved.rename(link)
        newer = [{"text": "newer"}]
        await seen.until(lambda seen: [one.data for one in seen.documents.values()] == newer)
    assert seen.of(Deleted) == []
    await other.close()
    await store.close()

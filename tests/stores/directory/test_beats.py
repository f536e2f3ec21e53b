"""Heartbeats in a directory: files that are none, and places that cannot be written."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreRefused
from stores.base import Beat, Document
from stores.directory.store import DirectoryStore

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"node": "n", "holder": "host-a", "interval_seconds": 5, "beaten_at_ms": 7}


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(f"directory:{tmp_path}", tmp_path)


async def test_the_file_contains_it_all(store: DirectoryStore, tmp_path: Path) -> None:
    await store.beat(Beat("node-1.example", "host-a", 0.5, 1_800_000_000_123))
    assert json.loads((tmp_path / "beats" / "node-1.example.json").read_bytes()) == {
        "node": "node-1.example",
        "holder": "host-a",
        "interval_seconds": 0.5,
        "beaten_at_ms": 1_800_000_000_123,
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "cut off"),
        (b"\xff", "is not JSON: invalid character"),
        (b"[]", "array"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        (json.dumps(GOOD | {"node": "other"}).encode(), "it is one of 'other'"),
        (json.dumps(GOOD | {"holder": ""}).encode(), "it has no holder"),
        (json.dumps(GOOD | {"holder": None}).encode(), "holder"),
        (json.dumps(GOOD | {"interval_seconds": 0}).encode(), "its interval is 0"),
        (json.dumps(GOOD | {"beaten_at_ms": 1.5}).encode(), "beaten_at_ms"),
        (json.dumps({key: GOOD[key] for key in ("node", "holder")}).encode(), "interval_seconds"),
    ],
    ids=range(10),
)
async def test_a_file_that_is_no_heartbeat_is_left_out_and_logged_once(
    store: DirectoryStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    content: bytes,
    problem: str,
) -> None:
    caplog.set_level(logging.WARNING)
    await store.beat(Beat("good", "host-a", 5.0, 7))
    file = tmp_path / "beats" / "n.json"
    file.write_bytes(content)
    for _ in range(2):
        assert [beat.node for beat in await store.beats()] == ["good"]
        assert await store.beats("n") == ()
    (logged,) = caplog.records
    assert str(file) in logged.getMessage()
    assert problem in logged.getMessage()
    # Whatever it was, the agent of that node makes it its own.
    await store.beat(Beat("n", "host-a", 5.0, 8))
    assert await store.beats("n") == (Beat("n", "host-a", 5.0, 8),)
    file.write_bytes(content)
    await store.beats()
    assert len(caplog.records) == 2, "a new problem is logged again"


@pytest.mark.parametrize("content", [b"", json.dumps(GOOD | {"node": "other"}).encode()])
async def test_the_last_good_heartbeat_stays(
    store: DirectoryStore, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    good = (Beat("n", "host-a", 5.0, 7),)
    await store.beat(*good)
    assert await store.beats() == good
    file = tmp_path / "beats" / "n.json"
    file.write_bytes(content)
    for _ in range(3):
        assert await store.beats() == await store.beats("n") == good
    (refused,) = store.refusals.now
    assert refused.place == str(file)
    assert store.refusals.counts == {refused.reason: 1}
    file.unlink()
    assert await store.beats() == (), "what is deleted is gone"
    assert store.refusals.is_empty
    assert caplog.messages[-1] == f"{file} is good again"


@pytest.mark.parametrize(
    ("writes", "found"), [("7", "7"), (7, "7"), ({"a": [1]}, '{"a":[1]}'), (None, "null")]
)
async def test_nothing_that_is_wrong_with_writes_makes_it_no_heartbeat(
    store: DirectoryStore, tmp_path: Path, writes: object, found: str
) -> None:
    await store.beat(Beat("other", "host-a", 5.0, 7))  # makes the directory
    (tmp_path / "beats" / "n.json").write_text(json.dumps(GOOD | {"writes": writes}))
    assert await store.beats("n") == (Beat("n", "host-a", 5.0, 7, writes=found),)


async def test_only_regular_files_are_heartbeats(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "beats" / "folder.json").mkdir(parents=True)
    os.mkfifo(tmp_path / "beats" / "pipe.json")
    (tmp_path / "beats" / "loop.json").symlink_to("loop.json")
    (tmp_path / "beats" / "README").touch()
    assert await store.beats() == ()


async def test_a_place_that_is_no_directory_is_refused(
    store: DirectoryStore, tmp_path: Path
) -> None:
    (tmp_path / "beats").touch()
    with pytest.raises(StoreRefused, match=str(tmp_path / "beats")):
        await store.beat(Beat("n", "host-a", 5.0, 7))
    assert await store.beats() == ()


async def test_documents_stay_out_of_the_place_of_beats(store: DirectoryStore) -> None:
    with pytest.raises(StoreRefused, match="heartbeats are there"):
        await store.put(Document("beats", "one", {}))

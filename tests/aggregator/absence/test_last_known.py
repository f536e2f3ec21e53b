"""What is known of stores that may come back without it, in the state directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from aggregator.absence.last_known import (
    FILE_NAME,
    KnownBeat,
    KnownFile,
    LastKnown,
    LastKnownRow,
    LastKnownStore,
)
from aggregator.liveness.lost_nodes import kept
from service.clock import system_clock
from tests.aggregator.nodes import faulty, healthy, report
from tests.parts.deadlines import stays, until
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

A, B = "mqtt://a", "directory:/b"
N1 = msgspec.structs.replace(report("n1", faulty()), version="1")
N2 = msgspec.structs.replace(report("n2", healthy()), version="2")


@contextlib.asynccontextmanager
async def running(directory: Path, most_bytes: int = 1 << 20) -> AsyncIterator[LastKnown]:
    """Write behind for the length of the block."""
    known = LastKnown(directory, system_clock, most_bytes)
    async with beside(known.run()):
        yield known
        await asyncio.sleep(0)


def load(directory: Path) -> dict[str, LastKnownStore]:
    return LastKnown(directory, system_clock).load()


async def test_recorded_rows_are_loaded_and_removed_ones_are_not(tmp_path: Path) -> None:
    assert load(tmp_path / "new") == {}
    async with running(tmp_path) as known:
        known.record(A, N1.namespace, N1.name, N1)
        known.record(A, N2.namespace, N2.name, N2)
        known.record(B, N1.namespace, N1.name, N1)
        known.record_beat(A, "n1", kept("host", 5000, 0))
        known.record_beat(A, "n2", kept("host", 5000, 0))
        known.record_listed(B)
    async with running(tmp_path) as known:
        known.load()
        known.record(A, N2.namespace, N2.name, None)
        known.record_beat(A, "n2", None)
    places = {(N1.namespace, N1.name): N1}
    beats = {"n1": KnownBeat("host", 5000)}
    assert load(tmp_path) == {
        A: LastKnownStore(places, beats, False),
        B: LastKnownStore(places, {}, True),
    }


@pytest.mark.slow
async def test_it_is_written_behind_without_an_end(tmp_path: Path) -> None:
    async with running(tmp_path) as known:
        known.record(A, N1.namespace, N1.name, N1)

        async def is_written() -> bool:
            return A in await asyncio.to_thread(load, tmp_path)

        await until(is_written, "it is written")
        assert known.trouble is None


async def test_it_is_bounded_and_reports_its_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room = 2 * len(msgspec.msgpack.encode(N1))
    async with running(tmp_path, room) as known:
        known.record_listed(A)
        for number in range(5):
            document = report(f"n{number}", faulty())
            known.record(A, document.namespace, document.name, document)
    found = load(tmp_path)[A]
    assert len(found.documents) == 1
    assert not found.is_complete, "who is in no row may have had no room"
    assert "no room for 4 documents in" in caplog.text


async def test_a_broken_file_is_named_and_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database, " * 500)
    async with running(tmp_path) as known:
        assert known.load() == {}
        known.record(A, N1.namespace, N1.name, N1)
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert any(FILE_NAME in error and "moved to" in error for error in errors)
    assert list(tmp_path.glob(f"{FILE_NAME}.broken-*"))
    assert load(tmp_path)[A].documents == {(N1.namespace, N1.name): N1}


async def test_a_file_of_another_release_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(KnownFile(tmp_path / FILE_NAME)):
        pass
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version=7")
    async with running(tmp_path) as known:
        assert known.load() == {}
        assert "version 7" in str(known.trouble)
    assert "version 7" in caplog.text
    assert [one.name for one in tmp_path.glob(f"{FILE_NAME}*")] == [FILE_NAME]


async def test_rows_that_cannot_be_read_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(KnownFile(tmp_path / FILE_NAME)) as file:
        good = msgspec.msgpack.encode(N1)
        rows = [LastKnownRow(A, "document", "x", b"\xc1"), LastKnownRow(A, "document", "y", good)]
        file.write([*rows, LastKnownRow(A, "of a later release", "z", b"1")], 1 << 20)
    assert load(tmp_path)[A].documents == {(N1.namespace, N1.name): N1}
    assert "1 row cannot be read" in caplog.text


@pytest.mark.slow
async def test_without_a_place_the_aggregator_continues(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    known = LastKnown(tmp_path / "file", system_clock)
    assert known.load() == {}
    known.record(A, N1.namespace, N1.name, N1)
    async with beside(known.run()):
        await stays(0.8, because="the first write is due after _GATHER_SECONDS, 0.5")

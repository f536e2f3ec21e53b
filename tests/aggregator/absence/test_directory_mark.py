"""When another directory than the known one counts."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aggregator.absence.directory_mark import FILE_NAME, DirectoryMarks, MarkKnowledge
from contract.errors import StoreUnavailable
from stores.base import Beat, FoundMark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stores.base import Store

URL = "directory:/store"
A, B = "a" * 32, "b" * 32
NODES = frozenset({"n1", "n2", "n3", "n4"})


def beats(at_ms: int, nodes: Iterable[str] = NODES) -> list[Beat]:
    return [Beat(node, "host", 5.0, at_ms) for node in nodes]


def test_the_first_mark_is_the_known_one() -> None:
    known = MarkKnowledge(URL, "")
    assert known.check(FoundMark(), NODES) is None
    assert known.check(FoundMark(A), NODES) is None
    assert (known.id, known.problem) == (A, None)


@pytest.mark.parametrize(
    ("found", "part"),
    [
        (FoundMark(), "has no mark"),
        (FoundMark(B), f"has the mark {B}"),
        (FoundMark(B, "c" * 32), f"has the mark {B}"),
        (FoundMark(problem="/store/mark cannot be read: no JSON"), "cannot be read: no JSON"),
    ],
)
def test_another_directory_does_not_count_until_the_known_one_is_back(
    found: FoundMark, part: str
) -> None:
    known = MarkKnowledge(URL, A)
    assert known.check(found, NODES) is None
    assert known.problem is not None
    assert part in known.problem
    assert f"vigil forget --mark {A} --store {URL} --yes" in known.problem
    known.observe_beats(beats(1))
    assert known.check(found, NODES) is None, "heartbeats of a backup do not change"
    assert known.check(FoundMark(A), NODES) == "the known directory is back"
    assert known.id == A


def test_more_than_half_of_the_known_nodes_make_it_count() -> None:
    known = MarkKnowledge(URL, A)
    known.observe_beats(beats(0))
    known.check(FoundMark(B), NODES)
    known.observe_beats(beats(1))
    known.observe_beats(beats(2, ("n1", "n2", "of-another-cluster", "and-one-more")))
    assert known.check(FoundMark(B), NODES) is None
    known.observe_beats(beats(2, ("n1", "n2", "n3")))
    assert known.check(FoundMark(B), NODES) == "3 of 4 known nodes beat there"
    assert (known.id, known.problem) == (B, None)
    known.check(FoundMark(A), NODES)
    assert known.problem is not None, "what beat in the other one proves nothing about this one"


def test_without_known_nodes_there_is_nothing_to_lose() -> None:
    known = MarkKnowledge(URL, A)
    assert known.check(FoundMark(B), frozenset()) == "0 of 0 known nodes beat there"
    assert known.id == B


def test_an_operator_confirms_it() -> None:
    known = MarkKnowledge(URL, A)
    known.check(FoundMark(B), NODES)
    assert known.check(FoundMark(B, A), NODES) == "an operator confirmed it"
    assert (known.id, known.problem) == (B, None)


class Directory:
    """Only its mark."""

    def __init__(self) -> None:
        self.found: FoundMark | None = FoundMark(A)

    @property
    def mark(self) -> Directory:
        return self

    async def read(self) -> FoundMark:
        if self.found is None:
            raise StoreUnavailable("it hangs")
        return self.found


class Bench:
    """Several runs of what looks at one directory."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = Directory()
        self.changes = 0
        self._state_dir = state_dir

    def run(self) -> DirectoryMarks:
        stores: dict[str, Store] = {URL: self.directory}  # type: ignore[dict-item]  # its mark
        return DirectoryMarks(stores, self._state_dir, lambda _: NODES, self._changed)

    def _changed(self) -> None:
        self.changes += 1


async def test_the_id_is_known_over_a_restart_and_the_error_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    await bench.run().check()
    again = bench.run()
    bench.directory.found = FoundMark()
    await again.check()
    bench.directory.found = None
    await again.check()
    bench.directory.found = FoundMark(B)
    await again.check()
    (line,) = (one for one in caplog.records if one.levelno == logging.ERROR)
    assert A in line.getMessage()
    assert f"has the mark {B}" in again.problems[0]
    assert bench.changes == 2
    after = bench.run()
    await after.check()
    assert after.problems, "it is no longer known that it was"
    bench.directory.found = FoundMark(A)
    await after.check()
    assert after.problems == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"a": 1}'])
async def test_a_spoilt_file_is_named_and_written_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    bench = Bench(tmp_path)
    await bench.run().check()
    assert caplog.text.count("cannot be read, the directories that are there now count") == 1
    bench.directory.found = FoundMark(B)
    again = bench.run()
    await again.check()
    assert A in again.problems[0]


async def test_without_directories_nothing_wakes_up(tmp_path: Path) -> None:
    marks = DirectoryMarks({}, tmp_path, lambda _: NODES, lambda: None)
    async with asyncio.timeout(1.0):
        await marks.run()

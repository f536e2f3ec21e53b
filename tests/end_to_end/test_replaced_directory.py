"""A real agent whose directory becomes another one: it goes on, and writes anew."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from stores.directory.mark import MARK_NAME
from tests.end_to_end.node import Node
from tests.parts.deadlines import patience
from tests.parts.fuse import mounts
from tests.parts.mounted import Mounted
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULT = "80E18402"
WRITTEN_SECONDS = 5.5
"""To notice it, and half a second for the write and the look of a test."""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    with Mounted(tmp_path) as one:
        one.mount()
        yield one


@pytest.fixture
def node(tmp_path: Path, built: Path, mounted: Mounted) -> Iterator[Node]:
    node = Node(tmp_path / "node-1", built, Folder(mounted.place))
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    yield node
    node.close()


def mark_at(place: Path) -> str:
    found: str = json.loads((place / MARK_NAME).read_text())["id"]
    return found


@mounts
def test_an_agent_writes_anew_into_the_directory_that_is_there(
    node: Node, mounted: Mounted, tmp_path: Path
) -> None:
    node.start()
    node.healthy()
    node.emulator.occur(3, FAULT)
    node.until(lambda now: FAULT in now.codes(3), "the fault is shown")
    first = mark_at(mounted.place)
    for number in range(2):
        new = tmp_path / f"new-{number}"
        new.mkdir()
        mounted.mount(new)
        began = time.monotonic()
        node.until(lambda now: FAULT in now.codes(3), "the fault is shown there, too")
        assert time.monotonic() - began <= patience(WRITTEN_SECONDS)
        assert mark_at(new) != first
        node.wait((new / "beats/node-1.json").exists, "it beats there")
    # The first one again, as it was left: what is older in it is written anew.
    mounted.unmount()
    mounted.unmount()
    node.emulator.recover(3, FAULT)
    node.until(lambda now: FAULT not in now.codes(3), "the recovery is shown")
    assert mark_at(mounted.place) == first
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
    assert "conflict" not in node.logged()

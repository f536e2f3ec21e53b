"""What a collector finds of the process before it, whatever lies there."""

from __future__ import annotations

import msgspec
import pytest

from collectors.saved_state import read_saved
from tests.parts.collector_context import SavedInMemory


class Thing(msgspec.Struct, frozen=True):
    name: str
    count: int = 0


def of(content: bytes | None) -> Thing | None:
    return read_saved(SavedInMemory(content), "source", Thing)


def test_written_state_is_read_again() -> None:
    assert of(msgspec.json.encode(Thing("a", 1))) == Thing("a", 1)


def test_there_is_nothing_at_the_first_start() -> None:
    assert of(None) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 64, b"{", b"[]", b'{"name":"\xff"}', b'{"name":"","x":' + b"[" * 100_000],
)
def test_nonsense_is_nothing_and_logged(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert of(content) is None
    assert "source: the saved state cannot be decoded" in caplog.text

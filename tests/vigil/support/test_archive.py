"""The archive is cut by priority, and comes to the disk whole or not at all."""

from __future__ import annotations

import io
import random
import resource
import stat
import tarfile
from typing import TYPE_CHECKING

import pytest

from service.files.atomic import replace_durably
from vigil.support.archive import PartFile, fit, packed

if TYPE_CHECKING:
    from pathlib import Path

_LINE = 80


def _noise(lines: int) -> bytes:
    chance = random.Random(1)
    return b"".join(chance.randbytes(_LINE // 2).hex().encode() + b"\n" for _ in range(lines))


def test_the_least_useful_is_cut_first_and_keeps_its_newest_lines() -> None:
    log, status = _noise(10_000), _noise(2_000)
    files = [PartFile("log.txt", log, 5, True), PartFile("status.json", status, 1)]
    cuts = fit(files, 300_000)
    assert [file.name for file in files] == ["log.txt", "status.json"]
    assert files[1].content == status
    assert log.endswith(files[0].content)
    assert files[0].content.index(b"\n") == _LINE
    assert cuts == [f"log.txt: only the newest {len(files[0].content)} bytes"]


def test_what_is_no_lines_is_left_out_whole() -> None:
    files = [PartFile("a.json", _noise(5_000), 2), PartFile("b.json", b"{}", 1)]
    assert fit(files, 50_000) == [f"a.json: left out, {5_000 * (_LINE + 1)} bytes"]
    assert [file.name for file in files] == ["b.json"]


def test_what_fits_is_not_cut() -> None:
    files = [PartFile("a.json", b"{}", 2)]
    assert fit(files, 50_000) == []
    assert len(files) == 1


def test_the_archive_is_written_with_mode_0600_and_no_draft_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    replace_durably(path, packed("folder", [("x/y.txt", b"content")], 1_760_000_000), 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
        (member,) = tar.getmembers()
        file = tar.extractfile(member)
        assert file is not None
        assert (member.name, file.read()) == ("folder/x/y.txt", b"content")


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(b"earlier")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel writes a part of it and then refuses, as on a disk that becomes full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_durably(path, bytes(100_000), 0o600)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"earlier"
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.gz"]

"""Decoded status files of storage clients, and which files are read at all (``noded#4.3``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.storage.collector import read_checked
from collectors.storage.status_parser import DPC, DTFS, StorageClient, parse
from tests.tiers import only_root

GOOD = b"[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_ERROR: 0\n"
BAD_PROCESS = b"[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_ERROR: -1\n"


@pytest.mark.parametrize(
    ("content", "instances"),
    [
        (GOOD, {"0": (False, False)}),
        (BAD_PROCESS, {"0": (False, True)}),
        (BAD_PROCESS.replace(b"\n", b"\r\n"), {"0": (False, True)}),
        (BAD_PROCESS.rstrip(b"\n"), {"0": (False, True)}),
        (BAD_PROCESS.replace(b": ", b":"), {"0": (False, True)}),
        (BAD_PROCESS.replace(b": ", b":\t"), {"0": (False, True)}),
        (BAD_PROCESS.replace(b"-1", b"-001").replace(b"=0", b"=007"), {"7": (False, True)}),
        (GOOD.replace(b" 0", b" -12", 1), {"0": (True, False)}),
        (BAD_PROCESS + GOOD, {"0": (False, False)}),
        (GOOD + BAD_PROCESS, {"0": (False, True)}),
        (b"", {}),
    ],
)
def test_instances_are_read(content: bytes, instances: dict[str, tuple[bool, ...]]) -> None:
    assert parse(content, DPC) == instances


@pytest.mark.parametrize(
    ("content", "client", "why"),
    [
        (GOOD + b"\n", DPC, "line 4 is ''"),
        (b"\n" + GOOD, DPC, "line 1 is ''"),
        (BAD_PROCESS.replace(b"-1", b"-2"), DPC, "line 3 .* not DPC_PROCESS_ERROR: 0 or .*: -1"),
        (BAD_PROCESS.replace(b"-1", b"-12"), DPC, "line 3"),
        (b"[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_", DPC, "line 3"),
        (b"[instidx=0]\nDPC_INTERNAL_ERROR: 0\n", DPC, "of line 1 ends without DPC_PROCESS_ERROR"),
        (b"[instidx=0]\nDPC_PROCESS_ERROR: 0\nDPC_INTERNAL_ERROR: 0\n", DPC, "line 2"),
        (b"[instidx=-1]" + GOOD[11:], DPC, r"not \[instidx=NUMBER\]"),
        (GOOD.replace(b": 0", b": 0 "), DPC, "line 2"),
        (GOOD.replace(b": 0", b": +0"), DPC, "line 2"),
        (GOOD.replace(b": 0", b": " + b"9" * 5000), DPC, "line 2"),
        (b"", DTFS, "no instance"),
        (GOOD, DTFS, "line 2"),
    ],
)
def test_malformed_file_is_refused_with_its_line(
    content: bytes, client: StorageClient, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        parse(content, client)


def test_more_than_twenty_instances_are_read() -> None:
    content = b"".join(
        b"[instidx=%d]\nDTFS_PROCESS_ERROR: 0\nDTFS_LINK_ERROR: %d\n" % (number, -(number == 39))
        for number in range(40)
    )
    instances = parse(content, DTFS)
    assert [key for key, flags in instances.items() if flags[1]] == ["39"]
    assert len(instances) == 40


@pytest.fixture
def status(tmp_path: Path) -> Path:
    path = tmp_path / "dpc_status_check"
    path.write_bytes(GOOD)
    path.chmod(0o400)
    return path


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o644, 0o444])
def test_a_file_that_only_its_owner_writes_is_read(status: Path, mode: int) -> None:
    status.chmod(mode)
    assert read_checked(status, any_owner=True) == GOOD


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o700, 0o610, 0o601, 0o666])
def test_one_that_others_write_or_run_is_not(status: Path, mode: int) -> None:
    status.chmod(mode)
    with pytest.raises(ValueError, match="others may write it, or it is a program"):
        read_checked(status, any_owner=True)


def test_no_directory_pipe_or_flood(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a regular file"):
        read_checked(tmp_path, any_owner=True)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(ValueError, match="is not a regular file"):
        read_checked(pipe, any_owner=True)
    flood = tmp_path / "flood"
    flood.write_bytes(b"x" * (1 << 21))
    flood.chmod(0o600)
    with pytest.raises(ValueError, match="larger than"):
        read_checked(flood, any_owner=True)
    with pytest.raises(FileNotFoundError):
        read_checked(tmp_path / "none", any_owner=True)


needs_root = only_root("only root gives files to others")


@needs_root
def test_a_foreign_owner_is_not_trusted(status: Path) -> None:
    os.chown(status, 1000, 0)
    with pytest.raises(ValueError, match="does not belong to root"):
        read_checked(status, any_owner=False)
    assert read_checked(status, any_owner=True) == GOOD


@needs_root
def test_links_of_root_only_to_files_of_root_only(status: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(status)
    assert read_checked(link, any_owner=False) == GOOD
    os.lchown(link, 1000, 0)
    with pytest.raises(ValueError, match="link does not belong to root"):
        read_checked(link, any_owner=False)
    os.lchown(link, 0, 0)
    os.chown(status, 1000, 0)
    with pytest.raises(ValueError, match="leads to a file that does not belong to root"):
        read_checked(link, any_owner=False)


def test_files_of_the_kernel_are_read_to_their_end() -> None:
    kernel = Path("/proc/self/status")
    assert read_checked(kernel, any_owner=True).startswith(b"Name:")

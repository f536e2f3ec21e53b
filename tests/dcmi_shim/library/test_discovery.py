"""Where the library is looked for, and what is refused."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.errors import DriverNotFound
from dcmi_shim.library.discovery import VendorPaths, find_library, ownership_problems

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def root(tmp_path: Path, built: Callable[[str], Path]) -> Path:
    """Return a driver root with the vendor's layout."""
    directory = tmp_path / "driver"
    (directory / "lib64" / "driver").mkdir(parents=True)
    shutil.copy(built("plain"), directory / "lib64" / "driver" / "libdcmi.so")
    return directory


def _of(root: Path) -> Path:
    return root / "lib64" / "driver" / "libdcmi.so"


def test_a_given_root_comes_before_the_search_path(
    root: Path, built: Callable[[str], Path]
) -> None:
    environment = {"LD_LIBRARY_PATH": str(built("plain").parent)}
    found = find_library(VendorPaths(root, True, environment))
    assert found.path == _of(root)
    assert found.search == (root / "lib64" / "driver", root / "lib64")


def test_the_search_path_comes_before_the_default_root(built: Callable[[str], Path]) -> None:
    environment = {"LD_LIBRARY_PATH": f"/nowhere::{built('plain').parent}"}
    found = find_library(VendorPaths(None, True, environment))
    assert found.path == built("plain")
    assert found.search == ()


def test_an_empty_root_falls_back_to_the_search_path(
    tmp_path: Path, built: Callable[[str], Path]
) -> None:
    environment = {"LD_LIBRARY_PATH": str(built("plain").parent)}
    found = find_library(VendorPaths(tmp_path / "empty", True, environment))
    assert found.path == built("plain")


def test_nothing_found_names_every_place(tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": f"{tmp_path}/one:{tmp_path}/two"}
    with pytest.raises(DriverNotFound) as caught:
        find_library(VendorPaths(tmp_path / "root", True, environment))
    message = str(caught.value)
    assert f"{tmp_path}/root/lib64/driver/libdcmi.so (--driver-root): does not exist" in message
    assert f"{tmp_path}/two/libdcmi.so (LD_LIBRARY_PATH): does not exist" in message
    assert "ldconfig" in message
    assert "--driver-root" in message.splitlines()[0]


def test_a_search_path_that_is_too_long_is_not_used(built: Callable[[str], Path]) -> None:
    environment = {"LD_LIBRARY_PATH": f"{built('plain').parent}:{'x' * 1024}"}
    with pytest.raises(DriverNotFound, match="at most 1024"):
        find_library(VendorPaths(Path("/nowhere"), True, environment))


def test_foreign_writers_are_refused_or_warned_about(root: Path) -> None:
    (root / "lib64").chmod(0o777)
    with pytest.raises(DriverNotFound, match=r"may be written by others|not to root"):
        find_library(VendorPaths(root, False, {}))
    found = find_library(VendorPaths(root, True, {}))
    assert any(f"{root}/lib64 may be written by others (mode 0777)" in w for w in found.warnings)


def test_a_system_library_has_no_ownership_problems() -> None:
    assert ownership_problems(Path("/bin/sh").resolve()) == []


def test_a_foreign_owner_of_file_or_link(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/bin/sh")
    owner = os.geteuid() or 4711
    for path in (_of(root), link):
        os.chown(path, owner, -1, follow_symlinks=False)
    assert f"{_of(root)} belongs to user {owner}, not to root" in ownership_problems(_of(root))
    assert ownership_problems(link)[0] == "is a link that does not belong to root"


def test_too_deep_and_endless_links(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*("d" * 21))
    deep.mkdir(parents=True)
    assert "lies more than 20 directories deep" in ownership_problems(deep)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert ownership_problems(loop)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not an ELF library"),
        (b"#!/bin/sh\nexit 0\n# long enough", "is not an ELF library"),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xf3\x00", "is built for riscv64 (64 bit)"),
        (b"\x7fELF\x01\x01" + bytes(12) + b"\x03\x00", "is built for ELF machine 3 (32 bit)"),
    ],
)
def test_library_for_another_machine_is_refused(root: Path, content: bytes, reason: str) -> None:
    _of(root).write_bytes(content)
    with pytest.raises(DriverNotFound) as caught:
        find_library(VendorPaths(root, True, {}))
    assert reason in str(caught.value)
    if "built for" in reason:
        assert f"this machine is {platform.machine()}" in str(caught.value)


def test_a_directory_in_the_place_of_the_library(root: Path) -> None:
    _of(root).unlink()
    _of(root).mkdir()
    with pytest.raises(DriverNotFound, match="Is a directory"):
        find_library(VendorPaths(root, True, {}))

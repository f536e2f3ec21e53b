"""Shared objects of the bundle: page size, glibc and allocators."""

from __future__ import annotations

import platform
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

from release.bundle import UnsuitableError, check_wheels
from release.elf import MAGIC, foreign_libraries, problems
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def _compiled(
    folder: Path, page: int, source: str = "int one(void) { return 1; }", *libraries: str
) -> bytes:
    code, library = folder / "library.c", folder / "library.so"
    code.write_text(source)
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        f"-Wl,-z,max-page-size={page}",
        "-o",
        str(library),
        str(code),
        *libraries,
    ]
    subprocess.run(command, check=True)
    return library.read_bytes()


def test_segments_for_pages_of_64_kib_are_accepted(tmp_path: Path) -> None:
    data = _compiled(tmp_path, 65536)
    assert data.startswith(MAGIC)
    assert list(problems(data)) == []


def test_segments_for_pages_of_4_kib_are_refused(tmp_path: Path) -> None:
    (text, *_) = problems(_compiled(tmp_path, 4096))
    assert text == "segment 0 is aligned to 4096 bytes, not to 65536"


def test_an_allocator_for_a_fixed_page_size_is_refused(tmp_path: Path) -> None:
    source = "void jemalloc_constructor(void) {}"
    assert list(problems(_compiled(tmp_path, 65536, source))) == [
        "it contains the allocator jemalloc"
    ]


def test_a_newer_glibc_is_refused(tmp_path: Path) -> None:
    # The C library of the machine gives this function the version of its release.
    source = "#include <pthread.h>\nint id(void) { return pthread_create(0, 0, 0, 0); }"
    (text,) = problems(_compiled(tmp_path, 65536, source))
    assert text == "it needs glibc 2.34; 2.17 is the oldest that is supported"


@pytest.mark.slow
def test_a_library_that_packages_do_not_require_is_named(tmp_path: Path) -> None:
    other = tmp_path / "libother.so.1"
    other.write_bytes(_compiled(tmp_path, 65536))
    source = "extern int one(void); int two(void) { return one() + 1; }"
    data = _compiled(tmp_path, 65536, source, str(other))
    assert foreign_libraries(data) == {str(other)}
    assert foreign_libraries(_compiled(tmp_path, 65536)) == set()


@pytest.mark.slow
def test_libraries_that_a_wheel_brings_itself_are_not_foreign(tmp_path: Path) -> None:
    own = tmp_path / "libown.so.1"
    own.write_bytes(_compiled(tmp_path, 65536))
    link = ("-L", str(tmp_path), "-l:libown.so.1")
    source = "extern int one(void); int two(void) { return one() + 1; }"
    module = _compiled(tmp_path, 65536, source, *link)
    assert foreign_libraries(module) == {"libown.so.1"}
    architecture, python = platform.machine(), "3.11"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    wheel = tmp_path / f"given-1.0-cp311-cp311-manylinux2014_{architecture}.whl"
    reason = "given/module.so: it needs libown.so.1, which no package requires"
    for brought in (False, True):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("given/module.so", module)
            if brought:
                archive.writestr("given.libs/libown.so.1", own.read_bytes())
        with pytest.raises(UnsuitableError) as raised:
            # All others of the lock are missing.
            check_wheels([wheel], lock, architecture, python)
        assert (reason in str(raised.value)) is not brought

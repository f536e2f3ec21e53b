"""Shared objects of the bundle: page size, glibc and allocators."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from release.elf import MAGIC, foreign_libraries, problems

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


def test_a_library_that_packages_do_not_require_is_named(tmp_path: Path) -> None:
    other = tmp_path / "libother.so.1"
    other.write_bytes(_compiled(tmp_path, 65536))
    source = "extern int one(void); int two(void) { return one() + 1; }"
    data = _compiled(tmp_path, 65536, source, str(other))
    assert foreign_libraries(data) == {str(other)}
    assert foreign_libraries(_compiled(tmp_path, 65536)) == set()

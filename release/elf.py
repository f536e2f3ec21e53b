"""What a shared object demands of a machine: page size, libraries, and an allocator for its pages.

Kernels of Arm servers have pages of 4 KiB or of 64 KiB. A segment that is aligned to less than a
page cannot be loaded, and an allocator that was built for smaller pages ends the process.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\x7fELF"
LARGEST_PAGE = 0x10000
OLDEST_GLIBC = 17
"""The minor version of glibc 2.17, which ``manylinux2014`` stands for."""
_LIBRARIES = frozenset(
    (
        *("ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2"),
        *("libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6"),
    )
)
"""What packages require of a distribution: glibc, and the run time of GCC."""
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRING_TABLE = 1, 5
_GLIBC = re.compile(rb"\0GLIBC_2\.(\d+)(?=[.\0])")
_ALLOCATORS = re.compile(rb"jemalloc|mimalloc|tcmalloc")


class _Segment(NamedTuple):
    """A program header. Offset and size are of the file; the address is in memory."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory: int
    alignment: int


def _segments(data: bytes) -> list[_Segment]:
    # Fields of the file header: e_phoff at 32, e_phentsize and e_phnum at 54 (System V ABI).
    (table,) = struct.unpack_from("<Q", data, 32)
    size, number = struct.unpack_from("<HH", data, 54)
    starts = range(table, table + number * size, size)
    return [_Segment(*struct.unpack_from("<IIQQQQQQ", data, start)) for start in starts]


def foreign_libraries(data: bytes) -> set[str]:
    """Return the libraries that a 64-bit little-endian ELF file needs and packages do not require.

    A static program needs none.
    """
    segments = _segments(data)
    dynamic = next((each for each in segments if each.kind == _DYNAMIC), None)
    if dynamic is None:
        return set()
    end = dynamic.offset + dynamic.size
    entries = list(struct.iter_unpack("<QQ", data[dynamic.offset : end]))
    (address,) = (value for tag, value in entries if tag == _STRING_TABLE)
    (strings,) = (
        address - each.address + each.offset
        for each in segments
        if each.kind == _LOAD and each.address <= address < each.address + each.size
    )
    starts = [strings + value for tag, value in entries if tag == _NEEDED]
    return {data[start : data.index(b"\0", start)].decode() for start in starts} - _LIBRARIES


def problems(data: bytes) -> Iterator[str]:
    """Yield why a 64-bit little-endian ELF file cannot run on every supported machine."""
    for index, segment in enumerate(_segments(data)):
        if segment.kind != _LOAD:
            continue
        alignment = segment.alignment
        if alignment % LARGEST_PAGE or (segment.address - segment.offset) % LARGEST_PAGE:
            yield f"segment {index} is aligned to {alignment} bytes, not to {LARGEST_PAGE}"
    newest = max((int(minor) for minor in _GLIBC.findall(data)), default=0)
    if newest > OLDEST_GLIBC:
        yield f"it needs glibc 2.{newest}; 2.{OLDEST_GLIBC} is the oldest that is supported"
    if (allocator := _ALLOCATORS.search(data)) is not None:
        yield f"it contains the allocator {allocator[0].decode()}"

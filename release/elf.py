"""What a shared object demands of a machine: page size, glibc, no allocator for 4 KiB pages.

Kernels of Arm servers have pages of 4 KiB or of 64 KiB. A segment that is aligned to less than a
page cannot be loaded, and an allocator that was built for smaller pages ends the process.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\x7fELF"
LARGEST_PAGE = 0x10000
OLDEST_GLIBC = 17
"""The minor version of glibc 2.17, which ``manylinux2014`` stands for."""
_LOAD = 1
_GLIBC = re.compile(rb"\0GLIBC_2\.(\d+)(?=[.\0])")
_ALLOCATORS = re.compile(rb"jemalloc|mimalloc|tcmalloc")


def problems(data: bytes) -> Iterator[str]:
    """Yield why a 64-bit little-endian ELF file cannot run on every supported machine."""
    # Fields of the file header: e_phoff at 32, e_phentsize and e_phnum at 54 (System V ABI).
    (table,) = struct.unpack_from("<Q", data, 32)
    size, number = struct.unpack_from("<HH", data, 54)
    for index in range(number):
        kind, _, offset, address, *_, alignment = struct.unpack_from(
            "<IIQQQQQQ", data, table + index * size
        )
        if kind != _LOAD:
            continue
        if alignment % LARGEST_PAGE or (address - offset) % LARGEST_PAGE:
            yield f"segment {index} is aligned to {alignment} bytes, not to {LARGEST_PAGE}"
    newest = max((int(minor) for minor in _GLIBC.findall(data)), default=0)
    if newest > OLDEST_GLIBC:
        yield f"it needs glibc 2.{newest}; 2.{OLDEST_GLIBC} is the oldest that is supported"
    if (allocator := _ALLOCATORS.search(data)) is not None:
        yield f"it contains the allocator {allocator[0].decode()}"

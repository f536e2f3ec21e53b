"""Decodes the status files of the shared storage clients DPC and DTFS. Pure.

Source: ``docs/spec/noded.md#4.3`` and 4.4.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTANCE = re.compile(rb"\[instidx=(\d+)\]")
# The blanks are those of ``\s`` in Go, which upstream uses; in Python it has more.
_FLAG = re.compile(rb"(\w+):[\t\n\f\r ]*(-?\d{1,20})")
_SHOWN = 60


class Flag(Record, frozen=True):
    """One line of an instance: ``key`` is 0, or ``bad`` while the fault ``code`` holds."""

    key: str
    bad: int
    code: str


class StorageClient(Record, frozen=True):
    """A shared storage client: the lines of each of its instances, in order.

    ``may_be_empty``: a file without any instance is a good one.
    """

    name: str
    flags: tuple[Flag, ...]
    may_be_empty: bool


DPC = StorageClient(
    "DPC",
    (
        Flag("DPC_INTERNAL_ERROR", -12, "110001021"),
        Flag("DPC_PROCESS_ERROR", -1, "110001020"),
    ),
    may_be_empty=True,
)
DTFS = StorageClient(
    "DTFS",
    (
        Flag("DTFS_PROCESS_ERROR", -1, "110001022"),
        Flag("DTFS_LINK_ERROR", -1, "110001023"),
    ),
    may_be_empty=False,
)

Instances: TypeAlias = "dict[str, tuple[bool, ...]]"
"""For each instance, by its number, whether each flag of its client is raised."""


def parse(content: bytes, client: StorageClient) -> Instances:
    """Return the instances in ``content``; of one that is listed twice the last entry counts.

    As lenient as upstream about line ends, blanks behind the colon and leading zeros, and as
    strict about everything else. Raises ``ValueError`` with the number of the first bad line.
    """
    lines = _lines(content)
    instances: Instances = {}
    for number, line in lines:
        match = _INSTANCE.fullmatch(line)
        if match is None:
            raise _wrong(number, line, "[instidx=NUMBER]")
        flags = tuple(_flag(next(lines, None), flag, number) for flag in client.flags)
        instances[match[1].decode().lstrip("0") or "0"] = flags
    if not instances and not client.may_be_empty:
        raise ValueError("there is no instance in it")
    return instances


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return enumerate((line.removesuffix(b"\r") for line in lines), 1)


def _flag(numbered: tuple[int, bytes] | None, flag: Flag, before: int) -> bool:
    if numbered is None:
        raise ValueError(f"the instance of line {before} ends without {flag.key}")
    number, line = numbered
    expected = f"{flag.key}: 0 or {flag.key}: {flag.bad}"
    match = _FLAG.fullmatch(line)
    if match is None or match[1].decode() != flag.key:
        raise _wrong(number, line, expected)
    value = int(match[2])
    if value not in (0, flag.bad):
        raise _wrong(number, line, expected)
    return value != 0


def _wrong(number: int, line: bytes, expected: str) -> ValueError:
    shown = line[:_SHOWN].decode(errors="replace")
    return ValueError(f"line {number} is {shown!r}, not {expected}")

"""Decodes records of ``/dev/kmsg``. Pure.

The format is ``<facility and level>,<sequence>,<microseconds>,<flags>[,…];<text>``, as in the
kernel's own document ``Documentation/ABI/testing/dev-kmsg``. Lines that begin with a space belong
to the record before them (its device) and are not used.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^,;]*)(?:,[^;]*)?;(.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_MAX_BYTES = 1 << 16
_LEVELS = 8
_CONTINUES = "+"
MAX_TEXT = 8192
"""Characters of a message that are decoded; the kernel writes no longer ones."""


class KernelRecord(NamedTuple):
    """One message of the kernel, or a piece of one.

    ``level`` is 0 (emergency) to 7 (debug), ``at_us`` the kernel's clock since boot in
    microseconds. ``continues``: it continues the line of the record before it.
    """

    level: int
    sequence: int
    at_us: int
    continues: bool
    text: str


class Records:
    """Splits bytes into records; a read of ``/dev/kmsg`` returns one, of a pipe any piece.

    ``unreadable`` counts the lines that are not valid records.
    """

    def __init__(self) -> None:
        self.unreadable = 0
        self._rest = b""
        self._is_too_long = False
        """Whether the incomplete line is too long for a record, however it ends."""

    def feed(self, data: bytes) -> list[KernelRecord]:
        """Return the records that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._is_too_long:
            del lines[0]  # its end, which may look like a record
            self._is_too_long = False
        if self._is_too_long:
            self._rest = b""
        # The writer of a pipe may never end its line, which must not fill the memory.
        elif len(self._rest) > _MAX_BYTES:
            self.unreadable += 1
            self._rest = b""
            self._is_too_long = True
        records: list[KernelRecord] = []
        for line in lines:
            if not line or line[:1] == b" ":
                continue
            record = parse_record(line) if len(line) <= _MAX_BYTES else None
            if record is None:
                self.unreadable += 1
            else:
                records.append(record)
        return records


def parse_record(line: bytes) -> KernelRecord | None:
    """Return the record in ``line``; ``None`` for what is none."""
    match = _RECORD.fullmatch(line)
    if match is None:
        return None
    prefix, sequence, at_us, flags, text = match.groups()
    return KernelRecord(
        # Above the level is the facility, as in syslog(3).
        int(prefix) % _LEVELS,
        int(sequence),
        int(at_us),
        flags.decode("ascii", "replace").startswith(_CONTINUES),
        _unescaped(text),
    )


def _unescaped(text: bytes) -> str:
    """Return the original text: the kernel escapes what does not print, and its own backslash."""
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text)
    return text.decode("utf-8", "replace")[:MAX_TEXT]

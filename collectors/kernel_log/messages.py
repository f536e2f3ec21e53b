"""Finds reports in the kernel's messages: lockups, hung tasks, killed processes, driver errors.

Pure.

Also file systems that become read-only. The driver's messages are ``[ascend] [module] [function
line] …``. Where it reports an error they are ``[ascend] [ERROR] [module] …`` or ``[ascend] [module]
[ERROR] …``, written with the level of a notice so that a console is not flooded. Builds of other
years use the level of an error and no word. Its facility is 86 where the kernel groups logs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from contract.codes.host_codes import DRIVER_ERROR, HUNG_TASK, OOM_KILL, SOFT_LOCKUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DRIVER_PATTERNS = (
    r"^<[0-3]>\[ascend\] ",
    r"^<\d>\[ascend\] (\[[^]]*\] )?\[ERROR\] ",
)
"""Lines of the NPU driver about an error, as ``dmesg --raw`` shows them (``<level>text``)."""

_LONGEST_TEXT = 300
_LONGEST_LINE = 1024
"""Characters of a line that are searched: longer ones are not for people, and cost time."""


class MessageMatch(NamedTuple):
    """One message that reports ``code`` of a host check. ``text`` is for people."""

    code: str
    text: str


class Remounted(NamedTuple):
    """The kernel made the file system on block device ``device`` (``sda1``) read-only."""

    device: str
    text: str


_KILLED = re.compile(r"Killed process (\d+)(?:, UID \d+,)? \((.+?)\)(?:[, ]|$)")
_SOFT_LOCKUP = re.compile(r"BUG: soft lockup - CPU#\d+ stuck for \d+")
_HUNG_TASK = re.compile(r"^INFO: task .{1,64}:\d+ blocked .{0,64}for more than \d+ seconds")
_REMOUNTED = (
    re.compile(r"^[A-Z0-9]+-fs \(([^)\s]+?)\).*: Remounting filesystem read-only"),
    re.compile(r"^BTRFS.*\(device ([^)\s]+)[^)]*\).*\bforced readonly"),
)
_MATCHED = ((_KILLED, OOM_KILL), (_SOFT_LOCKUP, SOFT_LOCKUP), (_HUNG_TASK, HUNG_TASK))


class Messages:
    """The patterns of messages that report something.

    ``driver_patterns`` as ``DRIVER_PATTERNS``.
    """

    def __init__(self, driver_patterns: Sequence[str]) -> None:
        self._driver = [re.compile(pattern) for pattern in driver_patterns]

    def matches(self, level: int, text: str) -> Iterator[MessageMatch | Remounted]:
        """Yield what the lines of a message of ``level`` report, mostly nothing."""
        for line in text.splitlines():
            found = self._line(level, line)
            if found is not None:
                yield found

    def _line(self, level: int, line: str) -> MessageMatch | Remounted | None:
        line, shown = line[:_LONGEST_LINE], line[:_LONGEST_TEXT]
        raw = f"<{level}>{line}"
        if any(pattern.search(raw) for pattern in self._driver):
            return MessageMatch(DRIVER_ERROR, shown)
        for pattern, code in _MATCHED:
            if pattern.search(line) is not None:
                return MessageMatch(code, shown)
        for pattern in _REMOUNTED:
            match = pattern.search(line)
            if match is not None:
                return Remounted(match[1], shown)
        return None

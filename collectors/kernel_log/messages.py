"""Finds reports in the kernel's messages: lockups, hung tasks, killed processes, driver errors.

Pure.

Also file systems that fail or become read-only. The driver's messages are ``[ascend] [module]
[function line] …``. Where it reports an error they are ``[ascend] [ERROR] [module] …`` or
``[ascend] [module] [ERROR] …``, written with the level of a notice so that a console is not
flooded. Builds of other years use the level of an error and no word. Its facility is 86 where the
kernel groups logs.

The patterns fit the kernels 4.19, 5.10 and 6.6 of openEuler and Linux 6.18, whose texts differ:
XFS 4.19 has ``Log I/O Error Detected.  Shutting down filesystem``, XFS 6.6 ``Log I/O Error (0x2)
detected at … Shutting down filesystem.``; an oops is ``BUG: unable to handle kernel …`` on x86,
``BUG: kernel NULL pointer …`` there since 5.1, ``Unable to handle kernel …`` on arm64.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from contract.codes.host_codes import (
    DRIVER_ERROR,
    FILE_SYSTEM_ERRORS,
    FILE_SYSTEM_FAILED,
    HARD_LOCKUP,
    HUNG_TASK,
    KERNEL_OOPS,
    MEMORY_ERROR,
    NETWORK_DEVICE_HELD,
    OOM_KILL,
    RCU_STALL,
    READ_ONLY,
    SOFT_LOCKUP,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DRIVER_PATTERNS = (
    r"^<[0-3]>\[ascend\] ",
    r"^<\d>\[ascend\] (\[[^]]*\] )?\[ERROR\] ",
)
"""Lines of the NPU driver about an error, as ``dmesg --raw`` shows them (``<level>text``)."""

_MAX_TEXT = 300
_MAX_LINE = 1024
"""Characters of a line that are searched: longer ones are not for people, and cost time."""


class MessageMatch(NamedTuple):
    """One message that reports ``code`` of a host check. ``text`` is for people.

    ``cpu`` is the CPU of a lockup.
    """

    code: str
    text: str
    cpu: int | None = None


class FileSystemMessage(NamedTuple):
    """One message that reports ``code`` of the file system on block device ``device`` (``sda1``).

    An empty code reports that the file system was read from its device and mounted.
    The journal of EXT4 has the name of its device with the number of an inode (``sda1-8``).
    """

    code: str
    device: str
    text: str


class Suppressed(NamedTuple):
    """The kernel reports that it suppressed messages.

    ``function``: those of this function, by its rate limit; empty: those about hung tasks, of which
    it has reported ``kernel.hung_task_warnings``.
    """

    function: str
    text: str


Match: TypeAlias = MessageMatch | FileSystemMessage | Suppressed

_KILLED = re.compile(r"Killed process (\d+)(?:, UID \d+,)? \((.+?)\)(?:[, ]|$)")
_HUNG_TASK = re.compile(r"^INFO: task .{1,64}:\d+ blocked .{0,64}for more than \d+ seconds")
_LOCKUPS = (
    (re.compile(r"BUG: soft lockup - CPU#(\d+) stuck for \d+"), SOFT_LOCKUP),
    (re.compile(r"\bdetected hard LOCKUP on (?:cpu|other CPUs) (\d+)"), HARD_LOCKUP),
)
_OOPS = re.compile(
    r"^BUG: unable to handle |^BUG: kernel NULL pointer dereference|^Unable to handle kernel "
    r"|^kernel BUG at |\b(?:Oops|: [0-9a-f]{1,16}) \[#\d+\]"
)
_RCU_STALL = re.compile(
    r"INFO: \w{1,64} (?:self-detected stalls? on CPU|detected (?:expedited )?stalls? on )"
)
_NETWORK_DEVICE = re.compile(r"^unregister_netdevice: waiting for .{1,64} to become free")
_MEMORY_ERROR = re.compile(
    r"^Memory failure: 0x[0-9a-f]+: |Uncorrected hardware memory error in "
    r"|^EDAC MC\d*: (?:\d+ )?UE\b"
)
_MATCHED = (
    (_KILLED, OOM_KILL),
    (_HUNG_TASK, HUNG_TASK),
    (_OOPS, KERNEL_OOPS),
    (_RCU_STALL, RCU_STALL),
    (_NETWORK_DEVICE, NETWORK_DEVICE_HELD),
    (_MEMORY_ERROR, MEMORY_ERROR),
)

_XFS = r"^XFS \(([^)\s]+)\): "
_EXT = r"^EXT[234]-fs (?:error|abort|panic|warning)? ?\((?:device )?([^)\s]+)\): "
_BTRFS = r"^BTRFS\b.{0,16} \(device ([^)\s:]+)[^)]*\)"
_FILE_SYSTEMS = (
    (re.compile(r"^[A-Z0-9]+-fs \(([^)\s]+?)\).*: Remounting filesystem read-only"), READ_ONLY),
    (re.compile(rf"{_BTRFS}.*\bforced readonly"), READ_ONLY),
    (
        re.compile(
            rf"{_XFS}(?:.*[Ss]hutting down filesystem|xfs_do_force_shutdown\("
            r"|User initiated shutdown|xfs_log_force: error -?\d|Filesystem has been shut down"
            r"|Please un?mount the filesystem and rectify)"
        ),
        FILE_SYSTEM_FAILED,
    ),
    (
        re.compile(rf"{_EXT}(?:shut down requested|.*[Dd]etected aborted journal)"),
        FILE_SYSTEM_FAILED,
    ),
    (re.compile(r"^Aborting journal on device (\S+?)\.?$"), FILE_SYSTEM_FAILED),
    (
        re.compile(
            rf"{_BTRFS}(?:: | )(?:in \w+:\d+: errno=-|.*[Tt]ransaction aborted"
            r"|.*of aborted transaction|.*emergency shutdown)"
        ),
        FILE_SYSTEM_FAILED,
    ),
    (
        re.compile(
            rf"{_XFS}(?:[Mm]etadata I/O error|log I/O error|writeback error|Metadata CRC error"
            r"|Metadata corruption|Internal error|Corruption )"
        ),
        FILE_SYSTEM_ERRORS,
    ),
    (
        re.compile(r"^EXT[234]-fs (?:error|abort|panic) \(device ([^)\s]+)\)"),
        FILE_SYSTEM_ERRORS,
    ),
    (re.compile(rf"{_EXT}.*\bI/O error"), FILE_SYSTEM_ERRORS),
    (re.compile(r"^JBD2: .*\b[Ee]rror.* (?:on|for) (\S+?)\.?$"), FILE_SYSTEM_ERRORS),
    (
        re.compile(
            r"^BTRFS:? (?:error|critical|alert|emergency|warning) \(device ([^)\s:]+)[^)]*\)"
            r".*(?:\berrs: |IO (?:error|failure)|transid verify failed|csum failed"
            r"|checksum verify failed|corrupt|bad tree block)"
        ),
        FILE_SYSTEM_ERRORS,
    ),
    (
        re.compile(r"^Buffer I/O error on dev(?:ice)? ([^,\s]+), logical block"),
        FILE_SYSTEM_ERRORS,
    ),
)
"""The first that fits a line counts, so what shuts a file system down is before its errors."""
_MOUNTED = (
    re.compile(r"^XFS \(([^)\s]+)\): Ending (?:clean mount|recovery)"),
    re.compile(r"^EXT4-fs \(([^)\s]+)\): mounted filesystem"),
    re.compile(r"^BTRFS info \(device ([^)\s:]+)[^)]*\): first mount of filesystem"),
)
_SPEAKERS = ("XFS (", "EXT", "BTRFS", "Aborting journal", "JBD2: ", "Buffer I/O error")

_SUPPRESSED = re.compile(r"^(.{1,64}?): \d+ callbacks suppressed$")
_HUNG_TASKS_SUPPRESSED = "Future hung task reports are suppressed"


class Messages:
    """The patterns of messages that report something.

    ``driver_patterns`` as ``DRIVER_PATTERNS``.
    """

    def __init__(self, driver_patterns: Sequence[str]) -> None:
        self._driver = [re.compile(pattern) for pattern in driver_patterns]

    def matches(self, level: int, text: str) -> Iterator[Match]:
        """Yield what the lines of a message of ``level`` report, mostly nothing."""
        for line in text.splitlines():
            match = self._line(level, line)
            if match is not None:
                yield match

    def _line(self, level: int, line: str) -> Match | None:
        line, shown = line[:_MAX_LINE], line[:_MAX_TEXT]
        raw = f"<{level}>{line}"
        if any(pattern.search(raw) for pattern in self._driver):
            return MessageMatch(DRIVER_ERROR, shown)
        # Few lines are about file systems; the others are spared a dozen patterns.
        if line.startswith(_SPEAKERS):
            return _about_file_system(line, shown)
        for pattern, code in _LOCKUPS:
            if (match := pattern.search(line)) is not None:
                return MessageMatch(code, shown, int(match[1]))
        for pattern, code in _MATCHED:
            if pattern.search(line) is not None:
                return MessageMatch(code, shown)
        return _suppressed(line, shown)


def _about_file_system(line: str, shown: str) -> Match | None:
    for pattern, code in _FILE_SYSTEMS:
        if (match := pattern.search(line)) is not None:
            return FileSystemMessage(code, match[1], shown)
    for pattern in _MOUNTED:
        if (match := pattern.search(line)) is not None:
            return FileSystemMessage("", match[1], shown)
    return _suppressed(line, shown)


def _suppressed(line: str, shown: str) -> Suppressed | None:
    if _HUNG_TASKS_SUPPRESSED in line:
        return Suppressed("", shown)
    match = _SUPPRESSED.search(line)
    return None if match is None else Suppressed(match[1], shown)

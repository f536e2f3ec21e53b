"""The mounted file systems, and which of them are local ones of this host. Pure.

Source: ``proc_pid_mountinfo(5)``.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_ESCAPE = re.compile(r"\\([0-7]{3})")
_MIN_FIELDS = 6
_SHARED_OR_SLOW = frozenset(("fuseblk", "gfs2", "ocfs2"))
"""On a block device, but a program or other hosts answer for them."""

_WITHOUT_DEVICE_OF_THE_KERNEL = frozenset(("zfs",))
"""Local, although the kernel lists them as without a device."""


class FileSystem(NamedTuple):
    """A mounted file system, at least at ``mount_point``.

    ``device`` is its number (``stat -c %d``), ``source`` mostly a path below ``/dev``.
    ``read_only`` is a state of the file system, not of one mount of it; ``shut_down`` is shown by
    EXT4 alone. ``mounts`` are the ids of all its mounts.
    """

    device: int
    kind: str
    source: str
    mount_point: str
    read_only: bool
    mounts: frozenset[int]
    shut_down: bool = False


def kinds_on_devices(filesystems: str) -> frozenset[str]:
    """Return the local kinds of file systems among those of ``/proc/filesystems``."""
    rows = (line.split("\t") for line in filesystems.splitlines())
    real = {row[1] for row in rows if len(row) > 1 and row[0] != "nodev"}
    return frozenset(real - _SHARED_OR_SLOW) | _WITHOUT_DEVICE_OF_THE_KERNEL


def local_file_systems(
    mountinfo: str, kinds: Collection[str], excluded: Collection[str]
) -> dict[int, FileSystem]:
    """Return local file systems by device number, with the shortest mount point outside of
    ``excluded``.

    Mounts hidden by others are left out; so are those only below ``excluded`` paths (the volumes of
    pods). A line that cannot be decoded is not a mount.
    """
    visible: dict[str, FileSystem] = {}
    for mounted in _mounts(mountinfo):
        # Of two mounts at one point the later hides the other, which no path leads to.
        visible[mounted.mount_point] = mounted
    file_systems: dict[int, FileSystem] = {}
    for mounted in visible.values():
        is_local = mounted.kind in kinds and mounted.source.startswith("/")
        if mounted.kind in _WITHOUT_DEVICE_OF_THE_KERNEL:
            is_local = True
        if not is_local or any(_is_below(mounted.mount_point, path) for path in excluded):
            continue
        before = file_systems.get(mounted.device)
        if before is not None:
            mounts = before.mounts | mounted.mounts
            shorter = min(
                before, mounted, key=lambda item: (len(item.mount_point), item.mount_point)
            )
            mounted = shorter._replace(mounts=mounts)
        file_systems[mounted.device] = mounted
    return file_systems


def device_at(mountinfo: str, path: str) -> int | None:
    """Return the device number of the file system with the absolute ``path``, without a look at it.

    ``None`` where no mount is above it. Links in ``path`` are not followed.
    """
    above: FileSystem | None = None
    for mounted in _mounts(mountinfo):
        # Of two mounts at one point the later hides the other.
        is_nearer = above is None or len(mounted.mount_point) >= len(above.mount_point)
        if is_nearer and _is_below(path, mounted.mount_point):
            above = mounted
    return None if above is None else above.device


def _mounts(mountinfo: str) -> Iterator[FileSystem]:
    for line in mountinfo.splitlines():
        front, separator, back = line.partition(" - ")
        fields, behind = front.split(" "), back.split(" ")
        if not separator or len(fields) < _MIN_FIELDS or len(behind) < 3:
            continue
        major, _, minor = fields[2].partition(":")
        if not (_is_number(fields[0]) and _is_number(major) and _is_number(minor)):
            continue
        options = behind[2].split(",")
        yield FileSystem(
            device=os.makedev(int(major), int(minor)),
            kind=behind[0],
            source=_unescaped(behind[1]),
            mount_point=_unescaped(fields[4]),
            # Since Linux 6.12, EXT4 keeps ``rw`` after an error; 6.15 shows ``emergency_ro``.
            read_only="ro" in options or "emergency_ro" in options,
            mounts=frozenset((int(fields[0]),)),
            shut_down="shutdown" in options,
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8) % 256), text)

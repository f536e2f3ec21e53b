"""The identity of a mounted file system in the kernel, to see whether it was mounted anew.

A file system that failed stays so until the kernel drops it and reads it from its device again.
Mount ids do not show that: after a lazy unmount, or while a container has a mount of its own, the
next mount of the device is one of the same failed file system. The kernel shows each XFS, EXT4 and
Btrfs that it holds as a directory in ``/sys/fs``, whose inode has a number that is not used again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collectors.file_systems.mounts import FileSystem

_SYS = Path("/sys")
# The kernel's EXT4 driver serves the older kinds, too.
_FOLDERS = {"xfs": "xfs", "ext4": "ext4", "ext3": "ext4", "ext2": "ext4", "f2fs": "f2fs"}


class Superblock(msgspec.Struct, frozen=True):
    """A file system as the kernel holds it: ``inode`` of the directory ``place`` in ``/sys/fs``.

    A kind without one has an empty ``place``; then ``mounts`` (ids) are what is known of it.
    """

    place: str
    inode: int
    mounts: frozenset[int]

    def is_held(self) -> bool:
        """Return whether the kernel still holds it, mounted at a path or not."""
        return bool(self.place) and _inode(Path(self.place)) == self.inode

    def is_same(self, other: Superblock) -> bool:
        """Return whether ``other`` is the same, and no file system that was mounted anew."""
        if self.place and other.place:
            return (self.place, self.inode) == (other.place, other.inode)
        return not self.mounts.isdisjoint(other.mounts)


def superblock_of(mounted: FileSystem, sys: Path = _SYS) -> Superblock:
    """Return the identity of ``mounted``. Reads only below ``/sys`` and ``/dev``."""
    place = _place(mounted, sys)
    inode = None if place is None else _inode(place)
    if inode is None:
        return Superblock("", 0, mounted.mounts)
    return Superblock(str(place), inode, mounted.mounts)


def held_superblock(device: int, sys: Path = _SYS) -> Superblock | None:
    """Return the file system on the block device with this number that the kernel holds.

    ``None`` where it holds none, or a kind without a place. It needs no mount at a path.
    """
    name = _name(device, sys)
    for folder in dict.fromkeys(_FOLDERS.values()):
        place = sys / "fs" / folder / name
        inode = _inode(place)
        if inode is not None:
            return Superblock(str(place), inode, frozenset())
    return None


def _place(mounted: FileSystem, sys: Path) -> Path | None:
    if mounted.kind == "btrfs":
        # Its number is none of a block device; its devices are listed below its UUID.
        name = Path(mounted.source).resolve().name
        return next((item.parent.parent for item in sys.glob(f"fs/btrfs/*/devices/{name}")), None)
    folder = _FOLDERS.get(mounted.kind)
    if folder is None:
        return None
    return sys / "fs" / folder / _name(mounted.device, sys)


def _name(device: int, sys: Path) -> str:
    """Return the kernel's name of a block device."""
    return (sys / "dev/block" / f"{os.major(device)}:{os.minor(device)}").resolve().name


def _inode(place: Path) -> int | None:
    try:
        return place.stat().st_ino
    except OSError:
        return None

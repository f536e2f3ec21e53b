"""The mounts of the host: read from its first process, or from this one where that is refused.

A container with the host's processes reads the host's mounts so. One without reads its own, which
lead to the host's real file systems as well (its volumes).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.file_systems.mounts import FileSystem, kinds_on_devices, local_file_systems
from collectors.file_systems.superblocks import held_superblock

if TYPE_CHECKING:
    from collections.abc import Sequence

OF_PODS = ("/var/lib/kubelet/pods", "/var/lib/kubelet/plugins")
"""Volumes of pods are mounted below these; a full one is not a fault of the host."""

NOT_MOUNTED = "(not mounted at a path)"

_PROC = Path("/proc")
_OF_JOURNAL = re.compile(r"-\d+$")


class HostMounts:
    """Reads the mounts below ``proc``. Blocking, as everything in ``/proc``, but not for long."""

    def __init__(self, excluded: Sequence[str] = OF_PODS, proc: Path = _PROC) -> None:
        self._excluded = excluded
        self._proc = proc

    def read(self) -> tuple[dict[int, FileSystem], str]:
        """Return local file systems by device number, and the prefix of their mount points.

        Raises ``OSError``.
        """
        text, kinds, root = self._read()
        return local_file_systems(text, kinds, self._excluded), root

    def _read(self) -> tuple[str, frozenset[str], str]:
        """Return the text of the mounts, the local kinds, and the prefix of mount points."""
        kinds = kinds_on_devices((self._proc / "filesystems").read_text())
        first = self._proc / "1"
        try:
            # Mount points are looked up below it, so without this right the host's mounts are of no
            # use.
            (first / "root").stat()
            mountinfo, root = (first / "mountinfo").read_bytes(), str(first / "root")
        except OSError:
            mountinfo, root = (self._proc / "self/mountinfo").read_bytes(), ""
        # A mount point may have any bytes, and must be found under the same ones.
        return mountinfo.decode("utf-8", "surrogateescape"), kinds, root

    def of_block_device(self, name: str) -> FileSystem | None:
        """Return the file system on the block device with this name of the kernel's (``sda1``).

        ``sda1-8``, as the journal of EXT4 is called, is that on ``sda1``. One that was unmounted
        lazily and is in use has the mount point ``NOT_MOUNTED``. ``None`` for one that is not
        there, or is excluded.
        """
        try:
            text, kinds, _ = self._read()
        except OSError:
            return None
        file_systems = local_file_systems(text, kinds, self._excluded)
        everywhere = local_file_systems(text, kinds, ())
        # The number comes first: a source may be a name that another device has now. Btrfs has a
        # number of its own, and the journal of EXT4 the name of its device with an inode.
        for wanted in (name, _OF_JOURNAL.sub("", name)):
            number = _number_of(wanted)
            if number is not None and number in file_systems:
                return file_systems[number]
            for mounted in file_systems.values():
                source = Path(mounted.source)
                if wanted in (source.name, source.resolve().name):
                    return mounted
            is_excluded = number in everywhere
            if number is not None and not is_excluded and held_superblock(number) is not None:
                return FileSystem(number, "", wanted, NOT_MOUNTED, False, frozenset())
        return None


def _number_of(name: str) -> int | None:
    """Return the number of a block device, as the kernel shows it; ``None`` if it shows none."""
    try:
        major, _, minor = Path("/sys/class/block", name, "dev").read_text().partition(":")
        return os.makedev(int(major), int(minor))
    except (OSError, ValueError):
        return None

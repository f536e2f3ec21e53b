"""A directory that is mounted at another place, by root.

with Mounted(directory) as mounted:
    mounted.mount()
    (mounted.real / "file").write_text("seen at mounted.place")
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


class Mounted:
    """``place`` shows the directory ``real`` while it is mounted; at the end nothing is."""

    def __init__(self, directory: Path) -> None:
        self.place, self.real = directory / "store", directory / "real"
        for one in (self.place, self.real):
            one.mkdir(parents=True)
        self._mounts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._mounts:
            self.unmount()

    def mount(self, source: Path | None = None) -> None:
        """Mount ``real``, or another directory, over what is there."""
        subprocess.run(["mount", "--bind", source or self.real, self.place], check=True)
        self._mounts += 1

    def unmount(self) -> None:
        """Take the last mount away, also from programs that use it."""
        subprocess.run(["umount", "--lazy", self.place], check=True)
        self._mounts -= 1

"""A FUSE file system: another directory as bindfs shows it, without events for what changes there.

with Mirror(directory) as mirror:
    (mirror.behind / "file").write_text("seen at mirror.place, and no event reports it")
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from tests.parts.processes import Running, program
from tests.tiers import only_root

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

_SECONDS = 10.0


mounts = only_root("only root mounts")
"""Root without ``/dev/fuse`` fails: a check that cannot run is no check that passed."""


class Mirror:
    """Mounted between ``start`` and ``stop``: ``place`` shows what is in ``behind``."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "mirror"
        self.behind = directory / "behind"
        self._log = directory / "bindfs.log"
        self._running: Running | None = None

    def __enter__(self) -> Self:
        for one in (self.place, self.behind):
            one.mkdir(parents=True)
        # The kernel remembers nothing, as it does for changes of another machine after a while.
        options = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
        self._running = Running(
            [program("bindfs"), "-f", "-o", options, self.behind, self.place], self._log
        )
        self._running.wait_until(lambda: os.path.ismount(self.place), _SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.thaw()
        subprocess.run(["umount", "--lazy", self.place], check=True)
        self._running.stop()

    def freeze(self) -> None:
        """Let whoever asks wait, as a network share does whose server is away."""
        assert self._running is not None
        self._running.freeze()

    def thaw(self) -> None:
        """Continue the file system, so that it answers again."""
        assert self._running is not None
        self._running.thaw()

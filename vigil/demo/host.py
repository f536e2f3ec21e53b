"""The emulated host of an agent: a kernel log and the status file of a storage client."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOCKUP = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:1234]"
_EMERGENCY = 0


class Host:
    """One emulated host. ``directory`` is its own."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "kmsg"
        self._dpc = directory / "dpc_status_check"
        self._dtfs = directory / "dtfs_status_check"
        os.mkfifo(self._log)
        # Open for reading, too: a pipe loses its content when its last reader is killed.
        self._pipe = os.open(self._log, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._records = 0
        self.dpc(works=True)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that make an agent read this host. There is no DTFS."""
        return {
            "VIGIL_KERNEL_LOG_DEVICE": str(self._log),
            "VIGIL_STORAGE_DPC_FILE": str(self._dpc),
            "VIGIL_STORAGE_DTFS_FILE": str(self._dtfs),
        }

    def lock_up(self) -> None:
        """Let the kernel report that a processor is stuck."""
        self._records += 1
        at_us = time.monotonic_ns() // 1000
        os.write(self._pipe, f"{_EMERGENCY},{self._records},{at_us},-;{_LOCKUP}\n".encode())

    def dpc(self, *, works: bool) -> None:
        """Let the storage client work or not; a whole file replaces the last one."""
        draft = self._dpc.with_suffix(".new")
        process = 0 if works else -1
        draft.write_text(
            f"[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_ERROR: {process}\n", encoding="ascii"
        )
        draft.chmod(0o600)
        draft.replace(self._dpc)

    def close(self) -> None:
        """Give the log back."""
        os.close(self._pipe)

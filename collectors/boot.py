"""Identifies the machine, and its boot."""

from __future__ import annotations

import hashlib
from pathlib import Path

_MACHINE_ID = Path("/etc/machine-id")
_DIGEST_BYTES = 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's id of this boot; empty where it shows none."""
    return _text(_BOOT_ID)


def machine_id() -> str:
    """Return the id of this machine, which stays over boots; empty where there is none."""
    return _text(_MACHINE_ID)


def machine_digest() -> str:
    """Return a digest of the secret id of this machine; empty where there is none."""
    machine = machine_id()
    # The id itself is confidential (machine-id(5)), and the digest goes into the journal.
    return machine and hashlib.blake2b(machine.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""

"""Which boot of this machine this is: what was remembered before another one is over."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's id of this boot; empty where it does not say."""
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""

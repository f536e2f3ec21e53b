"""How a touch marks a document in every store."""

from __future__ import annotations

from datetime import UTC, datetime

TOUCHED = "npu-vigil/touched"
"""The annotation that a touch sets."""


def touched_now() -> str:
    """Return what a touch sets it to, with microseconds: each touch is a change."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

"""An event that watches of documents and of cluster objects have in common."""

from __future__ import annotations

import msgspec


class Interrupted(msgspec.Struct, frozen=True):
    """The watch shows nothing until the next ``Listed``, because of ``reason``."""

    reason: str

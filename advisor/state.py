"""What the scheduler has in memory between two sessions (``spec/consumers.md`` 1.4 to 1.7, 2.3).

``State()`` is that of a scheduler that starts. It is encoded with ``msgspec.json`` as it is.
"""

from __future__ import annotations

import msgspec


class State(msgspec.Struct, frozen=True):
    """The memory of the scheduler. ``is_known`` is false where nothing before is known."""

    is_known: bool = False

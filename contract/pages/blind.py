"""Sources that give an agent no answer, as both daemons show them."""

from __future__ import annotations

import msgspec


class BlindStatus(msgspec.Struct, frozen=True):
    """A source that gives the agent of a node no answer, because of ``reason``.

    ``chip`` is what it is blind about, ``null`` for the node as a whole. ``since_ms`` is the time
    by the node's clock (epoch milliseconds), ``null`` where only the heartbeat shows it.
    """

    source: str
    since_ms: int | None = None
    reason: str = ""
    chip: str | None = None

"""The row of a heartbeat that the next leader is to know."""

from __future__ import annotations

import msgspec


class LastSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The heartbeat that a node had, and when by the observer's clock that had changed last.

    Times of 0: the heartbeat goes on. A beat of a store has ``holder`` and ``beaten_at_ms`` of the
    beat instead of ``heartbeat_seconds``.
    """

    node: str = msgspec.field(name="NodeName")
    heartbeat_seconds: int = msgspec.field(name="HeartbeatTime", default=0)
    changed_at_seconds: int = msgspec.field(name="UpdateTime", default=0)
    holder: str = msgspec.field(name="Holder", default="")
    beaten_at_ms: int = msgspec.field(name="BeatenAtMs", default=0)

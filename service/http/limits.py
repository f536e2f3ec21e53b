"""How many connections a server keeps, for how long, and how many requests it answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListenerLimits:
    """Limits of one listener (decision 011).

    ``connections`` are open at once; ``host_places`` of them are kept for addresses of this host.
    An address has at most ``unfinished_per_address`` connections without a whole request.
    A request must be whole after ``whole_seconds``. A connection without a request is closed after
    ``idle_seconds``, and one whose answer stays unsent after ``unsent_seconds``.
    """

    connections: int = 64
    host_places: int = 8
    unfinished_per_address: int = 16
    whole_seconds: float = 10.0
    idle_seconds: float = 60.0
    unsent_seconds: float = 60.0


@dataclass(frozen=True)
class RateLimits:
    """Limits of all listeners of a daemon together.

    ``per_second`` requests begin in a second, ``burst`` of them at once, and ``at_once`` are
    computed at the same time. More wait.
    """

    per_second: float = 100.0
    burst: int = 5
    at_once: int = 4


SOCKET_LIMITS = ListenerLimits(connections=16, host_places=0)
"""Limits of the socket in the state directory; all its clients have the rights of the daemon."""

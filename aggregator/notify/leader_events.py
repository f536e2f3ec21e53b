"""Sends to the clients of the stream which replica leads, when that changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.pages.changes import LeaderChange

if TYPE_CHECKING:
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.pages.event_stream import Stream


def role_of(leadership: Leadership) -> str:
    """Return ``leader``, ``follower of HOLDER``, or ``follower`` while no replica leads."""
    if leadership.leads:
        return "leader"
    return f"follower of {leadership.holder}" if leadership.holder else "follower"


class LeaderEvents:
    """Sends an event each time that the leader is another one than it was before."""

    def __init__(self, leadership: Leadership, stream: Stream, clock: Clock) -> None:
        self._leadership = leadership
        self._stream = stream
        self._clock = clock
        self._before = self._now()

    def send_if_changed(self) -> None:
        """Send which replica leads, if that has changed."""
        before, self._before = self._before, self._now()
        if self._before != before:
            self._stream.send("leader", LeaderChange(self._clock().wall_ms, *self._before))

    def _now(self) -> tuple[str, bool, str]:
        leadership = self._leadership
        return role_of(leadership), leadership.leads, leadership.holder

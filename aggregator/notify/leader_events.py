"""Sends who leads, as it changes, to the clients of the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from contract.pages.changes import LeaderChange

if TYPE_CHECKING:
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.event_stream import Stream

_LOOK_SECONDS = 0.25


def role_of(leadership: Leadership) -> str:
    """Return ``leader``, or ``follower of HOLDER``."""
    return "leader" if leadership.leads else f"follower of {leadership.holder or 'nobody'}"


async def send_leader(leadership: Leadership, stream: Stream, clock: Clock) -> NoReturn:
    """Send an event each time that the leader is another one, until cancelled.

    A follower gets no call when another process begins to lead, so this looks four times a second.
    """
    before = _now(leadership)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = _now(leadership)
        if now != before:
            before = now
            stream.send("leader", LeaderChange(clock().wall_ms, *now))


def _now(leadership: Leadership) -> tuple[str, bool, str]:
    return role_of(leadership), leadership.leads, leadership.holder

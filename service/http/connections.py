"""The open connections of a listener, and which of them is closed for a new one."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Protocol

from service.http.counts import ConnectionEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from service.http.counts import Counts
    from service.http.limits import ListenerLimits
    from service.http.rate import RequestRate

_LOOK_SECONDS = 1.0
_STALLED_SECONDS = 1.0
"""An answer that is unsent for so long is taken for one that its client does not read."""


class Open(Protocol):
    """A connection."""

    address: str
    is_loopback: bool
    is_of_host: bool
    has_asked: bool
    """Whether it has a whole request that is not answered."""
    is_in_turn: bool
    """Whether that request began to be answered."""
    unfinished_since: float | None
    """Since when a request is awaited that is not whole; ``None`` between two requests."""
    unsent_since: float | None

    def proceed(self) -> None:
        """Have its request answered."""

    def fileno(self) -> int:
        """Return its descriptor."""

    def abort(self) -> None:
        """Close it at once, whatever is unsent."""


class Connections:
    """Keeps ``limits``. Every connection is here from its acceptance to its end."""

    def __init__(self, limits: ListenerLimits, rate: RequestRate, counts: Counts) -> None:
        self.limits = limits
        self.rate = rate
        self.counts = counts
        self._loop = asyncio.get_running_loop()
        self._all: dict[Open, None] = {}
        self._of_address: dict[str, dict[Open, None]] = {}
        self._of_others = 0
        self._waiting: dict[Open, None] = {}
        """Those without a whole request; the first has waited longest."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Open) -> None:
        """Add a new connection, and close another one where there are too many."""
        self._all[connection] = None
        self._of_address.setdefault(connection.address, {})[connection] = None
        self._of_others += not connection.is_of_host
        self.counts.connections += 1
        self._waiting[connection] = None
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        self._limit_address(connection)
        self._limit_all(connection)

    def asks(self, connection: Open) -> None:
        """Record that a request is whole: it is answered in its turn."""
        del self._waiting[connection]
        self.rate.ask(connection)

    def waits(self, connection: Open) -> None:
        """Record that a request was answered: the next one is awaited."""
        if connection in self._all:
            self._waiting[connection] = None

    def discard(self, connection: Open) -> None:
        """Forget a connection that ended; again does nothing."""
        if connection not in self._all:
            return
        del self._all[connection]
        self.counts.connections -= 1
        self._of_others -= not connection.is_of_host
        of_address = self._of_address[connection.address]
        del of_address[connection]
        if not of_address:
            del self._of_address[connection.address]
        self._waiting.pop(connection, None)
        if connection.has_asked and not connection.is_in_turn:
            self.rate.leave(connection)

    def close(self) -> None:
        """Close those that have no request."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._waiting):
            self._abort(connection)

    def _limit_address(self, new: Open) -> None:
        if new.is_loopback:
            return
        of_address = self._of_address[new.address]
        unfinished = [one for one in of_address if one.unfinished_since is not None]
        if len(unfinished) > self.limits.unfinished_per_address:
            self._close_first(ConnectionEnd.ADDRESS, unfinished, new)

    def _limit_all(self, new: Open) -> None:
        limits = self.limits
        # What the host's own addresses hold is theirs as far as their places go.
        too_many_others = self._of_others > limits.connections - limits.host_places
        if too_many_others and not new.is_of_host:
            self._make_place(new, lambda one: not one.is_of_host)
        elif len(self._all) > limits.connections:
            self._make_place(new, lambda _: True)

    def _make_place(self, new: Open, may_go: Callable[[Open], bool]) -> None:
        if self._close_first(ConnectionEnd.CROWDED, filter(may_go, self._waiting), new):
            return
        if (stalled := self._stalled(may_go)) is not None:
            self._end(stalled, ConnectionEnd.UNSENT)
        elif (queued := self._queued(new, may_go)) is not None:
            self._end(queued, ConnectionEnd.REFUSED)
        else:
            self._end(new, ConnectionEnd.REFUSED)

    def _close_first(self, why: ConnectionEnd, candidates: Iterable[Open], new: Open) -> bool:
        """Close the first of ``candidates`` that is not ``new`` and has sent nothing unread."""
        for one in candidates:
            if one is not new and not _has_unread(one):
                self._end(one, why)
                return True
        return False

    def _stalled(self, may_go: Callable[[Open], bool]) -> Open | None:
        """Return the connection whose answer is unsent for longest, and for a second at least."""
        before = self._loop.time() - _STALLED_SECONDS
        unsent = [
            (one.unsent_since, number, one)
            for number, one in enumerate(self._all)
            if one.unsent_since is not None and one.unsent_since <= before and may_go(one)
        ]
        return min(unsent)[2] if unsent else None

    def _queued(self, new: Open, may_go: Callable[[Open], bool]) -> Open | None:
        """Return the newest request that waits for its turn, of the address with the most.

        ``None`` where no address has more connections than that of ``new``.
        """
        most = max(self._of_address.values(), key=len)
        if len(most) <= len(self._of_address[new.address]):
            return None
        queued = (one for one in reversed(most) if one.has_asked and not one.is_in_turn)
        return next(filter(may_go, queued), None)

    def _look(self) -> None:
        """Close what took too long."""
        self._timer = None
        now, limits = self._loop.time(), self.limits
        for one in tuple(self._all):
            if one.unsent_since is not None and now - one.unsent_since >= limits.unsent_seconds:
                self._end(one, ConnectionEnd.UNSENT)
            elif (
                one.unfinished_since is not None
                and now - one.unfinished_since >= limits.whole_seconds
                and not _has_unread(one)
            ):
                self._end(one, ConnectionEnd.LATE)
        if self._all:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)

    def _end(self, connection: Open, why: ConnectionEnd) -> None:
        self.counts.closed[why] += 1
        self._abort(connection)

    def _abort(self, connection: Open) -> None:
        self.discard(connection)
        connection.abort()


def _has_unread(connection: Open) -> bool:
    """Return whether the kernel has bytes of the client that were not read."""
    polled = select.poll()
    polled.register(connection.fileno(), select.POLLIN)
    return bool(polled.poll(0))

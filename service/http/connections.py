"""How many connections a listener keeps, which one is closed for a new one, and the request rate.

A connection has a place, and waits there for its whole request. Where all places are taken, the
address with the most waiting connections loses its oldest one. So slow or silent clients cannot
keep others out. A whole request then waits for its turn: requests begin evenly in time, one address
after the other, and only a few are computed at once, so that pages never take the time that
reporting needs (decision 011).
"""

from __future__ import annotations

import asyncio
import select
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from contract.record import Record
from service.http.counts import ConnectionEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from service.http.counts import Counts

# Timers may fire early by the resolution of their clock.
_TIMER_SECONDS = 0.001
_MAX_WAITING_ADDRESSES = 64
"""As many as a listener has connections: each has a turn before one of them has its second."""
_MAX_SERVED_SECONDS = 10.0


class WaitingRequest(Protocol):
    """A whole request of an address."""

    @property
    def address(self) -> str:
        """The address of the client."""

    def proceed(self) -> None:
        """Begin to answer."""


class RequestRate:
    """Lets requests begin; the address whose last turn is longest ago has the next one.

    Each request that began holds one of ``at_once`` places until ``done``.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, dict[WaitingRequest, float]] = {}
        """The requests of each address, with the times since when they wait."""
        self._served_at: dict[str, float] = {}
        """When each address had its last turn, the oldest first, for ``_served_seconds``."""
        # An address that had no turn for so long counts like a new one. Longer, a flood of new
        # addresses would keep a client that returns from its turn; shorter, busy addresses would.
        self._served_seconds = min(_MAX_SERVED_SECONDS, _MAX_WAITING_ADDRESSES / limits.per_second)
        # Requests are spaced evenly: a second of 100 must not begin in its first moment.
        self._pause_seconds = 1 / limits.per_second
        self._next_at = float("-inf")
        """When the next one may begin."""
        self._computing = 0
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    def enqueue(self, request: WaitingRequest) -> None:
        """Call ``proceed`` of ``request`` when its turn comes, now or later."""
        # A request that is answered while the daemon stops may be followed by another one.
        if self._is_closed:
            return
        self._waiting.setdefault(request.address, {})[request] = self._loop.time()
        self._let_begin()

    def leave(self, request: WaitingRequest) -> None:
        """Forget ``request``, which waits."""
        # A daemon that stops closes the rate first, and nothing waits from then on.
        of_address = self._waiting.get(request.address, {})
        if request not in of_address:
            return
        del of_address[request]
        if not of_address:
            del self._waiting[request.address]

    def rank(self, address: str) -> float:
        """Return the time of the last turn of ``address``; the lowest has the next turn.

        An address without one counts as if it had had one ``_served_seconds`` before its request,
        so that ever new addresses do not keep an older one from its turn.
        """
        of_address = self._waiting.get(address)
        since = next(iter(of_address.values())) if of_address else self._loop.time()
        earliest = since - self._served_seconds
        return max(self._served_at.get(address, earliest), earliest)

    def done(self) -> None:
        """Free the place of a request that began."""
        self._computing -= 1
        self._let_begin()

    def close(self) -> None:
        """Let no more begin."""
        self._is_closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _let_begin(self) -> None:
        now = self._loop.time()
        while self._waiting and self._computing < self._limits.at_once:
            # What was not used lets so many begin at once, and not more.
            earliest = now - (self._limits.burst - 1) * self._pause_seconds
            self._next_at = max(self._next_at, earliest)
            if self._next_at > now + _TIMER_SECONDS:
                self._wait_until(self._next_at)
                return
            self._next_at += self._pause_seconds
            self._computing += 1
            # Each turn of the loop asks the limits again: ``proceed`` may have ended the request
            # already.
            self._next(now).proceed()

    def _next(self, now: float) -> WaitingRequest:
        address = min(self._waiting, key=self.rank)
        # Both dictionaries keep the order of insertion: an address that is served goes to their
        # ends, which also decides between equal times.
        of_address = self._waiting.pop(address)
        request = next(iter(of_address))
        del of_address[request]
        if of_address:
            self._waiting[address] = of_address
        self._served_at.pop(address, None)
        self._served_at[address] = now
        while self._served_at[oldest := next(iter(self._served_at))] <= now - self._served_seconds:
            del self._served_at[oldest]
        return request

    def _wait_until(self, at: float) -> None:
        # A timer that is set already fires earlier or at the same time, and looks again then.
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._let_begin()


class Turns:
    """Lets checks of logins begin; at most ``max_waiting`` wait, addresses in turn.

    Where all places are taken, the address with the most waiting logins loses its newest one;
    between equals, the one served last. The new login is refused if that is its own address.
    """

    def __init__(self, limits: RateLimits, max_waiting: int) -> None:
        self._rate = RequestRate(limits)
        self._max_waiting = max_waiting
        self._waiting: dict[_Turn, None] = {}
        """In the order in which they came."""

    async def take(self, address: str) -> bool:
        """Wait for a turn, which ends with ``done``; return whether it came, or was refused."""
        turn = _Turn(self._waiting, self._rate, address)
        if not self._enqueue(turn):
            return False
        try:
            return await turn.result
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._leave(turn)
            # It had its turn, but its client left before it could use it.
            elif not turn.result.cancelled() and turn.result.result():
                self.done()
            raise

    def done(self) -> None:
        """End a turn."""
        self._rate.done()

    def close(self) -> None:
        """Let no more begin."""
        self._rate.close()

    def _enqueue(self, turn: _Turn) -> bool:
        if len(self._waiting) >= self._max_waiting:
            counts = Counter(waiting.address for waiting in self._waiting)
            address = max(counts, key=lambda other: (counts[other], self._rate.rank(other)))
            own = (counts[turn.address] + 1, self._rate.rank(turn.address))
            if (counts[address], self._rate.rank(address)) <= own:
                return False
            newest = next(other for other in reversed(self._waiting) if other.address == address)
            self._leave(newest)
            # Its client may have left in this iteration of the loop.
            if not newest.result.done():
                newest.result.set_result(False)
        self._waiting[turn] = None
        self._rate.enqueue(turn)
        return True

    def _leave(self, turn: _Turn) -> None:
        del self._waiting[turn]
        self._rate.leave(turn)


class _Turn:
    """One that waits in ``waiting`` until ``rate`` lets it begin."""

    def __init__(self, waiting: dict[_Turn, None], rate: RequestRate, address: str) -> None:
        self._waiting = waiting
        self._rate = rate
        self.address = address
        self.result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def proceed(self) -> None:
        del self._waiting[self]
        # The client left, and the task that waited has not run since: nothing else frees the place.
        if self.result.done():
            self._rate.done()
        else:
            self.result.set_result(True)


class ListenerLimits(Record, frozen=True):
    """Limits of one listener (decision 011).

    ``connections`` are open at once; ``host_places`` of them are kept for addresses of this host.
    An address has at most ``unfinished_per_address`` connections without a whole request.
    A request must be whole after ``whole_seconds``. A connection without a request is closed after
    ``idle_seconds``, and one whose answer stays unsent after ``unsent_seconds``.
    """

    # Each costs a descriptor: 64 leave most of the soft limit of 4,096 to the daemon's own work
    # (decision 11).
    connections: int = 64
    host_places: int = 8
    unfinished_per_address: int = 16
    whole_seconds: float = 10.0
    idle_seconds: float = 60.0
    unsent_seconds: float = 60.0


class RateLimits(Record, frozen=True):
    """Limits of all listeners of a daemon together.

    ``per_second`` requests begin in a second, ``burst`` of them at once, and ``at_once`` are
    computed at the same time. More wait.
    """

    per_second: float = 100.0
    burst: int = 5
    at_once: int = 4


# No places are kept for the host: a client of a Unix socket is on the host anyway.
SOCKET_LIMITS = ListenerLimits(connections=16, host_places=0)
"""Limits of the socket in the state directory; all its clients have the rights of the daemon."""


_POLL_SECONDS = 1.0
_STALLED_SECONDS = 1.0
"""An answer that is unsent for so long is taken for one that its client does not read."""


class OpenConnection(Protocol):
    """A connection."""

    address: str
    is_loopback: bool
    is_of_host: bool
    has_request: bool
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
        self._all: dict[OpenConnection, None] = {}
        self._of_address: dict[str, dict[OpenConnection, None]] = {}
        self._of_others = 0
        self._waiting: dict[OpenConnection, None] = {}
        """Those without a whole request; the first has waited longest."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: OpenConnection) -> None:
        """Add a new connection, and close another one where there are too many."""
        self._all[connection] = None
        self._of_address.setdefault(connection.address, {})[connection] = None
        self._of_others += not connection.is_of_host
        self.counts.connections += 1
        # A new connection is the last in the order, so the oldest unfinished request goes first.
        self._waiting[connection] = None
        # One timer for all connections; without any there is none, so an idle daemon does not wake.
        if self._timer is None:
            self._timer = self._loop.call_later(_POLL_SECONDS, self._look)
        self._limit_address(connection)
        self._limit_all(connection)

    def add_request(self, connection: OpenConnection) -> None:
        """Record that a request is whole: it is answered in its turn."""
        del self._waiting[connection]
        self.rate.enqueue(connection)

    def waits(self, connection: OpenConnection) -> None:
        """Record that a request was answered: the next one is awaited."""
        # It may have been closed while it was answered.
        if connection in self._all:
            self._waiting[connection] = None

    def discard(self, connection: OpenConnection) -> None:
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
        if connection.has_request and not connection.is_in_turn:
            self.rate.leave(connection)

    def close(self) -> None:
        """Close those whose request is not being answered."""
        if self._timer is not None:
            self._timer.cancel()
        # A copy: each one that is closed leaves the dictionary.
        for connection in tuple(self._all):
            if not connection.is_in_turn:
                self._abort(connection)

    def _limit_address(self, new: OpenConnection) -> None:
        # Several programs of the host share this address: probes, scrapes and verbs.
        if new.is_loopback:
            return
        of_address = self._of_address[new.address]
        unfinished = [
            connection for connection in of_address if connection.unfinished_since is not None
        ]
        if len(unfinished) > self.limits.unfinished_per_address:
            self._close_first(ConnectionEnd.ADDRESS, unfinished, new)

    def _limit_all(self, new: OpenConnection) -> None:
        limits = self.limits
        # What the host's own addresses hold is theirs as far as their places go.
        too_many_others = self._of_others > limits.connections - limits.host_places
        if too_many_others and not new.is_of_host:
            self._make_place(new, lambda connection: not connection.is_of_host)
        elif len(self._all) > limits.connections:
            self._make_place(new, lambda _: True)

    def _make_place(self, new: OpenConnection, may_go: Callable[[OpenConnection], bool]) -> None:
        # The order is that of decision 11: unfinished ones, then unread answers, then waiting
        # requests, last the new one.
        if self._close_first(ConnectionEnd.CROWDED, self._by_address(may_go), new):
            return
        if (stalled := self._stalled(may_go)) is not None:
            self._end(stalled, ConnectionEnd.UNSENT)
        elif (queued := self._queued(new, may_go)) is not None:
            self._end(queued, ConnectionEnd.REFUSED)
        else:
            self._end(new, ConnectionEnd.REFUSED)

    def _by_address(self, may_go: Callable[[OpenConnection], bool]) -> list[OpenConnection]:
        """Return the connections without a whole request, those of the busiest address first.

        Those of an address, and of addresses with as many, are in the order in which they wait.
        """
        candidates = list(filter(may_go, self._waiting))
        counts = Counter(connection.address for connection in candidates)
        return sorted(candidates, key=lambda connection: -counts[connection.address])

    def _close_first(
        self, reason: ConnectionEnd, candidates: Iterable[OpenConnection], new: OpenConnection
    ) -> bool:
        """Close the first of ``candidates`` that is not ``new`` and has sent nothing unread."""
        for candidate in candidates:
            # Bytes that wait in the kernel may be the rest of its request, which it sent in time.
            if candidate is not new and not _has_unread(candidate):
                self._end(candidate, reason)
                return True
        return False

    def _stalled(self, may_go: Callable[[OpenConnection], bool]) -> OpenConnection | None:
        """Return the connection whose answer is unsent for longest, and for a second at least."""
        before = self._loop.time() - _STALLED_SECONDS
        unsent = [
            # The number decides between equal times, since connections have no order.
            (connection.unsent_since, number, connection)
            for number, connection in enumerate(self._all)
            if connection.unsent_since is not None
            and connection.unsent_since <= before
            and may_go(connection)
        ]
        return min(unsent)[2] if unsent else None

    def _queued(
        self, new: OpenConnection, may_go: Callable[[OpenConnection], bool]
    ) -> OpenConnection | None:
        """Return the newest request that waits for its turn, of the address with the most.

        ``None`` where no address has more connections than that of ``new``.
        """
        most = max(self._of_address.values(), key=len)
        if len(most) <= len(self._of_address[new.address]):
            return None
        queued = (
            connection
            # The newest request of the address: older ones have waited for their turn already.
            for connection in reversed(most)
            if connection.has_request and not connection.is_in_turn
        )
        return next(filter(may_go, queued), None)

    def _look(self) -> None:
        """Close what took too long."""
        self._timer = None
        now, limits = self._loop.time(), self.limits
        for connection in tuple(self._all):
            if (
                connection.unsent_since is not None
                and now - connection.unsent_since >= limits.unsent_seconds
            ):
                self._end(connection, ConnectionEnd.UNSENT)
            elif (
                connection.unfinished_since is not None
                and now - connection.unfinished_since >= limits.whole_seconds
                # The loop may be behind; bytes that arrived in time must not cost the connection.
                and not _has_unread(connection)
            ):
                self._end(connection, ConnectionEnd.LATE)
        if self._all:
            self._timer = self._loop.call_later(_POLL_SECONDS, self._look)

    def _end(self, connection: OpenConnection, reason: ConnectionEnd) -> None:
        self.counts.closed[reason] += 1
        self._abort(connection)

    def _abort(self, connection: OpenConnection) -> None:
        self.discard(connection)
        connection.abort()


def _has_unread(connection: OpenConnection) -> bool:
    """Return whether the kernel has bytes of the client that were not read."""
    # Not ``select.select``, which fails for descriptors from 1,024 on.
    polled = select.poll()
    polled.register(connection.fileno(), select.POLLIN)
    return bool(polled.poll(0))

"""When a whole request begins to be answered: evenly, and one address after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from service.http.limits import RateLimits


# Timers may fire early by the resolution of their clock.
_TIMER_SECONDS = 0.001


class WaitingRequest(Protocol):
    """A whole request of an address."""

    @property
    def address(self) -> str:
        """The address of the client."""

    def proceed(self) -> None:
        """Begin to answer."""


class RequestRate:
    """Lets requests begin; each address that waits has its turn before one has its second.

    Each request that began holds one of ``at_once`` places until ``done``.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, dict[WaitingRequest, None]] = {}
        self._pause_seconds = 1 / limits.per_second
        self._next_at = float("-inf")
        """When the next one may begin."""
        self._computing = 0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, request: WaitingRequest) -> None:
        """Call ``proceed`` of ``request`` when its turn comes, now or later."""
        self._waiting.setdefault(request.address, {})[request] = None
        self._let_begin()

    def leave(self, request: WaitingRequest) -> None:
        """Forget ``request``, which waits."""
        of_address = self._waiting[request.address]
        del of_address[request]
        if not of_address:
            del self._waiting[request.address]

    def done(self) -> None:
        """Free the place of a request that began."""
        self._computing -= 1
        self._let_begin()

    def close(self) -> None:
        """Let no more begin."""
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
            self._next().proceed()

    def _next(self) -> WaitingRequest:
        address = next(iter(self._waiting))
        of_address = self._waiting.pop(address)
        request = next(iter(of_address))
        del of_address[request]
        if of_address:
            self._waiting[address] = of_address
        return request

    def _wait_until(self, at: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._let_begin()

"""The stores of an aggregator, opened for a verb that changes what is in them.

Such a verb also watches the heartbeats there: whether an agent still beats, or fell silent.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stores.address import open_store
from vigil.language import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from aggregator.config import AggregatorConfiguration
    from stores.base import Beat, Store

_POLL_SECONDS = 0.5
# One interval may have just begun; within two a beat must have come.
_PERIODS = 2
_SILENT_INTERVALS = 3
_MAX_SECONDS = 30.0
"""For watching. An agent with a longer interval writes deleted documents again at once."""


@dataclass(frozen=True)
class Stores:
    """Those that the aggregator reads, and those that it publishes to without reading them."""

    read: tuple[Store, ...]
    published: tuple[Store, ...]

    @property
    def all(self) -> tuple[Store, ...]:
        """Return those that are read, then the others."""
        return (*self.read, *self.published)


@asynccontextmanager
async def open_stores(
    configuration: AggregatorConfiguration, *, by_operator: bool = False
) -> AsyncIterator[Stores]:
    """Open the stores of an aggregator, and close them behind the block.

    ``by_operator`` is that of ``open_store``. Raises ``ConfigurationError``.
    """

    def open_all(urls: Iterable[str]) -> tuple[Store, ...]:
        return tuple(
            open_store(
                url,
                configuration.kubeconfig,
                mqtt=configuration.mqtt,
                others_may_write=configuration.directory.others_may_write,
                by_operator=by_operator,
            )
            for url in urls
        )

    read = configuration.read_urls
    stores = Stores(
        open_all(read), open_all(url for url in configuration.publish_urls if url not in read)
    )
    try:
        yield stores
    finally:
        for store in stores.all:
            await store.close()


async def beating(beats: Iterable[tuple[Store, Beat]]) -> list[str]:
    """Return the nodes whose heartbeat changes within two of its intervals.

    Clocks of hosts are never compared. A heartbeat that a last will has replaced is no more.
    """
    watched = [(store, beat) for store, beat in beats if not beat.is_broken]
    # A second more, for the polls and the way.
    seconds = max((_PERIODS * beat.interval_seconds + 1 for _, beat in watched), default=0.0)
    seconds = min(seconds, _MAX_SECONDS)
    if watched:
        text = translated("watching for heartbeats for {seconds} s", seconds=round(seconds))
        print(text, file=sys.stderr, flush=True)
    give_up = time.monotonic() + seconds
    alive: set[str] = set()
    while time.monotonic() < give_up and len(alive) < len({beat.node for _, beat in watched}):
        await asyncio.sleep(_POLL_SECONDS)
        for store, before in watched:
            for beat in () if before.node in alive else await store.beats(before.node):
                # A change proves life; the time itself is of another clock.
                if _stamps([beat]) != _stamps([before]) and not beat.is_broken:
                    alive.add(before.node)
    return sorted(alive)


class Silence:
    """Whether no heartbeat of a node came for three of its intervals.

    ``None`` in the place of heartbeats: they may not be read.
    """

    def __init__(self, beats: tuple[Beat, ...] | None) -> None:
        self._last = beats
        self._since = time.monotonic()

    def seconds(self, beats: tuple[Beat, ...] | None) -> float:
        """Take in the beats as they are now; return how long a silent node was silent, else 0."""
        if not beats or _stamps(beats) != _stamps(self._last or ()):
            self._last, self._since = beats, time.monotonic()
            return 0
        silent = time.monotonic() - self._since
        longest = max(beat.interval_seconds for beat in beats)
        return silent if silent > _SILENT_INTERVALS * longest else 0


def _stamps(beats: Sequence[Beat]) -> list[tuple[str, int]]:
    return [(beat.holder, beat.beaten_at_ms) for beat in beats]

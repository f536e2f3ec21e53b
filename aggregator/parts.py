"""Reads for the parts, in every store that is read, and asks them what time changed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from aggregator.part import Keeper, Led, Part, Reader, Timed, View, Viewed
from contract.errors import StoreError
from stores.base import Interrupted, Listed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.moment import Clock, Moment
    from service.stalls import Stalls
    from stores.base import Selection, Store, WatchEvent

_log = logging.getLogger(__name__)


class Parts:
    """All parts. ``judge`` is told the nodes that are to be judged again, ``seen`` each event of a
    store (by URL) after its part has taken it in.
    """

    def __init__(
        self,
        parts: Iterable[Part],
        stores: Mapping[str, Store],
        clock: Clock,
        stalls: Stalls,
        *,
        judge: Callable[[frozenset[str]], None],
        seen: Callable[[str, Selection, WatchEvent], None],
    ) -> None:
        parts = tuple(parts)
        self.readers = tuple(part for part in parts if isinstance(part, Reader))
        self.timed = tuple(part for part in parts if isinstance(part, Timed))
        self.keepers = tuple(part for part in parts if isinstance(part, Keeper))
        self.viewed = tuple(part for part in parts if isinstance(part, Viewed))
        self.led = tuple(part for part in parts if isinstance(part, Led))
        self._stores = stores
        self._clock = clock
        self._stalls = stalls
        self._judge = judge
        self._seen = seen
        self._waits: set[tuple[int, int, Selection]] = set()

    @property
    def inputs(self) -> tuple[Selection, ...]:
        """What is read for any part."""
        return tuple(dict.fromkeys(one for reader in self.readers for one in reader.inputs))

    def reads(self, url: str) -> bool:
        """Whether the store with this URL is read for parts."""
        return url in self._stores

    def is_answered(self, number: int) -> bool:
        """Whether the store with this number has said of every input what is there, or why not."""
        return not any(waits[0] == number for waits in self._waits)

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Read from now on."""
        for number, (url, store) in enumerate(self._stores.items()):
            for index, reader in enumerate(self.readers):
                for selection in reader.inputs:
                    self._waits.add((number, index, selection))
                    name = f"read {selection.name or selection.label} of {url} for part {index}"
                    tasks.create_task(self._read(number, store, index, selection), name=name)

    async def _read(self, number: int, store: Store, index: int, selection: Selection) -> NoReturn:
        reader, trouble = self.readers[index], None
        async for event in store.watch(selection):
            with self._stalls.busy(f"read {store.url}"):
                if isinstance(event, Interrupted) and trouble is None:
                    _log.warning("%s of %s cannot be read: %s", selection, store.url, event.reason)
                elif isinstance(event, Listed) and trouble is not None:
                    _log.info("%s of %s can be read again", selection, store.url)
                if isinstance(event, Interrupted):
                    trouble = event.reason
                elif isinstance(event, Listed):
                    trouble = None
                nodes = reader.observe(number, selection, event, self._clock())
                self._waits.discard((number, index, selection))
                self._judge(nodes)
                self._seen(store.url, selection, event)
        raise StoreError(f"the watch of {store.url} ended")

    def step(self, now: Moment) -> frozenset[str]:
        """Do what is due; returns nodes to be judged again."""
        return frozenset().union(*(part.step(now) for part in self.timed))

    def next_due_ms(self) -> int | None:
        """Steady time at which ``step`` wants to be called."""
        due = [at for part in self.timed if (at := part.next_due_ms()) is not None]
        return min(due, default=None)

    def views(self) -> tuple[View, ...]:
        """What is to be shown now."""
        return tuple(view for part in self.viewed for view in part.views())

    async def leads(self, leading: bool) -> None:
        """Tell the parts whose affair it is."""
        for part in self.led:
            await part.leads(leading)

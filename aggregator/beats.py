"""Listens to the beats of all stores that are read and says who is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from aggregator import liveness
from aggregator.liveness import Brake, Heard, Verdict
from contract.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.moment import Clock
    from service.stalls import Stalls
    from stores.base import Store

_log = logging.getLogger(__name__)

_SHOWN = 10
_SHORTEST_PAUSE_SECONDS = 0.1


class Listener:
    """Lists the beats of each store once per interval; ``changed`` is told who is lost."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        changed: Callable[[frozenset[str]], None],
        clock: Clock,
        stalls: Stalls,
    ) -> None:
        self._stores = stores
        self._changed = changed
        self._clock = clock
        self._stalls = stalls
        self.heard = dict.fromkeys(stores, Heard())
        self.verdict = Verdict()

    async def run(self, lost: Iterable[str]) -> NoReturn:
        """Listen until cancelled. ``lost``: who was published lost by the run before."""
        self.verdict = Verdict(dict.fromkeys(lost, liveness.LONG_AGO_MS))
        async with asyncio.TaskGroup() as tasks:
            for url, store in self._stores.items():
                tasks.create_task(self._listen(url, store), name=f"listen to beats in {url}")
        raise AssertionError("the tasks never end")

    async def _listen(self, url: str, store: Store) -> NoReturn:
        while True:
            began_ms = self._clock().steady_ms
            await self._list(url, store)
            due_ms = liveness.next_ms(self.heard.values(), began_ms)
            pause = (due_ms - self._clock().steady_ms) / 1000
            await asyncio.sleep(max(_SHORTEST_PAUSE_SECONDS, pause))

    async def _list(self, url: str, store: Store) -> None:
        was, asked_at_ms = self.heard[url].problem, self._clock().steady_ms
        try:
            with self._stalls.busy(f"list beats in {url}"):
                beats = await store.beats()
        except StoreError as error:
            self.heard[url] = liveness.failed(self.heard[url], str(error))
            if was is None:
                _log.warning("heartbeats in %s cannot be listed, nobody is late: %s", url, error)
            return
        if was is not None:
            _log.info("heartbeats in %s can be listed again", url)
        now_ms = self._clock().steady_ms
        before, lost = self.heard[url], self.verdict.lost
        self.heard[url] = liveness.listed(before, beats, now_ms, lost, now_ms - asked_at_ms)
        self._judge(now_ms)

    def _judge(self, now_ms: int) -> None:
        before = self.verdict
        self.verdict = liveness.judge(before, tuple(self.heard.values()), now_ms)
        self._say(before)
        if before.lost.keys() != self.verdict.lost.keys():
            self._changed(frozenset(self.verdict.lost))

    def _say(self, before: Verdict) -> None:
        lost, was_lost = self.verdict.lost.keys(), before.lost.keys()
        held, was_held = _nodes(self.verdict.brake), _nodes(before.brake)
        if lost - was_lost:
            _log.warning("lost, no heartbeat for 3 intervals: %s", _names(lost - was_lost))
        if was_lost - lost - held:
            _log.info("not lost any more: %s", _names(was_lost - lost - held))
        if held - was_held:
            _log.error(
                "silence alarm: %d nodes fell silent at once, none of them is published lost: %s. "
                "Is the network, the API server or the way there broken?",
                len(held),
                _names(held),
            )
        elif was_held and not held:
            _log.warning("the silence alarm is over")


def _nodes(brake: Brake | None) -> frozenset[str]:
    return frozenset() if brake is None else frozenset(brake.nodes)


def _names(nodes: Iterable[str]) -> str:
    names = sorted(nodes)
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

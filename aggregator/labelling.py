"""Gives pods the labels by which schedulers hear of relation faults (``spec/clusterd.md`` 3.10).

Level-triggered: what is wanted is asked for again until the store shows it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from aggregator.jobs.labels import LABEL
from contract.errors import StoreError, StoreNotFound
from stores.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.jobs.labels import PodLabel
    from stores.cluster import Cluster

_log = logging.getLogger(__name__)

_SHOWN_SECONDS = 2.0
"""How long the store may take to show a label that was set before it is set again."""


class Labelling:
    """Writes what ``wanted`` says, while ``may_write``."""

    def __init__(
        self,
        clusters: Iterable[Cluster],
        wanted: Callable[[], tuple[PodLabel, ...]],
        may_write: Callable[[], bool],
    ) -> None:
        self.wake = asyncio.Event()
        self._clusters = tuple(clusters)
        self._wanted = wanted
        self._may_write = may_write

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        backoff, trouble = Backoff(), False
        while True:
            self.wake.clear()
            wanted = self._wanted() if self._may_write() else ()
            try:
                for one in wanted:
                    await self._set(one)
            except StoreError as error:
                if not trouble:
                    _log.warning("pods are not labelled, trying again: %s", error)
                trouble = True
                await asyncio.sleep(backoff.next_seconds())
                continue
            if trouble:
                _log.info("pods are labelled again")
            trouble = False
            backoff.reset()
            await self._wait(_SHOWN_SECONDS if wanted else None)

    async def _wait(self, seconds: float | None) -> None:
        if seconds is not None:
            await asyncio.sleep(seconds)
            return
        await self.wake.wait()

    async def _set(self, label: PodLabel) -> None:
        for cluster in self._clusters:
            try:
                await cluster.label_pod(label.namespace, label.name, {LABEL: label.value})
            except StoreNotFound:
                continue  # it is another store's, or gone
            _log.info("pod %s/%s: %s=%s", label.namespace, label.name, LABEL, label.value)

"""Sets the pod labels by which schedulers read relation faults (``clusterd#3.10``).

Level-triggered: a label is desired again until the store shows it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from typing_extensions import override

from aggregator.jobs.relation_state import LABEL
from aggregator.plugin import Led
from contract.errors import StoreError, StoreNotFound
from pacing.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.jobs.relation_state import PodLabel
    from service.election.leadership import Leadership
    from stores.cluster import Cluster

_log = logging.getLogger(__name__)

_MAX_CONCURRENT = 8
_SHOWN_SECONDS = 2.0
"""How long the store may take to show a label that was set before it is set again."""


class PodLabelWriter(Led):
    """Writes the labels that ``wanted`` returns, while this replica leads
    (``aggregator.plugin.Led``).
    """

    def __init__(
        self,
        clusters: Iterable[Cluster],
        wanted: Callable[[], tuple[PodLabel, ...]],
        leadership: Leadership,
    ) -> None:
        self.wake = asyncio.Event()
        self._clusters = tuple(clusters)
        self._wanted = wanted
        self._leadership = leadership
        self._has_begun = False
        self._troubled: set[PodLabel] = set()

    @override
    async def set_leading(self, leading: bool) -> None:
        self._has_begun = leading
        self.wake.set()

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        backoff = Backoff()
        while True:
            self.wake.clear()
            wanted = self._wanted() if self._may_write else ()
            self._troubled &= set(wanted)
            gate = asyncio.Semaphore(_MAX_CONCURRENT)
            done = await asyncio.gather(*(self._try(label, gate) for label in wanted))
            if not all(done):
                await asyncio.sleep(backoff.next_seconds())
                continue
            backoff.reset()
            if wanted:
                await asyncio.sleep(_SHOWN_SECONDS)
            else:
                await self.wake.wait()

    @property
    def _may_write(self) -> bool:
        """Return whether this replica still leads.

        A label has no version, so a process that was paused must check its lease before each write.
        """
        return self._has_begun and self._leadership.leads

    async def _try(self, label: PodLabel, gate: asyncio.Semaphore) -> bool:
        """Set a label; return whether nothing is left to be done about it now.

        One that cannot be set does not delay the others.
        """
        async with gate:
            if not self._may_write:
                return True
            try:
                await self._set(label)
            except StoreError as error:
                if not self._troubled:
                    where = f"pod {label.namespace}/{label.name}"
                    _log.warning("%s gets no label, trying again: %s", where, error)
                self._troubled.add(label)
                return False
        if label in self._troubled:
            self._troubled.remove(label)
            if not self._troubled:
                _log.info("all pods have got their labels again")
        return True

    async def _set(self, label: PodLabel) -> None:
        for cluster in self._clusters:
            try:
                labels = {LABEL: label.value}
                await cluster.label_pod(label.namespace, label.name, labels, label.uid)
            except StoreNotFound:
                continue  # it is another store's, or gone, or another pod has its name
            _log.info("pod %s/%s: %s=%s", label.namespace, label.name, LABEL, label.value)

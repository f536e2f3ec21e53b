"""Removes what an option has written that is off now, while the rights for it are still there.

The leader finds in the state of the leader before what there may be (``signal_memory.py``),
so where no option was ever on nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from typing import TYPE_CHECKING

from typing_extensions import override

from aggregator.plugin import Led
from contract.errors import StoreConflict, StoreError, StoreNotFound
from contract.node_signals import TAINT_KEY
from stores.cluster import Snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from aggregator.config import AggregatorConfiguration
    from aggregator.scheduler_signals.signal_memory import RuleMemory, SignalMemory
    from stores.cluster import Cluster
    from stores.device_taints import DeviceTaints

_log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.05
"""Between two writes: 20 a second, as options write."""
_RETRY_SECONDS = 30.0


class OptionRemoval(Led):
    """Removes what is left of options that are off, while this replica leads."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._problem: str | None = None

    @abstractmethod
    def left(self) -> str:
        """Return for people what may be left; empty for nothing."""

    @abstractmethod
    async def remove_left(self) -> None:
        """Remove it, as far as that is possible at once. Raises ``StoreError``."""

    @override
    async def set_leading(self, leading: bool) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if leading and (leftovers := self.left()):
            self._task = asyncio.create_task(self._remove(), name=f"remove {leftovers}")

    async def _remove(self) -> None:
        while leftovers := self.left():
            try:
                await self.remove_left()
            except StoreError as error:
                # Also without rights: the component may have been removed first.
                if self._problem is None:
                    _log.warning("%s cannot be removed: %s", leftovers, error)
                self._problem = str(error)
                await asyncio.sleep(_RETRY_SECONDS)
        self._problem = None

    def problems(self) -> Iterator[str]:
        """Yield what ``/readyz`` warns of."""
        if self._problem is not None:
            yield f"{self.left()} are left of an option that is off: {self._problem}"


class SignalRemoval(OptionRemoval):
    """Removes conditions and taints on ``cluster`` whose options are off."""

    def __init__(
        self,
        configuration: AggregatorConfiguration,
        cluster: Cluster | None,
        memory: SignalMemory,
    ) -> None:
        super().__init__()
        self._keeps_conditions = configuration.node_conditions.enabled
        self._keeps_taints = configuration.node_taints.enabled
        self._cluster = cluster
        self._memory = memory

    @property
    def _has_conditions(self) -> bool:
        return self._memory.has_conditions and not self._keeps_conditions

    @property
    def _has_taints(self) -> bool:
        return bool(self._memory.items()) and not self._keeps_taints

    @override
    def left(self) -> str:
        if self._cluster is None:
            return ""
        leftovers = ["conditions"] * self._has_conditions + ["taints"] * self._has_taints
        return f"{' and '.join(leftovers)} of Nodes" if leftovers else ""

    @override
    async def remove_left(self) -> None:
        assert self._cluster is not None, "else nothing is left"
        if self._has_conditions:
            await self._remove_conditions(self._cluster)
        if self._has_taints:
            await self._remove_taints(self._cluster)

    async def _remove_conditions(self, cluster: Cluster) -> None:
        # A late import: where no option was ever on, nothing of it is needed.
        from aggregator.scheduler_signals.observed_nodes import KIND

        refused = 0
        async for event in cluster.objects(KIND):
            if not isinstance(event, Snapshot):
                continue
            for node, seen in event.items.items():
                if seen.conditions:
                    types = [condition.type for condition in seen.conditions]
                    refused += 1 - await self._write(cluster.set_conditions(node, seen, (), types))
            break
        # What was refused, because its Node had changed, is tried in the next round.
        if not refused:
            self._memory.note_conditions(are_there=False)
            _log.info("node_conditions is off: no Node has its conditions any more")

    async def _remove_taints(self, cluster: Cluster) -> None:
        for node, row in self._memory.items():
            try:
                seen = await cluster.node_signals(node)
            except StoreNotFound:
                self._memory.put(node, None)
                continue
            if seen.uid == row.uid and seen.fault_taints and not row.is_removed:
                others = [taint for taint in seen.taints if taint.key != TAINT_KEY]
                if not await self._write(cluster.set_taints(node, seen, others)):
                    continue
            self._memory.put(node, None)
        if not self._memory.items():
            _log.info("node_taints is off: no Node has its taint any more")

    @staticmethod
    async def _write(write: Awaitable[object]) -> int:
        """Make a write in its turn; return 0 where its Node has changed or is gone meanwhile."""
        await asyncio.sleep(PAUSE_SECONDS)
        try:
            await write
        except (StoreConflict, StoreNotFound):
            return 0
        return 1


class RuleRemoval(OptionRemoval):
    """Deletes them. ``taints`` is ``None`` where the option is on, or where no store has rules."""

    def __init__(self, taints: DeviceTaints | None, memory: RuleMemory) -> None:
        super().__init__()
        self._taints = taints
        self._memory = memory

    @override
    def left(self) -> str:
        is_left = self._taints is not None and bool(self._memory.items())
        return "rules of device_taints" if is_left else ""

    @override
    async def remove_left(self) -> None:
        assert self._taints is not None, "else nothing is left"
        served = await self._taints.served()
        # Where the API server serves no rules any more, none is there either.
        version = served.rules
        rules = () if version is None else await self._taints.list_rules(version)
        for rule in rules:
            assert version is not None, "the rules are of that"
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                await self._taints.delete_rule(version, rule)
            except StoreConflict:
                return  # it has changed meanwhile: all are listed anew
        for name, _ in self._memory.items():
            self._memory.put(name, None)
        _log.info("device_taints is off: none of its rules is left")

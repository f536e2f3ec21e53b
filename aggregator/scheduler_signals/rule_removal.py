"""Deletes rules when ``device_taints`` is off, while the rights for it are still there.

The leader finds in the state of the leader before whether there may be any (``rule_memory.py``), so
where the option was never on nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from typing_extensions import override

from aggregator.plugin import Led
from contract.errors import StoreConflict, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.scheduler_signals.rule_memory import RuleMemory
    from stores.device_taints import DeviceTaints

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.05
"""Between two deletions: 20 a second, as options write."""
_RETRY_SECONDS = 30.0


class RuleRemoval(Led):
    """Deletes them while this replica leads (``aggregator.plugin.Led``).

    ``taints`` is ``None`` where the option is on, or where no store has rules.
    """

    def __init__(self, taints: DeviceTaints | None, memory: RuleMemory) -> None:
        self._taints = taints
        self._memory = memory
        self._task: asyncio.Task[None] | None = None
        self._problem: str | None = None

    @override
    async def set_leading(self, leading: bool) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if leading and self._taints is not None and self._memory.items():
            work = self._remove(self._taints)
            self._task = asyncio.create_task(work, name="delete rules")

    async def _remove(self, taints: DeviceTaints) -> None:
        while self._memory.items():
            try:
                await self._delete_all(taints)
            except StoreConflict:
                continue  # it has changed meanwhile, and is listed anew
            except StoreError as error:
                # Also without rights: the component may have been removed first.
                if self._problem is None:
                    _log.warning("rules of device_taints cannot be deleted: %s", error)
                self._problem = str(error)
                await asyncio.sleep(_RETRY_SECONDS)
        self._problem = None
        _log.info("device_taints is off: none of its rules is left")

    async def _delete_all(self, taints: DeviceTaints) -> None:
        served = await taints.served()
        # Rules are not there either where the API server serves none any more.
        if served.rules is not None:
            for rule in await taints.list_rules(served.rules):
                await asyncio.sleep(_PAUSE_SECONDS)
                await taints.delete_rule(served.rules, rule)
        for name, _ in self._memory.items():
            self._memory.put(name, None)

    def problems(self) -> Iterator[str]:
        """Yield what ``/readyz`` warns of."""
        if self._problem is not None:
            yield f"rules are left of device_taints, which is off: {self._problem}"

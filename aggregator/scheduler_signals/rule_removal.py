"""Deletes the rules of ``device_taints`` when that is off (see ``removal.py``)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from typing_extensions import override

from aggregator.scheduler_signals.removal import PAUSE_SECONDS, OptionRemoval
from contract.errors import StoreConflict

if TYPE_CHECKING:
    from aggregator.scheduler_signals.rule_memory import RuleMemory
    from stores.device_taints import DeviceTaints

_log = logging.getLogger(__name__)


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

"""Deletes the rules that are left when the option ``device_taints`` was switched off.

The leader looks once when it begins to lead. Without the rights of the component nothing can be
found: then ``vigil uninstall`` deletes them, with the rights of its caller.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from typing_extensions import override

from aggregator.plugin import Led
from contract.errors import StoreConflict, StoreError, StoreForbidden, StoreUnavailable
from contract.plural import plural
from pacing.backoff import Backoff

if TYPE_CHECKING:
    from stores.device_taints import DeviceTaints

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.05
"""Between two deletions: 20 a second, as of all that is written for schedulers."""


class LeftRules(Led):
    """Deletes them while this replica leads (``aggregator.plugin.Led``)."""

    def __init__(self, taints: DeviceTaints) -> None:
        self._taints = taints
        self._task: asyncio.Task[None] | None = None

    @override
    async def set_leading(self, leading: bool) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = None
        if leading:
            self._task = asyncio.create_task(self._delete_all(), name="delete rules that are left")

    async def _delete_all(self) -> None:
        backoff, deleted = Backoff(), 0
        while True:
            try:
                served = await self._taints.served()
                rules = () if served.rules is None else await self._taints.list_rules(served.rules)
                for rule in rules:
                    assert served.rules is not None
                    await self._taints.delete_rule(served.rules, rule)
                    deleted += 1
                    await asyncio.sleep(_PAUSE_SECONDS)
            except (StoreUnavailable, StoreConflict):
                await asyncio.sleep(backoff.next_seconds())
                continue
            except StoreForbidden:
                # Without the component there are no rights, and mostly no rules.
                return
            except StoreError as error:
                _log.warning("device_taints is off, its rules cannot be deleted: %s", error)
                return
            if deleted:
                _log.info("device_taints is off: deleted %s", plural(deleted, "rule"))
            return

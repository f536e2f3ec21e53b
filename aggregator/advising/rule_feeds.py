"""Follows the scaling rules of MindIE Motor where AscendJobs name some."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from aggregator.advising.cluster_objects import rules_in

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aggregator.advising.cluster_objects import AdvisedObjects
    from stores.cluster import ObjectKind


class RuleFeeds:
    """One feed for each namespace that ``objects`` wants rules of.

    ``follow`` follows a kind under a name until it is cancelled.
    """

    def __init__(
        self,
        objects: AdvisedObjects,
        follow: Callable[[str, ObjectKind[Any]], Coroutine[Any, Any, None]],
    ) -> None:
        self._objects = objects
        self._follow = follow
        self._jobs_changed = asyncio.Event()

    def wake(self) -> None:
        """Look for namespaces again: AscendJobs have changed."""
        self._jobs_changed.set()

    async def run(self) -> NoReturn:
        """Follow until cancelled."""
        followed: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._jobs_changed.wait()
                self._jobs_changed.clear()
                wanted = self._objects.want_rules()
                for namespace in followed.keys() - wanted:
                    followed.pop(namespace).cancel()
                for namespace in sorted(wanted - followed.keys()):
                    name, kind = rules_in(namespace)
                    task = tasks.create_task(self._follow(name, kind), name=f"read {kind.name}")
                    followed[namespace] = task
        raise AssertionError("the tasks never end")

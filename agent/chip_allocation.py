"""Which chips pods have (``docs/spec/device-plugin.md#1.3`` and 2.8), by a watch of the store.

While the store gives no answer, and after a restart, the last known allocation holds, marked blind.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from agent.journal.rows import RowKind, UsageRow, body_of, decoded
from contract.errors import JournalError
from contract.pages.agent_status import AllocationStatus
from contract.pages.blind import BlindStatus
from contract.record import Record
from stores.base import PodUsage
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agent.journal.journal import Journal
    from agent.journal.rows import JournalRow
    from collectors.base import WallClock
    from stores.base import UsageEvent

log = logging.getLogger("agent.usage")

SOURCE = "pods"
"""The source name under which a missing allocation is reported as blind."""


class ChipAllocation(Record, frozen=True):
    """Names of devices: ``used`` are those that pods have.

    ``assigned`` are those that a scheduler chose for a pod. Both are in use.
    """

    used: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()


NOTHING_IN_USE = ChipAllocation()


class StoreAllocation:
    """Follow in one store which chips the pods of ``node`` have.

    What ``notify`` is given is called with the time of each change (epoch milliseconds), and at the
    store's first answer or failure.
    """

    def __init__(
        self,
        node: str,
        events: AsyncIterator[UsageEvent],
        journal: Journal,
        wall_clock: WallClock,
    ) -> None:
        self.chips = ChipAllocation()
        self.answered = False
        """Whether the store has answered, or failed, since the start."""
        self.blind: BlindStatus | None = None
        self._node = node
        self._events = events
        self._journal = journal
        self._wall_clock = wall_clock
        self._on_change: list[Callable[[int], None]] = []
        self._pods: dict[str, PodUsage] = {}

    def notify(self, on_change: Callable[[int], None]) -> None:
        """Call ``on_change`` with the time of each change, and at the first answer or failure."""
        self._on_change.append(on_change)

    def restore_allocation(self, row: JournalRow | None) -> None:
        """Restore the allocation in ``row``, which the last process journaled for this node."""
        if row is None:
            return
        try:
            usage = decoded(row, UsageRow)
        except JournalError as error:
            log.error("which chips were in use is not known: %s", error)
            return
        if usage.node == self._node:
            self.chips = ChipAllocation(frozenset(usage.used), frozenset(usage.assigned))

    async def run(self) -> NoReturn:
        """Apply the store's events until cancelled."""
        async for event in self._events:
            self._observe(event)
        raise AssertionError("the watch of a store goes on for ever")

    @property
    def pods(self) -> tuple[PodUsage, ...]:
        """The pods that have chips, by the last answer since the start."""
        return tuple(self._pods.values())

    @property
    def status(self) -> AllocationStatus:
        """The allocation as the status page shows it."""
        chips = self.chips
        return AllocationStatus(
            len(self._pods), tuple(sorted(chips.used)), tuple(sorted(chips.assigned))
        )

    def _observe(self, event: UsageEvent) -> None:
        was_answered, self.answered = self.answered, True
        match event:
            case Interrupted(reason):
                if self.blind is None:
                    log.warning(
                        "no answer about which chips pods use: %s; the last known allocation stays",
                        reason,
                    )
                    self.blind = BlindStatus(SOURCE, self._wall_clock(), reason)
            case Snapshot(pods):
                self._pods = dict(pods)
                if self.blind is not None:
                    self.blind = None
                    log.warning("the store answers again about which chips pods use")
            case Update(uid, PodUsage() as pod):
                self._pods[uid] = pod
            case Update(uid):
                self._pods.pop(uid, None)
        changed = not isinstance(event, Interrupted) and self._recompute()
        # The first document waits for this answer, also where it changes nothing.
        if changed or not was_answered:
            for on_change in self._on_change:
                on_change(self._wall_clock())

    def _recompute(self) -> bool:
        """Recompute the chips in use and journal them when they changed.

        Returns whether they did.
        """
        pods = self._pods.values()
        chips = ChipAllocation(
            frozenset(name for pod in pods for name in pod.chips),
            frozenset(name for pod in pods for name in pod.assigned),
        )
        if chips == self.chips:
            return False
        self.chips = chips
        row = UsageRow(tuple(sorted(chips.used)), tuple(sorted(chips.assigned)), self._node)
        self._journal.append([(RowKind.USAGE, body_of(row))], self._wall_clock())
        return True

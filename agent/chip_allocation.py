"""Which chips pods use (``docs/spec/device-plugin.md#1.3`` and 2.8), followed in the store.

What was known last stays while the store cannot tell, also over a restart, and is marked blind.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec

from agent.journal.file import RowKind, body_of
from agent.journal.values import decoded
from contract.errors import JournalError
from contract.pages.blind import BlindStatus
from stores.base import PodUsage, UsageEnded, UsageListed
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agent.journal.file import JournalRow
    from agent.journal.journal import Journal
    from collectors.base import WallClock
    from stores.base import UsageEvent

log = logging.getLogger("agent.usage")

SOURCE = "pods"
"""What usage is blind as."""


@dataclass(frozen=True)
class ChipAllocation:
    """Names of devices: ``used`` are those that pods have, they are not free.

    ``assigned`` are those that a scheduler chose for a pod; they are in use, too.
    """

    used: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()


class AllocationStatus(msgspec.Struct, frozen=True):
    """The devices that ``pods`` have and those that are chosen for them; see ``Status.blind``."""

    pods: int
    used: tuple[str, ...]
    assigned: tuple[str, ...]


class _Journaled(msgspec.Struct, frozen=True):
    node: str
    used: tuple[str, ...]
    assigned: tuple[str, ...]


_journaled_decoder = msgspec.json.Decoder(_Journaled)


class StoreAllocation:
    """What one store tells of the pods of ``node``.

    ``on_change`` is called with the time of each change, and when the store has answered or failed
    for the first time.
    """

    def __init__(
        self,
        node: str,
        events: AsyncIterator[UsageEvent],
        journal: Journal,
        wall_clock: WallClock,
        on_change: Callable[[int], None],
    ) -> None:
        self.chips = ChipAllocation()
        self.answered = False
        """Whether the store has told who uses what, or that it cannot."""
        self.blind: BlindStatus | None = None
        self._node = node
        self._events = events
        self._journal = journal
        self._wall_clock = wall_clock
        self._on_change = on_change
        self._pods: dict[str, PodUsage] = {}

    def remember(self, row: JournalRow | None) -> None:
        """Take over what the last process journaled, if it was about this node."""
        if row is None:
            return
        try:
            found = decoded(row, _journaled_decoder)
        except JournalError as error:
            log.error("which chips were in use is not known: %s", error)
            return
        if found.node == self._node:
            self.chips = ChipAllocation(frozenset(found.used), frozenset(found.assigned))

    async def run(self) -> NoReturn:
        """Follow the store for ever."""
        async for event in self._events:
            self._observe(event)
        raise AssertionError("the watch of a store goes on for ever")

    @property
    def pods(self) -> tuple[PodUsage, ...]:
        """The pods that use chips, as they were told last in this life."""
        return tuple(self._pods.values())

    @property
    def status(self) -> AllocationStatus:
        """What is known, for people."""
        chips = self.chips
        return AllocationStatus(
            len(self._pods), tuple(sorted(chips.used)), tuple(sorted(chips.assigned))
        )

    def _observe(self, event: UsageEvent) -> None:
        was_answered, self.answered = self.answered, True
        changed = False
        if isinstance(event, Interrupted):
            self._interrupted(event.reason)
        else:
            self._described(event)
            changed = self._take_stock()
        if changed or not was_answered:
            self._on_change(self._wall_clock())

    def _interrupted(self, reason: str) -> None:
        if self.blind is None:
            log.warning("which chips pods use is not told, what was known stays: %s", reason)
            self.blind = BlindStatus(SOURCE, self._wall_clock(), reason)

    def _described(self, event: UsageListed | PodUsage | UsageEnded) -> None:
        match event:
            case UsageListed(pods):
                self._pods = {pod.uid: pod for pod in pods}
                if self.blind is not None:
                    self.blind = None
                    log.warning("which chips pods use is told again")
            case PodUsage():
                self._pods[event.uid] = event
            case UsageEnded(uid):
                self._pods.pop(uid, None)

    def _take_stock(self) -> bool:
        """Whether the chips in use are others now; they are journaled then."""
        pods = self._pods.values()
        chips = ChipAllocation(
            frozenset(name for pod in pods for name in pod.chips),
            frozenset(name for pod in pods for name in pod.assigned),
        )
        if chips == self.chips:
            return False
        self.chips = chips
        row = _Journaled(self._node, tuple(sorted(chips.used)), tuple(sorted(chips.assigned)))
        self._journal.append([(RowKind.USAGE, body_of(row))], self._wall_clock())
        return True

"""The interface of one option: what it wants of each object, and how it is written.

An option computes the desired state of an object from what the aggregator knows and compares it
with what a watch of the API server shows. ``SignalWriter`` decides when a difference is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from contract.codes.levels import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.clock import Instant

BRAKE = "brake"
"""Waits for heartbeats: see ``aggregator/scheduler_signals/service.py``."""
CAP = "cap"
"""Waits because too many objects have such a taint already."""
TOLERATION = "toleration"
"""Waits because pods with drivers of chips would go, too."""
CONFLICT = "conflict"
"""Waits because another program writes the same."""
REMOVED = "removed"
"""Is not written again: a person or another program removed it, and the fault still holds."""
EVICTION = "eviction"
"""Waits because too many pods would be evicted, or because their number is not known."""
WAITING = (BRAKE, CAP, TOLERATION, CONFLICT, REMOVED, EVICTION)
"""Reasons why a difference is not written."""


MAX_TAINT_RANK = MAX_RANK + 2
"""The least urgent rank of taints and rules: those that end come after those of each level.

Conditions only show a fault, so all of them come after these.
"""


class PlannedWrite(msgspec.Struct, frozen=True):
    """One write. Of several the lowest ``rank`` is first, then the one since the earliest time.

    ``since_ms`` is steady time. ``text`` shows people what is written. ``send`` makes the request
    and raises ``StoreError``: ``StoreConflict`` where the object has changed since it was read,
    and ``StoreNotFound`` where it is gone. Nothing is sent before ``not_before_ms`` (steady).
    """

    rank: int
    since_ms: int
    text: str
    send: Callable[[], Awaitable[None]]
    not_before_ms: int = 0


class Waiting(msgspec.Struct, frozen=True):
    """A difference that is not written now. ``reason`` is one of ``WAITING``."""

    reason: str
    text: str


class SignalPlan(msgspec.Struct, frozen=True):
    """What is to be written to one object now, and what waits for something else."""

    write: PlannedWrite | None = None
    waiting: Waiting | None = None


NOTHING = SignalPlan()
"""The object is as it should be."""


class Reconciler(Protocol):
    """One option. All methods but ``read`` are called from the event loop and return at once."""

    name: str
    """That of its section in the configuration, and the label of metrics."""
    dry_run: bool
    """Whether differences are only shown."""

    def begin_leading(self) -> Iterable[str]:
        """Observe that this replica leads now; return all nodes, which are judged again."""

    def end_leading(self) -> None:
        """Observe that another replica leads, or none."""

    def judge(self, nodes: Iterable[str], now: Instant) -> Iterable[str]:
        """Observe that something about these nodes has changed; return objects to plan again."""

    def written(self, target: str, now: Instant) -> Iterable[str]:
        """Observe that a write of an object has ended; return objects to plan again.

        It is among them. Others may have waited for this write, under a cap.
        """

    def plan(self, target: str, now: Instant, hold_reason: str | None) -> SignalPlan:
        """Return what is to be written to an object.

        ``hold_reason`` is why nothing may get stricter now: no condition turns ``Unknown``, no
        taint is added. It is called once more before each write.
        """

    async def read(self, target: str) -> None:
        """Read an object by name: its version is newer than the one that the watch has shown.

        Raises ``StoreError``.
        """

    def problems(self) -> Iterable[str]:
        """Return what an operator has to do something about, one sentence each."""

"""Merges and limits Kubernetes Events before they are sent: a token bucket.

No event is dropped. A few are sent singly and at once. Beyond them, events with the same code,
reason and action become one, and beyond a few codes those with the same reason and action do. So
memory is bounded however many come and however long the API server accepts none.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from contract.pages.agent_status import Upgrade
from pacing.token_bucket import TokenBucket
from stores.base import KubernetesEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.kubernetes_events.event_rules import ChipFaultChange

BURST = 10
"""How many Events may be sent at once."""
PERIOD_MS = 3000
"""After how many milliseconds one more Event may be sent."""
_CODES_APART = 10
_CODES_NAMED = 256
_OTHERS = 100


class CorrelatedEvent(msgspec.Struct, frozen=True, tag="group", omit_defaults=True):
    """One or more changes of faults as one Event.

    ``name`` is unique. ``codes_unnamed``: how many changes were about codes that are not in
    ``codes``.
    """

    name: str
    reason: str
    action: str
    codes: tuple[str, ...]
    chips: tuple[int, ...]
    first_ms: int
    last_ms: int
    count: int = 1
    codes_unnamed: int = 0


class Other(msgspec.Struct, frozen=True, tag="event"):
    """An Event that is sent as it is."""

    event: KubernetesEvent


class ReleasedReasons(msgspec.Struct, frozen=True, tag="release", omit_defaults=True):
    """Reasons that were removed, each with its chip. ``name`` is unique.

    ``count`` is how many releases are merged into this one, which has the last of them.
    """

    name: str
    reasons: tuple[tuple[int, Upgrade], ...]
    first_ms: int
    last_ms: int
    count: int = 1


Item: TypeAlias = CorrelatedEvent | ReleasedReasons | Other


class EventCorrelator:
    """Holds the Events that wait. Times are milliseconds of a monotonic clock.

    ``waiting`` is what an earlier process left.
    """

    def __init__(self, waiting: Iterable[Item] = ()) -> None:
        self.merged = 0
        """How many changes have no Event of their own."""
        self._bucket = TokenBucket(BURST, 1, PERIOD_MS)
        self._ready: deque[Item] = deque()
        self._waiting: dict[tuple[str, ...], Item] = {}
        for item in waiting:
            self._add(item)

    def add(self, fault_change: ChipFaultChange, name: str, now_ms: int) -> None:
        """Add a change of a fault; ``name`` is unique."""
        event = CorrelatedEvent(
            name,
            fault_change.reason,
            fault_change.action,
            (fault_change.code,),
            (fault_change.chip,),
            fault_change.at_ms,
            fault_change.at_ms,
        )
        if not self._goes_at_once(event, now_ms):
            self._add(event)

    def post(self, item: ReleasedReasons | Other, now_ms: int) -> None:
        """Add an Event that is merged with others only where very many wait."""
        if not self._goes_at_once(item, now_ms):
            self._add(item)

    def pop_next(self, now_ms: int) -> Item | None:
        """Return and remove the oldest Event that may be sent now; ``None`` for none."""
        if self._ready:
            return self._ready.popleft()
        if self._waiting and not self._bucket.wait_ms(now_ms):
            self._bucket.take()
            return self._waiting.pop(next(iter(self._waiting)))
        return None

    def seconds_until_next(self, now_ms: int) -> float | None:
        """Return the seconds until ``pop_next`` has one; ``None`` when nothing waits."""
        if self._ready:
            return 0.0
        return self._bucket.wait_ms(now_ms) / 1000 if self._waiting else None

    def items(self) -> tuple[Item, ...]:
        """Return everything that waits, oldest first."""
        return (*self._ready, *self._waiting.values())

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting)

    def _goes_at_once(self, item: Item, now_ms: int) -> bool:
        # What waits is older and goes first.
        if self._waiting or len(self._ready) >= BURST or self._bucket.wait_ms(now_ms):
            return False
        self._bucket.take()
        self._ready.append(item)
        return True

    def _add(self, item: Item) -> None:
        key = self._key(item)
        before = self._waiting.get(key)
        if before is None:
            self._waiting[key] = item
            return
        self._waiting[key] = _merged(before, item)
        self.merged += 1

    def _key(self, item: Item) -> tuple[str, ...]:
        if not isinstance(item, CorrelatedEvent):
            others = sum(not isinstance(other, CorrelatedEvent) for other in self._waiting.values())
            apart = others < _OTHERS
            if isinstance(item, ReleasedReasons):
                return ("release", "", "", "", item.name if apart else "")
            event = item.event
            name = event.name if apart else ""
            return ("event", event.namespace, event.reason, event.action, name)
        alone = (item.reason, item.action, *item.codes)
        if alone in self._waiting:
            return alone
        if len(item.codes) == 1 and len(self._waiting) < _CODES_APART:
            return alone
        return (item.reason, item.action)


def _merged(before: Item, item: Item) -> Item:
    """Return both as one; they are of one kind, because they have one key."""
    if isinstance(before, CorrelatedEvent) and isinstance(item, CorrelatedEvent):
        return _merged_groups(before, item)
    if isinstance(before, ReleasedReasons) and isinstance(item, ReleasedReasons):
        return replace(item, first_ms=before.first_ms, count=before.count + item.count)
    assert isinstance(before, Other)
    assert isinstance(item, Other)
    first, last = before.event, item.event
    return Other(replace(last, first_ms=first.first_ms, count=first.count + last.count))


def _merged_groups(before: CorrelatedEvent, event: CorrelatedEvent) -> CorrelatedEvent:
    new_codes = tuple(code for code in event.codes if code not in before.codes)
    unnamed = before.codes_unnamed + event.codes_unnamed
    if len(before.codes) + len(new_codes) > _CODES_NAMED:
        new_codes, unnamed = (), unnamed + event.count
    chips = before.chips
    if not set(event.chips) <= set(chips):
        chips = tuple(sorted({*chips, *event.chips}))
    return replace(
        before,
        codes=before.codes + new_codes if new_codes else before.codes,
        chips=chips,
        first_ms=min(before.first_ms, event.first_ms),
        last_ms=max(before.last_ms, event.last_ms),
        count=before.count + event.count,
        codes_unnamed=unnamed,
    )

"""The entry of a node in a cluster document, and the rule for its ``UpdateTime``.

Sources: ``clusterd#2.3`` and 2.4, defect B3, ``consumers#7.1``, M7, ``docs/decisions/003``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from contract.documents.cluster_device import DeviceRecord, render_device_entry
from contract.documents.update_time import LEAD_SECONDS

if TYPE_CHECKING:
    from service.clock import Instant

# Readers compare stamps in whole seconds, so one change in a second is what they can distinguish.
_PACE_MS = 1000


R = TypeVar("R")


class ClusterEntry(msgspec.Struct, Generic[R], frozen=True):
    """A node's member of a cluster document.

    ``made_at_ms`` is steady time, ``None`` for an entry of an earlier run. ``whole``: ``text`` has
    all of ``record``.
    """

    text: str
    stamp: int
    record: R
    made_at_ms: int | None = None
    whole: bool = True


class Wait(msgspec.Struct, frozen=True):
    """The change must wait until this steady time: its stamp would be ahead of the clock."""

    until_ms: int


def merge(
    node: str, record: DeviceRecord, previous: ClusterEntry[DeviceRecord] | None, now: Instant
) -> ClusterEntry[DeviceRecord] | Wait:
    """Return the node's next entry, or until when the change must wait.

    It is ``previous`` itself where only the time changed, and has text and stamp of ``previous``
    where the text is the same. A stamp always grows, so that no reader drops the change. Where it
    cannot grow without leading the clock by more than 5 s, changes of this node are joined until it
    can, but for a second at most: a clock that was set back by an hour must not hide a fault for an
    hour.
    """
    if previous is None:
        stamp = _reported(record, now)
        return ClusterEntry(render_device_entry(node, record, stamp), stamp, record, now.steady_ms)
    # A restored entry does not have all of its record, so only its text can be compared.
    if previous.whole and _same(record, previous.record):
        return previous
    if render_device_entry(node, record, previous.stamp) == previous.text:
        return msgspec.structs.replace(previous, record=record, whole=True)
    stamp = max(previous.stamp + 1, _reported(record, now))
    # At most 5 s ahead of the clock (decision 3).
    early_ms = (stamp - LEAD_SECONDS) * 1000 - now.wall_ms
    if early_ms > 0 and previous.made_at_ms is not None:
        # Whichever comes first: the clock reaches the stamp, or a second has passed since the last
        # change.
        until_ms = min(now.steady_ms + early_ms, previous.made_at_ms + _PACE_MS)
        if now.steady_ms < until_ms:
            return Wait(until_ms)
    return ClusterEntry(render_device_entry(node, record, stamp), stamp, record, now.steady_ms)


def _same(record: DeviceRecord, other: DeviceRecord) -> bool:
    """Return whether two records differ by their times at most; cheaper than rendering both."""
    return msgspec.structs.replace(record, update_time=other.update_time) == other


def _reported(record: DeviceRecord, now: Instant) -> int:
    """Return the node's own time in seconds, at most 5 s ahead of our clock."""
    return min(record.update_time, now.wall_ms // 1000 + LEAD_SECONDS)

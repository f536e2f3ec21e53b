"""Which of two events of one code the driver made first, whatever their order of arrival.

A recovery has the serial number of its occurrence (``dcmi#5.2``). For a driver that fills in
neither serial nor time, the order of arrival counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.policy.state import Ended, Fault
    from contract.observation import Observation

RETURN_WINDOW_MS = 10_000
"""Milliseconds after a recovery in which an audit may find that it was none.

A recovery is kept as long, because its own occurrence may arrive after it.
"""


def is_before(item: Observation, serial: int | None, raised_at_ms: int | None) -> bool:
    """Return whether the driver made ``item`` before the occurrence with these numbers.

    Where serial and time disagree, the order of arrival counts.
    """
    earlier = later = False
    if item.driver_raised_at_ms is not None and raised_at_ms is not None:
        earlier = item.driver_raised_at_ms < raised_at_ms
        later = item.driver_raised_at_ms > raised_at_ms
    if item.serial and serial:
        return item.serial < serial and not later
    return earlier


def is_another(item: Observation, held: Fault) -> bool:
    """Return whether ``item`` is a later event than the one behind ``held``, not the same one
    again.

    A driver without numbers and times cannot be distinguished from one that repeats itself.
    """
    if is_before(item, held.serial, held.raised_at_ms):
        return False
    return (item.serial, item.driver_raised_at_ms) != (held.serial, held.raised_at_ms)


def is_over(item: Observation, ended: Ended) -> bool:
    """Return whether ``item`` is the occurrence whose recovery ``ended`` arrived before it."""
    if not is_recent(ended, item.seen_at_ms):
        return False
    if item.driver_raised_at_ms is None or ended.raised_at_ms is None:
        return False
    paired = not item.serial or not ended.serial or item.serial <= ended.serial
    return paired and item.driver_raised_at_ms < ended.raised_at_ms


def is_recent(ended: Ended, at_ms: int) -> bool:
    """Return whether a recovery still counts at ``at_ms``."""
    return at_ms - ended.at_ms < RETURN_WINDOW_MS

"""Which of two events of one code the driver made first, whatever order they arrived in.

A recovery has the serial number of its occurrence (``dcmi#5.2``). A driver that fills in
neither serial nor time is believed in its order of arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.policy.state import Ended, Fault
    from contract.observation import Observation

RETURN_WINDOW_MS = 10_000
"""How long after a recovery an audit may find that it was none. As long is a recovery remembered
in case its own occurrence arrives after it."""


def is_before(item: Observation, serial: int | None, raised_at_ms: int | None) -> bool:
    """Whether the driver made ``item`` before the occurrence with these numbers.

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
    """Whether ``item`` is a later event than the one that ``held`` was made of, not that one again.

    A driver that numbers nothing and gives no times cannot be told from one that repeats itself.
    """
    if is_before(item, held.serial, held.raised_at_ms):
        return False
    return (item.serial, item.driver_raised_at_ms) != (held.serial, held.raised_at_ms)


def is_over(item: Observation, ended: Ended) -> bool:
    """Whether this occurrence is the one whose recovery arrived before it."""
    if not is_recent(ended, item.seen_at_ms):
        return False
    if item.driver_raised_at_ms is None or ended.raised_at_ms is None:
        return False
    paired = not item.serial or not ended.serial or item.serial <= ended.serial
    return paired and item.driver_raised_at_ms < ended.raised_at_ms


def is_recent(ended: Ended, at_ms: int) -> bool:
    """Whether a recovery is still remembered at ``at_ms``."""
    return at_ms - ended.at_ms < RETURN_WINDOW_MS

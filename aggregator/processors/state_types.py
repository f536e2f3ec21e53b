"""The state of one node between two steps of the chains. Times are wall milliseconds.

A node without anything to remember has no state. Source: ``clusterd#1.6``(6), 3.4, 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Times = dict[str, dict[str, int]]
"""Chip to code to wall time."""


class DeviceState(msgspec.Struct, frozen=True, omit_defaults=True):
    """``received``: since when a code is there. ``uce``: when a chip's UCE fault occurred.

    ``seen``: chip to code to the level with which it was counted or found not to count.
    ``companions``: chip to code of a companion of UCE faults to each of its own times to since when
    it is there with that time.
    """

    received: Times = {}
    uce: dict[str, int] = {}
    seen: dict[str, dict[str, str]] = {}
    companions: dict[str, dict[str, dict[int, int]]] = {}


class SwitchState(msgspec.Struct, frozen=True, omit_defaults=True):
    """``received``: since when an event (its key in the time map) is there."""

    received: dict[str, int] = {}


NO_DEVICE_STATE = DeviceState()
NO_SWITCH_STATE = SwitchState()


class Occurrence(msgspec.Struct, frozen=True, order=True):
    """A new fault on a chip that a job uses. The field order is the order of judging."""

    at_ms: int
    node: str
    chip: str
    code: str
    job: str


def receive(faults: Iterable[tuple[str, str]], before: Times, now_ms: int) -> Times:
    """Return since when each chip and code is there, never in the future: the clock may be set
    back.
    """
    times: Times = {}
    for chip, code in faults:
        since_ms = before.get(chip, {}).get(code, now_ms)
        times.setdefault(chip, {})[code] = min(since_ms, now_ms)
    return times


def earliest(*times: int | None) -> int | None:
    """Return the earliest of the times that are not ``None``."""
    return min((time for time in times if time is not None), default=None)

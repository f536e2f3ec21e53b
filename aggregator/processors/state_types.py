"""What the chains remember of one node from one time to the next. Times are wall milliseconds.

A node without anything to remember has no state. Source: ``clusterd#1.6``(6), 3.4, 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.documents.cluster_device import CodeFault
from contract.documents.switch_info import SwitchEvent

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

FILTER = "filter"
ACCOMPANIES = "accompanies"
UNDECIDED = "undecided"


class WithheldFault(msgspec.Struct, frozen=True):
    """A chip's fault that is not published.

    ``why``: ``filter`` (a job tolerates it; the job's message has it all the same), ``accompanies``
    (it came along with a UCE fault) or ``undecided`` (it may still turn out to). ``until_ms`` is
    when that ends by time alone (wall).
    """

    fault: CodeFault
    why: str
    until_ms: int | None


class WithheldEvent(msgspec.Struct, frozen=True):
    """A switch's event that is not published because a job rides it out."""

    event: SwitchEvent
    time_ms: int
    level: str
    until_ms: int


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
        known = before.get(chip, {}).get(code, now_ms)
        times.setdefault(chip, {})[code] = min(known, now_ms)
    return times


def earliest(*times: int | None) -> int | None:
    """Return the earliest of the times that are not ``None``."""
    return min((time for time in times if time is not None), default=None)

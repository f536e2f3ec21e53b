"""Joins this replica's own state with the restored one of an earlier leader at a takeover.

The state of that leader counts. What it lacks and is younger than a minute is of the time in which
no replica led, or of the second before, which that leader had not stored yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from aggregator.processors.state_types import SwitchState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aggregator.processors.manual_separation import ManualSeparation
    from aggregator.processors.state_types import DeviceState, Occurrence, Times

S = TypeVar("S")

_FOR_MS = 60_000
_SAME_MS = 10_000
"""By how much two replicas may have seen the same later than each other."""


def joined_device(kept: DeviceState, own: DeviceState, now_ms: int) -> DeviceState:
    """Return the joined state of a device: since when faults are there that are not in ``kept``."""
    received: Times = {chip: dict(codes) for chip, codes in kept.received.items()}
    for chip, codes in own.received.items():
        known = received.get(chip, {})
        new = {c: at for c, at in codes.items() if c not in known and _is_recent(at, now_ms)}
        if new:
            received[chip] = known | new
    uce = {chip: at for chip, at in own.uce.items() if _is_recent(at, now_ms)} | kept.uce
    if received == kept.received and uce == kept.uce:
        return kept
    return msgspec.structs.replace(kept, received=received, uce=uce)


def joined_switch(kept: SwitchState, own: SwitchState, now_ms: int) -> SwitchState:
    """Return the joined state of a switch, as for a device."""
    new = {
        key: at
        for key, at in own.received.items()
        if key not in kept.received and _is_recent(at, now_ms)
    }
    return SwitchState(kept.received | new) if new else kept


def complete(
    kept: dict[str, S],
    own: Mapping[str, S],
    nothing: S,
    join: Callable[[S, S, int], S],
    now_ms: int,
) -> Iterator[str]:
    """Complete the restored states of nodes; yield the nodes of which something was missing."""
    for node, mine in own.items():
        before = kept.get(node, nothing)
        after = join(before, mine, now_ms)
        if after is not before:
            kept[node] = after
            yield node


def missing(
    own: Iterable[Occurrence], kept: Iterable[Occurrence], separation: ManualSeparation, now_ms: int
) -> Iterator[Occurrence]:
    """Return those of ``own`` that were neither waiting nor counted."""
    times: dict[tuple[str, str, str], list[int]] = {}
    for one in kept:
        times.setdefault((one.node, one.chip, one.code), []).append(one.at_ms)
    for one in own:
        separated = separation.chips.get(one.node, {}).get(one.chip)
        if separated is not None and one.at_ms <= separated.codes.get(one.code, 0) + _SAME_MS:
            continue  # it is one of those for which it was separated
        counted = separation.counts.get(one.node, {}).get(one.chip, {}).get(one.code, ())
        known = (*times.get((one.node, one.chip, one.code), ()), *counted)
        if _is_recent(one.at_ms, now_ms) and all(abs(at - one.at_ms) > _SAME_MS for at in known):
            yield one


def _is_recent(at_ms: int, now_ms: int) -> bool:
    return now_ms - _FOR_MS <= at_ms

"""Faults that another one explains: bus errors of the cores around a multi-bit error of the memory.

Only while a duration rule names the memory's code. Then an occurrence of a core's code is held back
for 5 s. If the memory's code occurs on that chip less than 5 s before or after it, the occurrence
is dropped; otherwise it begins late, with its own time. Faults that hold already, and every
recovery, are not affected (without defect K37). Source: ``docs/spec/device-plugin.md#2.4``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy.transaction import without
from contract.codes.chip_codes import AIC_BUS, AIV_BUS, HBM_MULTI_BIT
from contract.observation import Assertion

if TYPE_CHECKING:
    from agent.policy.state import ChipState
    from contract.codes.catalogue import Catalogue
    from contract.observation import Observation

WINDOW_MS = 5_000

_EXPLAINED = frozenset({AIC_BUS, AIV_BUS})
_ENDS = frozenset({Assertion.RECOVER, Assertion.ABSENT})


def concerns(item: Observation, tables: Catalogue) -> bool:
    """Return whether ``item`` is about a code that explains others or is explained."""
    return (
        item.code in _EXPLAINED or item.code == HBM_MULTI_BIT
    ) and HBM_MULTI_BIT in tables.durations


def release_ms(held: Observation) -> int:
    """Return when nothing can explain ``held`` any more (epoch ms).

    That is strictly more than 5 s later.
    """
    return held.seen_at_ms + WINDOW_MS + 1


def is_held_back(known: ChipState, item: Observation) -> bool:
    """Return whether ``item`` is an occurrence that has to wait for what may explain it."""
    return item.code in _EXPLAINED and item.assertion not in _ENDS and item.code not in known.faults


def held_back(known: ChipState, item: Observation) -> ChipState:
    """Return ``known`` after ``item`` was held back, or dropped because it is explained already.

    An occurrence that is reported twice is held back once.
    """
    waits = known.held_back.get(item.code)
    if waits is not None and (
        waits.assertion is not Assertion.ONCE or item.assertion is Assertion.ONCE
    ):
        return known
    if _is_explained(known, item):
        return known
    return replace(known, held_back=known.held_back | {item.code: item})


def without_explained(known: ChipState, at_ms: int) -> ChipState:
    """Return ``known`` after the memory's code occurred at ``at_ms``, without what that
    explains.
    """
    left = {
        code: item
        for code, item in known.held_back.items()
        if abs(at_ms - item.seen_at_ms) >= WINDOW_MS
    }
    return known if len(left) == len(known.held_back) else replace(known, held_back=left)


def without_held_back(known: ChipState, code: str) -> ChipState:
    """Return ``known`` without the occurrence of ``code`` that was held back."""
    return replace(known, held_back=without(known.held_back, code))


def _is_explained(known: ChipState, item: Observation) -> bool:
    fault, ended = known.faults.get(HBM_MULTI_BIT), known.ended.get(HBM_MULTI_BIT)
    if fault is None and ended is not None:
        fault = ended.fault
    return fault is not None and abs(item.seen_at_ms - fault.first_seen_ms) < WINDOW_MS

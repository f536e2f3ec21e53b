"""Faults of the compute units that only come along with a UCE fault of the same chip.

Source: ``docs/spec/clusterd.md#3.4``, defect B25 (what is remembered of UCE faults ends).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.cluster_documents.published_node import ACCOMPANIES, UNDECIDED, WithheldFault
from aggregator.processors.record_edits import remove_faults
from aggregator.processors.state_types import earliest
from contract.codes.chip_codes import AIC_BUS, AIV_BUS, HBM_MULTI_BIT
from contract.documents.cluster_device import DeviceRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.processors.state_types import DeviceState
    from contract.documents.cluster_device import CodeFault

WINDOW_MS = 5000
COMPANIONS = (AIC_BUS, AIV_BUS)
_REMEMBERED_MS = 60_000
"""How long after a UCE fault a report of its companions may arrive."""

Sightings = dict[str, dict[str, dict[int, int]]]
"""See ``DeviceState.companions``."""


class Accompanied(msgspec.Struct, frozen=True):
    """The record after this step. ``uce`` and ``companions`` are to be remembered; ``due_ms``: when
    time alone changes something (wall).
    """

    record: DeviceRecord
    uce: dict[str, int]
    companions: Sightings
    hidden: tuple[WithheldFault, ...] = ()
    due_ms: int | None = None


def accompany(record: DeviceRecord, state: DeviceState, now_ms: int) -> Accompanied:
    """Withhold companions of UCE faults, and for 5 s those of which it is not known yet."""
    uce = state.uce
    companions = [fault for fault in record.faults if any(c in fault.code for c in COMPANIONS)]
    fresh: dict[str, int] = {}
    for fault in record.faults:
        if HBM_MULTI_BIT in fault.code:
            fresh[fault.chip] = max(fault.time_ms, fresh.get(fault.chip, fault.time_ms))
    if not companions and not fresh and not uce:
        return Accompanied(record, uce, {})
    sightings = _sightings(companions, state.companions, now_ms)
    times = {**uce, **fresh}
    hidden = [
        withheld for fault in companions if (withheld := _judge(fault, times, sightings, now_ms))
    ]
    needed = {withheld.fault.chip for withheld in hidden if withheld.why == ACCOMPANIES}
    remembered = {
        chip: time_ms
        for chip, time_ms in times.items()
        if chip in fresh or chip in needed or _is_remembered(time_ms, now_ms)
    }
    forgets = (
        time_ms + _REMEMBERED_MS
        for chip, time_ms in remembered.items()
        if chip not in fresh and chip not in needed
    )
    shown = (withheld.until_ms + 1 for withheld in hidden if withheld.until_ms is not None)
    if hidden:
        record = remove_faults(record, [withheld.fault for withheld in hidden])
    if companions:
        record = msgspec.structs.replace(
            record, update_time=max(record.update_time, now_ms // 1000)
        )
    return Accompanied(record, remembered, sightings, tuple(hidden), earliest(*forgets, *shown))


def _sightings(companions: Iterable[CodeFault], before: Sightings, now_ms: int) -> Sightings:
    """Return since when each companion is there. One that comes again while it is listed has
    another time of its own, and is undecided anew.
    """
    sightings: Sightings = {}
    for fault in companions:
        earlier = before.get(fault.chip, {}).get(fault.code, {})
        since_ms = min(earlier.get(fault.time_ms, now_ms), now_ms)
        sightings.setdefault(fault.chip, {}).setdefault(fault.code, {})[fault.time_ms] = since_ms
    return sightings


def _judge(
    fault: CodeFault, uce: dict[str, int], sightings: Sightings, now_ms: int
) -> WithheldFault | None:
    time_ms = uce.get(fault.chip)
    if time_ms is not None and abs(time_ms - fault.time_ms) <= WINDOW_MS:
        return WithheldFault(fault, ACCOMPANIES, None)
    # A node whose clock runs ahead must not hide its fault for longer than others.
    since_ms = sightings[fault.chip][fault.code][fault.time_ms]
    until_ms = min(fault.time_ms, since_ms) + WINDOW_MS
    return WithheldFault(fault, UNDECIDED, until_ms) if now_ms <= until_ms else None


def _is_remembered(time_ms: int, now_ms: int) -> bool:
    """Return whether a time counts: one in the future is of a clock that runs ahead, or was set
    back.
    """
    return now_ms - _REMEMBERED_MS < time_ms <= now_ms + _REMEMBERED_MS

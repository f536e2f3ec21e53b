"""What public faults do to a node's record: ``clusterd#3.2``, 2.3 (AddFaultAndFix)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from contract.codes.levels import ChipLevel
from contract.documents.cluster_device import CodeFault, DeviceRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.public_faults.values import ActivePublicFault

PUBLIC_FAULT = "PublicFault"
MOST_SHOWN = 1000
"""Of one node: all codes that are shipped on all chips of a large server, and a few.

A program that reports a fault again and again under new ids could otherwise make the node's entry
larger than a document may be, and nothing of the node would be published any more.
"""

_LEAVES_FREE = frozenset(
    {ChipLevel.NOT_HANDLE_FAULT, ChipLevel.SUB_HEALTH_FAULT, ChipLevel.NORMAL_NPU}
)
_RANK = {level.value: rank for rank, level in enumerate(ChipLevel)}


class _ReportedFault(NamedTuple):
    """A fault reported of a chip, whenever that began."""

    device: int
    level: str
    code: str


def with_public_faults(
    record: DeviceRecord, faults: Iterable[ActivePublicFault], now_seconds: int
) -> DeviceRecord:
    """Return ``record`` with these faults.

    Chips have the type of the record. A chip that is in no list may be in use, so it is shown; one
    that was never looked for (``placed``) must be in the record. The time of a public fault is in
    seconds, where those of a driver are in milliseconds (clusterd#3.2). Of more than ``MOST_SHOWN``
    a code counts once for its chip, with its latest time, which is all that readers keep of it;
    every chip is isolated that should be.
    """
    chips = record.chips
    times: dict[_ReportedFault, set[int]] = {}  # equal ones are one (clusterd#2.3)
    for one in faults:
        for device in one.devices:
            if one.placed or f"{record.chip_type}-{device}" in chips:
                reported = _ReportedFault(device, one.level, one.code)
                times.setdefault(reported, set()).add(one.time_seconds)
    if not times:
        return record
    taken = {
        f"{record.chip_type}-{reported.device}"
        for reported in times
        if reported.level not in _LEAVES_FREE
    }
    if sum(map(len, times.values())) > MOST_SHOWN:
        times = _fewer(times)
    added = {
        CodeFault(
            PUBLIC_FAULT,
            f"{record.chip_type}-{reported.device}",
            reported.level,
            reported.code,
            at,
            reported.level,
        )
        for reported, found in times.items()
        for at in found
    }
    return replace(
        record,
        available=tuple(chip for chip in record.available if chip not in taken),
        unhealthy=tuple(sorted({*record.unhealthy, *taken})),
        faults=tuple(sorted([*record.faults, *(added - set(record.faults))])),
        update_time=now_seconds,
    )


def _fewer(times: Mapping[_ReportedFault, set[int]]) -> dict[_ReportedFault, set[int]]:
    """Return the latest time of each code of a chip; of too many codes the worst, as many of each
    chip.
    """
    latest = {reported: max(found) for reported, found in times.items()}
    if len(latest) > MOST_SHOWN:
        worst_first = sorted(latest, key=lambda one: (_rank(one.level), -latest[one], one))
        place: Counter[int] = Counter()
        order: list[tuple[int, _ReportedFault]] = []
        for reported in worst_first:
            place[reported.device] += 1
            order.append((place[reported.device], reported))
        order.sort(key=lambda one: one[0])
        latest = {reported: latest[reported] for _, reported in order[:MOST_SHOWN]}
    return {reported: {at} for reported, at in latest.items()}


def _rank(level: str) -> int:
    """Return the order of a level: the most serious first, last an unknown one, as a state of
    upstream's may have.
    """
    return _RANK.get(level, len(_RANK))

"""What is published of public faults: in the record of their node, and in ``statistic-fault-info``.

The record is ``clusterd#3.2`` and 2.3 (AddFaultAndFix); the document, which people and other
programs read, is ``docs/spec/clusterd.md#2.7``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from aggregator.plugin import View
from aggregator.public_faults.values import ActivePublicFault
from contract.codes.levels import ChipLevel
from contract.documents.cluster_device import CodeFault, DeviceRecord
from contract.documents.public_fault import LAST_DEVICE
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int32, Int64, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PUBLIC_FAULT = "PublicFault"
MAX_NODE_FAULTS = 1000
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
    seconds, where those of a driver are in milliseconds (clusterd#3.2). Of more than
    ``MAX_NODE_FAULTS`` a code counts once for its chip, with its latest time, which is all that
    readers keep of it; every chip is isolated that should be.
    """
    chips = record.chips
    times: dict[_ReportedFault, set[int]] = {}  # equal ones are one (clusterd#2.3)
    for fault in faults:
        for device in fault.devices:
            if fault.placed or f"{record.chip_type}-{device}" in chips:
                reported = _ReportedFault(device, fault.level, fault.code)
                times.setdefault(reported, set()).add(fault.time_seconds)
    if not times:
        return record
    taken = {
        f"{record.chip_type}-{reported.device}"
        for reported in times
        if reported.level not in _LEAVES_FREE
    }
    if sum(map(len, times.values())) > MAX_NODE_FAULTS:
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
        for reported, seconds in times.items()
        for at in seconds
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
    latest = {reported: max(seconds) for reported, seconds in times.items()}
    if len(latest) > MAX_NODE_FAULTS:
        worst_first = sorted(
            latest, key=lambda reported: (_rank(reported.level), -latest[reported], reported)
        )
        place: Counter[int] = Counter()
        order: list[tuple[int, _ReportedFault]] = []
        for reported in worst_first:
            place[reported.device] += 1
            order.append((place[reported.device], reported))
        order.sort(key=lambda item: item[0])
        latest = {reported: latest[reported] for _, reported in order[:MAX_NODE_FAULTS]}
    return {reported: {at} for reported, at in latest.items()}


def _rank(level: str) -> int:
    """Return the order of a level: the most serious first, last an unknown one, as a state of
    upstream's may have.
    """
    return _RANK.get(level, len(_RANK))


STATISTIC_NAMESPACE, STATISTIC_NAME = "cluster-system", "statistic-fault-info"
STATISTIC_LABEL = ("mc-statistic-fault", "true")
FAULTS_KEY, NUMBER_KEY, NOTICE_KEY = "PublicFaults", "FaultNum", "Description"
MAX_DETAILED = 4500
_MAX_STATISTIC_BYTES = 800 * 1024
NOTICE = (
    "The current total number of faults is too large, and only a portion of the detailed fault "
    "data is displayed"
)


class _StatisticFault(GoStruct, frozen=True, omit_defaults=True):
    """Go's ``omitempty``: what is zero is left out."""

    resource: str = ""
    devices: list[Int32] | None = msgspec.field(default=None, name="devIds")
    fault_id: str = msgspec.field(default="", name="faultId")
    fault_type: str = msgspec.field(default="", name="type")
    code: str = msgspec.field(default="", name="faultCode")
    level: str = ""
    time_seconds: Int64 = msgspec.field(default=0, name="faultTime")


def statistic_view(
    nodes: Mapping[str, Mapping[tuple[str, str], ActivePublicFault]], count: int
) -> View:
    """Return the document. Above 4500 faults, or what fits into one, the last ones are only
    counted.
    """
    shown: dict[str, list[go_json.Value]] = {}
    room, entries = _MAX_STATISTIC_BYTES, 0
    for node in sorted(nodes):
        for _, fault in sorted(nodes[node].items()):
            entry = _StatisticFault(
                fault.resource,
                list(fault.devices),
                fault.fault_id,
                fault.fault_type,
                fault.code,
                fault.level,
                fault.time_seconds,
            )
            room -= len(msgspec.json.encode(entry)) + (0 if node in shown else len(node) + 6) + 1
            if entries == MAX_DETAILED or room < 0:
                return _statistic_view(shown, count, {NOTICE_KEY: NOTICE})
            shown.setdefault(node, []).append(msgspec.to_builtins(entry))
            entries += 1
    return _statistic_view(shown, count, {})


def _statistic_view(
    shown: dict[str, list[go_json.Value]], count: int, notice: dict[str, str]
) -> View:
    data = {
        FAULTS_KEY: go_json.encode(shown),
        NUMBER_KEY: go_json.encode({"publicFaultNum": count}),
    }
    return View(STATISTIC_NAMESPACE, STATISTIC_NAME, data | notice, dict([STATISTIC_LABEL]))


def read_statistic(
    data: Mapping[str, str], now_ms: int
) -> tuple[Iterable[ActivePublicFault], list[str]]:
    """Return the faults that upstream left in the document, and what cannot be faults."""
    text = data.get(FAULTS_KEY)
    if not text:
        return (), []
    nodes, strange = _entries(text)
    faults: list[ActivePublicFault] = []
    for node, entries in nodes.items():
        for index, entry in enumerate(entries):
            devices = tuple(d for d in entry.devices or () if 0 <= d <= LAST_DEVICE)
            if not (
                node
                and entry.resource
                and entry.fault_id
                and entry.code
                and entry.level
                and devices
            ):
                strange.append(
                    f"{STATISTIC_NAME}: {FAULTS_KEY}.{node}[{index}] is not a valid public fault"
                )
                continue
            faults.append(
                ActivePublicFault(
                    node,
                    entry.resource,
                    entry.fault_id,
                    entry.fault_type,
                    entry.code,
                    entry.level,
                    devices,
                    entry.time_seconds,
                    now_ms - _LONG_MS,
                    0,
                    0,
                    None,
                    False,
                )
            )
    return faults, strange


def _entries(text: str) -> tuple[dict[str, list[_StatisticFault]], list[str]]:
    """Return what can be read, and why other things cannot: an edit of one fault loses no other."""
    try:
        return decode(text, dict[str, list[_StatisticFault]], STATISTIC_NAME, FAULTS_KEY), []
    except DocumentError as error:
        wrong = str(error)
    try:
        nodes = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}, [wrong]
    by_node: dict[str, list[_StatisticFault]] = {}
    strange: list[str] = []
    for node, raw in nodes.items():
        try:
            entries = msgspec.json.decode(raw, type=list[msgspec.Raw])
        except msgspec.MsgspecError:
            strange.append(f"{STATISTIC_NAME}: {FAULTS_KEY}.{node} is not a list")
            continue
        for index, entry in enumerate(entries):
            try:
                decoded_entry = decode(
                    bytes(entry).decode(),
                    _StatisticFault,
                    STATISTIC_NAME,
                    f"{FAULTS_KEY}.{node}[{index}]",
                )
            except DocumentError as error:
                strange.append(str(error))
            else:
                by_node.setdefault(node, []).append(decoded_entry)
    return by_node, strange


_LONG_MS = 60_000
"""It is not known since when it holds: for longer than any rule needs."""

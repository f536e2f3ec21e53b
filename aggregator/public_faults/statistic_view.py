"""``statistic-fault-info``: what people and other programs read of public faults.

``docs/spec/clusterd.md#2.7``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.plugin import View
from aggregator.public_faults.values import ActivePublicFault
from contract.documents.public_fault import LAST_DEVICE
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int32, Int64, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAMESPACE, NAME = "cluster-system", "statistic-fault-info"
LABEL = ("mc-statistic-fault", "true")
FAULTS_KEY, NUMBER_KEY, NOTICE_KEY = "PublicFaults", "FaultNum", "Description"
MOST_DETAILED = 4500
_MOST_BYTES = 800 * 1024
NOTICE = (
    "The current total number of faults is too large, and only a portion of the detailed fault "
    "data is displayed"
)


class _Entry(GoStruct, frozen=True, omit_defaults=True):
    """Go's ``omitempty``: what is zero is left out."""

    resource: str = ""
    devices: list[Int32] | None = msgspec.field(default=None, name="devIds")
    fault_id: str = msgspec.field(default="", name="faultId")
    fault_type: str = msgspec.field(default="", name="type")
    code: str = msgspec.field(default="", name="faultCode")
    level: str = ""
    time_seconds: Int64 = msgspec.field(default=0, name="faultTime")


def view(nodes: Mapping[str, Mapping[tuple[str, str], ActivePublicFault]], count: int) -> View:
    """Return the document. Above 4500 faults, or what fits into one, the last ones are only
    counted.
    """
    shown: dict[str, list[object]] = {}
    room, entries = _MOST_BYTES, 0
    for node in sorted(nodes):
        for _, one in sorted(nodes[node].items()):
            entry = _Entry(
                one.resource,
                list(one.devices),
                one.fault_id,
                one.fault_type,
                one.code,
                one.level,
                one.time_seconds,
            )
            room -= len(msgspec.json.encode(entry)) + (0 if node in shown else len(node) + 6) + 1
            if entries == MOST_DETAILED or room < 0:
                return _view(shown, count, {NOTICE_KEY: NOTICE})
            shown.setdefault(node, []).append(msgspec.to_builtins(entry))
            entries += 1
    return _view(shown, count, {})


def _view(shown: dict[str, list[object]], count: int, notice: dict[str, str]) -> View:
    data = {
        FAULTS_KEY: go_json.encode(shown),
        NUMBER_KEY: go_json.encode({"publicFaultNum": count}),
    }
    return View(NAMESPACE, NAME, data | notice, dict([LABEL]))


def read(data: Mapping[str, str], now_ms: int) -> tuple[Iterable[ActivePublicFault], list[str]]:
    """Return the faults that upstream left in the document, and what cannot be faults."""
    text = data.get(FAULTS_KEY)
    if not text:
        return (), []
    nodes, strange = _entries(text)
    found: list[ActivePublicFault] = []
    for node, entries in nodes.items():
        for index, one in enumerate(entries):
            devices = tuple(d for d in one.devices or () if 0 <= d <= LAST_DEVICE)
            if not (node and one.resource and one.fault_id and one.code and one.level and devices):
                strange.append(f"{NAME}: {FAULTS_KEY}.{node}[{index}] is no public fault")
                continue
            found.append(
                ActivePublicFault(
                    node,
                    one.resource,
                    one.fault_id,
                    one.fault_type,
                    one.code,
                    one.level,
                    devices,
                    one.time_seconds,
                    now_ms - _LONG_MS,
                    0,
                    0,
                    None,
                    False,
                )
            )
    return found, strange


def _entries(text: str) -> tuple[dict[str, list[_Entry]], list[str]]:
    """Return what can be read, and why other things cannot: an edit of one fault loses no other."""
    try:
        return decode(text, dict[str, list[_Entry]], NAME, FAULTS_KEY), []
    except DocumentError as error:
        wrong = str(error)
    try:
        nodes = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}, [wrong]
    found: dict[str, list[_Entry]] = {}
    strange: list[str] = []
    for node, raw in nodes.items():
        try:
            entries = msgspec.json.decode(raw, type=list[msgspec.Raw])
        except msgspec.MsgspecError:
            strange.append(f"{NAME}: {FAULTS_KEY}.{node} is no list")
            continue
        for index, entry in enumerate(entries):
            try:
                one = decode(bytes(entry).decode(), _Entry, NAME, f"{FAULTS_KEY}.{node}[{index}]")
            except DocumentError as error:
                strange.append(str(error))
            else:
                found.setdefault(node, []).append(one)
    return found, strange


_LONG_MS = 60_000
"""It is not known since when it holds: for longer than any rule needs."""

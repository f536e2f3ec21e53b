"""The form of a device-info document: its keys, their order and the text, without values.

Values are compared as facts. Source: ``device-plugin#1.2`` to 1.5 and 5.3.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from contract.documents.device_info import (
    DEVICE_INFO_KEY,
    SWITCH_INFO_KEY,
    UPGRADE_REASON_KEY,
    DeviceFault,
    TimeAndLevel,
)
from contract.documents.separation import UpgradeReason
from contract.documents.switch_info import SwitchEvent
from contract.go import encode as go_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from msgspec import Struct

    from stores.base import Document

_Shape: TypeAlias = "tuple[str, str]"
_USUAL, _OTHER = "as usual", "otherwise"
_TEXTS = (DEVICE_INFO_KEY, SWITCH_INFO_KEY, UPGRADE_REASON_KEY)


def shape_of(document: Document) -> Iterator[_Shape]:
    """Yield the form of each part by its name. For a document that can be decoded."""
    yield "the ConfigMap", ", ".join(sorted(document.data))
    for key in _TEXTS:
        if key in document.data:
            yield from _text(key, document.data[key])


def _text(key: str, text: str) -> Iterator[_Shape]:
    raw, is_usual = _read(text)
    yield f"the text of {key}", _word(is_usual)
    if not isinstance(raw, dict):
        return
    if key == UPGRADE_REASON_KEY:
        yield "the reasons", _word(_is_sorted(raw) and _are(UpgradeReason, _flat(raw.values())))
        return
    yield key, ", ".join(raw)
    if key == SWITCH_INFO_KEY:
        events = (_read(event)[0] for event in raw.get("FaultCode") or ())
        yield "the switch faults", _word(_are(SwitchEvent, events))
        yield "FaultTimeAndLevelMap", _word(_is_map(raw.get("FaultTimeAndLevelMap") or {}))
        return
    inner = raw.get("DeviceInfo") or {}
    yield "DeviceInfo", ", ".join(inner)
    devices = inner.get("DeviceList") or {}
    yield "DeviceList", ", ".join(devices)
    for name, value in devices.items():
        if name.endswith("-Fault"):
            faults, is_usual = _read(value)
            yield "the text of the fault list", _word(is_usual)
            yield "the fault list", _word(isinstance(faults, list) and _are_faults(faults))


def _read(text: object) -> tuple[Any, bool]:
    """Return the value of ``text``, and whether Go would have written it in the same way."""
    try:
        raw = json.loads(str(text))
        return raw, go_json.encode(raw) == text
    except (ValueError, RecursionError):
        return None, False


def _are_faults(faults: list[Any]) -> bool:
    return _are(DeviceFault, faults) and all(
        _is_map(fault["fault_time_and_level_map"] or {}) for fault in faults
    )


def _flat(lists: Iterable[object]) -> list[Any]:
    return [item for listed in lists if isinstance(listed, list) for item in listed]


def _are(kind: type[Struct], items: Iterable[object]) -> bool:
    """Return whether all ``items`` have the members of ``kind`` in their order."""
    members = kind.__struct_encode_fields__
    return all(isinstance(item, dict) and tuple(item) == members for item in items)


def _is_map(levels: object) -> bool:
    return isinstance(levels, dict) and _is_sorted(levels) and _are(TimeAndLevel, levels.values())


def _is_sorted(members: dict[str, Any]) -> bool:
    # Go writes the keys of a map in order (device-plugin#1.3).
    return list(members) == sorted(members)


def _word(usual: bool) -> str:
    return _USUAL if usual else _OTHER

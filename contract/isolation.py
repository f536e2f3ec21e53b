"""Chips that were isolated by hand or by a rule: two keys of the device-info document.

Reasons that our own policy gives are not kept here: they come from the state with every document
(``with_own_reasons``). Source: ``spec/device-plugin.md`` 1.5 and 3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract import go_json
from contract.codes import parse_code
from contract.device_info import (
    MANUALLY_SEPARATE_KEY,
    UPGRADE_REASON_KEY,
    TimeAndLevel,
)
from contract.errors import DocumentError
from contract.go_decode import GoStruct, Int64, decode
from contract.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class UpgradeReason(GoStruct, frozen=True):
    """Why the level of a chip was raised; ``fault_code`` is lower case, or no code at all."""

    upgrade_time: Int64 = 0
    fault_code: str = ""
    fault_level: str = ""
    upgrade_type: str = ""


class Isolation(msgspec.Struct, frozen=True):
    """The two keys as they stand, and what they mean for chips that are isolated.

    ``chips``: device name to the codes that isolated it, with the time of the isolation. A name
    without a known reason has no codes.
    """

    names: str = ""
    reasons: str = "{}"
    chips: dict[str, dict[str, TimeAndLevel]] = {}


def read_isolation(data: Mapping[str, str]) -> Isolation:
    """What the keys of an existing document say; both texts are kept as they are.

    Reasons that cannot be read isolate nobody more or less: the names decide.
    """
    names = data.get(MANUALLY_SEPARATE_KEY, "")
    text = data.get(UPGRADE_REASON_KEY, "{}")
    reasons = _read(text)
    listed = [name.strip() for name in names.split(",")]
    return Isolation(names, text, {name: _codes(reasons.get(name, [])) for name in listed if name})


def released(before: Isolation, data: Mapping[str, str]) -> frozenset[str]:
    """Names of ``before`` that an operator took out of a document (``spec/device-plugin.md`` 3.6).

    A document without the key says nothing.
    """
    text = data.get(MANUALLY_SEPARATE_KEY)
    if text is None:
        return frozenset()
    return frozenset(before.chips) - {name.strip() for name in text.split(",")}


def without(before: Isolation, names: frozenset[str]) -> Isolation:
    """``before`` when ``names`` are released: their reasons of that level go, too."""
    kept = [name for name in before.names.split(",") if name.strip() not in names]
    reasons = _read(before.reasons)
    left = {
        name: [
            reason
            for reason in listed
            if name not in names or reason.fault_level != ChipLevel.MANUALLY_SEPARATE_NPU
        ]
        for name, listed in reasons.items()
    }
    text = before.reasons if left == reasons else _written(left)
    chips = {name: codes for name, codes in before.chips.items() if name not in names}
    return Isolation(",".join(kept), text, chips)


def without_own_reasons(before: Isolation, kind: str, codes: Collection[str]) -> Isolation:
    """``before`` without reasons of ``kind`` for ``codes``: those are our own policy's to give."""
    reasons = _read(before.reasons)
    left = {
        name: [reason for reason in listed if not _is_own(reason, kind, codes)]
        for name, listed in reasons.items()
    }
    if left == reasons:
        return before
    return msgspec.structs.replace(before, reasons=_written(left))


def reasons_of(text: str, kind: str) -> dict[str, dict[str, UpgradeReason]]:
    """The reasons of ``kind`` in a text, by device name and code; what is no code is left out."""
    return {
        name: {code: reason for reason in listed if (code := _code_of(reason, kind)) is not None}
        for name, listed in _read(text).items()
    }


def with_own_reasons(text: str, own: Mapping[str, list[UpgradeReason]]) -> str:
    """``text`` with our ``own`` reasons added, always in the same order."""
    if not own:
        return text
    reasons = _read(text)
    return _written(
        {name: [*reasons.get(name, ()), *own.get(name, ())] for name in {**reasons, **own}}
    )


def read_reasons(text: str) -> dict[str, list[UpgradeReason]]:
    """All reasons by device name. Raises ``DocumentError`` where the text makes no sense."""
    return decode(text, dict[str, list[UpgradeReason]], "", UPGRADE_REASON_KEY)


def _read(text: str) -> dict[str, list[UpgradeReason]]:
    """The reasons; none where the text makes no sense, as upstream has it."""
    try:
        return read_reasons(text)
    except DocumentError:
        return {}


def _written(reasons: Mapping[str, Sequence[UpgradeReason]]) -> str:
    built = {
        name: [
            msgspec.to_builtins(reason)
            for reason in sorted(
                listed, key=lambda one: (one.fault_code, one.upgrade_type, one.fault_level)
            )
        ]
        for name, listed in reasons.items()
        if listed
    }
    return go_json.encode(go_json.sorted_map(built))


def _is_own(reason: UpgradeReason, kind: str, codes: Collection[str]) -> bool:
    return _code_of(reason, kind) in codes


def _code_of(reason: UpgradeReason, kind: str) -> str | None:
    if reason.upgrade_type != kind:
        return None
    try:
        return parse_code(reason.fault_code)
    except ValueError:
        return None


def _codes(reasons: list[UpgradeReason]) -> dict[str, TimeAndLevel]:
    codes: dict[str, TimeAndLevel] = {}
    for reason in sorted(reasons, key=lambda reason: reason.upgrade_time):
        if reason.fault_level != ChipLevel.MANUALLY_SEPARATE_NPU:
            continue
        try:
            code = parse_code(reason.fault_code)
        except ValueError:
            continue  # AutofillFaultCode: nobody knows why any more
        codes[code] = TimeAndLevel(reason.upgrade_time, reason.fault_level)
    return codes

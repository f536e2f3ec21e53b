"""Chips that were isolated by hand or by a rule: two keys of the device-info document.

Source: ``spec/device-plugin.md`` 1.5 and 3.6.
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
    from collections.abc import Mapping


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


def read_isolation(data: Mapping[str, str], document: str) -> Isolation:
    """What the keys of an existing document say; both texts are kept as they are.

    Reasons that cannot be read isolate nobody more or less: the names decide.
    """
    names = data.get(MANUALLY_SEPARATE_KEY, "")
    text = data.get(UPGRADE_REASON_KEY, "{}")
    try:
        reasons = decode(text, dict[str, list[UpgradeReason]], document, UPGRADE_REASON_KEY)
    except DocumentError:
        reasons = {}
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
    try:
        reasons = decode(before.reasons, dict[str, list[UpgradeReason]], "", UPGRADE_REASON_KEY)
    except DocumentError:
        text = before.reasons
    else:
        left = {
            name: [
                msgspec.to_builtins(reason)
                for reason in listed
                if name not in names or reason.fault_level != ChipLevel.MANUALLY_SEPARATE_NPU
            ]
            for name, listed in reasons.items()
        }
        text = go_json.encode(go_json.sorted_map({n: items for n, items in left.items() if items}))
    chips = {name: codes for name, codes in before.chips.items() if name not in names}
    return Isolation(",".join(kept), text, chips)


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

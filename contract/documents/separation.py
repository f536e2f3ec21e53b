"""Two keys of the device-info document: who is isolated, and why levels were raised.

Codecs only: ``ManuallySeparateNPU`` is a list of device names, ``UpgradeFaultReason`` has lists of
reasons by device name. What is read may have been written by people, so each name and each reason
counts for itself (without defect K42). Source: ``docs/spec/device-plugin.md#1.5`` and 3.6.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from contract.codes.chip_codes import parse_code
from contract.codes.families import FAMILIES
from contract.codes.levels import ChipLevel
from contract.codes.policies import AUTOFILL_CODE
from contract.documents.device_info import MANUALLY_SEPARATE_KEY, UPGRADE_REASON_KEY
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int64, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DEVICE_TYPES = sorted({family.device_type for family in FAMILIES.values()})
_DEVICE = re.compile(rf"(?:{'|'.join(_DEVICE_TYPES)})-(\d{{1,4}})", re.ASCII)


class UpgradeReason(GoStruct, frozen=True):
    """Why the level of a chip was raised; ``fault_code`` is lower case, and may be no code."""

    upgrade_time: Int64 = 0
    fault_code: str = ""
    fault_level: str = ""
    upgrade_type: str = ""

    @property
    def code(self) -> str | None:
        """The code as everywhere else; ``None`` for what is none."""
        if self.fault_code == AUTOFILL_CODE:
            return AUTOFILL_CODE
        try:
            return parse_code(self.fault_code)
        except ValueError:
            return None


def written_code(code: str) -> str:
    """Return ``code`` as it is written in a reason."""
    # Reasons have codes in lower case, the fault list in upper case (device-plugin#2.5).
    return code if code == AUTOFILL_CODE else code.lower()


def chip_of(name: str) -> int | None:
    """Return the physical id of the chip with the device name ``name``; ``None`` for what names
    none.
    """
    # People edit the list by hand, perhaps with blanks behind the commas.
    match = _DEVICE.fullmatch(name.strip())
    return None if match is None else int(match[1])


def read_names(data: Mapping[str, str]) -> frozenset[int] | None:
    """Return the chips that a document names as isolated; ``None`` for one without the key."""
    text = data.get(MANUALLY_SEPARATE_KEY)
    if text is None:
        return None
    chips = (chip_of(name) for name in text.split(","))
    return frozenset(chip for chip in chips if chip is not None)


def read_reasons(text: str) -> dict[int, list[UpgradeReason]]:
    """Return the reasons by chip. What cannot be read is left out, alone if the rest is JSON.

    Of two that separate for one code the more serious one counts, and then the newer one.
    """
    reasons: dict[int, list[UpgradeReason]] = {}
    for name, listed in _by_name(text).items():
        chip = chip_of(name)
        if chip is None:
            continue
        best: dict[tuple[str, str], UpgradeReason] = {}
        for reason in listed:
            if reason.code is None or reason.fault_level not in _RANK:
                continue
            key = (reason.code, reason.upgrade_type)
            if key not in best or _weight(reason) > _weight(best[key]):
                best[key] = reason
        reasons.setdefault(chip, []).extend(best.values())
    return reasons


def write_reasons(reasons: Mapping[str, Iterable[UpgradeReason]]) -> str:
    """Return the text of the key; names and reasons are in one order (without defect K35)."""
    built = {
        name: [
            msgspec.to_builtins(reason)
            for reason in sorted(
                listed,
                key=lambda reason: (reason.fault_code, reason.upgrade_type, reason.fault_level),
            )
        ]
        for name, listed in reasons.items()
    }
    return go_json.encode(go_json.sorted_map({name: rows for name, rows in built.items() if rows}))


_RANK = {level.value: rank for rank, level in enumerate(reversed(ChipLevel))}


def _weight(reason: UpgradeReason) -> tuple[int, int]:
    return _RANK[reason.fault_level], reason.upgrade_time


def _by_name(text: str) -> dict[str, list[UpgradeReason]]:
    """Return all lists that can be read; where one cannot, its reasons are read one by one."""
    try:
        return decode(text, dict[str, list[UpgradeReason]], "", UPGRADE_REASON_KEY)
    except DocumentError:
        pass
    try:
        # Upstream discards the whole map for one bad entry (device-plugin#1.5, defect K42).
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return {name: list(_each(bytes(listed).decode())) for name, listed in raw.items()}


def _each(text: str) -> Iterable[UpgradeReason]:
    try:
        listed = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return
    for reason in listed:
        try:
            yield decode(bytes(reason).decode(), UpgradeReason, "", UPGRADE_REASON_KEY)
        except DocumentError:
            continue

"""Rules that raise the level of a code by how often it comes and how long it holds.

Source: ``docs/spec/device-plugin.md#3.4`` and 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from contract.codes.chip_codes import parse_code
from contract.codes.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

FAULT_FREQUENCY = "FaultFrequency"
FAULT_DURATION = "FaultDuration"
"""Both the keys of the rules in the customisation and the types of the reasons they give."""
FAULT_AUTOFILL = "FaultAutofill"
"""The type of a reason that was made up for a chip that only a list of names isolates."""
UPGRADE_TYPES = frozenset({FAULT_FREQUENCY, FAULT_DURATION, FAULT_AUTOFILL})
"""All types of reasons; one of another type is none."""
AUTOFILL_CODE = "AutofillFaultCode"
"""What stands in the place of a code in such a reason, as written on the wire."""


@dataclass(frozen=True)
class FrequencyPolicy:
    """A code that occurs ``times`` within ``window_seconds`` is at ``level``, until it was gone for
    longer than ``release_ms`` since its last occurrence; ``None``: until an operator releases it.
    """

    window_seconds: int
    times: int
    level: ChipLevel
    release_ms: int | None


@dataclass(frozen=True)
class DurationPolicy:
    """A code that holds for longer than ``fault_timeout_ms`` is at ``level``, until it was gone for
    longer than ``recover_timeout_ms``."""

    fault_timeout_ms: int
    recover_timeout_ms: int
    level: ChipLevel


class FrequencyEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One rule as it is written; times in seconds, a release of 0 means never."""

    event_id: list[str]
    time_window: int
    times: int
    fault_handling: ChipLevel
    release_time_window: int = 0


class DurationEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One rule as it is written; times in seconds, an absent one is 0."""

    event_id: list[str]
    fault_handling: ChipLevel
    fault_timeout: int = 0
    recover_timeout: int = 0


class PolicyTables(msgspec.Struct, frozen=True):
    """``policies.json``, as far as it is used."""

    frequency: list[FrequencyEntry]
    duration: list[DurationEntry]


def duration_policies(entries: Iterable[DurationEntry]) -> dict[str, DurationPolicy]:
    """Return the rules by code. The first entry that names a code owns it.

    Raises ``ValueError`` for what is no code.
    """
    policies: dict[str, DurationPolicy] = {}
    for entry in entries:
        policy = DurationPolicy(
            entry.fault_timeout * 1000, entry.recover_timeout * 1000, entry.fault_handling
        )
        for text in entry.event_id:
            policies.setdefault(parse_code(text), policy)
    return policies


def frequency_policies(entries: Iterable[FrequencyEntry]) -> dict[str, FrequencyPolicy]:
    """Return the rules by code. The first entry that names a code owns it.

    Raises ``ValueError`` for what is no code.
    """
    policies: dict[str, FrequencyPolicy] = {}
    for entry in entries:
        policy = FrequencyPolicy(
            entry.time_window,
            entry.times,
            entry.fault_handling,
            entry.release_time_window * 1000 or None,
        )
        for text in entry.event_id:
            policies.setdefault(parse_code(text), policy)
    return policies


def longest_release_ms(policies: Iterable[FrequencyPolicy]) -> int | None:
    """Return the longest time after which any of ``policies`` releases; ``None`` when none ever
    does.
    """
    return max((p.release_ms for p in policies if p.release_ms is not None), default=None)

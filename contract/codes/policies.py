"""Rules that raise the level of a code by how often it comes and how long it holds.

Source: ``docs/spec/device-plugin.md#3.4`` and 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from contract.codes.chip_codes import parse_code
from contract.codes.levels import ChipLevel
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

P = TypeVar("P")

FAULT_FREQUENCY = "FaultFrequency"
FAULT_DURATION = "FaultDuration"
"""Both the keys of the rules in the customisation and the types of the reasons they give."""
FAULT_AUTOFILL = "FaultAutofill"
"""The type of a reason that was made up for a chip that only a list of names isolates."""
UPGRADE_TYPES = frozenset({FAULT_FREQUENCY, FAULT_DURATION, FAULT_AUTOFILL})
"""All types of reasons; one of another type is none."""
AUTOFILL_CODE = "AutofillFaultCode"
"""The word in place of a code in such a reason, as on the wire."""


class FrequencyPolicy(Record, frozen=True):
    """A code that occurs ``times`` within ``window_seconds`` is at ``level``, until it was gone for
    longer than ``release_ms`` since its last occurrence; ``None``: until an operator releases it.
    """

    window_seconds: int
    times: int
    level: ChipLevel
    release_ms: int | None


class DurationPolicy(Record, frozen=True):
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

    @property
    def policy(self) -> FrequencyPolicy:
        """The rule without its codes."""
        release_ms = self.release_time_window * 1000 or None
        return FrequencyPolicy(self.time_window, self.times, self.fault_handling, release_ms)


class DurationEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One rule as it is written; times in seconds, an absent one is 0."""

    event_id: list[str]
    fault_handling: ChipLevel
    fault_timeout: int = 0
    recover_timeout: int = 0

    @property
    def policy(self) -> DurationPolicy:
        """The rule without its codes."""
        return DurationPolicy(
            self.fault_timeout * 1000, self.recover_timeout * 1000, self.fault_handling
        )


class PolicyTables(msgspec.Struct, frozen=True):
    """``policies.json``, as far as it is used."""

    frequency: list[FrequencyEntry]
    duration: list[DurationEntry]


def policies_by_code(rules: Iterable[tuple[Iterable[str], P]]) -> dict[str, P]:
    """Return the policies by code, from codes and policy of each rule.

    The first rule that names a code owns it. Raises ``ValueError`` for what is not a code.
    """
    policies: dict[str, P] = {}
    for codes, policy in rules:
        for text in codes:
            policies.setdefault(parse_code(text), policy)
    return policies


def longest_release_ms(policies: Iterable[FrequencyPolicy]) -> int | None:
    """Return the longest time after which any of ``policies`` releases; ``None`` when none ever
    does.
    """
    # Rules without an end do not count, as upstream takes the
    # largest below 2**32 (device-plugin#3.6).
    return max((p.release_ms for p in policies if p.release_ms is not None), default=None)

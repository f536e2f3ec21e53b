"""Rules that raise the level of a code by how long it holds (``spec/device-plugin.md`` 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from contract.codes import parse_code
from contract.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

FAULT_DURATION = "FaultDuration"
"""Both the key of the rules in the customisation and the type of the reasons they give."""


@dataclass(frozen=True)
class DurationPolicy:
    """A code that holds for longer than ``fault_timeout_ms`` is at ``level``, until it was gone for
    longer than ``recover_timeout_ms``."""

    fault_timeout_ms: int
    recover_timeout_ms: int
    level: ChipLevel


class DurationEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One rule as it is written; times in seconds, an absent one is 0."""

    event_id: list[str]
    fault_handling: ChipLevel
    fault_timeout: int = 0
    recover_timeout: int = 0


class PolicyTables(msgspec.Struct, frozen=True):
    """``policies.json``, as far as it is used."""

    duration: list[DurationEntry]


def duration_policies(entries: Iterable[DurationEntry]) -> dict[str, DurationPolicy]:
    """The rules by code. The first entry that names a code owns it.

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

"""The rows of the journal: their kinds, and their content, decoded and checked.

Every function that decodes raises ``JournalError``. A damaged row, or one of a version that had
other values, is refused here: callers may rely on each level and subject.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agent.policy.state import (
    Acknowledged,
    Change,
    ChipsListed,
    ChipState,
    ClockSetBack,
    Configured,
    PolicyState,
)
from agent.policy.step import Input
from contract.codes.levels import ChipLevel
from contract.codes.policies import UPGRADE_TYPES
from contract.documents.separation import chip_of
from contract.documents.switch_info import port_of
from contract.errors import ConfigurationError, JournalError
from contract.observation import Gap
from contract.operator_rules.fault_configuration import FaultTexts, catalogue_of
from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.policy.state import Fault
    from contract.codes.catalogue import Catalogue
    from contract.observation import Observation, Subject

T = TypeVar("T")

_KINDS = frozenset({"chip", "host", "node", "storage"})


class RowKind(StrEnum):
    """What a row is about. ``reports`` and ``acknowledged`` are inputs of the policy.

    ``fault-configuration`` has the ``FaultTexts`` that are in force from there on; none before the
    first one.
    """

    START = "start"
    STOP = "stop"
    CONFIGURATION = "configuration"
    FAULT_CONFIGURATION = "fault-configuration"
    SNAPSHOT = "snapshot"
    REPORTS = "reports"
    ACKNOWLEDGED = "acknowledged"
    CHANGES = "changes"
    PUBLICATION = "publication"
    USAGE = "usage"
    GAP = "gap"
    EVENTS = "events"
    SHADOW = "shadow"
    PUBLIC_FAULTS = "public-faults"


class JournalRow(msgspec.Struct, frozen=True):
    """One row: ``at_ms`` is epoch milliseconds, ``body`` JSON.

    ``kind`` is a ``RowKind``, or another one that a newer version wrote.
    """

    sequence: int
    at_ms: int
    kind: str
    body: str


def body_of(value: object) -> str:
    """Return ``value`` as the body of a row."""
    return msgspec.json.encode(value).decode()


class Start(msgspec.Struct, frozen=True):
    """The part that is read of the row with which an agent begins."""

    node: str
    boot_id: str
    version: str = ""


class JournalGap(msgspec.Struct, frozen=True):
    """The part that is read of the row that a journal writes when it works again."""

    since_ms: int
    reason: str
    rows_lost: int


class UsageRow(msgspec.Struct, frozen=True):
    """The devices that pods of ``node`` have: ``used``; those chosen for them: ``assigned``."""

    used: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    node: str = ""


_decoders: dict[object, msgspec.json.Decoder[Any]] = {}
"""A decoder takes longer to make than to decode many rows."""


def inputs_of(row: JournalRow) -> tuple[Input, ...]:
    """Return the inputs of one call of the policy."""
    inputs = decoded(row, tuple[Input, ...])
    try:
        for item in inputs:
            if not isinstance(item, (Acknowledged, ClockSetBack, Configured, Gap, ChipsListed)):
                _check_subject(item.subject)
    except ValueError as error:
        raise _refused(row, error) from None
    return inputs


def changes_of(row: JournalRow) -> tuple[Change, ...]:
    """Return the changes of one call of the policy."""
    return decoded(row, tuple[Change, ...])


def state_of(row: JournalRow) -> PolicyState:
    """Return the state that a snapshot holds."""
    state = decoded(row, PolicyState)
    try:
        _check(state)
    except ValueError as error:
        raise _refused(row, error) from None
    return state


def chips_in_use_of(row: JournalRow) -> frozenset[int]:
    """Return the physical ids of the chips that pods have or that were chosen for one."""
    usage = decoded(row, UsageRow)
    chips = (chip_of(name) for name in (*usage.used, *usage.assigned))
    return frozenset(chip for chip in chips if chip is not None)


def tables_of(row: JournalRow) -> Catalogue:
    """Return the tables of the fault configuration that is in force from here on."""
    try:
        return catalogue_of(decoded(row, FaultTexts))
    except ConfigurationError as error:
        raise _refused(row, error) from None


def _check(state: PolicyState) -> None:
    """Raise ``ValueError`` for a state that our policy cannot have made."""
    for chip in state.chips.values():
        for fault in chip.faults.values():
            ChipLevel(fault.level)
        for upgrade in chip.upgrades:
            if upgrade.kind not in UPGRADE_TYPES:
                raise ValueError(f"{upgrade.kind!r} is not a valid type of a rule")
        _check_keys(chip.held_back)
    for subject, subject_state in state.subjects():
        _check_subject(subject)
        if subject.kind == "chip" and not isinstance(subject_state, ChipState):
            raise ValueError(f"{str(subject)!r} is not a subject besides chips")
        _check_keys(subject_state.faults)
        _check_keys(
            {
                code: ended.fault
                for code, ended in subject_state.ended.items()
                if ended.fault is not None
            }
        )


def _check_keys(items: Mapping[str, Fault | Observation]) -> None:
    for code, item in items.items():
        if item.code != code:
            raise ValueError(f"the entry {code} holds a fault {item.code}")


def _check_subject(subject: Subject) -> None:
    """Raise ``ValueError`` for a subject that none of our sources reports on."""
    if subject.kind == "switch":
        port_of(subject)
    elif subject.kind not in _KINDS:
        raise ValueError(f"{subject.kind!r} is not a valid kind of a subject")


def decoded(row: JournalRow, kind: type[T]) -> T:
    """Return the body of ``row`` as a value of ``kind``."""
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        value: T = _decoders[kind].decode(row.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _refused(row, error) from None
    return value


def _refused(row: JournalRow, error: Exception) -> JournalError:
    return JournalError(f"row {row.sequence} ({row.kind}) cannot be decoded: {decode_text(error)}")

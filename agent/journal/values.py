"""Decodes and checks what rows of the journal hold. Every function raises ``JournalError``.

A damaged row, or one of a version that had other values, is refused here: callers may rely on each
level and subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from agent.policy.state import (
    Acknowledged,
    Change,
    ChipsListed,
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


class Stored(Protocol):
    """A row of the journal, with what an error about it names."""

    @property
    def sequence(self) -> int:
        """The place of the row in the journal."""

    @property
    def kind(self) -> str:
        """What the row is about."""

    @property
    def body(self) -> str:
        """JSON."""


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


class _Usage(msgspec.Struct, frozen=True):
    used: tuple[str, ...]
    assigned: tuple[str, ...] = ()


_inputs_decoder = msgspec.json.Decoder(tuple[Input, ...])
_changes_decoder = msgspec.json.Decoder(tuple[Change, ...])
_state_decoder = msgspec.json.Decoder(PolicyState)
_start_decoder = msgspec.json.Decoder(Start)
_gap_decoder = msgspec.json.Decoder(JournalGap)
_usage_decoder = msgspec.json.Decoder(_Usage)
_texts_decoder = msgspec.json.Decoder(FaultTexts)


def inputs_of(row: Stored) -> tuple[Input, ...]:
    """Return the inputs of one call of the policy."""
    inputs = decoded(row, _inputs_decoder)
    try:
        for item in inputs:
            if not isinstance(item, (Acknowledged, ClockSetBack, Configured, Gap, ChipsListed)):
                _check_subject(item.subject)
    except ValueError as error:
        raise _refused(row, error) from None
    return inputs


def changes_of(row: Stored) -> tuple[Change, ...]:
    """Return the changes of one call of the policy."""
    return decoded(row, _changes_decoder)


def state_of(row: Stored) -> PolicyState:
    """Return the state that a snapshot holds."""
    state = decoded(row, _state_decoder)
    try:
        _check(state)
    except ValueError as error:
        raise _refused(row, error) from None
    return state


def start_of(row: Stored) -> Start:
    """Return the node, boot and version of an agent that began here."""
    return decoded(row, _start_decoder)


def gap_of(row: Stored) -> JournalGap:
    """Return the gap: since when, why, and how many rows were lost."""
    return decoded(row, _gap_decoder)


def chips_in_use_of(row: Stored) -> frozenset[int]:
    """Return the physical ids of the chips that pods have or that were chosen for one."""
    usage = decoded(row, _usage_decoder)
    chips = (chip_of(name) for name in (*usage.used, *usage.assigned))
    return frozenset(chip for chip in chips if chip is not None)


def texts_of(row: Stored) -> FaultTexts:
    """Return the fault configuration that is in force from here on."""
    return decoded(row, _texts_decoder)


def tables_of(row: Stored) -> Catalogue:
    """Return the tables of the fault configuration that is in force from here on."""
    try:
        return catalogue_of(texts_of(row))
    except ConfigurationError as error:
        raise _refused(row, error) from None


def _check(state: PolicyState) -> None:
    """Raise ``ValueError`` for a state that our policy cannot have made."""
    for chip in state.chips.values():
        for fault in chip.faults.values():
            ChipLevel(fault.level)
        for upgrade in chip.upgrades:
            if upgrade.kind not in UPGRADE_TYPES:
                raise ValueError(f"there is no rule of the type {upgrade.kind!r}")
        _check_keys(chip.held_back)
    for subject, known in state.subjects():
        _check_subject(subject)
        _check_keys(known.faults)
        _check_keys({code: one.fault for code, one in known.ended.items() if one.fault is not None})


def _check_keys(items: Mapping[str, Fault | Observation]) -> None:
    for code, item in items.items():
        if item.code != code:
            raise ValueError(f"the entry {code} holds a fault {item.code}")


def _check_subject(subject: Subject) -> None:
    """Raise ``ValueError`` for a subject that none of our sources reports on."""
    if subject.kind == "switch":
        port_of(subject)
    elif subject.kind not in _KINDS:
        raise ValueError(f"there is no subject of the kind {subject.kind!r}")


def decoded(row: Stored, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the body of ``row``, decoded by ``decoder``."""
    try:
        return decoder.decode(row.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _refused(row, error) from None


def _refused(row: Stored, error: Exception) -> JournalError:
    return JournalError(f"row {row.sequence} ({row.kind}) cannot be decoded: {decode_text(error)}")

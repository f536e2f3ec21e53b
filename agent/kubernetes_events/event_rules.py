"""Which reports of a chip's codes become Kubernetes Events (``device-plugin#6.1``).

Every event of the driver does, and so does what audits and deadlines found without an event. No
second Event is made for the same event reported twice, for a second source, or for a recovery that
was unconfirmed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from agent.policy.state import Change, ChangeKind, PolicyState
from contract.codes.chip_codes import RESET_FINISHED
from contract.codes.levels import Severity
from contract.observation import Assertion, Observation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from agent.policy.step import PolicyCall
    from contract.codes.catalogue import Catalogue
    from contract.observation import Subject

OCCUR = "Occur"
RECOVERY = "Recovery"
NOTICE = "Notice"

_REASONS = {Assertion.OCCUR: OCCUR, Assertion.RECOVER: RECOVERY, Assertion.ONCE: NOTICE}
_REMEMBERED = 4096
_IMPLAUSIBLE_MS = 86_400_000


class ChipFaultChange(msgspec.Struct, frozen=True):
    """One change to send: ``action`` is the level of ``code`` by its own table, without upgrades.

    ``at_ms`` is the event's own time (epoch milliseconds), the driver's where its clock is
    plausible.
    """

    chip: int
    code: str
    reason: str
    action: str
    at_ms: int


class _LastEvent(msgspec.Struct, frozen=True):
    """The last change that was sent of a code of a chip."""

    holds: bool
    once: bool = False
    serial: int | None = None
    raised_at_ms: int | None = None
    severity: Severity | None = None


class EventRules:
    """Remembers the last change of as many codes as a node can have in practice."""

    def __init__(self) -> None:
        self._last_events: dict[tuple[Subject, str], _LastEvent] = {}

    def mark_faults_sent(self, state: PolicyState) -> None:
        """Take the faults of ``state`` as sent, where this process has sent none of them."""
        for subject, subject_state in state.subjects():
            if subject.kind != "chip":
                continue
            for code, fault in subject_state.faults.items():
                last_event = _LastEvent(
                    not fault.once, fault.once, fault.serial, fault.raised_at_ms, fault.severity
                )
                self._last_events.setdefault((subject, code), last_event)

    def fault_changes(self, call: PolicyCall) -> tuple[ChipFaultChange, ...]:
        """Return the changes to send for one call of the policy, by its inputs and changes."""
        observations = [
            item
            for item in call.inputs
            if isinstance(item, Observation)
            and item.subject.kind == "chip"
            and item.code != RESET_FINISHED
        ]
        began = {
            (change.subject, change.code)
            for change in call.changes
            if change.kind in (ChangeKind.BEGAN, ChangeKind.RETURNED)
        }
        fault_changes = [
            fault_change
            for item in observations
            if (fault_change := self._of_report(item, began, call.tables)) is not None
        ]
        fault_changes.extend(self._of_ends(observations, began, call))
        return tuple(fault_changes)

    def _of_ends(
        self,
        observations: Sequence[Observation],
        began: AbstractSet[tuple[Subject, str]],
        call: PolicyCall,
    ) -> Iterator[ChipFaultChange]:
        """Yield the recoveries that audits and deadlines found."""
        assertions = {(item.subject, item.code): item.assertion for item in observations}
        last = {(change.subject, change.code): change.kind for change in call.changes}
        for change in call.changes:
            key = (change.subject, change.code)
            if change.kind is not ChangeKind.ENDED or change.subject.kind != "chip":
                continue
            if assertions.get(key) is Assertion.RECOVER:
                continue
            last_event = self._last_events.get(key, _LastEvent(holds=True))
            # Otherwise it is a late occurrence, whose recovery was sent before it.
            if last_event.holds and (
                key not in began or assertions.get(key) is not Assertion.OCCUR
            ):
                yield _change_of(change, RECOVERY, call.tables, change.severity, change.at_ms)
            if last[key] is ChangeKind.ENDED:
                self._remember(key, replace(last_event, holds=False, once=False))

    def _of_report(
        self, item: Observation, began: AbstractSet[tuple[Subject, str]], tables: Catalogue
    ) -> ChipFaultChange | None:
        key = (item.subject, item.code)
        last_event = self._last_events.get(key)
        if item.assertion is Assertion.ABSENT:
            return None
        if item.assertion is Assertion.PRESENT:
            severity = tables.severity_of(item.code)
            if (last_event is None or not last_event.holds) and (
                key in began or last_event is not None
            ):
                self._remember(key, _LastEvent(True, severity=severity))
                return _change_of(item, OCCUR, tables, severity, item.seen_at_ms)
            return None
        reason = _REASONS[item.assertion]
        severity = item.severity
        if last_event is not None and last_event.severity is not None and reason == RECOVERY:
            severity = last_event.severity
        if severity is None:
            severity = tables.severity_of(item.code)
        new = _LastEvent(
            reason == OCCUR, reason == NOTICE, item.serial, item.driver_raised_at_ms, severity
        )
        # Without serials a repetition looks like a new event, so rather one Event too many.
        if last_event == new and item.serial is not None:
            return None
        if not (reason == NOTICE and last_event is not None and last_event.holds):
            self._remember(key, new)
        return _change_of(item, reason, tables, severity, _own_time_ms(item))

    def _remember(self, key: tuple[Subject, str], last_event: _LastEvent) -> None:
        # To the end of the dict, whose first entry is the one that is forgotten.
        self._last_events.pop(key, None)
        self._last_events[key] = last_event
        if len(self._last_events) > _REMEMBERED:
            del self._last_events[next(iter(self._last_events))]


def _change_of(
    about: Observation | Change,
    reason: str,
    tables: Catalogue,
    severity: Severity | None,
    at_ms: int,
) -> ChipFaultChange:
    action = tables.judge(about.code, severity).level
    return ChipFaultChange(about.subject.id, about.code, reason, action, at_ms)


def _own_time_ms(item: Observation) -> int:
    raised_at_ms = item.driver_raised_at_ms
    if raised_at_ms is None or abs(raised_at_ms - item.seen_at_ms) > _IMPLAUSIBLE_MS:
        return item.seen_at_ms
    return raised_at_ms

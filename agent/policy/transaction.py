"""One call of the policy in progress: its results so far, and functions for all its rules."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from agent.policy.state import (
    Change,
    ChangeKind,
    ChipState,
    Fault,
    PolicyState,
    SubjectState,
    Upgrade,
)
from contract.codes.catalogue import Catalogue, ReasonedLevel
from contract.codes.levels import ChipLevel, Severity, most_serious
from contract.observation import Subject


@dataclass
class Transaction:
    """One call of ``step``: its results so far."""

    state: PolicyState
    tables: Catalogue
    revision: int
    changes: list[Change] = field(default_factory=list)


class RuleContext(Struct, frozen=True):
    """What a rule about ``subject`` may use: a time (epoch ms) and the call of ``step``."""

    subject: Subject
    at_ms: int
    draft: Transaction

    def episode(self, code: str) -> str:
        """Return the id of an episode of ``code`` that begins now."""
        state, revision = self.draft.state, self.draft.revision + 1
        text = f"{state.node}\0{self.subject}\0{code}\0{state.boot_id}\0{revision}\0{self.at_ms}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def note(
        self,
        kind: ChangeKind,
        what: Fault | Upgrade,
        because: str,
        old: str | None = None,
        new: str | None = None,
    ) -> None:
        """Record a change of the episode of ``what``, which may be over for an upgrade."""
        upgrade, device_fault = None, False
        if isinstance(what, Upgrade):
            upgrade = what
        else:
            device_fault = what.device_fault and self.subject.kind == "chip"
        change = Change(
            kind,
            self.subject,
            what.code,
            what.episode,
            self.at_ms,
            because,
            old,
            new,
            what.severity,
            device_fault,
            upgrade,
        )
        self.draft.changes.append(change)

    def judge(self, known: SubjectState, code: str, severity: Severity | None) -> ReasonedLevel:
        """Return the level of a code on the subject, and why. An upgrade can only raise it."""
        tables, kind = self.draft.tables, self.subject.kind
        if isinstance(known, ChipState):
            if severity is None and known.word is not None:
                verdict = tables.judge_by_word(code, known.word, known.listed or ())
            else:
                verdict = tables.judge(code, severity)
            for upgrade in known.upgrades:
                if upgrade.code == code:
                    level = ChipLevel(verdict.level)
                    if most_serious([upgrade.level, level]) is not level:
                        verdict = ReasonedLevel(upgrade.level, upgrade.because)
            return verdict
        if kind == "switch":
            return tables.judge_switch(code)
        return tables.judge_public(code) if kind == "storage" else tables.judge_node(code)


T = TypeVar("T")


def without(items: dict[str, T], key: str) -> dict[str, T]:
    """Return ``items`` without ``key``."""
    left = items.copy()
    left.pop(key, None)
    return left


def all_judged_again(known: SubjectState, why: str, context: RuleContext) -> SubjectState:
    """Return ``known`` with every fault judged by the tables and health word of now.

    ``why`` names the cause in the changes.
    """
    for fault in known.faults.values():
        verdict = context.judge(known, fault.code, fault.severity)
        if (verdict.level, verdict.because) == (fault.level, fault.because):
            continue
        after = replace(fault, level=verdict.level, because=verdict.because)
        known = replace(known, faults=known.faults | {fault.code: after})
        if after.level != fault.level:
            because = f"{why}: {after.because}"
            context.note(ChangeKind.CHANGED, after, because, fault.level, after.level)
    return known


def judged_again(known: ChipState, code: str, context: RuleContext) -> ChipState:
    """Return ``known`` after an upgrade of ``code`` was added, removed or changed: its fault
    follows.
    """
    fault = known.faults.get(code)
    if fault is None:
        return known
    verdict = context.judge(known, code, fault.severity)
    fault = replace(fault, level=verdict.level, because=verdict.because)
    return replace(known, faults=known.faults | {code: fault})


def level_of(known: SubjectState, code: str) -> str | None:
    """Return the level that ``code`` has on the subject, if only by a rule.

    ``None`` without one.
    """
    fault = known.faults.get(code)
    if not isinstance(known, ChipState) or not known.upgrades:
        return None if fault is None else fault.level
    levels = [upgrade.level for upgrade in known.upgrades if upgrade.code == code]
    if fault is not None:
        if not levels:
            return fault.level
        levels.append(ChipLevel(fault.level))
    return most_serious(levels) if levels else None

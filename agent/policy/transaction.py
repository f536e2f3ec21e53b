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
)
from contract.codes.catalogue import Catalogue, ReasonedLevel
from contract.codes.levels import ChipLevel, Severity, most_serious
from contract.observation import Subject
from contract.pages.agent_status import Upgrade


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
        # The revision makes two episodes of one code within a millisecond different. A replay of
        # the same inputs makes the same ids, so nothing random may be in them.
        state, revision = self.draft.state, self.draft.revision + 1
        text = f"{state.node}\0{self.subject}\0{code}\0{state.boot_id}\0{revision}\0{self.at_ms}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def note(
        self,
        kind: ChangeKind,
        cause: Fault | Upgrade,
        because: str,
        old: str | None = None,
        new: str | None = None,
    ) -> None:
        """Record a change of the episode of ``cause``, which may be over for an upgrade."""
        upgrade, device_fault = None, False
        if isinstance(cause, Upgrade):
            upgrade = cause
        else:
            device_fault = cause.device_fault and self.subject.kind == "chip"
        change = Change(
            kind,
            self.subject,
            cause.code,
            cause.episode,
            self.at_ms,
            because,
            old,
            new,
            cause.severity,
            device_fault,
            upgrade,
        )
        self.draft.changes.append(change)

    def judge(self, state: SubjectState, code: str, severity: Severity | None) -> ReasonedLevel:
        """Return the level of a code on the subject, and why. An upgrade can only raise it."""
        tables, kind = self.draft.tables, self.subject.kind
        if isinstance(state, ChipState):
            # Only chips without events have a word. Their lists have no severities, so the word
            # bounds them (decision 20).
            if severity is None and state.word is not None:
                verdict = tables.judge_by_word(code, state.word, state.listed or ())
            else:
                verdict = tables.judge(code, severity)
            for upgrade in state.upgrades:
                if upgrade.code == code:
                    level = ChipLevel(verdict.level)
                    if most_serious([upgrade.level, level]) is not level:
                        verdict = ReasonedLevel(upgrade.level, upgrade.because)
            return verdict
        if kind == "switch":
            return tables.judge_switch(code)
        # Faults of storage are published as public faults, which have a table of their own.
        return tables.judge_public(code) if kind == "storage" else tables.judge_node(code)


T = TypeVar("T")


def without(items: dict[str, T], key: str) -> dict[str, T]:
    """Return ``items`` without ``key``."""
    remaining = items.copy()
    remaining.pop(key, None)
    return remaining


def all_judged_again(state: SubjectState, cause: str, context: RuleContext) -> SubjectState:
    """Return ``state`` with every fault judged by the tables and health word of now.

    ``cause`` is named in the changes.
    """
    for fault in state.faults.values():
        verdict = context.judge(state, fault.code, fault.severity)
        if (verdict.level, verdict.because) == (fault.level, fault.because):
            continue  # the same object stays, so that nothing looks changed
        after = replace(fault, level=verdict.level, because=verdict.because)
        state = replace(state, faults=state.faults | {fault.code: after})
        if after.level != fault.level:
            because = f"{cause}: {after.because}"
            context.note(ChangeKind.CHANGED, after, because, fault.level, after.level)
    return state


def judged_again(state: ChipState, code: str, context: RuleContext) -> ChipState:
    """Return ``state`` after an upgrade of ``code`` was added, removed or changed: its fault
    follows.
    """
    fault = state.faults.get(code)
    if fault is None:
        return state
    # Without a note, unlike in ``all_judged_again``: UPGRADED and RELEASED state both levels.
    verdict = context.judge(state, code, fault.severity)
    fault = replace(fault, level=verdict.level, because=verdict.because)
    return replace(state, faults=state.faults | {code: fault})


def level_of(state: SubjectState, code: str) -> str | None:
    """Return the level that ``code`` has on the subject, if only by a rule.

    ``None`` without one.
    """
    fault = state.faults.get(code)
    if not isinstance(state, ChipState) or not state.upgrades:
        return None if fault is None else fault.level
    levels = [upgrade.level for upgrade in state.upgrades if upgrade.code == code]
    if fault is not None:
        if not levels:
            return fault.level
        levels.append(ChipLevel(fault.level))
    return most_serious(levels) if levels else None

"""Upgrades that only a document has (adoption), and those that an operator ends in one
(release).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.policy import frequencies, upgrades
from agent.policy.state import Adopted, ChipState, SubjectState, Upgrade
from contract.codes.levels import ChipLevel
from contract.codes.policies import AUTOFILL_CODE, FAULT_DURATION, FAULT_FREQUENCY, UPGRADE_TYPES

if TYPE_CHECKING:
    from agent.policy.transaction import RuleContext
    from contract.codes.catalogue import Catalogue
    from contract.codes.policies import DurationPolicy, FrequencyPolicy

_LEVELS = frozenset(ChipLevel)


def rule_of(tables: Catalogue, kind: str, code: str) -> DurationPolicy | FrequencyPolicy | None:
    """Return the rule of ``kind`` that names ``code``."""
    if kind == FAULT_DURATION:
        return tables.durations.get(code)
    return tables.frequencies.get(code) if kind == FAULT_FREQUENCY else None


def adopt(known: SubjectState, item: Adopted, context: RuleContext) -> SubjectState:
    """Return ``known`` with an upgrade that no journal of ours has: its time stays, its rule ends
    it.

    An upgrade whose rule is not known stays as it is until the next configuration judges it, which
    may not have been read yet.
    """
    if not isinstance(known, ChipState) or known.upgrade_of(item.code, item.kind) is not None:
        return known
    rule = rule_of(context.draft.tables, item.kind, item.code)
    level = item.level if rule is None else rule.level
    if level not in _LEVELS or item.kind not in UPGRADE_TYPES:
        return known
    fault = known.faults.get(item.code)
    because = f"{item.code} was upgraded before ({item.kind})"
    if item.code == AUTOFILL_CODE:
        because = f"the stored document isolates it without a reason ({item.kind})"
        if item.request is not None:
            because = f"{item.request.by} (as stated) isolated it: {item.request.reason}"
    gone = item.kind == FAULT_DURATION and (fault is None or fault.once)
    upgrade = Upgrade(
        item.code,
        item.kind,
        ChipLevel(level),
        item.upgraded_at_ms,
        because,
        context.episode(item.code) if fault is None else fault.episode,
        context.draft.tables.severity_of(item.code) if fault is None else fault.severity,
        item.at_ms if gone else None,
        item.request,
    )
    known = upgrades.add(known, upgrade, context)
    if item.kind == FAULT_FREQUENCY:
        known = frequencies.adopted(known, upgrade, item.at_ms)
    return known


def release(known: SubjectState, context: RuleContext) -> SubjectState:
    """Return ``known`` without the upgrades that separate the chip, and with new counters.

    Source: docs/spec/device-plugin.md#3.6.
    """
    if not isinstance(known, ChipState) or not known.isolated:
        return known
    for upgrade in known.upgrades:
        if upgrade.level is ChipLevel.MANUALLY_SEPARATE_NPU:
            because = "an operator took its name out of ManuallySeparateNPU"
            known = upgrades.remove(known, upgrade, because, context)
    return frequencies.counters_emptied(known)

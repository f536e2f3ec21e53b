"""A new fault configuration: all faults are judged again by the new tables.

Source: ``docs/spec/device-plugin.md#3.7``, without the defects K33 and K51.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy import frequencies, upgrades
from agent.policy.adoption import rule_of
from agent.policy.state import ChipState
from agent.policy.transaction import all_judged_again
from contract.codes.policies import FAULT_AUTOFILL, FAULT_DURATION

if TYPE_CHECKING:
    from agent.policy.state import SubjectState, Upgrade
    from agent.policy.transaction import RuleContext


def configured(known: SubjectState, context: RuleContext) -> SubjectState:
    """Return ``known`` under the tables of ``context``, which are in force since its time."""
    if isinstance(known, ChipState):
        for upgrade in known.upgrades:
            known = _judged(known, upgrade, context)
        known = frequencies.configured(known, context)
    return all_judged_again(known, "the fault configuration changed", context)


def _judged(known: ChipState, upgrade: Upgrade, context: RuleContext) -> ChipState:
    """Return ``known`` after the rule of ``upgrade`` changed or was removed.

    The upgrade's time stays.
    """
    if upgrade.kind == FAULT_AUTOFILL:
        return known
    rule = rule_of(context.draft.tables, upgrade.kind, upgrade.code)
    if rule is None:
        because = f"no {upgrade.kind} rule names {upgrade.code} any more"
        known = upgrades.remove(known, upgrade, because, context)
        fault = known.faults.get(upgrade.code)
        if upgrade.kind == FAULT_DURATION and (fault is None or fault.once):
            known = frequencies.recovered(known, upgrade.code, context.at_ms)
        return known
    if rule.level is upgrade.level:
        return known
    because = f"the {upgrade.kind} rule has another level now"
    return upgrades.add(known, replace(upgrade, level=rule.level), context, because)

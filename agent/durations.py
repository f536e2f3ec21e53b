"""The duration rule: a code that holds too long is at a higher level until it was gone long enough.

Pure functions of one chip. Nothing is counted: how long a code holds is told by its fault, how long
it is gone by its upgrade, so a rule that is new finds a live fault at its true age, and a restart
changes nothing. Both comparisons are strictly greater, hence each deadline is one millisecond
behind its timeout. Source: ``spec/device-plugin.md`` 3.5, without its defects K15 and K43.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent import frequencies, upgrades
from agent.state import ChipState, Fault, Upgrade
from contract.policies import FAULT_DURATION

if TYPE_CHECKING:
    from agent.draft import Draft
    from contract.observation import Subject
    from contract.policies import DurationPolicy


def due_ms(known: ChipState, code: str, policy: DurationPolicy) -> int | None:
    """When time alone upgrades ``code`` or releases it.

    A one-off event never lasts, and a fault in doubt may be over.
    """
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None:
        fault = known.faults.get(code)
        if fault is None or fault.once or fault.doubted_at_ms is not None:
            return None
        return fault.first_seen_ms + policy.fault_timeout_ms + 1
    if upgrade.gone_since_ms is None:
        return None
    return upgrade.gone_since_ms + policy.recover_timeout_ms + 1


def apply(
    known: ChipState,
    subject: Subject,
    code: str,
    policy: DurationPolicy,
    at_ms: int,
    draft: Draft,
) -> ChipState:
    """``known`` when the rule of ``code`` fires or releases, which a frequency rule counts."""
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None:
        upgrade = _upgrade(known.faults[code], policy)
        known = upgrades.give(known, subject, upgrade, at_ms, draft)
        return frequencies.occurred(
            known, subject, frequencies.origin_of(upgrade), upgrade.upgraded_at_ms, at_ms, draft
        )
    assert upgrade.gone_since_ms is not None
    seconds = policy.recover_timeout_ms / 1000
    because = f"{code} was gone for longer than {seconds:g} s ({FAULT_DURATION})"
    known = upgrades.take(known, subject, upgrade, at_ms, because, draft)
    return frequencies.recovered(known, code, upgrade.gone_since_ms + policy.recover_timeout_ms)


def _upgrade(fault: Fault, policy: DurationPolicy) -> Upgrade:
    because = (
        f"{fault.code} held for longer than {policy.fault_timeout_ms / 1000:g} s ({FAULT_DURATION})"
    )
    return Upgrade(
        fault.code,
        FAULT_DURATION,
        policy.level,
        fault.first_seen_ms + policy.fault_timeout_ms,
        because,
        fault.episode,
        fault.severity,
    )


def gone(known: ChipState, code: str, at_ms: int) -> ChipState:
    """``known`` when ``code`` does not hold any more."""
    return _gone_since(known, code, at_ms)


def there(known: ChipState, code: str) -> ChipState:
    """``known`` when ``code`` holds again."""
    return _gone_since(known, code, None)


def _gone_since(known: ChipState, code: str, at_ms: int | None) -> ChipState:
    if not known.upgrades:
        return known
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None or upgrade.gone_since_ms == at_ms:
        return known
    return upgrades.put(known, replace(upgrade, gone_since_ms=at_ms))

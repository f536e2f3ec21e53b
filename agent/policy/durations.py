"""The duration rule: a code that holds too long has a higher level until it was gone long enough.

Pure functions of one chip, without counters: the fault has the time since which a code holds, the
upgrade the time since which it is gone. So a new rule finds a fault at its true age, and a restart
changes nothing. Both comparisons are strictly greater, hence each deadline is one millisecond
behind its timeout. Source: ``docs/spec/device-plugin.md#3.5``, without its defects K15 and K43.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy import frequencies, upgrades
from agent.policy.state import ChipState, Fault, Upgrade
from contract.codes.policies import FAULT_DURATION

if TYPE_CHECKING:
    from agent.policy.transaction import RuleContext
    from contract.codes.policies import DurationPolicy


def upgrade_ms(fault: Fault, policy: DurationPolicy) -> int:
    """Return when ``fault`` holds too long (epoch ms).

    Not for a one-off event, nor for an unconfirmed fault, which may be over.
    """
    return fault.first_seen_ms + policy.fault_timeout_ms + 1


def release_ms(upgrade: Upgrade, policy: DurationPolicy) -> int | None:
    """Return when the code of ``upgrade`` is gone long enough (epoch ms).

    ``None`` while it holds.
    """
    if upgrade.gone_since_ms is None:
        return None
    return upgrade.gone_since_ms + policy.recover_timeout_ms + 1


def upgrade(
    known: ChipState, fault: Fault, policy: DurationPolicy, context: RuleContext
) -> ChipState:
    """Return ``known`` after ``fault`` held too long, which a frequency rule counts as an
    occurrence.
    """
    seconds, since_ms = policy.fault_timeout_ms / 1000, fault.first_seen_ms
    upgrade = Upgrade(
        fault.code,
        FAULT_DURATION,
        policy.level,
        since_ms + policy.fault_timeout_ms,
        f"{fault.code} held for longer than {seconds:g} s ({FAULT_DURATION})",
        fault.episode,
        fault.severity,
    )
    known = upgrades.add(known, upgrade, context)
    return frequencies.occurred(known, upgrade, upgrade.upgraded_at_ms, context)


def release(
    known: ChipState, upgrade: Upgrade, policy: DurationPolicy, context: RuleContext
) -> ChipState:
    """Return ``known`` after the code of ``upgrade`` was gone long enough.

    For a frequency rule that is the recovery of the code.
    """
    assert upgrade.gone_since_ms is not None
    known = upgrades.expire(known, upgrade, policy.recover_timeout_ms, context)
    recovered_ms = upgrade.gone_since_ms + policy.recover_timeout_ms
    return frequencies.recovered(known, upgrade.code, recovered_ms)


def gone_since(known: ChipState, code: str, at_ms: int | None) -> ChipState:
    """Return ``known`` with ``code`` gone since ``at_ms``; ``None``: it holds again."""
    if not known.upgrades:
        return known
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None or upgrade.gone_since_ms == at_ms:
        return known
    return upgrades.with_upgrade(known, replace(upgrade, gone_since_ms=at_ms))

"""The duration rule: a code that holds too long is at a higher level until it was gone long enough.

Pure functions of one chip. Nothing is counted: how long a code holds is told by its fault, how long
it is gone by its upgrade, so a rule that is new finds a live fault at its true age, and a restart
changes nothing. Both comparisons are strictly greater, hence each deadline is one millisecond
behind its timeout. Source: ``spec/device-plugin.md`` 3.5, without its defects K15 and K43.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.state import ChipState, Fault, Upgrade
from contract.policies import FAULT_DURATION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.policies import DurationPolicy


def due_ms(known: ChipState, code: str, policies: Mapping[str, DurationPolicy]) -> int | None:
    """When time alone upgrades ``code`` or releases it; 0 when its policy changed.

    A one-off event never lasts, and a fault in doubt may be over.
    """
    policy = policies.get(code)
    if policy is None and not known.upgrades:
        return None
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None:
        fault = known.faults.get(code)
        if policy is None or fault is None or fault.once or fault.doubted_at_ms is not None:
            return None
        return fault.first_seen_ms + policy.fault_timeout_ms + 1
    if policy is None or policy.level is not upgrade.level:
        return 0
    if upgrade.gone_since_ms is None:
        return None
    return upgrade.gone_since_ms + policy.recover_timeout_ms + 1


def upgraded(known: ChipState, fault: Fault, policy: DurationPolicy) -> ChipState:
    """``known`` when ``fault`` held too long."""
    because = (
        f"{fault.code} held for longer than {policy.fault_timeout_ms / 1000:g} s ({FAULT_DURATION})"
    )
    upgrade = Upgrade(
        fault.code,
        FAULT_DURATION,
        policy.level,
        fault.first_seen_ms + policy.fault_timeout_ms,
        because,
        fault.episode,
        fault.severity,
    )
    return _with(known, upgrade)


def adopted(known: ChipState, upgrade: Upgrade) -> ChipState:
    """``known`` with an upgrade that somebody else decided."""
    return _with(known, upgrade)


def released(known: ChipState, upgrade: Upgrade) -> ChipState:
    """``known`` without ``upgrade``."""
    return replace(known, upgrades=tuple(one for one in known.upgrades if one is not upgrade))


def relevelled(known: ChipState, upgrade: Upgrade, policy: DurationPolicy) -> ChipState:
    """``known`` when the policy of ``upgrade`` has another level; its time stays (3.7)."""
    return _with(released(known, upgrade), replace(upgrade, level=policy.level))


def gone(known: ChipState, code: str, at_ms: int) -> ChipState:
    """``known`` when ``code`` does not hold any more."""
    return _gone_since(known, code, at_ms)


def there(known: ChipState, code: str) -> ChipState:
    """``known`` when ``code`` holds again."""
    return _gone_since(known, code, None)


def _gone_since(known: ChipState, code: str, at_ms: int | None) -> ChipState:
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None or upgrade.gone_since_ms == at_ms:
        return known
    return _with(released(known, upgrade), replace(upgrade, gone_since_ms=at_ms))


def _with(known: ChipState, upgrade: Upgrade) -> ChipState:
    upgrades = sorted([*known.upgrades, upgrade], key=lambda one: (one.code, one.kind))
    return replace(known, upgrades=tuple(upgrades))

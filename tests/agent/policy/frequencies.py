"""Frequency rules for tests of the policy, and faults that occur often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.codes.catalogue import Catalogue, shipped
from contract.codes.levels import ChipLevel
from contract.codes.policies import DurationPolicy, FrequencyPolicy
from contract.observation import Assertion
from tests.agent.policy.builders import seen

if TYPE_CHECKING:
    from agent.policy.step import Input

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU
CODE = "80E18005"
DAY = 86_400


def rule(
    times: int,
    window: int = DAY,
    level: ChipLevel = MANUAL,
    release: int | None = None,
) -> FrequencyPolicy:
    return FrequencyPolicy(window, times, level, None if release is None else release * 1000)


def rules(
    durations: dict[str, DurationPolicy] | None = None, **by_code: FrequencyPolicy
) -> Catalogue:
    frequencies = {code.removeprefix("c"): policy for code, policy in by_code.items()}
    return replace(shipped(), durations=durations or {}, frequencies=frequencies)


FREQ3 = rules(c80E18005=rule(3))


def occurs(*at_ms: int, code: str = CODE, chip: int = 0) -> list[Input]:
    """Return one occurrence at each time; each ends 1 ms before the next one."""
    inputs: list[Input] = []
    for at in at_ms:
        if inputs:
            inputs.append(seen(RECOVER, code, chip, at=at - 1))
        inputs.append(seen(OCCUR, code, chip, at=at))
    return inputs

"""Random histories of a node: reports, acknowledgements and adopted upgrades, by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy.state import Acknowledged, Adopted
from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel, Severity
from contract.codes.policies import FAULT_DURATION, DurationPolicy, FrequencyPolicy
from contract.observation import (
    Assertion,
    Gap,
    Observation,
    SourceAnswered,
    SourceBlind,
    Subject,
    chip_subject,
)
from tests.agent.policy.builders import SOURCES, T

if TYPE_CHECKING:
    from agent.policy.step import Input
    from contract.codes.catalogue import Catalogue

CODES = ("80E3A201", "80E21007", "81078603", "8118043C", "80ABCDEF", "8C2FA009")
CHIPS = 2


ASSERTIONS = tuple(Assertion)
PAUSES = (0, 1, 300, 2_000, 6_000, 21_000, 61_000)


def input_at(now: int, rng: Random) -> Input:
    kind = rng.choice("ooooooooooobagkx")
    subject = chip_subject(rng.randrange(CHIPS))
    match kind:
        case "b":
            return SourceBlind(rng.choice(SOURCES), subject, now, "hangs")
        case "a":
            return SourceAnswered(rng.choice(SOURCES), subject, now)
        case "g":
            return Gap(SOURCES[0], now, "queue full")
        case "k":
            return Acknowledged("mindx-dl-deviceinfo-node-1", rng.randrange(60), now)
        case "x":
            return Adopted(subject, rng.choice(CODES), FAULT_DURATION, now - 30_000, now)
    return observation_at(now, subject, rng)


def observation_at(now: int, subject: Subject, rng: Random) -> Observation:
    return Observation(
        source=rng.choice(SOURCES),
        subject=subject,
        code=rng.choice(CODES),
        assertion=rng.choice(ASSERTIONS),
        seen_at_ms=now,
        severity=rng.choice((None, *Severity)),
        driver_raised_at_ms=rng.choice((None, now, now - 1, now - 400, now - 3_000)),
        serial=rng.choice((None, 0, 1, 2, 3, 4)),
    )


@dataclass(frozen=True)
class History:
    """Reports and acknowledgements, each a little later than the one before.

    Hypothesis draws only a seed and a length: drawing every field is a hundred times slower.
    """

    seed: int
    length: int

    def inputs(self) -> list[Input]:
        rng, now, inputs = Random(self.seed), T, []
        for _ in range(self.length):
            now += rng.choice(PAUSES)
            inputs.append(input_at(now, rng))
        return inputs


def time_of(item: Input) -> int:
    match item:
        case Observation():
            return item.seen_at_ms
        case SourceBlind():
            return item.since_ms
    return item.at_ms


RULE_LEVELS = (
    ChipLevel.MANUALLY_SEPARATE_NPU,
    ChipLevel.SEPARATE_NPU,
    ChipLevel.SUB_HEALTH_FAULT,
)


def random_rules(codes: tuple[str, ...], rng: Random) -> Catalogue:
    """Return the shipped catalogue with random rules for some of ``codes``."""
    frequencies = {
        code: FrequencyPolicy(
            60, rng.randint(1, 3), rng.choice(RULE_LEVELS), rng.choice((None, 60_000))
        )
        for code in codes
        if rng.random() < 0.6
    }
    durations = {
        code: DurationPolicy(rng.choice((0, 20_000)), 60_000, ChipLevel.PRE_SEPARATE_NPU)
        for code in codes
        if rng.random() < 0.3
    }
    return replace(shipped(), frequencies=frequencies, durations=durations)

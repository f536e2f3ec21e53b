"""The invariants of ``StateMachine``, for lives that are interrupted after each transition."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from agent.policy.state import (
    CHIP_SOURCE,
    ChangeKind,
    ChipsListed,
    ChipState,
    ClockSetBack,
    Configured,
    Forgotten,
    PolicyState,
    Released,
    restarted,
)
from agent.policy.step import next_deadline_ms, step
from agent.policy.transaction import RuleContext, Transaction
from contract.codes.policies import FAULT_DURATION, FAULT_FREQUENCY
from contract.listed_chips import ListedChip
from contract.observation import HealthRead, Subject, chip_subject
from tests.agent.policy.builders import NODE, T, answered
from tests.agent.policy.histories import (
    CHIPS,
    PAUSES,
    input_at,
    observation_at,
    random_rules,
)
from tests.parts.examples import examples

if TYPE_CHECKING:
    from agent.policy.state import Change, SubjectState
    from agent.policy.step import Input
    from contract.codes.catalogue import Catalogue

CODES = ("80E18005", "81078603", "80ABCDEF", "80E01801", "80C98009", "80CB8009")
PORT = Subject("switch", 2, "4/5/6")
LIVES = examples(300)


def next_input(now: int, rng: Random) -> Input:
    """Return any input of the policy: also those that are about each subject."""
    chip = chip_subject(rng.randrange(CHIPS))
    match rng.choice("iiiiiicccpplhrf"):
        case "c":
            observation = observation_at(now, chip, rng)
            return msgspec.structs.replace(observation, code=rng.choice(CODES))
        case "p":
            return observation_at(now, PORT, rng)
        case "l":
            cards = rng.sample(("A", "B", "C"), CHIPS)
            chips = tuple(ListedChip(n, n, die=f"die {card}") for n, card in enumerate(cards))
            return ChipsListed(chips, "910b", now)
        case "h":
            codes = tuple(rng.sample(CODES, 2))
            return HealthRead(CHIP_SOURCE, chip, now, rng.choice((None, 0, 1, 2, 3)), codes)
        case "r":
            return Released(chip, now)
        case "f":
            return Forgotten(chip, now, "removed")
    return input_at(now, rng)


class InterruptedLife:
    """One state machine that is stored and restored after each transition."""

    def __init__(self, rng: Random) -> None:
        self.tables = random_rules(CODES, rng)
        self.state = PolicyState(NODE, "boot")
        self.open = set[str]()
        self.reasons = set[tuple[str, str]]()
        self.changes: list[Change] = []

    def transition(self, inputs: list[Input], now_ms: int) -> None:
        before = self.state
        self.state, changes = step(before, inputs, now_ms, self.tables)
        self._observe(changes)
        self.changes += changes
        self.check(before, now_ms)
        self.interrupt()

    def pass_time(self, until_ms: int) -> None:
        """Make each deadline until ``until_ms`` a transition of its own."""
        while (due := next_deadline_ms(self.state, self.tables)) is not None and due <= until_ms:
            self.transition([], due)

    def interrupt(self) -> None:
        """End the process: the next one has only what the journal stored."""
        stored = msgspec.json.encode(self.state)
        restored = msgspec.json.decode(stored, type=PolicyState)
        assert restored == self.state
        self.state = restored

    def check(self, before: PolicyState, now_ms: int) -> None:
        assert self.state.revision >= before.revision
        due = next_deadline_ms(self.state, self.tables)
        assert due is None or due > now_ms
        for subject, state in self.state.subjects():
            context = RuleContext(subject, now_ms, Transaction(self.state, self.tables, 0))
            check_faults(state, context)
            if isinstance(state, ChipState):
                check_rules(state, self.tables)
        assert self.open == {
            fault.episode for _, state in self.state.subjects() for fault in state.faults.values()
        }
        assert self.reasons == {
            (upgrade.episode, upgrade.kind)
            for chip in self.state.chips.values()
            for upgrade in chip.upgrades
        }

    def _observe(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            match change.kind:
                case ChangeKind.BEGAN | ChangeKind.RETURNED:
                    assert change.episode not in self.open
                    self.open.add(change.episode)
                case ChangeKind.ENDED:
                    self.open.remove(change.episode)
                case ChangeKind.UPGRADED:
                    assert change.upgrade is not None
                    self.reasons.add((change.episode, change.upgrade.kind))
                case ChangeKind.RELEASED:
                    assert change.upgrade is not None
                    self.reasons.remove((change.episode, change.upgrade.kind))
                case _:
                    assert change.episode in self.open


def check_faults(state: SubjectState, context: RuleContext) -> None:
    for code, fault in state.faults.items():
        assert fault.code == code
        assert fault.level == context.judge(state, code, fault.severity).level
        assert fault.revision <= context.draft.state.revision
        assert fault.once or fault.acknowledged_at_ms is None
        assert not fault.once or fault.unconfirmed_at_ms is None


def check_rules(chip: ChipState, tables: Catalogue) -> None:
    keys = [(upgrade.code, upgrade.kind) for upgrade in chip.upgrades]
    assert keys == sorted(set(keys))
    for upgrade in chip.upgrades:
        fault = chip.faults.get(upgrade.code)
        holds = fault is not None and not fault.once
        if upgrade.kind == FAULT_DURATION:
            assert (upgrade.gone_since_ms is None) == holds
    for code, counter in chip.counters.items():
        if chip.upgrade_of(code, FAULT_FREQUENCY) is not None:
            assert counter.occurred_ms == ()
        else:
            assert len(counter.occurred_ms) < tables.frequencies[code].times


@LIVES
@given(st.integers(0, 2**32), st.integers(10, 60))
def test_invariants_hold_after_each_transition(seed: int, length: int) -> None:
    rng = Random(seed)
    life, now = InterruptedLife(rng), T
    life.transition(list(answered(*range(CHIPS), at=now)), now)
    for _ in range(length):
        now += rng.choice(PAUSES)
        if rng.random() < 0.03:
            # New rules judge what was due before by the old ones, and each deadline then by new.
            life.pass_time(now)
            life.tables = random_rules(CODES, rng)
            life.transition([Configured("", now)], now)
        elif rng.random() < 0.03:
            now -= rng.choice((1_000, 60_000))
            life.transition([ClockSetBack(now)], now)
        elif rng.random() < 0.03:
            life.state = restarted(life.state, f"boot {now}")
            life.transition([Configured("", now)], now)  # as each start does
        else:
            life.transition([next_input(now, rng)], now)


@LIVES
@example(85416, 10)  # occurrences of two chips that are held back begin in one late call
@given(st.integers(0, 2**32), st.integers(10, 60))
def test_an_interrupted_life_is_the_same_as_an_uninterrupted_life(seed: int, length: int) -> None:
    rng = Random(seed)
    life, now = InterruptedLife(rng), T
    inputs: list[Input] = list(answered(*range(CHIPS), at=now))
    life.transition(list(inputs), now)
    for _ in range(length):
        now += rng.choice(PAUSES)
        inputs.append(next_input(now, rng))
        life.pass_time(now)
        life.transition([inputs[-1]], now)
    state, changes = step(PolicyState(NODE, "boot"), inputs, now, life.tables)
    assert state == life.state
    assert list(changes) == life.changes

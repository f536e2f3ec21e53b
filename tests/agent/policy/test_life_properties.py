"""What holds for every life of an agent: restarts, lost writes, operators, configurations.

An agent without its edges: the state, a journal of what went into it, and the store's document.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.policy.state import (
    Acknowledged,
    Adopted,
    ChangeKind,
    ClockSetBack,
    Configured,
    PolicyState,
    Released,
)
from agent.policy.step import Input, next_deadline_ms, step
from agent.publishing.chip_lists import render
from agent.publishing.device_info import DeviceInfoDocument
from contract.codes.families import FAMILIES
from contract.codes.levels import ChipLevel, most_serious
from contract.codes.policies import AUTOFILL_CODE, FAULT_FREQUENCY
from contract.documents.device_info import (
    MANUALLY_SEPARATE_KEY,
    DeviceInfo,
    encode,
    verify_published,
)
from contract.documents.separation import read_names
from contract.observation import Observation, Subject, chip_subject
from stores.base import Document
from tests.agent.policy.builders import NODE, SOURCES, T, answered, inventory
from tests.agent.policy.histories import ASSERTIONS, random_rules
from tests.parts.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.codes.catalogue import Catalogue

CHIPS = 2
CODES = ("80E18005", "80E21007", "81078603", "80ABCDEF", "80E01801", "80C98009")
MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU
PAUSES = (0, 1, 300, 2_000, 6_000, 21_000, 61_000, 130_000)
LONGEST_RULE_MS = 60_000
RELEASED_BY_TIME = ("was gone for longer than", "ends as the last one")


class Life:
    """One agent and its store."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = T
        self.tables = random_rules(CODES, self.rng)
        self.state = PolicyState(NODE, "boot")
        self.journal: list[tuple[Catalogue, list[Input], int]] = []
        self.snapshot: tuple[int, PolicyState] = (0, self.state)
        self.stored: Document | None = None
        self.reasons = set[tuple[Subject, str, str]]()
        self.operators = set[int]()
        self.take(answered(*range(CHIPS), at=self.now))

    def take(self, taken: Sequence[Input]) -> None:
        inputs = list(taken)
        self.journal.append((self.tables, inputs, self.now))
        before = {chip for chip, known in self.state.chips.items() if known.isolated}
        self.state, changes = step(self.state, inputs, self.now, self.tables)
        by_time = set[int]()
        for change in changes:
            if change.upgrade is None:
                continue
            reason = (change.subject, change.upgrade.code, change.upgrade.kind)
            if change.kind is ChangeKind.UPGRADED:
                self.reasons.add(reason)
            else:
                assert change.kind is ChangeKind.RELEASED
                self.reasons.remove(reason)
            if any(words in change.because for words in RELEASED_BY_TIME):
                by_time.add(change.subject.id)
        configured = any(isinstance(item, Configured) for item in inputs)
        after = {chip for chip, known in self.state.chips.items() if known.isolated}
        assert configured or before - after <= by_time | self.operators, "an isolation was lost"

    def made(self) -> DeviceInfoDocument:
        return DeviceInfoDocument(NODE, lambda: self.state)

    def document(self) -> DeviceInfo:
        return render(self.state, inventory(CHIPS), 1_700_000_100)

    # What happens.

    def observe(self) -> None:
        self.take([observation(self.now, self.rng) for _ in range(self.rng.randint(1, 3))])

    def publish(self) -> None:
        """Write the document: acknowledged, failed, or arrived without acknowledgement."""
        how = self.rng.choice(("acknowledged", "acknowledged", "lost", "arrived"))
        if how == "lost":
            return
        data = encode(self.document(), FAMILIES["Ascend910B"])
        made = self.made()
        self.stored = Document(made.namespace, made.name, data, {})
        if how == "acknowledged":
            named = made.separated_chips(self.stored)
            self.take([Acknowledged(made.name, self.state.revision, self.now, named)])

    def edit(self) -> None:
        """Edit the stored document as a person does."""
        if self.stored is None:
            return
        data = dict(self.stored.data)
        names = [name for name in data.get(MANUALLY_SEPARATE_KEY, "").split(",") if name]
        match self.rng.choice("roadk"):
            case "r" | "o" if names:
                names.remove(self.rng.choice(names))
                data[MANUALLY_SEPARATE_KEY] = ",".join(names)
            case "a":
                names.append(f"Ascend910-{self.rng.randrange(CHIPS)}")
                data[MANUALLY_SEPARATE_KEY] = ",".join(dict.fromkeys(names))
            case "d":
                self.stored = None
                return
            case "k":
                data.pop(MANUALLY_SEPARATE_KEY, None)
        self.stored = Document(self.stored.namespace, self.stored.name, data, {})

    def notice(self) -> None:
        """Let the agent read a write of another program."""
        if self.stored is not None:
            self.operate(list(self.made().operator_releases(self.stored, self.now)))

    def restart(self) -> None:
        """Restart from the last snapshot and the later inputs, then read the stored document."""
        first, state = self.snapshot
        for tables, inputs, now in self.journal[first:]:
            stored = msgspec.json.decode(msgspec.json.encode(inputs), type=list[Input])
            state = step(state, stored, now, tables)[0]
        assert state == self.state
        self.state = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
        isolation = self.made().restore_isolation(self.stored, self.now, has_journal=True)
        self.operate(list(isolation))

    def lose_everything(self) -> None:
        """Restart without a journal, so that the document is the only source."""
        self.state = PolicyState(NODE, "boot")
        self.journal, self.reasons, self.snapshot = [], set(), (0, self.state)
        made = self.made()
        isolation = made.restore_isolation(self.stored, self.now, has_journal=False)
        remembered = made.restore_from(self.stored)
        self.take([*isolation, *remembered, *answered(*range(CHIPS), at=self.now)])
        named = frozenset() if self.stored is None else read_names(self.stored.data)
        taken = {
            item.subject.id
            for item in isolation
            if isinstance(item, Adopted) and item.level == MANUAL
        }
        assert named is None or named == taken
        again = made.restore_isolation(self.stored, self.now, has_journal=False)
        assert again == isolation

    def operate(self, inputs: list[Input]) -> None:
        if inputs:
            self.operators = {item.subject.id for item in inputs if isinstance(item, Released)}
            self.take(inputs)
            self.operators = set()

    def remember(self) -> None:
        self.snapshot = len(self.journal), self.state

    def configure(self) -> None:
        self.take([])
        self.tables = random_rules(CODES, self.rng)
        self.take([Configured("new", self.now)])

    def wait(self) -> None:
        self.take([])

    def set_clock_back(self) -> None:
        self.now -= self.rng.choice((2_000, 7_200_000))
        self.take([ClockSetBack(self.now)])
        due_ms = next_deadline_ms(self.state, self.tables)
        assert due_ms is None or due_ms <= self.now + LONGEST_RULE_MS + 1

    def live(self, length: int) -> None:
        for _ in range(length):
            self.now += self.rng.choice(PAUSES)
            what = self.rng.choice(
                (
                    *[self.observe] * 8,
                    *[self.publish] * 3,
                    self.edit,
                    self.notice,
                    self.restart,
                    self.restart,
                    self.lose_everything,
                    self.remember,
                    self.configure,
                    self.set_clock_back,
                    self.wait,
                )
            )
            what()


def observation(now: int, rng: Random) -> Observation:
    return Observation(
        source=rng.choice(SOURCES),
        subject=chip_subject(rng.randrange(CHIPS)),
        code=rng.choice(CODES),
        assertion=rng.choice(ASSERTIONS),
        seen_at_ms=now,
        driver_raised_at_ms=rng.choice((None, now, now - 1)),
        serial=rng.choice((None, 1, 2, 3)),
    )


def is_set_back(inputs: Sequence[Input]) -> bool:
    return any(isinstance(item, ClockSetBack) for item in inputs)


def lived(seed: int, length: int) -> Life:
    life = Life(seed)
    life.live(length)
    return life


LIVES = st.builds(lived, st.integers(0, 2**32), st.integers(20, 80))
MANY = examples(300)


@pytest.mark.slow
@MANY
@given(LIVES, st.integers(0, 2**32))
def test_document_is_what_the_journal_alone_contains(life: Life, seed: int) -> None:
    """However the journal is cut: inputs under the same tables and while the clock goes on may come
    in any batches."""
    rng = Random(seed)
    state, batch = PolicyState(NODE, "boot"), list[Input]()
    for place, (tables, inputs, now) in enumerate(life.journal):
        batch += inputs
        following = life.journal[place + 1 :]
        goes_on = following and following[0][0] is tables
        if goes_on and not is_set_back(following[0][1]) and rng.random() < 0.7:
            continue
        state, batch = step(state, batch, now, tables)[0], []
    assert state == life.state
    info = render(state, inventory(CHIPS), 1_700_000_100)
    assert info == life.document()
    assert verify_published(encode(info, FAMILIES["Ascend910B"]), "doc") == info


@pytest.mark.slow
@MANY
@given(LIVES)
def test_every_level_has_a_reason_and_every_reason_an_entry(life: Life) -> None:
    present = set()
    for chip, known in life.state.chips.items():
        for upgrade in known.upgrades:
            present.add((chip_subject(chip), upgrade.code, upgrade.kind))
        for code, fault in known.faults.items():
            levels = [one.level for one in known.upgrades if one.code == code]
            own = life.tables.level_of(code, fault.severity)
            assert fault.level == most_serious([own, *levels])
        for code, counter in known.counters.items():
            if known.upgrade_of(code, FAULT_FREQUENCY) is None:
                assert 0 < len(counter.occurred_ms) < life.tables.frequencies[code].times
            else:
                assert counter.occurred_ms == ()
    assert present == life.reasons
    info = life.document()
    named = {name for name in info.manually_separated.split(",") if name}
    assert named == {f"Ascend910-{n}" for n, known in life.state.chips.items() if known.isolated}
    shown = {entry.npu_name for entry in info.faults if entry.fault_level == "ManuallySeparateNPU"}
    assert shown == named
    for entry in info.faults:
        if not entry.fault_code:
            isolated = life.state.chips[int(entry.npu_name.rpartition("-")[2])]
            assert AUTOFILL_CODE in [upgrade.code for upgrade in isolated.upgrades]

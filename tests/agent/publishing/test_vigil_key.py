"""When the agent's own data key changes: after a moment, and at most every 10 s."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from agent.policy.state import Blindness, ChipState, Fault, PolicyState, SubjectState
from agent.publishing.vigil_key import (
    NOTHING_NAMED,
    PACE_SECONDS,
    SETTLE_MS,
    VigilKeyText,
    key_with_answers,
)
from contract.documents.vigil_key import decode_vigil_key

pytestmark = pytest.mark.looptime
BEGIN_MS = 1_795_000_000_000
SETTLE_SECONDS = SETTLE_MS / 1000
SEEING = ChipState(answered=("chip-faults",))


class Bench:
    """The text, asked for whenever a publisher would ask."""

    def __init__(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self.state = PolicyState("node-1", "boot", chips={3: SEEING})
        self.key = VigilKeyText(lambda: self.state, self.now_ms, self.ask)
        self.texts: list[tuple[float, str | None]] = []

    def seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def now_ms(self) -> int:
        return BEGIN_MS + round(self.seconds() * 1000)

    def ask(self) -> None:
        text = self.key.named().text
        if not self.texts or self.texts[-1][1] != text:
            self.texts.append((round(self.seconds(), 2), text))

    def set(self, known: ChipState, **others: SubjectState) -> None:
        self.state = PolicyState("node-1", "boot", chips={3: known}, others=others)
        self.ask()

    def blind(self) -> ChipState:
        why = Blindness(self.now_ms(), "the call hangs")
        return ChipState(answered=("chip-faults",), blind={"chip-faults": why})


async def test_without_a_blind_source_an_answer_has_no_time_of_a_change() -> None:
    fault = Fault("80C98000", "e", "chip-faults", "RestartNPU", "", BEGIN_MS, 1)
    state = PolicyState("node-1", "boot", chips={3: ChipState(faults={fault.code: fault})})
    text = key_with_answers(NOTHING_NAMED, state)
    assert text is not None
    record = decode_vigil_key(text, "doc")
    assert [answer.code for answer in record.faults] == ["80C98000"]
    assert record.changed_at_ms == 0


async def test_a_blind_source_is_named_shortly_after_and_left_out_at_its_end() -> None:
    bench = Bench()
    bench.set(SEEING)
    await asyncio.sleep(1)
    bench.set(bench.blind())
    await asyncio.sleep(60)
    bench.set(SEEING)
    times = [at for at, _ in bench.texts]
    assert times == [0.0, pytest.approx(1 + SETTLE_SECONDS, abs=0.01), 61.0]
    text = bench.texts[1][1]
    assert text is not None
    (one,) = decode_vigil_key(text, "doc").blind
    assert (one.chip, one.source, one.since_ms, one.why) == (
        3,
        "chip-faults",
        BEGIN_MS + 1000,
        "the call hangs",
    )
    assert bench.texts[2][1] is None


@pytest.mark.parametrize("seconds", [0.5, 2.5, 7.0])
async def test_a_source_that_comes_and_goes_costs_few_changes(seconds: float) -> None:
    bench = Bench()
    bench.set(SEEING)
    while bench.seconds() < 600:
        bench.set(bench.blind())
        await asyncio.sleep(seconds)
        bench.set(SEEING)
        await asyncio.sleep(seconds)
    changes = [at for at, _ in bench.texts][1:]
    assert len(changes) <= 600 / PACE_SECONDS
    gaps = [later - before for before, later in itertools.pairwise(changes)]
    assert all(gap >= PACE_SECONDS - 0.02 for gap in gaps)
    if seconds * 1000 > SETTLE_MS:
        assert changes, "it is shown sometimes"


async def test_source_that_was_blind_before_a_start_is_named_at_once() -> None:
    bench = Bench()
    why = Blindness(BEGIN_MS - 60_000, "no answer")
    bench.set(
        SEEING,
        **{
            "node 0": SubjectState(blind={"bmc": why}),
            "storage 0 DPC": SubjectState(blind={"storage": why}),
        },
    )
    (first,) = bench.texts
    assert first[1] is not None
    named = [(one.source, one.chip) for one in decode_vigil_key(first[1], "doc").blind]
    assert named == [("bmc", None), ("storage DPC", None)]


async def test_the_same_text_is_the_same_object() -> None:
    bench = Bench()
    bench.set(bench.blind())
    await asyncio.sleep(5)
    named = bench.key.named()
    assert named.text is not None
    bench.state = PolicyState("node-1", "boot", revision=1, chips=bench.state.chips)
    assert bench.key.named() is named

"""What goes through the policy is journaled, and a start goes the same way again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from agent.fault_state import restored_state
from agent.journal.file import FILE_NAME, RestoredJournal, read_restored
from agent.journal.rows import JournalRow, RowKind
from agent.policy.state import SETTLE_MS, Acknowledged, Adopted, PolicyState, restarted
from agent.policy.step import ONCE_VISIBLE_MS, next_deadline_ms
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel
from contract.codes.policies import DurationPolicy
from contract.names import device_info_name
from contract.observation import NODE as NODE_SUBJECT
from contract.observation import (
    Assertion,
    Observation,
    SourceAnswered,
    SourceBlind,
    chip_subject,
    host_subject,
)
from contract.operator_rules.fault_configuration import FaultTexts
from tests.agent.lives import TABLES, Clock, FaultStateLife, seen_now
from tests.parts.deadlines import stays, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.policy.step import Input

NODE = "node-1"


def but_for_the_start(state: PolicyState) -> PolicyState:
    return msgspec.structs.replace(state, settled_at_ms=0)


def history(clock: Clock) -> list[Sequence[Input]]:
    subject = chip_subject(3)
    return [
        [SourceAnswered("chip-faults", chip_subject(chip), clock()) for chip in range(8)],
        [seen_now(clock, Assertion.OCCUR), seen_now(clock, Assertion.OCCUR, 4)],
        [seen_now(clock, Assertion.ONCE, 5)],
        [Acknowledged(device_info_name(NODE), 3, clock())],
        [SourceBlind("chip-faults", subject, clock(), "does not return")],
        [seen_now(clock, Assertion.RECOVER, 4)],
    ]


@pytest.mark.parametrize("lives", [1, 3, 6])
async def test_every_restart_continues_the_same_state(tmp_path: Path, lives: int) -> None:
    clock = Clock()
    whole = PolicyState(NODE, "boot")
    inputs = history(clock)
    for number, batch in enumerate(inputs):
        if number % (len(inputs) // lives) == 0:
            life = FaultStateLife(tmp_path, clock)
            if number:
                assert but_for_the_start(life.fault_state.state) == but_for_the_start(
                    restarted(whole, "boot")
                )
        await life.take(*batch)
        whole = life.fault_state.state
        clock.now_ms += 10
    assert set(whole.chips[3].faults) == {"80E01801"}
    assert not whole.chips[4].faults
    again = FaultStateLife(tmp_path, clock).fault_state.state
    assert but_for_the_start(again) == but_for_the_start(restarted(whole, "boot"))


async def test_an_episode_that_is_over_is_counted_by_its_level(tmp_path: Path) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    assert set(life.fault_state.episodes.by_level.values()) == {0}
    await life.take(seen_now(clock, Assertion.OCCUR))
    clock.now_ms += 1000
    await life.take(seen_now(clock, Assertion.RECOVER))
    await life.take(seen_now(clock, Assertion.OCCUR, 4))
    began_at_ms = clock.now_ms
    clock.now_ms += 1000
    await life.take(seen_now(clock, Assertion.OCCUR, 4))  # the same episode
    assert list(life.fault_state.state.chips) == [3, 4]
    assert not life.fault_state.state.chips[3].faults
    counts = life.fault_state.episodes
    level = life.fault_state.state.chips[4].faults["80E01801"].level
    assert {level: count for level, count in counts.by_level.items() if count} == {level: 2}
    assert counts.last_at_ms == {level: began_at_ms}
    # A counter begins again, but not the time: an alert would report an old fault as a new one.
    again = FaultStateLife(tmp_path, clock).fault_state.episodes
    assert set(again.by_level.values()) == {0}
    assert again.last_at_ms == {level: began_at_ms}


async def test_a_restart_remembers_alarms_but_not_that_the_bmc_answered(tmp_path: Path) -> None:
    clock, fan = Clock(), host_subject("Fan", 3)
    alarm = Observation("bmc", fan, "06000025", Assertion.PRESENT, clock())
    life = FaultStateLife(tmp_path, clock)
    await life.take(SourceAnswered("bmc", NODE_SUBJECT, clock()), alarm)
    assert life.fault_state.state.of(NODE_SUBJECT).answered == ("bmc",)
    again = FaultStateLife(tmp_path, clock).fault_state.state
    assert again.of(NODE_SUBJECT).answered == ()
    assert again.of(fan) == life.fault_state.state.of(fan)


@pytest.mark.slow
async def test_many_inputs_are_journaled_with_snapshots(tmp_path: Path) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    for _ in range(400):
        life.fault_state.apply_inputs([seen_now(clock, Assertion.OCCUR)])
        clock.now_ms += 20_000
        life.fault_state.apply_inputs([seen_now(clock, Assertion.RECOVER)])
        clock.now_ms += 20_000
    await life.take(seen_now(clock, Assertion.OCCUR))
    remembered = read_restored(tmp_path / FILE_NAME)
    assert len(remembered.inputs) < 300
    assert restored_state(remembered, NODE, "boot", TABLES) == life.fault_state.state


async def test_a_once_event_is_released_in_the_next_life_too(tmp_path: Path) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(seen_now(clock, Assertion.ONCE))
    assert life.woken == [clock()]
    revision = life.fault_state.state.revision
    clock.now_ms += 60_000
    life = FaultStateLife(tmp_path, clock)
    assert life.fault_state.state.chips[3].faults, "nobody has seen it yet"
    await life.take(Acknowledged(device_info_name(NODE), revision, clock()))
    clock.now_ms += ONCE_VISIBLE_MS - 50
    life = FaultStateLife(tmp_path, clock)
    assert life.fault_state.state.chips[3].faults
    await stays(0.02, because="a timer that is due runs at once")
    clock.now_ms += 50
    await until(lambda: not life.fault_state.state.chips[3].faults)
    assert life.woken, "its release is published"


async def test_a_link_that_is_down_is_upgraded_and_released_in_later_lives(tmp_path: Path) -> None:
    """Each life ends without a word, as after ``kill -9``; the deadlines are the clock's."""
    clock = Clock()
    down_ms = clock()
    await FaultStateLife(tmp_path, clock).take(seen_now(clock, Assertion.OCCUR, code=LINK_DOWN))
    clock.now_ms = down_ms + 15_000
    life = FaultStateLife(tmp_path, clock)
    clock.now_ms = down_ms + 20_000
    await life.take()
    assert not life.fault_state.state.chips[3].upgrades
    clock.now_ms += 1
    await life.take()
    (upgrade,) = life.fault_state.state.chips[3].upgrades
    assert upgrade.upgraded_at_ms == down_ms + 20_000
    assert life.woken == [down_ms + 20_001], "it is published"
    clock.now_ms = down_ms + 30_000
    life = FaultStateLife(tmp_path, clock)
    assert life.fault_state.state.chips[3].upgrades == (upgrade,)
    await life.take(seen_now(clock, Assertion.RECOVER, code=LINK_DOWN))
    clock.now_ms += 60_001
    life = FaultStateLife(tmp_path, clock)
    clock.now_ms += SETTLE_MS
    await life.take()
    assert not life.fault_state.state.chips[3].upgrades


async def test_a_life_with_other_tables_judges_by_them(tmp_path: Path) -> None:
    """Another release may ship other rules; only the tables themselves show that."""
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(seen_now(clock, Assertion.OCCUR, code=LINK_DOWN))
    clock.now_ms += 30_000
    await life.take()
    assert life.fault_state.state.chips[3].upgrades
    other = FaultStateLife(tmp_path, clock, replace(TABLES, durations={}))
    assert other.fault_state.state.chips[3].upgrades == ()
    assert other.woken


async def test_deadline_before_a_configuration_is_judged_by_the_old_rules(
    tmp_path: Path,
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(seen_now(clock, Assertion.OCCUR, code=LINK_DOWN))
    clock.now_ms += 30_000
    harder = DurationPolicy(3_600_000, 60_000, ChipLevel.SEPARATE_NPU)
    tables = replace(TABLES, durations={LINK_DOWN: harder})
    life.fault_state.configure(FaultTexts(customization="{}"), tables)
    (upgrade,) = life.fault_state.state.chips[3].upgrades
    assert upgrade.upgraded_at_ms == clock() - 10_000
    assert upgrade.level is ChipLevel.SEPARATE_NPU


def test_journal_of_an_earlier_release_is_understood() -> None:
    """No counters, no names, acknowledgements without names."""
    snapshot = (
        '{"node":"node-1","boot_id":"old","revision":9,"chips":{"3":{"faults":{"81078603":'
        '{"code":"81078603","episode":"e","source":"chip-faults","level":"PreSeparateNPU",'
        '"because":"","first_seen_ms":5,"revision":4}},"answered":["chip-faults"],"upgrades":'
        '[{"code":"81078603","kind":"FaultDuration","level":"PreSeparateNPU","upgraded_at_ms":'
        '20005,"because":"","episode":"e"}]}},"others":{},"settled_at_ms":5}'
    )
    inputs = (
        '[{"type":"acknowledged","document":"mindx-dl-deviceinfo-node-1","state_revision":9,'
        '"at_ms":30000}]'
    )
    remembered = RestoredJournal(
        JournalRow(1, 30_000, RowKind.SNAPSHOT, snapshot),
        (JournalRow(2, 30_000, RowKind.ACKNOWLEDGED, inputs),),
    )
    state = restored_state(remembered, NODE, "boot", TABLES)
    assert [upgrade.code for upgrade in state.chips[3].upgrades] == [LINK_DOWN]
    assert (state.named, state.chips[3].counters) == ((), {})


async def test_a_link_that_came_back_between_two_readings_is_not_upgraded(tmp_path: Path) -> None:
    clock = Clock()
    await FaultStateLife(tmp_path, clock).take(seen_now(clock, Assertion.OCCUR, code=LINK_DOWN))
    clock.now_ms += 3_600_000
    life = FaultStateLife(tmp_path, clock)
    clock.now_ms += SETTLE_MS - 1
    await life.take(seen_now(clock, Assertion.ABSENT, code=LINK_DOWN))
    clock.now_ms += 60_000
    await life.take()
    assert not life.fault_state.state.chips[3].upgrades
    assert life.fault_state.state.chips[3].level == "NormalNPU"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_clock_that_is_set_back_makes_nothing_wait_for_it(
    tmp_path: Path, restarts: bool
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(
        seen_now(clock, Assertion.ONCE, code="80E21007"),
        structs.replace(seen_now(clock, Assertion.OCCUR, code="80E18005"), serial=2),
        structs.replace(seen_now(clock, Assertion.RECOVER, code="80E18005"), serial=1),
        seen_now(clock, Assertion.OCCUR, code=LINK_DOWN),
    )
    revision = life.fault_state.state.revision
    await life.take(Acknowledged(device_info_name(NODE), revision, clock()))
    assert life.fault_state.state.chips[3].faults["80E18005"].unconfirmed_at_ms == clock()
    clock.now_ms -= 7_200_000
    if restarts:
        life = FaultStateLife(tmp_path, clock)
    await life.take()
    for _ in range(3):
        deadline_ms = next_deadline_ms(life.fault_state.state, TABLES)
        assert deadline_ms is not None
        assert deadline_ms <= clock() + 30_000
        clock.now_ms = deadline_ms
        await life.take()
    chip = life.fault_state.state.chips[3]
    assert list(chip.faults) == [LINK_DOWN]
    assert [upgrade.code for upgrade in chip.upgrades] == [LINK_DOWN]
    restored = restored_state(read_restored(tmp_path / FILE_NAME), NODE, "boot", TABLES)
    assert restored == life.fault_state.state


MISPLACED = (
    '{"node":"node-1","boot_id":"b","chips":{"3":{"faults":{"80E01801":{"code":"81078603",'
    '"episode":"e","source":"chip-faults","level":"PreSeparateNPU","because":"",'
    '"first_seen_ms":5,"revision":4}}}}}'
)


NO_RULE = (
    '{"node":"node-1","boot_id":"b","chips":{"3":{"upgrades":[{"code":"80E01801","kind":"",'
    '"level":"SeparateNPU","upgraded_at_ms":5,"because":"","episode":"e"}]}}}'
)


@pytest.mark.parametrize(
    "remembered",
    [
        RestoredJournal(snapshot=JournalRow(1, 0, RowKind.SNAPSHOT, '{"of": "another version"}')),
        RestoredJournal(snapshot=JournalRow(1, 0, RowKind.SNAPSHOT, MISPLACED)),
        RestoredJournal(snapshot=JournalRow(1, 0, RowKind.SNAPSHOT, NO_RULE)),
        RestoredJournal(
            snapshot=JournalRow(1, 0, RowKind.SNAPSHOT, '{"node":"other","boot_id":"b","chips":{}}')
        ),
    ],
    ids=["snapshot", "misplaced", "no rule", "other node"],
)
def test_a_journal_that_cannot_be_used_is_no_state(
    remembered: RestoredJournal, caplog: pytest.LogCaptureFixture
) -> None:
    assert restored_state(remembered, NODE, "boot", TABLES) == PolicyState(NODE, "boot")
    assert "starting from audits alone" in caplog.text


@pytest.mark.parametrize("kind", [RowKind.REPORTS, RowKind.FAULT_CONFIGURATION])
async def test_undecodable_row_is_left_out_and_the_separation_stays(
    tmp_path: Path, kind: RowKind, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    at = clock()
    isolated = Adopted(chip_subject(3), "80E18005", "FaultFrequency", at, at, "ManuallySeparateNPU")
    await life.take(isolated)
    life.journal.append([(kind, '[{"type": "strange"}]')], at)
    await life.take(seen_now(clock, Assertion.OCCUR))
    remembered = read_restored(tmp_path / FILE_NAME)
    state = restored_state(remembered, NODE, "boot", TABLES)
    assert state.chips[3].isolated
    assert "80E01801" in state.chips[3].faults
    assert "the row is left out" in caplog.text


@pytest.mark.looptime
async def test_times_are_corrected_soon_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    clock.now_ms += 3_600_000
    life.fault_state.apply_inputs([seen_now(clock, Assertion.OCCUR)])
    following = asyncio.create_task(life.fault_state.follow_clock())
    await asyncio.sleep(15)
    (fault,) = life.fault_state.state.chips[3].faults.values()
    assert fault.first_seen_ms == clock()
    clock.now_ms -= 3_600_000
    life.woken.clear()
    await asyncio.sleep(15)
    (fault,) = life.fault_state.state.chips[3].faults.values()
    assert fault.first_seen_ms == clock()
    assert life.woken == [clock()], "the document is written again, once"
    following.cancel()
    # Two virtual seconds, after which this gives up, may be over before the threads end.
    await life.journal.close()

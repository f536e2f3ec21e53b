"""A link has two sources, the driver and the tool: what each reports, and what the fault does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.policy.state import ChangeKind, Fault, PolicyState, tracked
from agent.policy.step import CONFIRMATION_MS, next_deadline_ms, step
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.observation import NODE, Assertion, SourceAnswered, SourceBlind, chip_subject
from tests.agent.policy.builders import SOURCE, TOOL, T, after, changes, healthy, seen

if TYPE_CHECKING:
    from contract.observation import Observation, Subject

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT
LINK = chip_subject(0)


def driver(
    assertion: Assertion, at: int = T, serial: int | None = None, raised: int | None = None
) -> Observation:
    return seen(assertion, LINK_DOWN, at=at, serial=serial, raised=raised)


def tool(assertion: Assertion, at: int = T) -> Observation:
    return seen(assertion, LINK_DOWN, at=at, source=TOOL)


def with_tool() -> PolicyState:
    return after(healthy(), [SourceAnswered(TOOL, LINK, T - 1)])


def fault(state: PolicyState) -> Fault | None:
    return state.chips[0].faults.get(LINK_DOWN)


def down(state: PolicyState) -> bool:
    return fault(state) is not None


def restarted(state: PolicyState) -> PolicyState:
    return msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)


def test_lost_occurrence_is_found_by_the_tool_and_ended_by_it() -> None:
    state = after(with_tool(), [tool(PRESENT)])
    assert down(state)
    assert tracked(state, TOOL) == {(LINK, LINK_DOWN): T}
    assert tracked(state, SOURCE) == {}, "the driver's source did not say it"
    assert not down(after(state, [tool(ABSENT, T + 60_000)]))


def test_lost_recovery_ends_it_when_both_take_it_back() -> None:
    state = after(with_tool(), [driver(OCCUR), tool(PRESENT, T + 2_000)])
    assert (first := fault(state)) is not None
    assert first.reported_by == (SOURCE, TOOL)
    up = after(state, [tool(ABSENT, T + 9_000)])
    assert down(up), "the driver still lists it"
    assert not down(after(up, [driver(ABSENT, T + 15_000)], T + 15_000 + CONFIRMATION_MS))
    assert not down(after(state, [driver(ABSENT, T + 9_000), tool(ABSENT, T + 15_000)]))


def test_without_a_tool_the_driver_decides_alone() -> None:
    state = after(healthy(), [driver(OCCUR, T + 1)])
    assert down(state)
    state = after(state, [driver(ABSENT, T + 3_000)])
    assert down(state), "the tool may not have been asked yet"
    assert not down(after(state, [], T + 3_000 + CONFIRMATION_MS))
    assert not down(after(state, [driver(RECOVER, T + 4_000)]))


@pytest.mark.parametrize("subject", [LINK, NODE], ids=["for this chip", "not there"])
def test_blind_tool_ends_no_code(subject: Subject) -> None:
    """The word of a driver with link events that does not list them counts until the tool
    answers.
    """
    state = after(healthy(), [SourceBlind(TOOL, subject, T, "no answer")])
    state = after(state, [driver(OCCUR, T + 1)])
    state = after(state, [driver(ABSENT, T + 3_000)])
    assert down(after(state, [], T + 19_000))
    assert not down(after(state, [driver(RECOVER, T + 19_000)]))
    level = after(state, [], T + 21_000).chips[0].upgrades
    assert [upgrade.level for upgrade in level] == ["PreSeparateNPU"], "its rule goes on"
    state = after(state, [SourceAnswered(TOOL, LINK, T + 50_000)])
    assert down(after(state, [tool(PRESENT, T + 51_000)], T + 90_000))
    assert down(state)
    assert not down(after(state, [], T + 50_000 + CONFIRMATION_MS))


def test_a_tool_that_was_not_there_for_a_while() -> None:
    """It answered about this chip before, so that it answers again is news by its words alone."""
    state = after(with_tool(), [SourceBlind(TOOL, NODE, T, "not there")])
    state = after(state, [driver(OCCUR, T + 1), driver(ABSENT, T + 3_000)])
    state = after(state, [SourceAnswered(TOOL, NODE, T + 15_000)])
    assert down(after(state, [tool(PRESENT, T + 15_000)], T + 19_000))
    assert not down(after(state, [tool(ABSENT, T + 15_000)]))


def test_a_tool_that_goes_blind_while_it_is_waited_for() -> None:
    state = after(with_tool(), [driver(OCCUR), driver(ABSENT, T + 2_000)])
    state = after(state, [SourceBlind(TOOL, LINK, T + 7_000, "no answer")])
    assert down(after(state, [], T + 60_000))


def test_link_that_the_driver_lists_stays_though_the_tool_finds_it_up() -> None:
    state = after(with_tool(), [driver(PRESENT)])
    assert after(state, [tool(ABSENT, T + 5_000)]) is state
    assert not down(after(state, [driver(RECOVER, T + 6_000)]))


@pytest.mark.parametrize("first", [ABSENT, PRESENT])
def test_driver_that_lists_no_links_is_no_reason_to_end_it(first: Assertion) -> None:
    """The list and the tool are asked at the same time; which answers first must not matter."""
    state = after(with_tool(), [driver(OCCUR)])
    answers = [driver(ABSENT, T + 2_000), tool(PRESENT, T + 2_000)]
    if first is PRESENT:
        answers.reverse()
    found = changes(state, answers, T + 2_000)
    assert found == (), "nobody sees the link up in between"
    state = after(state, answers, T + 2_000)
    assert (held := fault(state)) is not None
    assert (held.reported_by, held.first_seen_ms) == ((TOOL,), T)
    assert down(after(state, [], T + 600_000))
    assert down(after(restarted(state), [], T + 600_000))
    assert not down(after(state, [tool(ABSENT, T + 62_000)]))
    assert not down(after(state, [driver(RECOVER, T + 62_000)]))


def test_occurrence_without_confirmation_ends_shortly_later() -> None:
    state = after(with_tool(), [driver(OCCUR), driver(ABSENT, T + 2_000)])
    assert down(state)
    assert next_deadline_ms(state, shipped()) == T + 2_000 + CONFIRMATION_MS
    state, found = step(state, [], T + 2_000 + CONFIRMATION_MS, shipped())
    assert not down(state)
    assert [change.because for change in found] == [
        "the driver does not list it, and no other source has found it since"
    ]


def test_recovery_ends_it_for_both_and_the_tool_may_bring_it_back() -> None:
    state = after(with_tool(), [driver(OCCUR), tool(PRESENT, T + 2_000)])
    episode = fault(state)
    up = after(state, [driver(RECOVER, T + 30_000)])
    assert not down(up)
    assert tracked(up, TOOL) == {}
    again, found = step(up, [tool(PRESENT, T + 32_000)], T + 32_000, shipped())
    held = fault(again)
    assert held is not None
    assert episode is not None
    assert (held.episode, held.first_seen_ms, held.reported_by) == (episode.episode, T, (TOOL,))
    assert [change.kind for change in found] == [ChangeKind.RETURNED]
    assert "still found by links" in found[0].because
    assert not down(after(again, [tool(ABSENT, T + 40_000)]))


def test_blind_tool_neither_adds_nor_takes_back() -> None:
    state = after(with_tool(), [driver(OCCUR), tool(PRESENT, T + 2_000)])
    state = after(state, [driver(ABSENT, T + 2_001), SourceBlind(TOOL, LINK, T + 60_000, "hangs")])
    assert down(after(state, [], T + 600_000)), "what it reported last stays until it answers"
    assert not down(after(state, [driver(RECOVER, T + 70_000)]))
    answer = SourceAnswered(TOOL, LINK, T + 80_000)
    assert not down(after(state, [answer, tool(ABSENT, T + 80_000)]))


def test_flapping_link_ends_as_its_last_event_reports() -> None:
    state = with_tool()
    for turn in range(5):
        at = T + 100 * turn
        state = after(state, [driver(OCCUR, at, serial=turn + 1, raised=at)])
        assert down(state)
        state = after(state, [driver(RECOVER, at + 50, serial=turn + 1, raised=at + 50)])
        assert not down(state)
    assert after(state, [tool(ABSENT, T + 2_450)]) is state
    assert not down(after(state, [], T + 60_000))


def test_one_off_event_lasts_when_the_tool_finds_it() -> None:
    state = after(with_tool(), [driver(ONCE), tool(PRESENT, T + 2_000)])
    held = fault(state)
    assert held is not None
    assert (held.once, held.reported_by) == (False, (TOOL,))
    assert not down(after(state, [tool(ABSENT, T + 3_000)]))


@pytest.mark.parametrize("source", [SOURCE, TOOL])
def test_after_a_restart_each_source_is_given_its_own_reports(source: str) -> None:
    state = restarted(after(with_tool(), [driver(OCCUR), tool(PRESENT, T + 2_000)]))
    assert tracked(state, source) == {(LINK, LINK_DOWN): T}
    state = after(state, [seen(ABSENT, LINK_DOWN, at=T + 9_000, source=source)])
    assert down(state), "the other one still says so"
    assert tracked(restarted(state), source) == {}


def test_link_that_the_tool_found_counts_as_a_device_fault() -> None:
    """``docs/spec/consumers.md#5.3``; the driver calls it minor."""
    by_event = after(with_tool(), [driver(OCCUR)])
    by_tool = after(by_event, [tool(PRESENT, T + 2_000)])
    assert [held.device_fault for state in (by_event, by_tool) if (held := fault(state))] == [
        False,
        True,
    ]
    (began,) = changes(with_tool(), [tool(PRESENT)])
    assert began.device_fault

"""Chips without events: the health word bounds the severity of a code that no table has."""

from __future__ import annotations

import pytest

from agent.policy.state import ChangeKind, ChipState, PolicyState
from agent.policy.step import step
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel, Severity
from contract.observation import Assertion, HealthRead, Report, chip_subject
from tests.agent.policy.builders import SOURCE, T, after, changes, healthy, seen

UNLISTED, OTHER = "80ABCDEF", "80ABCDE0"
MINOR, MAJOR, CRITICAL = "80DF8402", "80E3A201", "80E01801"


def read(word: int | None, *codes: str, at: int = T) -> HealthRead:
    return HealthRead(SOURCE, chip_subject(0), at, word, codes)


def present(code: str, at: int = T) -> Report:
    return seen(Assertion.PRESENT, code, at=at)


def level(state: PolicyState, code: str = UNLISTED) -> str:
    chip = state.chips[0]
    assert isinstance(chip, ChipState)
    return chip.faults[code].level


def test_the_codes_of_these_tests_have_the_levels_of_their_names() -> None:
    tables = shipped()
    assert tables.severity_of(MINOR) is Severity.MINOR
    assert tables.severity_of(MAJOR) is Severity.MAJOR
    assert tables.severity_of(CRITICAL) is Severity.CRITICAL
    assert all(code in tables.chip_levels for code in (MINOR, MAJOR, CRITICAL))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, ChipLevel.NOT_HANDLE_FAULT),
        (1, ChipLevel.NOT_HANDLE_FAULT),
        (2, ChipLevel.SEPARATE_NPU),
        (3, ChipLevel.SEPARATE_NPU),
        (None, ChipLevel.SEPARATE_NPU),
    ],
)
def test_an_unlisted_code_is_as_serious_as_the_word(word: int | None, expected: str) -> None:
    state = after(healthy(), [read(word, UNLISTED), present(UNLISTED)])
    assert level(state) == expected


@pytest.mark.parametrize(
    ("word", "listed", "expected"),
    [
        (2, MAJOR, ChipLevel.NOT_HANDLE_FAULT),
        (3, CRITICAL, ChipLevel.NOT_HANDLE_FAULT),
        (2, CRITICAL, ChipLevel.NOT_HANDLE_FAULT),
        (3, MAJOR, ChipLevel.SEPARATE_NPU),
        (2, MINOR, ChipLevel.SEPARATE_NPU),
        (2, OTHER, ChipLevel.SEPARATE_NPU),
    ],
)
def test_a_listed_code_explains_the_word_by_its_own_severity(
    word: int, listed: str, expected: str
) -> None:
    codes = sorted((UNLISTED, listed))
    inputs: list[Report] = [read(word, *codes), *(present(code) for code in codes)]
    state = after(healthy(), inputs)
    assert level(state) == expected


def test_it_is_judged_again_with_each_word_down_too() -> None:
    state = after(healthy(), [read(1, UNLISTED), present(UNLISTED)])
    for word, expected in ((3, "SeparateNPU"), (1, "NotHandleFault"), (None, "SeparateNPU")):
        noted = changes(state, [read(word, UNLISTED, at=T + 1)], T + 1)
        assert [(one.kind, one.new_level) for one in noted] == [(ChangeKind.CHANGED, expected)]
        state = after(state, [read(word, UNLISTED, at=T + 1)], T + 1)
        assert level(state) == expected
    # The same answer again changes nothing at all.
    assert step(state, [read(None, UNLISTED, at=T + 9)], T + 9, shipped())[0] is state


def test_health_word_counts_for_the_unlisted_code_when_its_explanation_ends() -> None:
    both: list[Report] = [read(2, UNLISTED, MAJOR), present(UNLISTED), present(MAJOR)]
    state = after(healthy(), both)
    assert level(state) == "NotHandleFault"
    gone: list[Report] = [read(2, UNLISTED, at=T + 1), seen(Assertion.ABSENT, MAJOR, at=T + 1)]
    assert level(after(state, gone, T + 1)) == "SeparateNPU"


def test_listed_codes_and_network_codes_are_those_of_the_tables() -> None:
    state = after(healthy(), [read(0, CRITICAL), present(CRITICAL)])
    assert level(state, CRITICAL) == shipped().chip_levels[CRITICAL]


def test_without_a_word_an_unlisted_code_isolates() -> None:
    """Chips with events: no source reports the severity (K08 is not copied)."""
    assert level(after(healthy(), [present(UNLISTED)])) == "SeparateNPU"


def test_a_code_of_a_network_that_the_chip_has_not_ends_with_the_list() -> None:
    state = after(healthy(), [read(1, LINK_DOWN), present(LINK_DOWN)])
    gone: list[Report] = [read(0, at=T + 1), seen(Assertion.ABSENT, LINK_DOWN, at=T + 1)]
    assert not after(state, gone, T + 1).chips[0].faults

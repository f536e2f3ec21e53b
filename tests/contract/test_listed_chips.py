"""Which chip is which after a start: by die, by serial number, by id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.listed_chips import ChipListComparison, ListedChip, compare


def chip(physical: int, die: str = "", serial: str = "", device: int = 0) -> ListedChip:
    return ListedChip(physical, physical, device, die, serial)


def four(dies: str = "ABCD") -> dict[int, ListedChip | None]:
    return {number: chip(number, die) for number, die in enumerate(dies)}


NOTHING: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("ABCD", ChipListComparison({}, NOTHING, NOTHING)),
        ("", ChipListComparison({}, NOTHING, frozenset({0, 1, 2, 3}))),
        ("ABC", ChipListComparison({}, NOTHING, frozenset({3}))),
        # B is gone and the ids shift: it is shown under the id that is free.
        ("ACD", ChipListComparison({2: 1, 3: 2, 1: 3}, NOTHING, frozenset({1}))),
        ("BACD", ChipListComparison({0: 1, 1: 0}, NOTHING, NOTHING)),
        ("AXCD", ChipListComparison({}, frozenset({1}), NOTHING)),
        # As many are there as were: A left for X.
        ("BCDX", ChipListComparison({1: 0, 2: 1, 3: 2}, frozenset({0}), NOTHING)),
    ],
)
def test_by_die(listed: str, expected: ChipListComparison) -> None:
    assert compare(four(), [chip(number, die) for number, die in enumerate(listed)]) == expected


def test_without_a_name_the_id_counts() -> None:
    remembered = {0: chip(0), 1: None, 2: chip(2, "C")}
    assert compare(remembered, [chip(0, "A"), chip(1, "B"), chip(2)]) == ChipListComparison(
        {}, NOTHING, NOTHING
    )
    assert compare(remembered, [chip(0)]).missing == {1, 2}


def test_both_dies_of_a_card_have_its_serial_number() -> None:
    remembered = {n: chip(n, serial=f"card {n // 2}", device=n % 2) for n in range(4)}
    listed = [chip(n, serial="card 1", device=n % 2) for n in range(2)]
    assert compare(remembered, listed).moved == {2: 0, 3: 1, 0: 2, 1: 3}


def test_another_serial_number_is_another_card_whatever_its_die() -> None:
    assert compare({0: chip(0, "A", "1")}, [chip(0, "A", "2")]).replaced == {0}


def test_names_that_several_chips_have_name_none() -> None:
    assert compare(four("AAAA"), [chip(4, "A")]).moved == {}


_NAMES = st.sampled_from("ABCDEF")
_CHIPS = st.dictionaries(st.integers(0, 7), _NAMES, max_size=6)


@given(_CHIPS, _CHIPS)
def test_no_two_chips_have_one_place(before: dict[int, str], now: dict[int, str]) -> None:
    remembered: dict[int, ListedChip | None] = {n: chip(n, die) for n, die in before.items()}
    found = compare(remembered, [chip(n, die) for n, die in now.items()])
    left = before.keys() - found.replaced
    places = [found.moved.get(n, n) for n in left]
    assert len(set(places)) == len(places)
    assert found.moved.keys() <= left
    assert not {found.moved.get(n, n) for n in found.missing} & now.keys()
    for n in left - found.missing:
        assert now[found.moved.get(n, n)] == before[n]

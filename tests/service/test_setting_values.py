"""Values become the type of their setting, or what is wrong with them is written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import pytest
from msgspec import Meta

from contract.settings import Section, ValueRule
from service.setting_values import WrongValue, read_section, read_value


class Form(StrEnum):
    TEXT = "text"
    JSON = "json"


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("is not an even number")
    return 10 * number


Percent: TypeAlias = Annotated[float, Meta(gt=0, le=100)]
Names: TypeAlias = Annotated[tuple[str, ...], Meta(min_length=1)]
Lists: TypeAlias = dict[Annotated[str, Meta(min_length=1)], tuple[int, ...]]
Even: TypeAlias = Annotated[int, Meta(ge=2, lt=9), ValueRule(_even)]


class Table(Section, frozen=True):
    value: int
    other: int = 0


class Whole(Section, frozen=True):
    table: Table
    percent: Percent = 1.0

    def __post_init__(self) -> None:
        if self.percent > self.table.other:
            raise ValueError("percent must not be more than table.other")


def texts(refused: list[WrongValue]) -> list[tuple[str, str]]:
    return [(".".join(map(str, item.place)), item.text) for item in refused]


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (bool, "YES", True),
        (bool, "off", False),
        (bool, True, True),
        (int, " 1_0 ", 10),
        (int, "5.0", 5),
        (float, "1e3", 1000.0),
        (float, 3, 3.0),
        (str, "7", "7"),
        (str | None, None, None),
        (Path, "/a", Path("/a")),
        (Form, "json", Form.JSON),
        (Literal["5", "3.1.1"], "5", "5"),
        (Percent, "100", 100.0),
        (Names, ["a"], ("a",)),
        (Lists, {"a": [], "b": ["1", 2]}, {"a": (), "b": (1, 2)}),
        (Even, "8", 80),
    ],
)
def test_a_text_may_stand_for_a_value(annotation: Any, given: object, value: object) -> None:
    refused: list[WrongValue] = []
    read = read_value(annotation, given, refused)
    assert (read, type(read), refused) == (value, type(value), [])


@pytest.mark.parametrize(
    ("annotation", "given", "place", "text"),
    [
        (bool, "true", "", "must be true or false"),
        (bool, 1, "", "must be true or false"),
        (int, "5", "", "must be a whole number"),
        (int, 5.0, "", "must be a whole number"),
        (int, True, "", "must be a whole number"),
        (float, "5", "", "must be a number"),
        (float, 10**400, "", "must be a number"),
        (str, 5, "", "must be a text"),
        (str, "\udcff", "", "must be a text of Unicode characters"),
        (str | None, 5, "", "must be a text"),
        (Path, 5, "", "must be a text"),
        (Form, "xml", "", "must be 'text' or 'json'"),
        (Literal["a", "b", "c"], "d", "", "must be 'a', 'b' or 'c'"),
        (Percent, 0, "", "must be more than 0.0"),
        (Percent, 101, "", "must be at most 100.0"),
        (Percent, float("nan"), "", "must be at most 100.0"),
        (Even, 1, "", "must be at least 2"),
        (Even, 9, "", "must be less than 9"),
        (Even, 3, "", "is not an even number"),
        (Names, "a", "", "must be a list"),
        (Names, [], "", "is empty; at least one is needed"),
        (Names, ["a", 5], "1", "must be a text"),
        (Lists, [], "", "must be a table"),
        (Lists, {"": []}, ".[key]", "must have at least 1 character"),
        (Lists, {"a": [1, "x"]}, "a.1", "must be a whole number"),
        (Table, [], "", "must be a table"),
    ],
)
def test_wrong_value_of_a_file_is_refused_with_its_place(
    annotation: Any, given: object, place: str, text: str
) -> None:
    model = type("Model", (Section,), {"__annotations__": {"value": annotation}}, frozen=True)
    refused: list[WrongValue] = []
    read_section(model, {"value": given}, refused)
    assert texts(refused) == [(f"value.{place}".rstrip("."), text)]


def test_all_that_is_wrong_is_collected() -> None:
    refused: list[WrongValue] = []
    read_section(Whole, {"table": {"other": "x", "more": 1}, "percent": 0, "new": {}}, refused)
    assert [(*item.place, item.kind) for item in refused] == [
        ("table", "value", "missing"),
        ("table", "other", "value"),
        ("table", "more", "unknown"),
        ("percent", "value"),
        ("new", "unknown"),
    ]


def test_rule_of_a_whole_section_is_checked_when_its_values_are_right() -> None:
    refused: list[WrongValue] = []
    read_section(Whole, {"table": {"value": 1}, "percent": 5}, refused)
    assert texts(refused) == [("", "percent must not be more than table.other")]
    right: list[WrongValue] = []
    given = {"table": {"value": 1, "other": 7}, "percent": 5}
    assert read_section(Whole, given, right) == Whole(Table(1, 7), 5.0)
    assert right == []

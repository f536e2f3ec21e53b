"""``SwitchFaultCode.json``: codes are compared as text (device-plugin#5.2)."""

from __future__ import annotations

import json

import pytest

from contract.errors import DocumentError
from contract.operator_rules.switch_levels import read_switch_levels

CODE = "[0x00f1fef5,155912,cpu,na]"


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("NotHandleFaultCodes", "NotHandle"),
        ("SubHealthFaultCodes", "SubHealthFault"),
        ("RestartRequestFaultCodes", "RestartRequest"),
        ("PreSeparateFaultCodes", "PreSeparate"),
        ("SeparateFaultCodes", "Separate"),
        ("ResetFaultCodes", "Separate"),
    ],
)
def test_each_list(name: str, level: str) -> None:
    found = read_switch_levels(json.dumps({name.lower(): [CODE]}))
    assert (found.levels, found.problems) == ({CODE: level}, ())


def test_a_code_in_several_lists_has_the_most_serious_level() -> None:
    lists = {
        "NotHandleFaultCodes": [CODE],
        "ResetFaultCodes": [CODE],
        "SubHealthFaultCodes": [CODE],
    }
    assert read_switch_levels(json.dumps(lists)).levels == {CODE: "Separate"}


@pytest.mark.parametrize(
    "entry", ["", "x", "[a,b,c]", "[a,b,c,d,e]", " " + CODE, CODE + " ", f"[{'x' * 46},,,]", "]["]
)
def test_entry_that_is_no_code_is_skipped_and_reported(entry: str) -> None:
    found = read_switch_levels(json.dumps({"SeparateFaultCodes": [entry, CODE]}))
    assert found.levels == {CODE: "Separate"}
    assert [problem.where for problem in found.problems] == ["$.SeparateFaultCodes[0]"]


@pytest.mark.parametrize("entry", ["[0x00F1FEF5,155912,cpu,na]", "[0x1,1,cpu,na]", "[,,,]"])
def test_code_that_no_driver_writes_is_accepted_and_reported(entry: str) -> None:
    found = read_switch_levels(json.dumps({"SeparateFaultCodes": [entry]}))
    assert found.levels == {entry: "Separate"}
    assert [problem.where for problem in found.problems] == ["$.SeparateFaultCodes[0]"]


def test_a_table_that_names_nothing_counts_and_is_reported() -> None:
    for text in ("null", "{}"):
        found = read_switch_levels(text)
        assert (found.levels, len(found.problems)) == ({}, 1)


@pytest.mark.parametrize("text", ["[]", "{", '{"SeparateFaultCodes":[1]}', ""])
def test_text_that_cannot_be_decoded_is_refused_whole(text: str) -> None:
    with pytest.raises(DocumentError):
        read_switch_levels(text)

"""Codes of switches as text and as numbers."""

from __future__ import annotations

import pytest

from contract.codes.switch_codes import (
    CPU,
    L2,
    NOT_APPLICABLE,
    NPU,
    SwitchCode,
    format_switch_code,
    parse_peer,
    parse_switch_code,
    sub_type_of,
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[0x00f1fef5,155912,cpu,na]", SwitchCode(0x00F1FEF5, 155912, CPU)),
        ("[0x08520003,na,L2,na]", SwitchCode(0x08520003, None, L2)),
        ("[0x00f10509,132333,npu,na]", SwitchCode(0x00F10509, 132333, NPU)),
        ("[0x00f103b6,155909,na,na]", SwitchCode(0x00F103B6, 155909, NOT_APPLICABLE)),
        ("[0x00000000,0,cpu,na]", SwitchCode(0, 0, CPU)),
    ],
)
def test_there_and_back(text: str, code: SwitchCode) -> None:
    assert parse_switch_code(text) == code
    assert format_switch_code(code) == text


def test_case_of_letters_in_a_code_does_not_count() -> None:
    assert parse_switch_code("[0X00F1FEF5,1,l2,na]") == SwitchCode(0x00F1FEF5, 1, L2)
    assert parse_peer("NPU") == NPU


def test_other_numbers_of_the_driver() -> None:
    assert sub_type_of(0xFFFFFFFF) is None
    assert sub_type_of(0) == 0
    assert format_switch_code(SwitchCode(1, 2, 3)) == "[0x00000001,2,na,na]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "80E01801",
        "[0x00f1fef5,155912,cpu]",
        "[0x00f1fef5,155912,cpu,na] ",
        "[0x00f1fef5, 155912,cpu,na]",
        "[0xf1fef5,155912,cpu,na]",
        "[0x00f1fef5,-1,cpu,na]",
        "[0x00f1fef5,4294967296,cpu,na]",
        "[0x00f1fef5,155912,gpu,na]",
        "[0x00f1fef5,155912,cpu,1]",
    ],
)
def test_text_that_is_no_switch_code_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="switch"):
        parse_switch_code(text)

"""``faultCode.json`` as the Device Plugin reads it, and what it would skip (3.2, EX-30, EX-31)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel, Severity
from contract.errors import DocumentError
from contract.operator_rules.fault_codes import FaultCodes, number_of, read_fault_codes
from contract.operator_rules.fault_configuration import (
    FaultTexts,
    InForce,
    catalogue_of,
    judge_texts,
)
from tests.compatibility import check, different

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "faultCode.json"
CODE = "80E21007"


def read(**lists: Sequence[object]) -> FaultCodes:
    return read_fault_codes(json.dumps(lists))


def wheres(codes: FaultCodes) -> list[str]:
    return [problem.where for problem in codes.problems]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("NotHandleFaultCodes", "NotHandleFault"),
        ("RestartRequestCodes", "RestartRequest"),
        ("RestartBusinessCodes", "RestartBusiness"),
        ("RestartNPUCodes", "RestartNPU"),
        ("FreeRestartNPUCodes", "FreeRestartNPU"),
        ("PreSeparateNPUCodes", "PreSeparateNPU"),
        ("SeparateNPUCodes", "SeparateNPU"),
        ("SubHealthFaultCodes", "SubHealthFault"),
    ],
)
def test_each_list_of_chips(name: str, level: str) -> None:
    assert read(**{name: [CODE.lower()]}).levels == {CODE: level}
    assert read(**{name.swapcase(): [CODE]}).levels == {CODE: level}


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("NotHandleFaultNetworkCodes", "NotHandleFault"),
        ("PreSeparateNPUNetworkCodes", "PreSeparateNPU"),
        ("SeparateNPUNetworkCodes", "SeparateNPU"),
        ("SubHealthFaultNetworkCodes", "SubHealthFault"),
    ],
)
def test_each_list_of_the_network(name: str, level: str) -> None:
    assert read(**{name: ["81078603"]}).levels == {"81078603": level}
    other = read(**{name: [CODE]})
    assert (other.levels, wheres(other)[0]) == ({}, f"$.{name}[0]")


@pytest.mark.parametrize(
    ("name", "level", "is_reported"),
    [
        ("NotHandleFaultCodes", "NotHandleFault", False),
        ("PreSeparateNPUCodes", "PreSeparateNPU", False),
        ("SeparateNPUCodes", "SeparateNPU", False),
        ("SubHealthFaultCodes", "SubHealthFault", False),
        ("RestartRequestCodes", "NotHandleFault", True),
        ("RestartBusinessCodes", "NotHandleFault", True),
        ("RestartNPUCodes", "NotHandleFault", True),
        ("FreeRestartNPUCodes", "NotHandleFault", True),
    ],
)
def test_a_network_code_in_a_list_of_chips(name: str, level: str, is_reported: bool) -> None:
    codes = read(**{name: ["81078607"]})
    assert codes.levels == {"81078607": level}
    assert (f"$.{name}[0]" in wheres(codes)) is is_reported


def test_a_code_in_several_lists_has_the_most_serious_level() -> None:
    codes = read(
        NotHandleFaultCodes=[CODE], RestartBusinessCodes=[CODE], SubHealthFaultCodes=[CODE]
    )
    assert codes.levels == {CODE: "RestartBusiness"}
    codes = read(
        NotHandleFaultCodes=["110000002"],
        RestartNPUCodes=["110000002"],
        SubHealthFaultNetworkCodes=["110000002"],
    )
    assert codes.levels == {"110000002": "SubHealthFault"}, "what is no level of a link is none"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("80e21007", 0x80E21007),
        ("+1", 1),
        ("-1", -1),
        ("7fffffffffffffff", 2**63 - 1),
        ("8000000000000000", None),
        ("-8000000000000000", -(2**63)),
        ("f" * 100_000, None),
        *((text, None) for text in ("", "0x80E21007", "zz", " 80E21007", "80_E2", "٣", "1.0")),
    ],
)
def test_numbers_as_go_parses_them(text: str, number: int | None) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize("written", ["020001002", "20001002", "0000000020001002"])
def test_both_spellings_of_a_code_of_nine_digits(written: str) -> None:
    assert read(NotHandleFaultCodes=[written]).levels == {"020001002": "NotHandleFault"}


def test_a_short_code_is_written_with_eight_digits() -> None:
    assert read(NotHandleFaultCodes=["abc"]).levels == {"00000ABC": "NotHandleFault"}


@pytest.mark.parametrize("entry", ["0x80E21007", "zz", "", None, "-80E21007", "1234567890"])
def test_an_entry_that_is_no_code_is_skipped_and_reported(entry: object) -> None:
    codes = read(NotHandleFaultCodes=[entry, CODE])
    assert codes.levels == {CODE: "NotHandleFault"}
    assert wheres(codes) == ["$.NotHandleFaultCodes[0]"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"NotHandleFaultCodes":"80E21007"}',
        '{"NotHandleFaultCodes":[80]}',
        '{"NotHandleFaultCodes":[],"x":NaN}',
    ],
)
def test_text_that_cannot_be_decoded_is_refused_whole(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_fault_codes(text)
    assert caught.value.document == KEY


@pytest.mark.parametrize("text", ["null", "{}", '{"NotHandleFaultCodes":null}'])
def test_a_table_that_names_nothing_counts_and_is_reported(text: str) -> None:
    tables = catalogue_of(FaultTexts(fault_code=text))
    assert tables.level_of(CODE, Severity.CRITICAL) is ChipLevel.SEPARATE_NPU
    assert tables.level_of(CODE, Severity.MINOR) is ChipLevel.NOT_HANDLE_FAULT
    assert tables.level_of(CODE, None) is ChipLevel.SEPARATE_NPU
    assert tables.level_of("81078603", Severity.MINOR) is ChipLevel.PRE_SEPARATE_NPU
    (problem,) = read_fault_codes(text).problems
    assert "names no code" in problem.what


def test_members_without_effect_are_reported() -> None:
    text = (
        '{"SeperateNPUCodes":["80E21007"],"SeparateNPUCodes":["1"],"separatenpucodes":["81078603"]}'
    )
    codes = read_fault_codes(text)
    assert codes.levels == {"81078603": "SeparateNPU"}
    problems = {problem.where: problem.what for problem in codes.problems}
    assert "did you mean SeparateNPUCodes?" in problems["$.SeperateNPUCodes"]
    assert "only the last one counts" in problems["$.SeparateNPUCodes"]


def test_severities_and_names_stay_those_of_the_package() -> None:
    tables = catalogue_of(FaultTexts(fault_code=json.dumps({"SeparateNPUCodes": [CODE]})))
    assert tables.severities == shipped().severities
    assert tables.facts == shipped().facts


def level_after(text: str) -> str:
    return judge_texts({KEY: text}, {}, InForce()).catalogue.level_of(CODE, None).value


def test_ex_30() -> None:
    found = {
        text: level_after(text)
        for text in (
            "{",
            "[]",
            '{"NotHandleFaultCodes":"80E21007"}',
            "{}",
            '{"NotHandleFaultCodes":["zz","80E21007"]}',
        )
    }
    upstream = dict(
        zip(found, [*["NotHandleFault"] * 3, "SeparateNPU", "NotHandleFault"], strict=True)
    )
    check("device-plugin/EX-30", different(upstream, found))


def test_ex_31() -> None:
    """Evaluating never replaces the configuration (K18), and whoever wrote it is informed."""
    judged = judge_texts({KEY: '{"SeparateNPUCodes":["80E21007"]}'}, {}, InForce())
    tables = judged.catalogue
    before = tables.level_of(CODE, None)
    link = tables.level_of("81078603", Severity.MINOR)
    assert link is ChipLevel.PRE_SEPARATE_NPU
    ours = {"before": before.value, "after": tables.level_of(CODE, None).value}
    check(
        "device-plugin/EX-31", different({"before": "SeparateNPU", "after": "NotHandleFault"}, ours)
    )
    assert "would replace this table" in str(judged.problems[0])

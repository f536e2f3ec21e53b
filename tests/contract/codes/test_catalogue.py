"""The shipped tables and the rules around them."""

from __future__ import annotations

from typing import Any

import pytest

from contract.codes import chip_codes
from contract.codes.catalogue import (
    CodeFacts,
    CodeTable,
    LevelTables,
    build,
    read_table,
    shipped,
    shipped_levels,
)
from contract.codes.host_codes import HOST_CODES
from contract.codes.levels import ChipLevel, NodeLevel, Severity
from contract.errors import ConfigurationError


def sizes(table: dict[str, list[str]]) -> dict[str, int]:
    return {level: len(listed) for level, listed in table.items()}


def test_tables_are_as_large_as_the_shipped_ones() -> None:
    tables = shipped_levels()
    assert sizes(tables.chip) == {
        "SeparateNPU": 215,
        "PreSeparateNPU": 200,
        "RestartNPU": 162,
        "FreeRestartNPU": 23,
        "RestartBusiness": 25,
        "RestartRequest": 33,
        "SubHealthFault": 13,
        "NotHandleFault": 132,
    }
    assert sizes(tables.switch) == {
        "SeparateFault": 9,
        "ResetFault": 0,
        "RestartRequestFault": 1,
        "SubHealthFault": 8,
        "NotHandleFault": 12,
    }
    assert sizes(tables.node) == {"SeparateFault": 1, "PreSeparateFault": 51, "NotHandleFault": 7}
    assert sizes(tables.public) == {
        "SeparateNPU": 13,
        "PreSeparateNPU": 2,
        "SubHealthFault": 10,
        "NotHandleFault": 5,
    }
    assert len(tables.public_resources) == 6


def test_severities_and_names_are_as_many_as_the_shipped_ones() -> None:
    table = read_table("codes.json", CodeTable).codes.values()
    words = [facts.severity for facts in table if facts.severity]
    assert {word: words.count(word) for word in words} == {
        "critical": 6,
        "major": 82,
        "minor": 46,
        "suggestion": 44,
    }
    assert sum(bool(facts.name_en) for facts in table) == 250 + 16 + 21
    assert sum(bool(facts.name_zh) for facts in table) == 250 + 16 + 35


def test_every_code_a_rule_names_has_a_level() -> None:
    policies: dict[str, Any] = read_table("policies.json", dict)
    listed = [
        code for kind in ("frequency", "duration") for r in policies[kind] for code in r["EventId"]
    ]
    listed += [rule["TriggerFault"] for rule in policies["relation"]]
    assert len(listed) == 41 + 1 + 1 + 1 + 5
    catalogue = shipped()
    assert [code for code in listed if code not in catalogue.chip_levels] == []


def test_code_in_two_lists_has_the_more_serious_level() -> None:
    tables = shipped_levels()
    named = [level for level, listed in tables.chip.items() if "A2301001" in listed]
    assert sorted(named) == ["RestartBusiness", "SeparateNPU"]
    assert len(shipped().chip_levels) == sum(sizes(tables.chip).values()) - 1
    assert shipped().level_of("A2301001", None) is ChipLevel.SEPARATE_NPU


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        (None, ChipLevel.SEPARATE_NPU),
        (Severity.CRITICAL, ChipLevel.SEPARATE_NPU),
        (Severity.MAJOR, ChipLevel.SEPARATE_NPU),
        (Severity.MINOR, ChipLevel.NOT_HANDLE_FAULT),
        (Severity.SUGGESTION, ChipLevel.NOT_HANDLE_FAULT),
    ],
)
def test_unknown_code_is_judged_by_severity(severity: Severity | None, level: ChipLevel) -> None:
    verdict = shipped().judge("80ABCDEF", severity)
    assert verdict.level is level
    assert "80ABCDEF is in no level table" in verdict.because


def test_known_code_is_judged_by_its_table() -> None:
    verdict = shipped().judge("80E21007", Severity.CRITICAL)
    assert verdict.level is ChipLevel.NOT_HANDLE_FAULT
    assert verdict.because == "80E21007 is NotHandleFault in the level table"


def test_unknown_network_code_is_pre_separate() -> None:
    empty = build(LevelTables("", {}, {}, {}, {}, []), CodeTable("", {}), "test")
    for severity in (None, *Severity):
        level = empty.level_of(chip_codes.LINK_DOWN, severity)
        assert level is ChipLevel.PRE_SEPARATE_NPU


@pytest.mark.parametrize(
    ("code", "level"),
    [
        (chip_codes.LINK_DOWN, "NotHandleFault"),
        (chip_codes.UBOE_PORT_DOWN, "NotHandleFault"),
        (chip_codes.UBOE_SUB_HEALTH, "SubHealthFault"),
        (chip_codes.UBOE_PRE_SEPARATE, "PreSeparateNPU"),
        (chip_codes.UB_PORT_DOWN, "NotHandleFault"),
        (chip_codes.UB_SEPARATE, "SeparateNPU"),
        (chip_codes.UB_SUB_HEALTH, "SubHealthFault"),
        (chip_codes.RESET_FINISHED, "NotHandleFault"),
        (chip_codes.CARD_DROP, "RestartNPU"),
        (chip_codes.HANG, "NotHandleFault"),
        (chip_codes.HBM_MULTI_BIT, "RestartBusiness"),
        (chip_codes.AIC_BUS, "RestartRequest"),
        (chip_codes.AIV_BUS, "RestartRequest"),
    ],
)
def test_named_codes_have_their_shipped_level(code: str, level: str) -> None:
    assert shipped().level_of(code, None) == level


def test_severity() -> None:
    catalogue = shipped()
    assert catalogue.severity_of(chip_codes.HBM_MULTI_BIT) is Severity.CRITICAL
    assert catalogue.severity_of("80C98009") is Severity.MINOR, "a shipped code not listed is minor"
    assert catalogue.severity_of("80ABCDEF") is None


def test_all_errors_of_a_table_are_named_at_once() -> None:
    tables = LevelTables(
        "", {"Seperate": ["80E01801"], "SeparateNPU": ["80e01801", "x"]}, {}, {}, {}, []
    )
    with pytest.raises(ConfigurationError) as refused:
        build(tables, CodeTable("", {"80E01801": CodeFacts("deadly")}), "my-table")
    assert [problem.where for problem in refused.value.problems] == [
        "chip.Seperate",
        "chip.SeparateNPU[0]",
        "chip.SeparateNPU[1]",
        "codes.80E01801.severity",
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("80E01801", "80E01801"),
        (" 0x80e01801 ", "80E01801"),
        ("020001002", "020001002"),
        ("0000001d", "0000001D"),
    ],
)
def test_parse_code(text: str, code: str) -> None:
    assert chip_codes.parse_code(text) == code


@pytest.mark.parametrize("text", ["", "80E0180", "80E01801G", "0x", "1234567890", "８0E01801"])
def test_parse_code_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid fault code"):
        chip_codes.parse_code(text)


def test_format_code() -> None:
    assert [chip_codes.format_code(n) for n in (0x80E01801, 0x1D, 0)] == [
        "80E01801",
        "0000001D",
        "00000000",
    ]
    for value in (-1, 1 << 32):
        with pytest.raises(ValueError):
            chip_codes.format_code(value)


def test_codes_of_the_host_checks_are_our_own() -> None:
    levels = shipped_levels()
    taken = {
        code
        for table in (levels.chip, levels.node, levels.public)
        for codes in table.values()
        for code in codes
    }
    assert all(map(chip_codes.is_code, HOST_CODES))
    assert not taken & HOST_CODES.keys()
    assert [int(code, 16) & 0xFF for code in HOST_CODES] == list(range(1, len(HOST_CODES) + 1))


def test_codes_of_the_host_checks_are_not_handled_unless_a_table_names_them() -> None:
    for code in HOST_CODES:
        assert shipped().judge_node(code).level == NodeLevel.NOT_HANDLE_FAULT
    assert shipped().judge_node("F1000001").level == ""

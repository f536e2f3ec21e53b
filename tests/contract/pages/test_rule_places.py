"""Which file, key and line decide the level of a code."""

from __future__ import annotations

import json

import pytest

from contract.codes.catalogue import shipped
from contract.codes.reference import CodeKind, all_codes
from contract.operator_rules.fault_configuration import InForce, judge_texts
from contract.pages.faults import FaultRule
from contract.pages.rule_places import rules_of

CONFIG_MAP = "ConfigMap kube-system/mindx-dl-fault-config"
LEVELS = """{
  "NotHandleFaultCodes": ["80E01801"],
  "SeparateNPUCodes": [
    "80C98000",
    "80e01801"
  ]
}"""
RULES = """{
  "FaultFrequency": [
    {"EventId": ["80C98000"], "TimeWindow": 3600, "Times": 4, "FaultHandling": "RestartNPU",
     "ReleaseTimeWindow": 7200},
    {"EventId": ["80C98000"], "TimeWindow": 60, "Times": 2, "FaultHandling": "ManuallySeparateNPU"}
  ],
  "FaultDuration": [
    {"EventId": ["80C98000"],
     "FaultTimeout": 5, "RecoverTimeout": 6, "FaultHandling": "PreSeparateNPU"}
  ]
}"""


def found(
    code: str, kind: CodeKind = CodeKind.CHIP, files: dict[str, str] | None = None, **data: str
) -> list[FaultRule]:
    documents = {f"{key}.json": text for key, text in data.items()}
    judged = judge_texts(documents, files or {}, InForce())
    return list(rules_of(judged.in_force, judged.catalogue, kind, code))


def test_an_entry_of_the_operator_is_named_by_its_line() -> None:
    assert found("80E01801", faultCode=LEVELS, faultCustomization=RULES) == [
        FaultRule(
            f"faultCode.json of {CONFIG_MAP}", "SeparateNPUCodes", 5, "Its level is SeparateNPU."
        )
    ]


def test_rule_in_force_is_shown_instead_of_the_shipped_one() -> None:
    file = f"faultCustomization.json of {CONFIG_MAP}"
    rules = found("80C98000", faultCode=LEVELS, faultCustomization=RULES)
    assert [(one.file, one.key, one.line) for one in rules[1:]] == [
        (file, "FaultDuration", 8),
        (file, "FaultFrequency", 3),
    ]
    assert "PreSeparateNPU when the fault holds for more than 5 seconds" in rules[1].text
    assert "RestartNPU when the fault occurs 4 times in 1 hour, until" in rules[2].text
    assert "the fault has been gone for 2 hours" in rules[2].text


def test_a_file_of_the_node_is_named_as_such() -> None:
    (rule,) = found("80E01801", files={"faultCode.json": LEVELS, "faultCustomization.json": RULES})
    assert rule.file == "faultCode.json of --fault-config-dir"


def test_a_code_that_the_operator_left_out_has_no_rule() -> None:
    assert found("80E18402", faultCode=LEVELS, faultCustomization=RULES) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", CodeKind)
def test_each_shipped_code_is_found_under_its_own_level(kind: CodeKind) -> None:
    tables = shipped()
    for one in all_codes():
        if one.kind is not kind or one.known.get("level") != "contract/data/levels.json":
            continue
        rules = list(rules_of(InForce(), tables, kind, one.code))
        assert len(rules) == 1 + len(one.rules), one.code
        assert rules[0].file == "contract/data/levels.json"
        assert rules[0].text == f"Its level is {one.level}."
        assert rules[0].line > 1


def test_a_text_on_one_line_is_searched_too() -> None:
    text = json.dumps({"SeparateNPUCodes": ["80C98000"], "RestartNPUCodes": ["80E01801"]})
    (rule,) = found("80E01801", faultCode=text, faultCustomization="{}")
    assert (rule.key, rule.line) == ("RestartNPUCodes", 1)

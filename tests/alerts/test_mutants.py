"""Defects in rules: the cases of ``promtool`` find each, and pass sound rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.alerts.cases import CASES, promtool, promtool_test
from tests.alerts.files import rules

if TYPE_CHECKING:
    from pathlib import Path

_WITHOUT_FOR = (
    *("ChipSeparated", "HostFault", "NodeLost", "AgentDown", "StoreAway", "TwoWriters"),
    *("TaskStalled", "ClockOff"),
)
_REPLACED = (
    ("ChipSeparated", '"SeparateNPU"', '"PreSeparateNPU"'),
    ("ChipToRestart", "RestartNPU|", ""),
    ("ChipPreSeparated", '"PreSeparateNPU"', '"PreSeparateNPU|NotHandleFault"'),
    ("HostFault", "|PreSeparateFault", ""),
    ("SwitchFault", "|SubHealthFault", ""),
    ("LinkDown", "81078603", "81078604"),
    ("ChipSeparated", "(node, chip", "(instance, chip"),
    ("NodeLost", "npu_vigil:node:lost", "max by (instance) (npu_vigil_node_lost)"),
    ("NodesLeftOut", " and on (instance) npu_vigil:aggregator:chosen", ""),
    ("ClockOff", "abs(", "("),
    ("NotPublished", "> 60", "> 600"),
    ("ChipBlind", 'source!="pods"', 'source!="links"'),
    ("PublicationRefused", '"invalid"', '"failed"'),
    ("PublicationRefused", "== 1", ">= 0"),
    ("CertificateEnds", "< 14", "< 60"),
    ("CertificateEnds", "node, file", "node"),
)


def _mutants() -> list[tuple[str, dict[str, Any]]]:
    """Return the name of the defective rule and the file with it, for each defect."""
    mutants = []
    for name in _WITHOUT_FOR:
        text = yaml.safe_load(rules())
        del _rule(text, name)["for"]
        mutants.append((name, text))
    for name, before, after in _REPLACED:
        text = yaml.safe_load(rules())
        rule = _rule(text, name)
        assert before in rule["expr"], (name, before)
        rule["expr"] = rule["expr"].replace(before, after)
        mutants.append((name, text))
    return mutants


def _rule(text: dict[str, Any], name: str) -> dict[str, Any]:
    (rule,) = [r for r in text["groups"][0]["rules"] if r.get("alert") == f"NpuVigil{name}"]
    assert isinstance(rule, dict)
    return rule


@pytest.mark.server
def test_each_defect_is_noticed(tmp_path: Path) -> None:
    mutants = _mutants()
    sound = [(name, yaml.safe_load(rules())) for name in sorted({name for name, _ in mutants})]
    wrong = []
    for number, (name, text) in enumerate([*mutants, *sound]):
        group = text["groups"][0]
        # Only the rule itself and what it reads: the others would take much longer.
        group["rules"] = [r for r in group["rules"] if "record" in r or r == _rule(text, name)]
        rule_file = tmp_path / "rules.yml"
        rule_file.write_text(json.dumps(text))
        tests = [promtool_test(case) for case in CASES if case.alert == f"NpuVigil{name}"]
        status, output = promtool(tmp_path, *tests, rules=rule_file)
        noticed = status != 0 and "FAILED" in output and "parse error" not in output
        if noticed != (number < len(mutants)):
            wrong.append((name, output))
    assert wrong == []

"""Alerts and runbooks are those of the tables, and a real ``promtool`` raises them."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.reference import CodeKind, level_texts
from tests.contract.alert_rules import RULES, RUNBOOKS, alerts, rules, runbooks
from tests.contract.codes_document import DOCUMENT
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "The total number of multi-bit ECC isolation lines of the high bandwidth memory reaches 64"
_NAME_ZH = "设备的HBM总的多bit ECC隔离行数达到64个"
_HARMLESS = {"NotHandleFault", "NotHandle"}


def test_both_files_are_made_of_the_tables() -> None:
    for file, made in ((RULES, rules()), (RUNBOOKS, runbooks())):
        assert file.read_text(encoding="utf-8") == made, "run python -m tests.contract.alert_rules"


def test_each_level_that_changes_something_has_an_alert() -> None:
    found = {(one.kind, one.level) for one in alerts() if one.level}
    wanted = {(kind, level) for kind in CodeKind for level in {*level_texts(kind)} - _HARMLESS}
    assert found == wanted


def test_each_link_leads_to_a_section() -> None:
    headings = {
        file: {_anchor(line) for line in file.read_text(encoding="utf-8").splitlines()}
        for file in (RUNBOOKS, DOCUMENT)
    }
    links = re.findall(r"runbook_url: (.*)#(.*)", RULES.read_text(encoding="utf-8"))
    assert len(links) == len(list(alerts())) + 1, "and the alert of elastic training"
    for path, anchor in links:
        assert anchor in headings[ROOT / path]
    links = re.findall(r"\(codes\.md#(.*?)\)", RUNBOOKS.read_text(encoding="utf-8"))
    assert links
    for anchor in links:
        assert anchor in headings[DOCUMENT]


def _anchor(line: str) -> str:
    """Return the anchor of a heading, as web pages of repositories make it."""
    heading = line.lstrip("#").strip().lower() if line.startswith("#") else ""
    return re.sub(r"[^\w -]", "", heading).replace(" ", "-")


def _promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["promtool", *arguments],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def _raised(name: str, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    """Return what promtool expects of one alert; what is not given is that of the rule."""
    (rule,) = [one for one in alerts() if one.name == name]
    always = {
        "description": f"{rule.text.effect} {rule.text.remedy}",
        "runbook_url": f"docs/runbooks.md#{name.lower()}",
    }
    alert = {"exp_labels": labels, "exp_annotations": always | annotations}
    return {"eval_time": "1m", "alertname": name, "exp_alerts": [alert]}


@pytest.mark.server
def test_a_real_promtool_raises_them(tmp_path: Path) -> None:
    chip = {
        "instance": "node-1:9820",
        "chip": "3",
        "subject": "chip 3",
        "code": "80E18402",
        "level": "SeparateNPU",
    }
    link = chip | {"code": "81078603", "level": "PreSeparateNPU"}
    harmless = chip | {"code": "80C78008", "level": "NotHandleFault"}
    isolated = {
        "instance": "node-1:9820",
        "chip": "5",
        "code": "FaultAutofill",
        "level": "ManuallySeparateNPU",
    }
    public = {"instance": "aggregator:9821", "code": "220001001", "level": "SeparateNPU"}
    series = [
        *(("npu_vigil_faults", one) for one in (chip, link, harmless)),
        ("npu_vigil_upgrades", isolated),
        ("npu_vigil_cluster_faults", public),
    ]
    where = "chip 3 of node-1:9820"
    expected = [
        _raised(
            "NpuVigilChipSeparateNPU",
            chip,
            {
                "summary": f"{where}: fault 80E18402 at SeparateNPU (pods rescheduled)",
                "name_en": _NAME,
                "name_zh": _NAME_ZH,
            },
        ),
        {"eval_time": "1m", "alertname": "NpuVigilChipPreSeparateNPU", "exp_alerts": []},
        _raised(
            "NpuVigilChipNetwork",
            link,
            {
                "summary": f"{where}: fault 81078603 of the network at PreSeparateNPU "
                "(no new multi-task pods)",
                "name_en": "Network port link status change (Up >Down)",
                "name_zh": "网口Link状态变化，Up->Down",
            },
        ),
        _raised(
            "NpuVigilChipManuallySeparateNPU",
            isolated,
            {
                "summary": "chip 5 of node-1:9820: fault FaultAutofill at ManuallySeparateNPU "
                "(pods rescheduled)",
                "name_en": "",
                "name_zh": "",
            },
        ),
        _raised(
            "NpuVigilPublicSeparateNPU",
            public,
            {
                "summary": "2 parts of the cluster: fault 220001001 at SeparateNPU "
                "(pods rescheduled)",
                "name_en": "NPU card HCCS network fault",
                "name_zh": "NPU卡HCCS网络故障",
            },
        ),
    ]
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"{name}{_labels(one)}", "values": "2x2"} for name, one in series
                ],
                "alert_rule_test": expected,
            }
        ],
    }
    (tmp_path / "case.yml").write_text(json.dumps(case))  # JSON is YAML
    _promtool("check", "rules", RULES)
    _promtool("test", "rules", tmp_path / "case.yml")


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"

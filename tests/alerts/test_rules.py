"""Rules and runbooks are those of the table, and a real ``promtool`` raises each alert."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from contract.codes.reference import CodeKind, level_texts
from tests.alerts.cases import CASES, promtool, promtool_test, scenario
from tests.alerts.fault_rules import HARMLESS
from tests.alerts.files import (
    PROMETHEUS_RULE,
    RULES,
    RUNBOOKS,
    all_rules,
    prometheus_rule,
    rules,
    runbooks,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.alerts.cases import Case

_MAX_BYTES = 100_000


def test_all_files_are_made_of_the_table() -> None:
    for file, made in (
        (RULES, rules()),
        (PROMETHEUS_RULE, prometheus_rule()),
        (RUNBOOKS, runbooks()),
    ):
        assert file.read_text(encoding="utf-8") == made, "run python -m tests.alerts.files"


@pytest.mark.slow
def test_both_forms_have_the_same_rules_and_are_small() -> None:
    text = prometheus_rule()
    assert yaml.safe_load(text)["spec"] == yaml.safe_load(rules())
    assert len(text.encode()) <= _MAX_BYTES


def test_each_level_of_a_chip_that_changes_something_has_an_alert() -> None:
    covered = {(rule.kind, level) for rule in all_rules() for level in rule.levels}
    wanted = {(kind, level) for kind in CodeKind for level in {*level_texts(kind)} - HARMLESS}
    # Isolation has an alert of its own.
    assert wanted - covered == {(CodeKind.CHIP, "ManuallySeparateNPU")}


def test_each_rule_has_a_runbook_a_case_and_no_node_of_an_instance() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    names = [rule.name for rule in all_rules()]
    assert [heading for heading in headings if heading.startswith("NpuVigil")] == names
    assert {case.alert for case in CASES} == {*names} - {"NpuVigilNoLeader"}
    assert "label_replace" not in rules()


@pytest.mark.server
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.level}")
def test_an_alert_is_pending_fires_alone_and_resolves(case: Case, tmp_path: Path) -> None:
    status, output = promtool(tmp_path, promtool_test(case))
    assert status == 0, output


_STORE = 'npu_vigil_store_connected{store="s",instance="%s:9821"}'
_LEADER = 'npu_vigil_aggregator_leader{instance="%s:9821"}'
_READ = 'npu_vigil_heartbeats_last_read_age_seconds{place="s",instance="%s:9821"}'
_NODES = 'npu_vigil_heartbeats{state="alive",instance="%s:9821"}'


def _agents(metric: str, value: str, number: int) -> dict[str, str]:
    labels = 'job="npu-vigil-agent",instance="{0}:9820",node="n{0}"'
    return {f"{metric}{{{labels.format(i)}}}": value for i in range(number)}


@pytest.mark.server
def test_a_store_that_is_away_raises_one_alert_although_no_aggregator_leads(
    tmp_path: Path,
) -> None:
    series = {form % name: "0" for name in "ab" for form in (_STORE, _LEADER)}
    series |= {_READ % "a": "40", _READ % "b": "60", _NODES % "a": "10", _NODES % "b": "10"}
    series |= _agents("npu_vigil_heartbeat_failing", "1", 10)
    series |= _agents("npu_vigil_publication_lag_seconds", "900", 10)
    status, output = promtool(tmp_path, scenario(series, {"NpuVigilStoreAway": 1}))
    assert status == 0, output


@pytest.mark.server
def test_a_node_that_is_off_raises_one_alert(tmp_path: Path) -> None:
    series = {_LEADER % "a": "1", _LEADER % "b": "0", _NODES % "a": "10", _NODES % "b": "10"}
    series |= _agents("up", "0", 1)
    series |= {f'npu_vigil_node_lost{{node="n0",instance="{name}:9821"}}': "1" for name in "ab"}
    status, output = promtool(tmp_path, scenario(series, {"NpuVigilNodeLost": 1}))
    assert status == 0, output


@pytest.mark.server
@pytest.mark.parametrize(
    ("alert", "metric"),
    [
        ("NpuVigilAgentStoreAway", "npu_vigil_heartbeat_failing"),
        ("NpuVigilTaskStalled", "npu_vigil_stalled_seconds"),
    ],
)
def test_a_lost_node_whose_agent_names_the_reason_raises_one_alert(
    tmp_path: Path, alert: str, metric: str
) -> None:
    series = {_LEADER % "a": "1", _NODES % "a": "10", **_agents(metric, "1", 1)}
    series |= {'npu_vigil_node_lost{node="n0",instance="a:9821"}': "1"}
    status, output = promtool(tmp_path, scenario(series, {alert: 1}))
    assert status == 0, output


@pytest.mark.server
def test_many_lost_nodes_raise_one_alert(tmp_path: Path) -> None:
    number = 40
    series = {_LEADER % "a": "1", _NODES % "a": f"{number}"}
    series |= _agents("up", "0", number)
    series |= {f'npu_vigil_node_lost{{node="n{i}",instance="a:9821"}}': "1" for i in range(number)}
    status, output = promtool(tmp_path, scenario(series, {"NpuVigilManyNodesSilent": 1}))
    assert status == 0, output


@pytest.mark.server
def test_no_aggregator_that_leads_is_one_alert(tmp_path: Path) -> None:
    series = {_LEADER % "a": "0", _LEADER % "b": "0", _READ % "a": "1", _READ % "b": "2"}
    status, output = promtool(tmp_path, scenario(series, {"NpuVigilNoLeader": 1}))
    assert status == 0, output


@pytest.mark.server
def test_without_a_leader_the_aggregator_counts_that_read_last(tmp_path: Path) -> None:
    series = {_LEADER % "a": "0", _LEADER % "b": "0", _READ % "a": "1", _READ % "b": "2"}
    lost = 'npu_vigil_node_lost{node="%s",instance="%s:9821"}'
    series |= {lost % ("n1", "a"): "1", lost % ("n2", "b"): "1"}
    expected = {"NpuVigilNoLeader": 1, "NpuVigilNodeLost": 1}
    status, output = promtool(tmp_path, scenario(series, expected))
    assert status == 0, output

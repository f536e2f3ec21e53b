"""One cause raises one alert while causes begin and end, on a real ``promtool``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from service.pages.exposition import ExpositionFormat
from tests.alerts.cases import CASES, over_time, promtool, promtool_test
from tests.alerts.files import RULES
from tests.parts.deadlines import nothing_happens_for, wait_until
from tests.parts.exposition import exporter
from tests.parts.prometheus import Prometheus, with_short_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.server

REPLICAS = "ab"
LEADER = 'npu_vigil_aggregator_leader{instance="%s:9821"}'
READ = 'npu_vigil_heartbeats_last_read_age_seconds{place="s",instance="%s:9821"}'
NODES = 'npu_vigil_heartbeats{state="alive",instance="%s:9821"}'
STORE = 'npu_vigil_store_connected{store="s",instance="%s:9821"}'
LOST = 'npu_vigil_node_lost{node="%s",instance="%s:9821"}'
LONGEST_NODE = f"0-{'a' * 61}.{'b-9' * 20}z.{'c' * 63}.{'d' * 63}"
"""All characters that Kubernetes allows in the name of a node, and as many."""


def cluster(nodes: int, values: str) -> dict[str, str]:
    """Return the series of two aggregators that see ``nodes`` alive; ``a`` leads."""
    series = {LEADER % "a": f"1x{values}", LEADER % "b": f"0x{values}"}
    for name in REPLICAS:
        series |= {NODES % name: f"{nodes}x{values}", READ % name: f"1x{values}"}
    return series


def of_agents(metric: str, labels: str, nodes: int, values: str) -> dict[str, str]:
    """Return a series of each of ``nodes`` agents."""
    own = 'job="npu-vigil-agent",instance="{0}:9820",node="n{0}"{1}'
    return {f"{metric}{{{own.format(i, labels)}}}": values for i in range(nodes)}


def test_an_api_server_that_restarts_raises_one_alert(tmp_path: Path) -> None:
    """For three minutes no store answers, no aggregator leads and nothing is acknowledged."""
    away = "0x8 1x12 0x60"
    document = ',store="s",document="device-info"'
    series = {
        LEADER % "a": "1x10 0x12 1x58",
        LEADER % "b": "0x80",
        **{READ % name: "1x8 1+15x12 1x60" for name in REPLICAS},
        **{NODES % name: "10x80" for name in REPLICAS},
        **{STORE % name: "1x8 0x12 1x60" for name in REPLICAS},
        **of_agents("npu_vigil_heartbeat_failing", "", 10, away),
        **of_agents("npu_vigil_publication_lag_seconds", document, 10, "0x8 0+15x12 0x60"),
        **of_agents("npu_vigil_publication_failing", document, 10, away),
        **of_agents("npu_vigil_blind", ',chip="",source="pods"', 10, away),
        **of_agents("npu_vigil_history_forwarding_failing", "", 10, away),
        **of_agents("up", "", 10, "1x80"),
        # An API server that starts may refuse a request before it knows any rights.
        **of_agents(
            "npu_vigil_publication_writes_total", document + ',result="invalid"', 10, "0x20 1x60"
        ),
    }
    test = over_time(series, 20, {"NpuVigilStoreAway": 1}, {})
    status, output = promtool(tmp_path, test)
    assert status == 0, output


def scraped(prometheus: Prometheus, nodes: int) -> bool:
    """Return whether ``up`` of so many agents is stored."""
    answer = prometheus.ask("query", query="count(up == 0)")
    return answer is not None and [row["value"][1] for row in answer["result"]] == [str(nodes)]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_16000_nodes_that_are_lost_raise_one_alert(tmp_path: Path) -> None:
    """On a real Prometheus: ``promtool`` reads at most 10,000 samples in a query."""
    nodes = 16_000
    series = {LEADER % "a": "1", NODES.replace("alive", "lost") % "a": f"{nodes}"}
    series |= of_agents("up", "", nodes, "0")
    series |= {LOST % (f"n{i}", "a"): "1" for i in range(nodes)}
    (tmp_path / "rules.yml").write_text(with_short_for(RULES.read_text()))
    text = "".join(f"{name} {value}\n" for name, value in series.items())
    answer = (text.encode(), ExpositionFormat.TEXT.value)
    with exporter(lambda *_: answer) as address:
        job = {
            "job_name": "npu-vigil-aggregator",
            # Agents are in the text, too: one process cannot serve 16,000 targets.
            "honor_labels": True,
            "static_configs": [{"targets": [address]}],
        }
        times = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"}
        configuration = {"global": times, "scrape_configs": [job]}
        # Rules that are evaluated while the first scrape is stored have a part of it, so that one
        # rule sees agents which are down and the one before it no lost nodes.
        prometheus = Prometheus(tmp_path, json.dumps(configuration))
        try:
            wait_until(lambda: scraped(prometheus, nodes), "all samples are stored", 120, 1.0)
        finally:
            prometheus.stop()
        configuration["rule_files"] = ["rules.yml"]
        prometheus = Prometheus(tmp_path, json.dumps(configuration))
        try:

            def counted(expression: str) -> dict[str, float]:
                query = f"count by (alertname) ({expression})"
                answer = prometheus.ask("query", query=query)
                rows = [] if answer is None else answer["result"]
                return {row["metric"]["alertname"]: float(row["value"][1]) for row in rows}

            expected = {"NpuVigilManyNodesSilent": 1.0}
            wait_until(
                lambda: counted('ALERTS{alertstate="firing"}') == expected, "it fires", 120, 1.0
            )
            nothing_happens_for(10, because="the rules are evaluated five times meanwhile")
            # Before the first scrape there is no leader either.
            others = 'max_over_time(ALERTS{alertname!="NpuVigilNoLeader"}[5m])'
            assert counted(f"max by (alertname, node) ({others})") == expected
        finally:
            prometheus.stop()


def test_a_fault_that_agent_and_two_aggregators_show_is_one_alert(tmp_path: Path) -> None:
    labels = 'code="80E18402",level="SeparateNPU"'
    info = 'npu_vigil_fault_info{{{0},code="80E18402",name_en="Name",name_zh="名"}}'
    agent = 'job="npu-vigil-agent",instance="n1:9820",node="n1"'
    series = cluster(10, "40")
    series |= {
        f'npu_vigil_faults{{{agent},chip="3",subject="chip 3",{labels}}}': "1x40",
        info.format(agent): "1x40",
    }
    for name in REPLICAS:
        own = f'job="npu-vigil-aggregator",instance="{name}:9821"'
        series |= {f"npu_vigil_cluster_faults{{{own},{labels}}}": "1x40", info.format(own): "1x40"}
    expected = {"NpuVigilChipSeparated": 1}
    status, output = promtool(tmp_path, over_time(series, 10, expected, expected))
    assert status == 0, output


@pytest.mark.parametrize(
    ("leaders", "what"),
    [
        (("1x2 0x38", "0x2 1x38"), "at once"),
        (("1x2 0x38", "0x4 1x36"), "after half a minute without a leader"),
        (("1x2 _x38", "0x2 1x38"), "when the first one is gone"),
    ],
)
def test_a_new_leader_does_not_delay_an_alert_that_is_pending(
    tmp_path: Path, leaders: tuple[str, str], what: str
) -> None:
    series = cluster(10, "40") | {LOST % ("n1", name): "1x40" for name in REPLICAS}
    series |= {LEADER % name: values for name, values in zip(REPLICAS, leaders, strict=True)}
    # The alert is to fire a minute after the beginning, whoever leads by then.
    expected = {"NpuVigilNodeLost": 1}
    test = over_time(series, 10, expected, expected)
    labels = {"node": "n1", "severity": "critical", "component": "agent"}
    test["alert_rule_test"] = [
        {"eval_time": at, "alertname": "NpuVigilNodeLost", "exp_alerts": alerts}
        for at, alerts in (("45s", []), ("60s", [{"exp_labels": labels}]))
    ]
    for check in test["alert_rule_test"]:
        for alert in check["exp_alerts"]:
            alert["exp_annotations"] = _annotations("NpuVigilNodeLost", "n1")
    status, output = promtool(tmp_path, test)
    assert status == 0, (what, output)


def _annotations(alert: str, node: str) -> dict[str, str]:
    """Return the annotations of the case of ``alert``, with another node."""
    (case,) = [case for case in CASES if case.alert == alert]
    checks = promtool_test(case)["alert_rule_test"]
    annotations: dict[str, str] = checks[0]["exp_alerts"][0]["exp_annotations"]
    return {name: text.replace("n1", node) for name, text in annotations.items()}


@pytest.mark.parametrize(
    "alert", ["NpuVigilChipSeparated", "NpuVigilNodeLost", "NpuVigilNodeBlind"]
)
def test_a_node_may_have_any_name_of_kubernetes(tmp_path: Path, alert: str) -> None:
    assert len(LONGEST_NODE) == 253
    (case,) = [case for case in CASES if case.alert == alert]

    def renamed(texts: Mapping[str, str]) -> dict[str, str]:
        return {
            name.replace('node="n1"', f'node="{LONGEST_NODE}"'): text
            for name, text in texts.items()
        }

    case = case._replace(
        series=renamed(case.series),
        quiet=renamed(case.quiet),
        labels={**case.labels, "node": LONGEST_NODE},
        summary=case.summary.replace("n1", LONGEST_NODE),
    )
    status, output = promtool(tmp_path, promtool_test(case))
    assert status == 0, output


def test_a_chip_that_disappears_ends_its_alert_and_raises_no_other(tmp_path: Path) -> None:
    agent = 'job="npu-vigil-agent",instance="n1:9820",node="n1"'
    fault = f'{agent},chip="3",subject="chip 3",code="80E18402",level="SeparateNPU"'
    since = f'{agent},level="SeparateNPU"'
    series = cluster(10, "100") | {
        f"npu_vigil_faults{{{fault}}}": "1x12 stale",
        f"npu_vigil_chips{{{agent}}}": "16x12 15x88",
        f'npu_vigil_fault_info{{{agent},code="80E18402",name_en="N",name_zh="名"}}': "1x12 stale",
        f"npu_vigil_last_fault_episode_timestamp_seconds{{{since}}}": "0x100",
    }
    fired = {"NpuVigilChipSeparated": 1}
    status, output = promtool(tmp_path, over_time(series, 20, fired, {}))
    assert status == 0, output

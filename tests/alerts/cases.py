"""What a real ``promtool`` must raise: at least a case for each rule."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.alerts.files import RULES, all_rules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.alerts.rule import Rule

_STEP_SECONDS = 30
"""Between two samples and two evaluations: the time of a case is that of the evaluations."""
_CHANGES_STEP_SECONDS = 15
"""The same where values change from sample to sample."""
_ON_SECONDS = 120
_MARGIN_SECONDS = 60
_WINDOW = re.compile(r"\[(\d+[smh])\]")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_LEADS = {
    'npu_vigil_aggregator_leader{instance="a:9821"}': "1",
    'npu_vigil_aggregator_leader{instance="b:9821"}': "0",
    'npu_vigil_heartbeats{instance="a:9821",state="alive"}': "10",
}
_AGENT = 'instance="10.0.0.1:9820",job="npu-vigil-agent",node="n1"'
_LEADER = 'instance="a:9821",job="npu-vigil-aggregator"'
_FOLLOWER = 'instance="b:9821",job="npu-vigil-aggregator"'
_ISOLATED = 'chip="5",code="C",level="ManuallySeparateNPU"'
_RULE = 'rule="R"'
_FAULT = {"node": "n1", "chip": "3", "subject": "chip 3"}


class Case(NamedTuple):
    """Series that hold, then end; ``quiet`` ones never raise anything. ``level`` is the fault's."""

    alert: str
    series: Mapping[str, str]
    labels: Mapping[str, str]
    summary: str
    quiet: Mapping[str, str] = {}
    level: str = ""
    severity: str = ""
    after: str = "stale"
    """What the series are afterwards."""


def _chip(alert: str, code: str, level: str, name: str = "Name", tail: str = "") -> Case:
    """Return a case with names, a harmless level beside it, and a part without a join."""
    of_chip = f'{_AGENT},chip="3",subject="chip 3"'
    labels = _FAULT | {"code": code, "level": level, "name_en": name, "name_zh": "名"}
    info = f'npu_vigil_fault_info{{{_AGENT},code="{code}",name_en="{name}",name_zh="名"}}'
    summary = f"Chip 3 of node n1: {name} (code {code}, {level}){tail}"
    return Case(
        alert,
        {f'npu_vigil_faults{{{of_chip},code="{code}",level="{level}"}}': "1", info: "1"},
        labels,
        summary,
        {f'npu_vigil_faults{{{of_chip},code="{code}",level="NotHandleFault"}}': "1"},
        level,
    )


def _part(alert: str, subject: str, level: str, severity: str, title: str) -> Case:
    labels = {"node": "n1", "subject": subject, "part": "Fan", "code": "0600", "level": level}
    text = ",".join(f'{name}="{value}"' for name, value in labels.items() if name != "node")
    summary = f"{title} of node n1, {subject}, part Fan: fault (code 0600, {level})"
    series = {f"npu_vigil_faults{{{_AGENT},{text}}}": "1"}
    return Case(alert, series, labels, summary, {}, level, severity)


def _agent(alert: str, metric: str, labels: Mapping[str, str], summary: str, on: str = "1") -> Case:
    text = "".join(f',{name}="{value}"' for name, value in labels.items())
    return Case(alert, {f"{metric}{{{_AGENT}{text}}}": on}, {"node": "n1", **labels}, summary)


def _leader(
    alert: str, metric: str, labels: Mapping[str, str], summary: str, on: str = "1"
) -> Case:
    """Return a case of the leader; the follower has another value, which does not count."""
    text = "".join(f',{name}="{value}"' for name, value in labels.items())
    series = {f"{metric}{{{_LEADER}{text}}}": on}
    quiet = {f"{metric}{{{_FOLLOWER}{text}}}": "9"}
    return Case(alert, series, labels, summary, quiet)


def _certificate(of: str, labels: Mapping[str, str], whose: str) -> Case:
    """Return a case of a certificate that ends 9 days after the test began, beside a good one."""
    expiry = f"npu_vigil_certificate_expiry_timestamp_seconds{{{of},file="
    return Case(
        "NpuVigilCertificateEnds",
        {f'{expiry}"/tls.crt"}}': f"{9 * 86_400}"},
        {**labels, "file": "/tls.crt"},
        f"The certificate in /tls.crt of {whose} ends in 9 days",
        {f'{expiry}"/ca.crt"}}': f"{30 * 86_400}"},
    )


_DOCUMENT = {"store": "kubernetes", "document": "cluster-info-device"}
_PUBLIC = {"code": "220001001", "level": "SeparateNPU"}
_DPU = {"code": "0100", "level": "SubHealthFault"}
_OF_STORE = {"store": "kubernetes", "document": "device-info"}
_OF_DEVICE_INFO = 'store="kubernetes",document="device-info"'
_OF_NODE_INFO = 'store="kubernetes",document="node-info"'
_ROWS = "npu_vigil_journal"

CASES = [
    _chip("NpuVigilChipSeparated", "80E18402", "SeparateNPU"),
    _chip("NpuVigilChipToRestart", "80C98008", "RestartNPU"),
    _chip("NpuVigilChipToRestart", "80C98008", "FreeRestartNPU"),
    _chip("NpuVigilChipToRestart", "80C98008", "RestartBusiness"),
    _chip("NpuVigilChipToRestart", "80C98008", "RestartRequest"),
    _chip("NpuVigilChipPreSeparated", "80C98008", "PreSeparateNPU"),
    _chip("NpuVigilChipSubHealthy", "80C98008", "SubHealthFault"),
    _chip("NpuVigilLinkDown", "81078603", "PreSeparateNPU", "Link", " of its network link"),
    Case(
        "NpuVigilChipIsolated",
        {
            f"npu_vigil_upgrades{{{_AGENT},{_ISOLATED},{_RULE}}}": "1",
        },
        {"node": "n1", "chip": "5", "code": "C", "level": "ManuallySeparateNPU", "rule": "R"},
        "Chip 5 of node n1 is isolated by R: fault (code C, ManuallySeparateNPU)",
        {f'npu_vigil_upgrades{{{_AGENT},chip="5",code="C",level="SeparateNPU",rule="R"}}': "1"},
    ),
    _leader(
        "NpuVigilChipsIsolatedByAggregator",
        "npu_vigil_separation_chips",
        {},
        "2 chips of the cluster are isolated because of frequent faults",
        "2",
    ),
    _part("NpuVigilHostFault", "host 1", "SeparateFault", "critical", "Host"),
    _part("NpuVigilHostFault", "host 1", "PreSeparateFault", "warning", "Host"),
    _part("NpuVigilSwitchFault", "switch 2", "Separate", "critical", "On-board switch"),
    _part("NpuVigilSwitchFault", "switch 2", "SubHealthFault", "warning", "On-board switch"),
    _leader(
        "NpuVigilPublicFault",
        "npu_vigil_cluster_faults",
        _PUBLIC,
        "2 chips of the cluster, public fault: fault (code 220001001, SeparateNPU)",
        "2",
    )._replace(level="SeparateNPU", severity="critical"),
    _leader(
        "NpuVigilDpuFault",
        "npu_vigil_cluster_dpu_faults",
        _DPU,
        "2 NICs, DPUs or nodes of the cluster: fault (code 0100, SubHealthFault)",
        "2",
    )._replace(level="SubHealthFault", severity="warning"),
    _agent(
        "NpuVigilShortFault",
        "npu_vigil_last_fault_episode_timestamp_seconds",
        {"level": "SeparateNPU"},
        "Node n1 had a short fault at SeparateNPU, which is over",
    ),
    _agent(
        "NpuVigilAgentDown",
        "up",
        {},
        "The agent of node n1 does not answer Prometheus, but the node is not lost",
        "0",
    ),
    _leader(
        "NpuVigilNodeLost",
        "npu_vigil_node_lost",
        {"node": "n1"},
        "Node n1 is lost: no heartbeat for more than 3 intervals",
    ),
    _leader(
        "NpuVigilManyNodesSilent",
        "npu_vigil_node_lost_brake",
        {},
        "Many nodes are silent at once; up to the limit of the brake none is published as lost",
    ),
    Case(
        "NpuVigilChipBlind",
        {
            f'npu_vigil_blind{{{_AGENT},chip="3",source="links"}}': "1",
            f"npu_vigil_chips{{{_AGENT}}}": "8",
        },
        {"node": "n1", "chip": "3"},
        "1 sources give no answer about chip 3 of node n1",
        {f'npu_vigil_blind{{{_AGENT},chip="3",source="pods"}}': "1"},
    ),
    _agent(
        "NpuVigilNodeBlind",
        "npu_vigil_blind",
        {"source": "bmc"},
        "Sources give no answer about node n1 or most of its chips",
    )._replace(labels={"node": "n1"}),
    _agent(
        "NpuVigilDriverCallStuck",
        "npu_vigil_driver_stuck_calls",
        {"call": "c"},
        "The driver call c does not return on node n1",
    ),
    _agent(
        "NpuVigilNotPublished",
        "npu_vigil_publication_lag_seconds",
        _OF_STORE,
        "A change of device-info of node n1 waits for 90 s",
        "90",
    )._replace(labels={"node": "n1", "document": "device-info"}),
    Case(
        "NpuVigilPublicationRefused",
        {
            f"npu_vigil_publication_failing{{{_AGENT},{_OF_DEVICE_INFO}}}": "1",
            f'npu_vigil_publication_writes_total{{{_AGENT},{_OF_DEVICE_INFO},result="invalid"}}': (
                "0+1"
            ),
        },
        {"node": "n1", "document": "device-info"},
        "The store refuses device-info of node n1",
        {
            # Another document was refused and is published again.
            f"npu_vigil_publication_failing{{{_AGENT},{_OF_NODE_INFO}}}": "0",
            f'npu_vigil_publication_writes_total{{{_AGENT},{_OF_NODE_INFO},result="invalid"}}': (
                "0+1"
            ),
        },
    ),
    _agent(
        "NpuVigilTwoWriters",
        "npu_vigil_publication_conflict",
        _OF_STORE,
        "Another program writes device-info of node n1",
    )._replace(labels={"node": "n1", "document": "device-info"}),
    _agent(
        "NpuVigilTwoWriters",
        "npu_vigil_heartbeat_conflict",
        {},
        "Another program writes the heartbeat of node n1",
    ),
    _agent(
        "NpuVigilJournalFailing",
        "npu_vigil_journal_failing",
        {},
        "The agent of node n1 cannot write its journal",
    ),
    Case(
        "NpuVigilRowsDropped",
        {
            f"{_ROWS}_unacknowledged_deleted_total{{{_AGENT}}}": "0+1",
            f"{_ROWS}_rows_lost_total{{{_AGENT}}}": "0+0",
        },
        {"node": "n1"},
        "The journal of node n1 lost rows that no aggregator acknowledged",
    ),
    _agent(
        "NpuVigilTaskStalled",
        "npu_vigil_stalled_seconds",
        {"task": "t"},
        "The task t of the agent of node n1 makes no progress",
        "40",
    ),
    Case(
        "NpuVigilTaskStalled",
        {f'npu_vigil_stalled_seconds{{{_FOLLOWER},task="t"}}': "40"},
        {"instance": "b:9821", "task": "t"},
        "The task t of the aggregator b:9821 makes no progress",
    ),
    _agent(
        "NpuVigilHistoryNotAcknowledged",
        "npu_vigil_history_forwarding_failing",
        {},
        "No aggregator acknowledges the history of node n1",
    ),
    _leader(
        "NpuVigilStoreAway",
        "npu_vigil_store_connected",
        {"store": "kubernetes"},
        "The store kubernetes does not answer",
        "0",
    ),
    _agent(
        "NpuVigilAgentStoreAway",
        "npu_vigil_heartbeat_failing",
        {},
        "The agent of node n1 cannot reach its store, while other agents can",
    ),
    _leader(
        "NpuVigilAggregatorNotPublishing",
        "npu_vigil_publication_failing",
        _DOCUMENT,
        "The aggregator cannot write cluster-info-device to kubernetes",
    ),
    _leader(
        "NpuVigilAggregatorTwoWriters",
        "npu_vigil_publication_conflict",
        _DOCUMENT,
        "Another program writes cluster-info-device in kubernetes, too",
    ),
    _leader(
        "NpuVigilNodesLeftOut",
        "npu_vigil_publication_left_out_nodes",
        _DOCUMENT,
        "cluster-info-device in kubernetes leaves out 4 nodes",
        "4",
    ),
    _leader(
        "NpuVigilTaintsWait",
        "npu_vigil_scheduler_signals_waiting",
        {"option": "node_taints", "reason": "cap"},
        "4 taints of node_taints are not written: cap",
        "4",
    ),
    _agent(
        "NpuVigilFaultConfigurationRefused",
        "npu_vigil_fault_configuration_problems",
        {"document": "d"},
        "1 nodes do not apply all of the fault configuration d",
    )._replace(labels={"document": "d"}),
    _leader(
        "NpuVigilClockOff",
        "npu_vigil_node_clock_skew_seconds",
        {"node": "n1"},
        "The clock of node n1 is off by 6 s",
        "-6",
    ),
    _certificate(_AGENT, {"node": "n1"}, "node n1"),
    _certificate(_LEADER, {}, "the aggregator"),
    Case(
        "NpuVigilElasticStandingStill",
        {"npu_vigil_elastic_blocking_reasons": "2"},
        {},
        "Elastic training starts no job at all, for 2 reasons",
    ),
    Case(
        "NpuVigilElasticCauseNotKnown",
        {'npu_vigil_elastic_jobs{state="cause-not-known"}': "2"},
        {"state": "cause-not-known"},
        "2 elastic jobs have ended, and it is not known whether a fault ended them",
        {'npu_vigil_elastic_jobs{state="ready"}': "2"},
    ),
]
"""Cases with a leader. That no aggregator leads is a case of its own."""


def seconds(duration: str) -> int:
    """Return the seconds of a duration of a rule."""
    return int(duration[:-1]) * _UNITS[duration[-1]]


def promtool_test(case: Case) -> dict[str, Any]:
    """Return promtool's test: pending until ``for`` is over, then only this alert, then none."""
    rules = {rule.name: rule for rule in all_rules()}
    rule = rules[case.alert]
    lasts = seconds(rule.lasts)
    steps = (lasts + _ON_SECONDS) // _STEP_SECONDS
    # An expression with a window stays true until what raised it has left the window. promtool
    # evaluates all rules at each step until the end, so a test is no longer than it must be.
    window = max(map(seconds, _WINDOW.findall(rule.expression)), default=0)
    end = lasts + _ON_SECONDS + window + _MARGIN_SECONDS
    series = [(name, f"{value}x{steps} {case.after}") for name, value in case.series.items()]
    series += [
        (name, f"{value}x{end // _STEP_SECONDS}")
        for name, value in {**_LEADS, **case.quiet}.items()
    ]
    fires = lasts + _MARGIN_SECONDS
    expected = {"exp_labels": _labels(case, rule), "exp_annotations": _annotations(case, rule)}
    checks: list[dict[str, Any]] = [_check(fires, case.alert, expected), _check(end, case.alert)]
    if lasts:
        checks.append(_check(lasts - 1, case.alert))
    checks += [_check(fires, name) for name in rules if name != case.alert]
    return {
        "interval": f"{_STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": checks,
    }


def _check(at_seconds: int, name: str, *expected: dict[str, Any]) -> dict[str, Any]:
    return {"eval_time": f"{at_seconds}s", "alertname": name, "exp_alerts": list(expected)}


def _labels(case: Case, rule: Rule) -> dict[str, str]:
    severity = case.severity or rule.severity
    return {**case.labels, "severity": severity, "component": rule.component}


def _annotations(case: Case, rule: Rule) -> dict[str, str]:
    text = rule.levels.get(case.level)
    description = rule.description if text is None else f"{text.effect} {text.remedy}"
    return {"summary": case.summary, "description": description, "runbook_url": rule.runbook}


def scenario(series: Mapping[str, str], expected: Mapping[str, int]) -> dict[str, Any]:
    """Return a test of a cause that holds for 20 minutes: the number of alerts by name."""
    counts = [
        {
            "expr": f'count(ALERTS{{alertname="{rule.name}",alertstate="firing"}})',
            "eval_time": "20m",
            "exp_samples": [{"labels": "{}", "value": expected[rule.name]}]
            if rule.name in expected
            else [],
        }
        for rule in all_rules()
    ]
    return {
        "interval": f"{_STEP_SECONDS}s",
        "input_series": [
            {"series": name, "values": f"{value}x41"} for name, value in series.items()
        ],
        "promql_expr_test": counts,
    }


def over_time(
    series: Mapping[str, str],
    minutes: int,
    fired: Mapping[str, int],
    firing: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return a test of ``series`` that change: the number of alerts by name that fired by the end.

    With ``firing`` also those that fire at the end. Series end where their values do.
    """
    alerts = 'ALERTS{alertstate="firing"}'
    counted = {f"max_over_time({alerts}[{minutes}m])": fired}
    if firing is not None:
        counted[alerts] = firing
    return {
        "interval": f"{_CHANGES_STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname) ({expression})",
                "eval_time": f"{minutes}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": number}
                    for name, number in sorted(expected.items())
                ],
            }
            for expression, expected in counted.items()
        ],
    }


def promtool(
    directory: Path, *tests: Mapping[str, Any], rules: Path | None = RULES
) -> tuple[int, str]:
    """Return exit status and output of ``promtool test rules``; without ``rules`` for queries."""
    file = directory / "case.yml"
    rule_files = [] if rules is None else [str(rules)]
    (interval,) = {test["interval"] for test in tests}
    content = {"rule_files": rule_files, "evaluation_interval": interval, "tests": tests}
    file.write_text(json.dumps(content))  # JSON is YAML
    command = ["promtool", "test", "rules", str(file)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr

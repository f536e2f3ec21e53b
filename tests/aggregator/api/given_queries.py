"""Queries of the aggregator, with rows that a test gives."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from contract.documents.cluster_device import DeviceRecord
from contract.pages.aggregator_status import NodeStatus
from contract.pages.faults import FaultStatus
from service.pages.event_stream import Stream

CHIPS = 16


def status_row(node: str, **members: Any) -> NodeStatus:
    return NodeStatus(
        **{
            "node": node,
            "state": "reported",
            "document": "cluster-info-device-0",
            "update_time": 1,
            "reported_update_time": 1,
            "report_age_seconds": 1.0,
            "faults": 0,
            "faults_problem": None,
            "heartbeat": "alive",
            "heartbeat_age_seconds": 1.0,
            "heartbeat_interval_seconds": 5.0,
            "clock_skew_seconds": 0.0,
            "switch_status": None,
            "node_status": None,
            "rejected": (),
            "blind": (),
            **members,
        }
    )


def fault_row(
    node: str, subject: str, level: str, kind: str = "chip", **members: Any
) -> FaultStatus:
    shown = {"code": "80E18402", **members}
    return FaultStatus(node=node, subject=subject, kind=kind, level=level, **shown)


def device_record(super_pod_id: int = -2, rack_id: int = 0, chips: int = CHIPS) -> DeviceRecord:
    names = tuple(f"Ascend910-{chip}" for chip in range(chips))
    return DeviceRecord("Ascend910", names, (), (), (), (), 1, super_pod_id, rack_id, -2)


class GivenQueries:
    """Queries with rows of our own; ``made`` counts how often all of them were made."""

    def __init__(self, nodes: list[NodeStatus], faults: list[FaultStatus]) -> None:
        self.nodes, self.faults = nodes, faults
        self.made = 0
        self.stream = Stream("run")
        self.queries = MagicMock()
        self.queries.stream = self.stream
        self.queries.at_ms = 60_000
        self.queries.node_rows = self._rows
        self.queries.fault_rows = lambda nodes=None: iter(
            [row for row in self.faults if nodes is None or row.node in nodes]
        )
        self.queries.readiness.is_past_start.return_value = True
        verdict = self.queries.heartbeat_monitor.lost_nodes
        verdict.brake, verdict.lost = None, {}
        self.queries.pipeline.tables = ()
        self.queries.pipeline.sources = (MagicMock(interrupted="no route", url="kubernetes:"),)
        entry = MagicMock(record=device_record())
        self.queries.pipeline.device.entries = {row.node: entry for row in nodes}
        self.queries.leadership.holder = "me"
        self.queries.leadership.leads = True
        self.queries.leader_page().leader.role = "leader"

    def _rows(self, nodes: set[str] | None = None) -> list[NodeStatus]:
        self.made += nodes is None
        return [row for row in self.nodes if nodes is None or row.node in nodes]

"""Rank tables of jobs: what is read of one goes into a global table that others read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aggregator.rank_tables.tables import (
    DATA_KEY,
    JOB_ID_LABEL,
    InstancePlace,
    decode_job_table,
    render,
)
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

_LABELS = {JOB_ID_LABEL: "inference", "grt-group/deploy-server": "0"}
_PLACES = [InstancePlace("192.168.1.1", "10.3.0.1")]


class RankTables:
    """Whatever is accepted is rendered, and is the same when the operator writes it so."""

    name = "rank-table"
    seeds: Sequence[str] = (
        '{"status":"completed","server_list":[{"device":[{"device_id":"0","device_ip":"10.1.0.1",'
        '"rank_id":"0"},{"device_id":"1","device_ip":"10.1.0.2","rank_id":"1"}],"server_id":'
        '"192.168.0.1","host_ip":"192.168.0.1","container_ip":"10.2.0.1"}],"server_count":"1",'
        '"version":"1.0"}',
        '{"status":"completed","server_list":[{"device":[{"device_id":"4","device_ip":"10.1.0.9",'
        '"super_device_id":"1048580","rank_id":"0"}],"server_id":"srv-9","host_ip":"192.168.0.9",'
        '"hardware_type":"800I-A3-64G"}],"server_count":"1","version":"1.2","super_pod_list":'
        '[{"super_pod_id":"3","server_list":[{"server_id":"srv-9"}]}]}',
        '{"status":"initializing"}',
    )

    def feed(self, text: str) -> None:
        """Judge ``text``."""
        table = decode_job_table(Document("mindie", "rings-config-x", {DATA_KEY: text}, _LABELS))
        rendered = render([table], _PLACES, _PLACES)
        assert (rendered is not None) == table.is_completed
        if rendered is not None:
            rendered.encode()
            group = json.loads(rendered)["server_group_list"][2]
            assert len(group["server_list"]) == len(table.servers)
            assert all(server["server_id"] for server in group["server_list"])

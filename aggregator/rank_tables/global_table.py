"""The table of all jobs of one MindIE service, as its controller reads it (consumers#4.3).

Group 0 are the coordinators, group 1 the controllers, then comes one group for each server job
whose table is completed. A job whose table is not is left out: by that the controller learns that
the instance is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.rank_tables.job_table import COMPLETED
from contract.go import encode as go_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aggregator.rank_tables.job_table import JobTable, RankTableDevice, RankTableServer


class InstancePlace(msgspec.Struct, frozen=True):
    """Where a pod of the service itself runs: its node's address and its own."""

    host_ip: str
    ip: str


def render(
    tables: Iterable[JobTable],
    coordinators: Sequence[InstancePlace],
    controllers: Sequence[InstancePlace],
) -> str | None:
    """Return the table as JSON; ``None`` while it is incomplete.

    It is complete with at least one completed table, coordinator and controller, and when all of
    the latter two have their addresses. ``tables`` are numbered in their order.
    """
    completed = [table for table in tables if table.is_completed]
    if not completed or not _placed(coordinators) or not _placed(controllers):
        return None
    groups = [_places("0", coordinators), _places("1", controllers)]
    groups += [_job(str(number), table) for number, table in enumerate(completed, 2)]
    version = completed[0].version
    return go_json.encode({"version": version, "status": COMPLETED, "server_group_list": groups})


def _placed(places: Sequence[InstancePlace]) -> bool:
    return bool(places) and all(place.ip and place.host_ip for place in places)


def _places(group: str, places: Sequence[InstancePlace]) -> dict[str, Any]:
    servers = [{"server_id": place.host_ip, "server_ip": place.ip} for place in places]
    return {"group_id": group, "server_count": str(len(places)), "server_list": servers}


def _job(group: str, table: JobTable) -> dict[str, Any]:
    addresses = {server.server_id: _address(server) for server in table.servers}
    super_pods = [
        {
            "super_pod_id": pod.super_pod_id,
            "server_list": [
                {"server_id": addresses.get(server.server_id, server.server_id)}
                for server in pod.server_list or ()
            ],
        }
        for pod in table.super_pods
    ]
    return {
        "group_id": group,
        **_where({"deploy_server": table.deploy_server}),
        "server_count": table.server_count,
        "server_list": [_server(server) for server in table.servers],
        **_where({"super_pod_list": super_pods}),
    }


def _address(server: RankTableServer) -> str:
    """Return the host's address; operators that do not write ``host_ip`` have it as the id."""
    return server.host_ip or server.server_id


def _server(server: RankTableServer) -> dict[str, Any]:
    devices = [_device(number, device) for number, device in enumerate(server.device or ())]
    return {
        **_where({"device": devices}),
        "server_id": _address(server),
        **_where({"server_ip": server.container_ip, "hardware_type": server.hardware_type}),
    }


def _device(number: int, device: RankTableDevice) -> dict[str, str]:
    return {
        "device_id": device.device_id,
        "device_ip": device.device_ip,
        **_where({"super_device_id": device.super_device_id}),
        "device_logical_id": str(number),
        "rank_id": device.rank_id,
    }


def _where(members: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an address that are not empty."""
    return {name: value for name, value in members.items() if value}

"""The rank table of one job, and the global table of the jobs of one MindIE service.

An operator writes that of a job (``docs/spec/consumers.md#4.1``, 4.2): the ConfigMap
``rings-config-<job>`` with the labels ``jobID`` and ``mx-consumer-cim``. The controller of the
service reads the global table (consumers#4.3). Group 0 are its coordinators, group 1 the
controllers, then comes one group for each server job whose table is completed. A job whose table
is not completed is left out: that shows the controller that the instance is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stores.base import Document

PREFIX = "rings-config-"
DATA_KEY = "hccl.json"
JOB_ID_LABEL = "jobID"
COMPLETED = "completed"
_DEPLOY_LABELS = ("grt-server/deploy-server", "grt-group/deploy-server")


class RankTableDevice(GoStruct, frozen=True):
    """A chip; all texts."""

    device_id: str = ""
    device_ip: str = ""
    super_device_id: str = ""
    rank_id: str = ""


class RankTableServer(GoStruct, frozen=True):
    """A pod of the job and its chips; ``container_ip`` is the pod's address."""

    device: list[RankTableDevice] | None = None
    server_id: str = ""
    host_ip: str = ""
    container_ip: str = ""
    hardware_type: str = ""


class RankTableSuperPodServer(GoStruct, frozen=True):
    """A server of a super pod, by the id that it has in the table."""

    server_id: str = ""


class RankTableSuperPod(GoStruct, frozen=True):
    """Which servers of the table are in one super pod."""

    super_pod_id: str = ""
    server_list: list[RankTableSuperPodServer] | None = None


class _Hccl(GoStruct, frozen=True):
    status: str = ""
    server_list: list[RankTableServer] | None = None
    server_count: str = ""
    version: str = ""
    super_pod_list: list[RankTableSuperPod] | None = None


class JobTable(msgspec.Struct, frozen=True):
    """The rank table in one ConfigMap. Only a completed table has servers.

    ``deploy_server`` is the value of the one of two labels that names how the job is deployed.
    """

    job_id: str
    is_completed: bool
    deploy_server: str = ""
    version: str = ""
    server_count: str = ""
    servers: tuple[RankTableServer, ...] = ()
    super_pods: tuple[RankTableSuperPod, ...] = ()


def decode_job_table(document: Document) -> JobTable:
    """Read the table of a job. Raises ``DocumentError``."""
    where = f"{document.namespace}/{document.name}"
    deploy = [label for label in _DEPLOY_LABELS if label in document.labels]
    if len(deploy) != 1:
        which = "both" if deploy else "neither"
        wanted = f"must have one of {' and '.join(_DEPLOY_LABELS)}, has {which}"
        raise DocumentError(where, "metadata.labels", wanted)
    text = document.data.get(DATA_KEY)
    if text is None:
        raise DocumentError(where, DATA_KEY, "the data key is missing")
    hccl = decode(text, _Hccl, where, DATA_KEY)
    job_id = document.labels[JOB_ID_LABEL]
    if hccl.status != COMPLETED:
        return JobTable(job_id, is_completed=False)
    for index, server in enumerate(hccl.server_list or ()):
        if not (server.host_ip or server.server_id):
            raise DocumentError(
                where, f"{DATA_KEY}.server_list[{index}]", "has neither host_ip nor server_id"
            )
    return JobTable(
        job_id,
        is_completed=True,
        deploy_server=document.labels[deploy[0]],
        version=hccl.version,
        server_count=hccl.server_count,
        servers=tuple(hccl.server_list or ()),
        super_pods=tuple(hccl.super_pod_list or ()),
    )


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

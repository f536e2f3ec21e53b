"""The rank table of one job, as its operator writes it (``docs/spec/consumers.md#4.1``, 4.2).

It is the ConfigMap ``rings-config-<job>`` with the labels ``jobID`` and ``mx-consumer-cim``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import DocumentError
from contract.go.decode import GoStruct, decode

if TYPE_CHECKING:
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

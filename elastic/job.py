"""Vcjobs, their pods, PodGroups and Queues, as read from the API (``consumers#2.9``)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from advisor.inputs import kubernetes_objects
from contract.errors import DocumentError

if TYPE_CHECKING:
    from advisor.snapshot import VcJob


class JobPod(msgspec.Struct, frozen=True):
    """A pod that a Job of Volcano owns, or a pod of a program that is looked for by its name.

    ``deleted_at_ms`` is when its grace is over, 0 for one that is not deleted.
    """

    namespace: str
    name: str
    uid: str
    job: str = ""
    node: str = ""
    phase: str = "Pending"
    deleted_at_ms: int = 0
    grace_seconds: int = 0

    @property
    def has_ended_itself(self) -> bool:
        """Whether it has ended without being deleted."""
        return self.phase in ("Succeeded", "Failed") and not self.deleted_at_ms


class JobQueue(msgspec.Struct, frozen=True):
    """A Queue of Volcano. ``state`` is ``Open``, ``Closing``, ``Closed`` or ``Unknown``."""

    name: str
    state: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether the scheduler takes no job from it."""
        return self.state in ("Closing", "Closed")


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[_Owner] | None = None


class _RunSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _RunStatus(msgspec.Struct):
    phase: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _RunSpec | None = None
    status: _RunStatus | None = None


class _Group(msgspec.Struct):
    metadata: _Metadata


class _QueueStatus(msgspec.Struct):
    state: str | None = None


class _Queue(msgspec.Struct):
    metadata: _Metadata
    status: _QueueStatus | None = None


_pods = msgspec.json.Decoder(_Pod)
_groups = msgspec.json.Decoder(_Group)
_queues = msgspec.json.Decoder(_Queue)


def read_job(raw: msgspec.Raw | bytes) -> VcJob:
    """Return a vcjob. Raises ``ValueError``."""
    try:
        return kubernetes_objects.vcjob(msgspec.Raw(raw))
    except DocumentError as error:
        raise ValueError(str(error)) from None


def read_pod(raw: msgspec.Raw | bytes) -> JobPod:
    """Return a pod. Raises ``msgspec.DecodeError``."""
    read = _pods.decode(raw)
    metadata, spec = read.metadata, read.spec or _RunSpec()
    owners = metadata.owner_references or ()
    return JobPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        job=next((owner.uid for owner in owners if owner.kind == "Job" and owner.controller), ""),
        node=spec.node_name or "",
        phase=(read.status and read.status.phase) or "Pending",
        deleted_at_ms=_ms(metadata.deletion_timestamp),
        grace_seconds=metadata.deletion_grace_period_seconds or 0,
    )


def read_group(raw: msgspec.Raw | bytes) -> str:
    """Return the uid of the job that a PodGroup belongs to; empty for none."""
    owners = _groups.decode(raw).metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.kind == "Job"), "")


def read_queue(raw: msgspec.Raw | bytes) -> JobQueue:
    """Return a Queue. Raises ``msgspec.DecodeError``."""
    read = _queues.decode(raw)
    return JobQueue(read.metadata.name, (read.status and read.status.state) or "")


def _ms(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp() * 1000)

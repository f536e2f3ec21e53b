"""Vcjobs, their pods, PodGroups and Queues, as read from the API (``consumers#2.9``)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from advisor.inputs import kubernetes_objects
from contract.errors import DocumentError
from contract.kubernetes import Member, decode_object, require_name

if TYPE_CHECKING:
    from advisor.snapshot import VcJob
    from contract.kubernetes import AnyObject, KubernetesObject


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


class _JobOwner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class _RunSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _RunStatus(msgspec.Struct):
    phase: str | None = None


class _QueueStatus(msgspec.Struct):
    state: str | None = None


_deleted: Member[datetime | None] = Member("metadata.deletionTimestamp", datetime | None)
_grace: Member[int | None] = Member("metadata.deletionGracePeriodSeconds", int | None)
_owners: Member[list[_JobOwner] | None] = Member("metadata.ownerReferences", list[_JobOwner] | None)
_spec: Member[_RunSpec | None] = Member("spec", _RunSpec | None)
_status: Member[_RunStatus | None] = Member("status", _RunStatus | None)
_queue_status: Member[_QueueStatus | None] = Member("status", _QueueStatus | None)


def read_job(item: AnyObject) -> VcJob:
    """Return a vcjob. Raises ``ValueError``."""
    try:
        return kubernetes_objects.vcjob(item)
    except DocumentError as error:
        raise ValueError(str(error)) from None


def read_pod(item: AnyObject) -> JobPod:
    """Return a pod. Raises ``msgspec.DecodeError``."""
    item = _named(item)
    metadata, owners = item.metadata, _owners(item) or ()
    spec, status = _spec(item) or _RunSpec(), _status(item) or _RunStatus()
    return JobPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        job=next((owner.uid for owner in owners if owner.kind == "Job" and owner.controller), ""),
        node=spec.node_name or "",
        phase=status.phase or "Pending",
        deleted_at_ms=_ms(_deleted(item)),
        grace_seconds=_grace(item) or 0,
    )


def read_group(item: AnyObject) -> str:
    """Return the uid of the job that a PodGroup belongs to; empty for none.

    Raises ``msgspec.DecodeError``.
    """
    item = _named(item)
    return next((owner.uid for owner in _owners(item) or () if owner.kind == "Job"), "")


def read_queue(item: AnyObject) -> JobQueue:
    """Return a Queue. Raises ``msgspec.DecodeError``."""
    item = _named(item)
    status = _queue_status(item) or _QueueStatus()
    return JobQueue(item.metadata.name, status.state or "")


def _named(item: AnyObject) -> KubernetesObject:
    """Return an object that has a name. Raises ``msgspec.DecodeError``."""
    decoded = decode_object(item)
    require_name(decoded)
    return decoded


def _ms(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp() * 1000)

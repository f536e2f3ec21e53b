"""What the services need of the rest of the aggregator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from contract.documents.public_fault import PublicFault

if TYPE_CHECKING:
    from collections.abc import Collection

    from aggregator.grpc.fault_messages import FaultMsgSignal


class JobFaultLookup(Protocol):
    """The job view, as the fault service uses it. Its methods are called often."""

    def knows(self, job_id: str, role: str) -> bool:
        """Return whether ``job_id`` is the key of a job, or the ``jobID`` of one whose app is
        ``role``.
        """

    def message(self, job_id: str) -> FaultMsgSignal | None:
        """Return the message about a job, or about a MindIE ``jobID``; ``None`` where it is not
        known.
        """

    def faulty(self) -> Collection[str]:
        """Return the keys of the jobs that have faults now, without MindIE's; ``in`` is
        used often.
        """

    def cluster(self) -> FaultMsgSignal:
        """Return what is wrong in the whole cluster, of all jobs and none."""


class RankTableLookup(Protocol):
    """The global rank tables, as their service uses them."""

    def text(self, job_id: str) -> str | None:
        """Return the table of a MindIE ``jobID``; ``None`` while there is no complete one."""


class MessageReply(Protocol):
    """The reply to a message about public faults (clusterd#4.1)."""

    @property
    def code(self) -> int: ...
    @property
    def info(self) -> str: ...


Send: TypeAlias = Callable[[PublicFault], Awaitable[MessageReply]]
"""Applies a message about public faults that is not judged yet, and waits until it is stored.
Raises ``StoreError`` where it is not: then it is to be sent again.
"""

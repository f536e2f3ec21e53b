"""What the gRPC services exchange with the rest of the aggregator; does not import gRPC.

Messages are those of ``clusterd#5.3`` without their uuid, which is made when one is sent. Two
messages with the same content are equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from contract.documents.public_fault import PublicFault

if TYPE_CHECKING:
    from collections.abc import Collection

CLUSTER = "-1"
"""The job of the message about the whole cluster, and of a client that registers without a job
(clusterd#5.4).
"""

FAULT = "fault"
NORMAL = "normal"
"""``signal_type`` of a message that ends a fault: nothing is wrong (any more)."""


class SwitchFaultInfo(msgspec.Struct, frozen=True):
    """One event of a switch. ``fault_time`` is as the switch reported it."""

    fault_code: str
    switch_chip_id: str
    switch_port_id: str
    fault_time: str
    fault_level: str


class DeviceFaultInfo(msgspec.Struct, frozen=True):
    """The faults of one chip, switch or part of a server; ``fault_level`` is a health.

    ``fault_levels`` are those of ``fault_codes``. Types and reasons are empty, as upstream's.
    """

    device_id: str
    device_type: str
    fault_codes: tuple[str, ...]
    fault_level: str
    fault_levels: tuple[str, ...] = ()
    switch_faults: tuple[SwitchFaultInfo, ...] = ()
    fault_types: tuple[str, ...] = ()
    fault_reasons: tuple[str, ...] = ()


class NodeFaultInfo(msgspec.Struct, frozen=True):
    """What is wrong on one node; ``fault_level`` is the health of its worst device."""

    node_name: str
    node_ip: str
    node_sn: str
    fault_level: str
    devices: tuple[DeviceFaultInfo, ...]


class FaultMsgSignal(msgspec.Struct, frozen=True):
    """What is wrong for a job or in the cluster, sorted by the addresses of nodes."""

    job_id: str
    signal_type: str
    nodes: tuple[NodeFaultInfo, ...] = ()


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


class GrpcStatus(msgspec.Struct, frozen=True):
    """``address`` is where it listens, ``None`` while this replica does not lead."""

    address: str | None
    plaintext: bool
    registered: int
    subscribers: int
    sent: int
    tls_problem: str | None
    trouble: str | None
    """Why it does not listen although this replica leads."""

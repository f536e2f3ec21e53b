"""What the services need of the rest of the aggregator, and what they are given.

Messages are any values with these members, such as frozen structs; two with equal content must be
equal. They have no uuid: that is made when a message is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from contract.documents.public_fault import PublicFault

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

CLUSTER = "-1"
"""Stands for all jobs: a client that registers without a job gets this one (clusterd#5.4)."""

NORMAL = "normal"
"""``signal_type`` of a message that ends a fault: nothing is wrong (any more)."""


class SwitchFaultMessage(Protocol):
    """``SwitchFaultInfo``; all are texts, the time is Unix seconds."""

    @property
    def fault_code(self) -> str: ...
    @property
    def switch_chip_id(self) -> str: ...
    @property
    def switch_port_id(self) -> str: ...
    @property
    def fault_time(self) -> str: ...
    @property
    def fault_level(self) -> str: ...


class DeviceFaultMessage(Protocol):
    """``DeviceFaultInfo``: the faults of one chip, switch or part of a server."""

    @property
    def device_id(self) -> str: ...
    @property
    def device_type(self) -> str: ...
    @property
    def fault_codes(self) -> Sequence[str]: ...
    @property
    def fault_level(self) -> str: ...
    @property
    def fault_types(self) -> Sequence[str]: ...
    @property
    def fault_reasons(self) -> Sequence[str]: ...
    @property
    def switch_faults(self) -> Sequence[SwitchFaultMessage]: ...
    @property
    def fault_levels(self) -> Sequence[str]: ...


class NodeFaultsMessage(Protocol):
    """``NodeFaultInfo``: what is wrong on one node."""

    @property
    def node_name(self) -> str: ...
    @property
    def node_ip(self) -> str: ...
    @property
    def node_sn(self) -> str: ...
    @property
    def fault_level(self) -> str: ...
    @property
    def devices(self) -> Sequence[DeviceFaultMessage]: ...


class FaultMessage(Protocol):
    """``FaultMsgSignal`` without its uuid. ``signal_type`` is ``fault`` or ``normal``."""

    @property
    def job_id(self) -> str: ...
    @property
    def signal_type(self) -> str: ...
    @property
    def nodes(self) -> Sequence[NodeFaultsMessage]: ...


class JobFaultLookup(Protocol):
    """The job view, as the fault service asks it. Whatever it answers may be asked often."""

    def knows(self, job_id: str, role: str) -> bool:
        """Return whether ``job_id`` is the key of a job, or the ``jobID`` of one whose app is
        ``role``.
        """

    def message(self, job_id: str) -> FaultMessage | None:
        """Return the message about a job, or about a MindIE ``jobID``; ``None`` where it is not
        known.
        """

    def faulty(self) -> Collection[str]:
        """Return the keys of the jobs that have faults now, without MindIE's; ``in`` is
        used often.
        """

    def cluster(self) -> FaultMessage:
        """Return what is wrong in the whole cluster, of all jobs and none."""


class RankTableLookup(Protocol):
    """The global rank tables, as their service asks for them."""

    def text(self, job_id: str) -> str | None:
        """Return the table of a MindIE ``jobID``; ``None`` while there is no complete one."""


class MessageReply(Protocol):
    """What a message about public faults led to (clusterd#4.1)."""

    @property
    def code(self) -> int: ...
    @property
    def info(self) -> str: ...


Send: TypeAlias = Callable[[PublicFault], Awaitable[MessageReply]]
"""Takes in a message about public faults, not judged yet; it may wait until it can be, and until it
is kept. Raises ``StoreError`` where it is not: then it is to be sent again."""

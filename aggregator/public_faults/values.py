"""Values of public faults: reports in messages, faults as they are known, and where they can be.

Rows of the state are arrays: fields are only ever added at the end.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias

import msgspec

from contract.documents.public_fault import LAST_DEVICE
from contract.go.decode import Int64

PIECE = 500
"""Influences, faults or documents after which others have their turn: a few milliseconds."""

Key: TypeAlias = tuple[str, str, str]
"""Node, resource and fault id."""

Device: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LAST_DEVICE)]
"""Physical id of a chip."""


class PublicFaultReport(msgspec.Struct, frozen=True, array_like=True):
    """What a message reports of one fault on one node.

    ``reported_at_ms`` is the message's own time, ``received_at_ms`` ours; both are wall times.
    ``serial_number`` names the node where ``node`` is empty, until it is known whose it is.
    ``devices`` are physical ids.
    """

    node: str
    serial_number: str
    resource: str
    fault_id: str
    fault_type: str
    code: str
    assertion: str
    devices: tuple[Device, ...]
    time_seconds: Int64
    reported_at_ms: Int64
    received_at_ms: Int64

    @property
    def key(self) -> Key:
        """The fault that it is about."""
        return self.node, self.resource, self.fault_id


class _OneFault(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one fault of one node."""

    node: str
    resource: str
    fault_id: str

    @property
    def key(self) -> Key:
        """The fault that it is about."""
        return self.node, self.resource, self.fault_id


class ActivePublicFault(_OneFault, frozen=True, array_like=True):
    """A fault that holds. Times in milliseconds are wall times.

    ``level`` is the last one that a table gave its code. ``reported_at_ms`` and ``received_at_ms``
    are those of the newest message about it. ``ends_at_ms``: when it ends by itself. ``placed``:
    its chips are known to exist.
    """

    fault_type: str
    code: str
    level: str
    devices: tuple[Device, ...]
    time_seconds: Int64
    added_at_ms: Int64
    reported_at_ms: Int64
    received_at_ms: Int64
    ends_at_ms: Int64 | None
    placed: bool


class UnplacedFault(msgspec.Struct, frozen=True, array_like=True):
    """A report of the document at ``place`` about a node that does not exist.

    ``digest`` is that of its text. ``is_all``: nothing else of it was refused.
    """

    report: PublicFaultReport
    place: str
    digest: str
    is_all: bool


class EndedFault(_OneFault, frozen=True, array_like=True):
    """A fault that has ended a moment ago."""

    reported_at_ms: Int64
    received_at_ms: Int64


class FaultOutcome(StrEnum):
    """The outcome of a report."""

    ADDED = "added"
    KNOWN = "known"
    """It holds already: nothing of it changes (clusterd#4.4)."""
    ENDED = "ended"
    ENDING = "ending"
    """It holds for 5 s at least."""
    ABSENT = "absent"
    """A recovery of a fault that does not hold."""
    OVERTAKEN = "overtaken"
    """A newer message was applied."""
    FULL = "full"


class NodeLookup(Protocol):
    """What is known of nodes, for reports about them."""

    @property
    def synced(self) -> bool:
        """Whether every store has listed its nodes once, and so a node that is not here does not
        exist.
        """

    def has_node(self, node: str) -> bool:
        """Return whether there is a Node object or a document of this node."""

    def chips(self, node: str) -> frozenset[str] | None:
        """Return the names of its chips; ``None`` where none was reported yet."""

    def node_of(self, serial_number: str) -> str | None:
        """Return the node with this serial number; ``None`` where none has it."""

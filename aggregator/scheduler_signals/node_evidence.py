"""What conditions and taints of a node follow from: its faults, blind sources, and silence. Pure.

Faults are those that are published: what a job's filter withholds from schedulers is withheld here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.agent_reports.blindness import HEARTBEAT
from contract.codes.chip_codes import is_network
from contract.codes.levels import MAX_RANK, rank_of
from contract.documents.switch_info import leveled
from contract.pages.blind import BlindStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.cluster_documents.published_node import PublishedNode
    from contract.documents.cluster_device import CodeFault

CHIP, LINK, PART = "chip", "link", "part"
"""What a fault is of: a chip, the network of chips, or another part of the server."""

_CHIP_SOURCES = frozenset({"chip-faults", "hang"})
_LINK_SOURCES = frozenset({"links", "network-health", "switch"})


class NodeFault(msgspec.Struct, frozen=True):
    """A fault code at a level on a subject: a chip, ``switch``, or a part of the server.

    ``began_ms`` is the wall time of the node, 0 where its writer gave none. ``of`` is one of
    ``CHIP``, ``LINK`` and ``PART``.
    """

    of: str
    subject: str
    code: str
    level: str
    began_ms: int = 0

    @property
    def rank(self) -> int:
        """How bad it is, 0 for the worst."""
        return rank_of(self.level)

    @property
    def key(self) -> str:
        """What distinguishes it from other faults of its node."""
        return f"{self.subject} {self.code}"


class NodeEvidence(msgspec.Struct, frozen=True):
    """What is known of a node. ``faults`` are sorted, the worst first.

    ``chips`` are all of them, ``None`` where no document of the node has chips. ``is_watched``: an
    agent sends heartbeats. ``blind`` is ``None`` where that is not known. ``is_silent``: its
    heartbeats have ended, at ``silent_since_ms`` by the wall clock, where that is known.
    ``is_gone``: no store has anything of the node.
    """

    faults: tuple[NodeFault, ...] = ()
    chips: frozenset[str] | None = None
    has_parts: bool = False
    """Whether a document of the node is about other parts of the server."""
    is_watched: bool = False
    blind: tuple[BlindStatus, ...] | None = None
    is_silent: bool = False
    silent_since_ms: int | None = None
    is_gone: bool = False

    def blind_of(self, of: str) -> tuple[BlindStatus, ...]:
        """Return the sources of such faults that give no answer."""
        return tuple(blind for blind in self.blind or () if of in _observed(blind.source))


def _observed(source: str) -> tuple[str, ...]:
    """Return of what a source observes faults."""
    if source == HEARTBEAT:
        return (CHIP, LINK)
    if source in _CHIP_SOURCES:
        return (CHIP,)
    return (LINK,) if source in _LINK_SOURCES else (PART,)


def faults_of(published: PublishedNode) -> tuple[NodeFault, ...]:
    """Return the faults of a node at levels that mean something, the worst first."""
    faults = (fault for fault in _all_faults(published) if fault.rank < MAX_RANK)
    return tuple(sorted(faults, key=lambda fault: (fault.rank, fault.subject, fault.code)))


def _all_faults(published: PublishedNode) -> Iterator[NodeFault]:
    if published.device is not None:
        for fault in published.device.faults:
            is_link = fault.fault_type == "CardNetworkUnhealthy" or is_network(fault.code)
            of = LINK if is_link else CHIP
            yield NodeFault(of, fault.chip, fault.code, fault.level, _began_ms(fault))
    if published.switch is not None:
        for event, level in leveled(published.switch):
            subject = f"switch {event.switch_chip_id}/{event.switch_port_id}"
            code = event.assembled_fault_code
            yield NodeFault(LINK, subject, code, level, max(0, event.alarm_raised_time))
    if published.node is not None:
        for part in published.node.faults:
            for code in part.fault_code or ():
                yield NodeFault(
                    PART, f"{part.device_type} {part.device_id}", code, part.fault_level
                )


def _began_ms(fault: CodeFault) -> int:
    # Public faults are published with seconds (clusterd#3.2).
    return max(0, fault.time_ms) * (1000 if fault.fault_type == "PublicFault" else 1)

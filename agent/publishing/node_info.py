"""The node-info document of this node: what it should say now, and what it said before us.

Source: ``spec/noded.md`` 2 and 3.4.
"""

from __future__ import annotations

import logging
import math
from datetime import datetime
from typing import TYPE_CHECKING

from agent.publishing.publisher import Wanted, absent
from contract.codes import is_code
from contract.errors import DocumentError
from contract.levels import NodeLevel
from contract.names import NODE_INFO_NAMESPACE, REPORT_LABEL, node_info_name
from contract.node_info import FaultDevice, decode_node_info, encode_node_info
from contract.observation import NODE, Assertion, Observation, Report, host_subject
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import tzinfo

    from agent.policy.state import Fault, State, SubjectState

log = logging.getLogger("agent.node_info")

BMC_SOURCE = "bmc"
REFRESH_SECONDS = 1800.0
"""An unchanged document is written again so that its readers see its age (2.5)."""
_YEAR_9999 = 253_370_764_800

_RANK = {level.value: rank for rank, level in enumerate(NodeLevel)}
_STATUS = {
    NodeLevel.SEPARATE_FAULT: "UnHealthy",
    NodeLevel.PRE_SEPARATE_FAULT: "PreSeparate",
    NodeLevel.NOT_HANDLE_FAULT: "Healthy",
}


def faulty_parts(state: State) -> tuple[FaultDevice, ...]:
    """The parts of the server that have a code of the level table, by type and number.

    Codes are in the order in which the BMC listed them when the part changed last.
    """
    parts = (
        _part(subject.part, subject.id, known)
        for subject, known in state.subjects()
        if subject.kind == "host"
    )
    found = (part for part in parts if part.fault_code)
    return tuple(sorted(found, key=lambda part: (part.device_type, part.device_id)))


def _part(device_type: str, device_id: int, known: SubjectState) -> FaultDevice:
    live = [fault for fault in known.faults.values() if fault.level]
    live.sort(key=_order)
    level = min((fault.level for fault in live), key=_RANK.__getitem__, default="")
    return FaultDevice(device_type, device_id, [fault.code for fault in live], level)


def _order(fault: Fault) -> tuple[float, int, int]:
    """By place in the BMC's list; one that only a document told of is behind, as it came."""
    place = math.inf if fault.serial is None else fault.serial
    return place, fault.first_seen_ms, fault.revision


def node_status(parts: Iterable[FaultDevice]) -> str:
    """The status of a node with these faulty parts: that of the most serious one."""
    level = min((part.fault_level for part in parts), key=_RANK.__getitem__, default="")
    return _STATUS[NodeLevel(level)] if level else "Healthy"


def time_text(stamp: int, zone: tzinfo | None = None) -> str:
    """``updateTime`` for epoch seconds: RFC 3339, local time (``zone``: another one's)."""
    return datetime.fromtimestamp(stamp).astimezone(zone).isoformat().replace("+00:00", "Z")


class NodeInfoDocument:
    """Makes the document from ``state``.

    Nothing is wanted before the BMC has answered this process: until then what is there stays,
    whoever wrote it (upstream's defect D-03). While the BMC is blind, nothing is deleted and
    nothing made younger than the last answer.
    """

    def __init__(self, node: str, state: Callable[[], State]) -> None:
        self.namespace = NODE_INFO_NAMESPACE
        self.name = node_info_name(node)
        self._state = state

    def wanted(self) -> Wanted | None:
        """What is to be published now; ``None`` while too little is known."""
        state = self._state()
        node = state.of(NODE)
        if BMC_SOURCE not in node.answered:
            return None
        is_blind = BMC_SOURCE in node.blind
        parts = faulty_parts(state)
        if not parts:
            return None if is_blind else absent(state.revision)

        def stamped(stamp: int) -> Document:
            data = encode_node_info(parts, node_status(parts), time_text(stamp))
            return Document(self.namespace, self.name, data, dict([REPORT_LABEL]))

        return Wanted(state.revision, parts, stamped, math.inf if is_blind else REFRESH_SECONDS)

    def take_over(self, existing: Document | None) -> tuple[Report, ...]:
        """What the document that is there remembers, for an agent that has no journal.

        The first reading of the BMC then finds out what is not true any more.
        """
        if existing is None:
            return ()
        try:
            found = decode_node_info(self.name, existing.data)
        except DocumentError as error:
            log.warning("the document that is there makes no sense: %s", error)
            return ()
        if found.update_time_ms <= 0:
            return ()
        return tuple(
            Observation(
                BMC_SOURCE,
                host_subject(part.device_type, part.device_id),
                code,
                Assertion.PRESENT,
                found.update_time_ms,
            )
            for part in found.faults
            for code in part.fault_code or ()
            if is_code(code)
        )

    def released(self, foreign: Document, now_ms: int) -> tuple[Report, ...]:
        """An operator has no rights here: what is foreign is repaired."""
        del foreign, now_ms
        return ()

    def named(self, document: Document | None) -> tuple[int, ...] | None:
        """It isolates nobody."""
        del document
        return None

    def stamp_of(self, document: Document) -> int | None:
        """``updateTime`` of a stored document in seconds; ``None`` when it cannot be trusted.

        One that could not be exceeded in RFC 3339 is somebody's mistake; readers do not compare.
        """
        try:
            stamp = decode_node_info(self.name, document.data).update_time_ms // 1000
        except DocumentError:
            return None
        return stamp if stamp < _YEAR_9999 else None

    def verify(self, document: Document) -> None:
        """Raises ``DocumentError`` if readers would refuse ``document``."""
        found = decode_node_info(self.name, document.data)
        if not found.update_time_ms:
            raise DocumentError(self.name, "updateTime", "is no time that a reader understands")

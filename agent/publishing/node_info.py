"""The node-info document of this node: its desired content, and the content of the stored one.

Source: ``docs/spec/noded.md#2`` and 3.4.
"""

from __future__ import annotations

import logging
import math
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.publishing.publisher import DesiredDocument, absent
from contract.codes.chip_codes import is_code
from contract.codes.host_codes import FILE_SYSTEM, HOST_CODES
from contract.codes.levels import NodeLevel
from contract.documents.node_info import (
    REFRESH_SECONDS,
    FaultDevice,
    Generation,
    decode_node_info,
    encode_node_info,
)
from contract.documents.vigil_key import VIGIL_KEY
from contract.errors import DocumentError
from contract.names import NODE_INFO_NAMESPACE, REPORT_LABEL, node_info_name
from contract.observation import NODE, Assertion, Observation, Report, host_subject
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import tzinfo

    from agent.policy.state import Fault, PolicyState, SubjectState
    from contract.documents.node_info import NodeRecord

log = logging.getLogger("agent.node_info")

BMC_SOURCE = "bmc"
# RFC 3339 has four digits for a year.
_YEAR_9999 = 253_370_764_800

_RANK = {level.value: rank for rank, level in enumerate(NodeLevel)}
_STATUS = {
    NodeLevel.SEPARATE_FAULT: "UnHealthy",
    NodeLevel.PRE_SEPARATE_FAULT: "PreSeparate",
    NodeLevel.NOT_HANDLE_FAULT: "Healthy",
}


def faulty_parts(state: PolicyState) -> tuple[FaultDevice, ...]:
    """Return the parts of the server that have a code of the level table, by type and number.

    Codes are in the order in which the BMC listed them when the part changed last.
    """
    parts = (
        _part(subject.part, subject.id, subject_state)
        for subject, subject_state in state.subjects()
        if subject.kind == "host"
    )
    faulty = (part for part in parts if part.fault_code)
    return tuple(sorted(faulty, key=lambda part: (part.device_type, part.device_id)))


def _part(device_type: str, device_id: int, subject_state: SubjectState) -> FaultDevice:
    # A code in no table has no level. Metrics and pages show it, and no document.
    live = [fault for fault in subject_state.faults.values() if fault.level]
    live.sort(key=_order)
    level = min((fault.level for fault in live), key=_RANK.__getitem__, default="")
    return FaultDevice(device_type, device_id, [fault.code for fault in live], level)


def _order(fault: Fault) -> tuple[float, int, int]:
    """Return the sort key of a fault: its place in the BMC's list.

    Faults of a document are behind.
    """
    place = math.inf if fault.serial is None else fault.serial
    return place, fault.first_seen_ms, fault.revision


def _of_host_checks(part: FaultDevice) -> bool:
    """Return whether ``part`` has codes, and all are of host checks, which no BMC reports."""
    return bool(part.fault_code) and all(code in HOST_CODES for code in part.fault_code or ())


def _not_of_host_checks(part: FaultDevice) -> FaultDevice:
    """Return ``part`` with the codes that may be the BMC's."""
    codes = [code for code in part.fault_code or () if code not in HOST_CODES]
    return replace(part, fault_code=codes)


def _is_found_by_host_checks(part: FaultDevice, code: str) -> bool:
    """Return whether a host check reports ``code`` of such a part and its recovery.

    Events have none.
    """
    host_code = HOST_CODES[code]
    is_its_part = part.device_id == 0 or host_code.part == FILE_SYSTEM
    return part.device_type == host_code.part and is_its_part and not host_code.is_event


def _with(parts: Iterable[FaultDevice], others: Iterable[FaultDevice]) -> tuple[FaultDevice, ...]:
    """Return ``parts`` and those of ``others`` that are not among them."""
    merged = {(part.device_type, part.device_id): part for part in (*others, *parts)}
    return tuple(merged[key] for key in sorted(merged))


def node_status(parts: Iterable[FaultDevice]) -> str:
    """Return the status of a node with these faulty parts: that of the most serious one."""
    level = min((part.fault_level for part in parts), key=_RANK.__getitem__, default="")
    return _STATUS[NodeLevel(level)] if level else "Healthy"


def time_text(stamp: int, zone: tzinfo | None = None) -> str:
    """Return ``updateTime`` for epoch seconds: RFC 3339, local time, or that of ``zone``."""
    # Go writes UTC as "Z"; Python writes an offset of zero.
    return datetime.fromtimestamp(stamp).astimezone(zone).isoformat().replace("+00:00", "Z")


def generation_of(document: Document) -> Generation | None:
    """Return the generation of a stored document; ``None`` for one that no reader decodes."""
    try:
        return decode_node_info(document.name, document.data).generation
    except DocumentError:
        return None


class NodeInfoDocument:
    """Renders the document from ``state``.

    Before the BMC has answered this process its parts stay as they are, those of the state and
    those found in the store (upstream's defect D-03). While it is blind, none of its parts is
    deleted, and a document with such parts does not become younger than the BMC's last answer.
    Parts of host checks come and go all the same. ``own_key`` is the text of our own data key,
    ``None`` where there is none. With it the document exists also without a faulty part, which
    readers treat like its absence.
    """

    def __init__(
        self,
        node: str,
        state: Callable[[], PolicyState],
        own_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._own_key = own_key
        self.was_found_with_own_key = False
        """Whether the document stored at the start had our own data key."""
        self.namespace = NODE_INFO_NAMESPACE
        self.name = node_info_name(node)
        self._state = state
        self._left: tuple[FaultDevice, ...] = ()
        """The parts stored at the start that may be the BMC's; they count until it answers."""
        self._has_other_parts = False
        """Whether the document has, or had since the start, parts that are not the BMC's."""
        self._has_no_part = False
        """Whether the document is known to have no part of the server, or not to exist."""
        self._is_for_own_key = False
        """Whether it has no part, and exists for our own key only."""

    def observe_stored(self, existing: Document | None) -> None:
        """Take over the document stored at the start."""
        self._has_no_part = existing is None
        self.was_found_with_own_key = existing is not None and VIGIL_KEY in existing.data
        record = self._read(existing)
        if existing is not None and record is not None:
            self._has_no_part = not record.faults
            self._is_for_own_key = not record.faults and self.was_found_with_own_key
            foreign_faults = map(_not_of_host_checks, record.faults)
            self._left = tuple(
                part for part in foreign_faults if part.fault_code and part.fault_level in _RANK
            )
            # A heartbeat without a sender counts too: the node would be lost for ever.
            self._has_other_parts |= record.beat is not None or any(
                map(_of_host_checks, record.faults)
            )

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish now; ``None`` while too little is known."""
        state = self._state()
        node = state.of(NODE)
        has_answered, is_blind = BMC_SOURCE in node.answered, BMC_SOURCE in node.blind
        parts = self.known_parts()
        self._has_other_parts |= any(map(_of_host_checks, parts))
        own_key = self._own_key()
        if parts:
            if not has_answered and not self._has_other_parts:
                return None
            self._has_no_part = self._is_for_own_key = False
        else:
            is_known = self._has_other_parts or (has_answered and not is_blind)
            if own_key is None:
                may_go = is_known or self._is_for_own_key
                return absent(state.revision, self._healthy) if may_go else None
            if not is_known and not self._has_no_part:
                return None
            self._has_no_part = self._is_for_own_key = True

        def stamped(stamp: int) -> Document:
            data = encode_node_info(parts, node_status(parts), time_text(stamp))
            return self._document(data, own_key)

        is_old = (is_blind or not has_answered) and not all(map(_of_host_checks, parts))
        refresh_seconds = math.inf if is_old else REFRESH_SECONDS
        return DesiredDocument(state.revision, (parts, own_key), stamped, refresh_seconds)

    def _healthy(self, stamp: int) -> Document:
        """Return the document without a faulty part."""
        return self._document(encode_node_info((), node_status(()), time_text(stamp)), None)

    def _document(self, data: dict[str, str], own_key: str | None) -> Document:
        if own_key is not None:
            data[VIGIL_KEY] = own_key
        return Document(self.namespace, self.name, data, dict([REPORT_LABEL]))

    def known_parts(self) -> tuple[FaultDevice, ...]:
        """Return the faulty parts: those of the state, and those stored until the BMC has
        answered.
        """
        state = self._state()
        parts = faulty_parts(state)
        return parts if BMC_SOURCE in state.of(NODE).answered else _with(parts, self._left)

    def restore_from(self, existing: Document | None) -> tuple[Report, ...]:
        """Return the faults in the stored document, for an agent without a journal.

        The first answer of each source then ends those that are over. One-off codes of host checks
        are over, and so are codes that no host check would end.
        """
        record = self._read(existing)
        if record is None or record.update_time_ms <= 0:
            return ()
        return tuple(
            Observation(
                HOST_CODES[code].source if code in HOST_CODES else BMC_SOURCE,
                host_subject(part.device_type, part.device_id),
                code,
                Assertion.PRESENT,
                record.update_time_ms,
            )
            for part in record.faults
            for code in part.fault_code or ()
            if is_code(code) and (code not in HOST_CODES or _is_found_by_host_checks(part, code))
        )

    def _read(self, existing: Document | None) -> NodeRecord | None:
        """Return the content of a stored document.

        ``None`` without a document, or where it cannot be decoded.
        """
        if existing is None:
            return None
        try:
            return decode_node_info(self.name, existing.data)
        except DocumentError as error:
            log.warning("the stored document cannot be decoded: %s", error)
            return None

    def stamp_of(self, document: Document) -> int | None:
        """Return ``updateTime`` of a stored document in seconds; ``None`` when it is not plausible.

        A time that RFC 3339 could not exceed is a mistake; readers do not compare.
        """
        try:
            stamp = decode_node_info(self.name, document.data).update_time_ms // 1000
        except DocumentError:
            return None
        return stamp if stamp < _YEAR_9999 else None

    def blocks_updates(self, shown: Document) -> bool:
        """Return whether ClusterD would refuse an update of ``shown``.

        It decodes the old document before the new one, and where it cannot, it drops both (defect
        D-27, ``docs/spec/noded.md#6.1`` and 7.10).
        """
        return generation_of(shown) is not Generation.D

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse ``document``."""
        record = decode_node_info(self.name, document.data)
        if not record.update_time_ms:
            raise DocumentError(self.name, "updateTime", "is not a valid time for readers")

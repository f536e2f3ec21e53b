"""Reads messages: which faults they report of which nodes, and what of them is refused.

``docs/spec/clusterd.md#4.2``. Of a document only what belongs to its place counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.public_faults.node_ownership import (
    Foreign,
    foreign_kind,
    foreign_resource,
    owner_at,
    split_foreign,
)
from aggregator.public_faults.values import PublicFaultReport
from contract.documents.public_fault import DATA_KEY, accepting, decode_public_fault
from contract.errors import DocumentError, Problem

if TYPE_CHECKING:
    from aggregator.public_faults.active_faults import ActiveFaults
    from aggregator.public_faults.fault_table import FaultTables
    from contract.documents.public_fault import PublicFault
    from pacing.cooperative import Work

_NOT_CONFIGURED = "(not configured)"
"""Stands in counters for all names that anybody may make up."""


class ReadMessage(msgspec.Struct, frozen=True):
    """The part of a message that may count, and what is wrong with the rest of it.

    ``sent_at_ms`` is the message's own time; ``foreign`` is what does not belong to its place.
    """

    resource: str
    sent_at_ms: int = 0
    own: list[PublicFaultReport] = []
    problems: list[Problem] = []
    foreign: Foreign | None = None


class MessageReader:
    """Reads by the codes and resources in force."""

    def __init__(self, tables: FaultTables, active: ActiveFaults) -> None:
        self._tables = tables
        self._active = active

    def known(self, resource: str) -> str:
        """Return the name under which ``resource`` is counted."""
        return resource if resource in self._tables.in_force.resources else _NOT_CONFIGURED

    def read(self, place: str, text: str | None, now_ms: int) -> Work[ReadMessage]:
        """Read the text of the document at ``place``, which came now (wall time)."""
        owner, resource = owner_at(place), _NOT_CONFIGURED
        foreign = None if owner is None else foreign_kind(owner)
        if foreign is not None:
            return ReadMessage(resource, problems=[foreign.problem], foreign=foreign)
        try:
            message = decode_public_fault(place, {} if text is None else {DATA_KEY: text})
            resource = self.known(message.resource)
            foreign = None if owner is None else foreign_resource(owner, message.resource)
            if foreign is not None:
                return ReadMessage(resource, problems=[foreign.problem], foreign=foreign)
            own, problems = yield from self.reports(message, place, now_ms)
        except DocumentError as error:
            return ReadMessage(resource, problems=[Problem(error.where, error.what)])
        if owner is not None:
            own, foreign = split_foreign(owner, own)
        if foreign is not None:
            problems = [foreign.problem, *problems]
        return ReadMessage(resource, message.timestamp, own, problems, foreign)

    def reports(
        self, message: PublicFault, document: str, now_ms: int
    ) -> Work[tuple[list[PublicFaultReport], list[Problem]]]:
        """Return the reports of a message from anywhere, and what of it is refused.

        Raises ``DocumentError`` for all of it. Codes of faults of this resource that hold although
        no table names them any more may recover.
        """
        table = self._tables.in_force
        is_listed = message.resource in table.resources
        codes = {fault.fault_code for fault in message.faults or ()}
        is_known = is_listed and codes <= table.levels.keys()
        left = () if is_known else self._active.codes(message.resource)
        faults, problems = yield from accepting(
            message,
            document,
            codes=table.levels if is_listed else (),
            resources=(message.resource,) if is_listed or left else table.resources,
            is_serial=bool,  # the nodes are looked up for each influence by itself
            ending=left,
        )
        found = []
        for fault in faults:
            found += [
                PublicFaultReport(
                    about.node_name,
                    "" if about.node_name else about.node_sn,
                    message.resource,
                    fault.fault_id,
                    fault.fault_type,
                    fault.fault_code,
                    fault.assertion,
                    tuple(about.device_ids or ()),
                    fault.fault_time // 1000,
                    message.timestamp,
                    now_ms,
                )
                for about in fault.influence or ()
            ]
            yield len(fault.influence or ())
        return found, list(problems)

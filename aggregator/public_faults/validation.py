"""Decide which faults a message reports, and what of it is refused and why.

A message is refused as a whole where it cannot be read. Of a document of one node, only what is
about that node and its own resource counts: the writer there may be the node alone, with nothing
but its own certificate or token. Of the rest, faults count on nodes and chips that exist; upstream
does not check that (``docs/spec/clusterd.md#4.2``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from aggregator.public_faults.values import PublicFaultReport
from contract.documents.public_fault import DATA_KEY, accepting, decode_public_fault
from contract.errors import DocumentError, Problem, quoted
from contract.names import PUBLIC_FAULT_LABEL, owner_of
from contract.refusal import Reason
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.public_faults.active_faults import ActiveFaults
    from aggregator.public_faults.fault_table import FaultTables
    from aggregator.public_faults.values import NodeLookup
    from contract.documents.public_fault import PublicFault
    from contract.names import DocumentOwner
    from pacing.cooperative import Work

_MAX_SHOWN = 3


class Foreign(msgspec.Struct, frozen=True):
    """The part of a message that does not belong to the place of its document, and the reason."""

    reason: Reason
    problem: Problem


def owner_at(place: str) -> DocumentOwner | None:
    """Return the node that the document at ``place`` (``namespace/name``) belongs to, if any."""
    return owner_of(place.partition("/")[2])


def foreign_kind(owner: DocumentOwner) -> Foreign | None:
    """Return why a document of ``owner`` can carry no message; ``None`` where it can."""
    if owner.resource is not None:
        return None
    text = (
        f"{PUBLIC_FAULT_LABEL[0]} is ignored: by its name this is a document of node "
        f"{_shown(owner.node)} that carries no public faults"
    )
    return Foreign(Reason.OTHER_KIND, Problem("metadata.labels", text))


def foreign_resource(owner: DocumentOwner, resource: str) -> Foreign | None:
    """Return why a message of ``resource`` does not belong to ``owner``; ``None`` where it does."""
    if resource == owner.resource:
        return None
    text = f"is {_shown(resource)}, only {owner.resource!r} is taken from a document of this name"
    return Foreign(Reason.OTHER_RESOURCE, Problem("resource", text))


def split_foreign(
    owner: DocumentOwner, reports: Iterable[PublicFaultReport]
) -> tuple[list[PublicFaultReport], Foreign | None]:
    """Return the reports about the own node, and what names others.

    A serial number counts as another node, because other writers decide to which node it belongs.
    """
    own: list[PublicFaultReport] = []
    others: dict[str, None] = {}
    for report in reports:
        if report.node == owner.node:
            own.append(report)
        else:
            others[report.node or f"serial number {report.serial_number}"] = None
    if not others:
        return own, None
    names = shortened([_shown(name) for name in others], _MAX_SHOWN)
    text = f"is about {names}; a document of node {_shown(owner.node)} counts for that node only"
    return own, Foreign(Reason.OTHER_NODE, Problem("influence", text))


def belongs(place: str, report: PublicFaultReport) -> bool:
    """Return whether ``report`` belongs to the document at ``place``."""
    owner = owner_at(place)
    return owner is None or (report.resource == owner.resource and report.node == owner.node)


def _shown(name: str) -> str:
    return quoted(repr(name))


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
        active_codes = () if is_known else self._active.codes(message.resource)
        faults, problems = yield from accepting(
            message,
            document,
            codes=table.levels if is_listed else (),
            resources=(message.resource,) if is_listed or active_codes else table.resources,
            is_serial=bool,  # the nodes are looked up for each influence by itself
            ending=active_codes,
        )
        reports = []
        for fault in faults:
            reports += [
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
        return reports, list(problems)


OK, INVALID, LIMITED = 0, 409, 410
_MAX_LISTED = 10
_SENT = "public fault send successfully"


class ValidationReply(msgspec.Struct, frozen=True):
    """The answer to a sender.

    ``code`` is 0 where something was accepted, 409 where nothing is valid, and 410 where a part of
    it may be sent again later.
    """

    code: int
    info: str
    refused: tuple[Problem, ...] = ()


def reply(code: int, refused: tuple[Problem, ...], *, waiting: int = 0) -> ValidationReply:
    """Return an answer that names the first of the refused problems."""
    if code == OK:
        info = _SENT
        if waiting:
            info += f"; {waiting} of it waits until the nodes are known"
        if refused:
            info += "; refused: "
    else:
        info = "limiter work by resource failed: " if code == LIMITED else ""
    info += "; ".join(map(str, refused[:_MAX_LISTED]))
    if len(refused) > _MAX_LISTED:
        info += f"; and {len(refused) - _MAX_LISTED} more"
    return ValidationReply(code, info, refused)


def placed_report(
    report: PublicFaultReport, node_lookup: NodeLookup
) -> tuple[PublicFaultReport | None, list[Problem]]:
    """Return what is left of ``report`` on nodes and chips that exist, and what is refused.

    A recovery is about the fault whatever chips it names. Chips of a node that has reported none
    yet are checked when it has.
    """
    where = f"fault {report.fault_id}"
    if not report.node:
        node = node_lookup.node_of(report.serial_number)
        if node is None:
            text = f"no node has the serial number {quoted(repr(report.serial_number))}"
            return None, [Problem(where, text)]
        report = replace(report, node=node, serial_number="")
    if not node_lookup.has_node(report.node):
        return None, [Problem(where, f"there is no node {report.node!r}")]
    if report.assertion == "recover":
        return report, []
    existing = existing_devices(report.devices, node_lookup.chips(report.node))
    if existing is None:
        return report, []
    missing = [device for device in report.devices if device not in existing]
    if not missing:
        return report, []
    names = ", ".join(map(str, missing))
    problem = Problem(where, f"node {report.node!r} has no chip {names}")
    return replace(report, devices=existing) if existing else None, [problem]


def existing_devices(
    devices: tuple[int, ...], chips: frozenset[str] | None
) -> tuple[int, ...] | None:
    """Return those of ``devices`` that exist; ``None`` where that is not known."""
    if not chips:
        return None
    numbers = _numbers(chips)
    return tuple(device for device in devices if str(device) in numbers)


@lru_cache(maxsize=1024)  # nodes of one kind have the same
def _numbers(chips: frozenset[str]) -> frozenset[str]:
    return frozenset(name.rpartition("-")[2] for name in chips)

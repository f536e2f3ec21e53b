"""Which faults a message reports of which node, and what of it is refused.

``docs/spec/clusterd.md#4.2``; upstream does not check whether nodes and chips exist.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from aggregator.public_faults.values import PublicFaultReport
from contract.documents.public_fault import accepting
from contract.errors import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aggregator.public_faults.values import NodeLookup
    from contract.documents.public_fault import PublicFault
    from contract.operator_rules.public_fault_table import PublicFaultTable
    from pacing.cooperative import Work

OK, INVALID, LIMITED = 0, 409, 410
_LISTED_MOST = 10
_SENT = "public fault send successfully"


class ValidationReply(msgspec.Struct, frozen=True):
    """The answer to a sender.

    ``code`` is 0 where something was accepted, 409 where nothing is valid, and 410 where a part of
    it may be sent again later.
    """

    code: int
    info: str
    refused: tuple[Problem, ...] = ()


def answer(code: int, refused: tuple[Problem, ...], *, held: int = 0) -> ValidationReply:
    """Return an answer that names the first of the refused problems."""
    if code == OK:
        info = _SENT
        if held:
            info += f"; {held} of it waits until the nodes are known"
        if refused:
            info += "; refused: "
    else:
        info = "limiter work by resource failed: " if code == LIMITED else ""
    info += "; ".join(map(str, refused[:_LISTED_MOST]))
    if len(refused) > _LISTED_MOST:
        info += f"; and {len(refused) - _LISTED_MOST} more"
    return ValidationReply(code, info, refused)


def reports(
    message: PublicFault,
    document: str,
    *,
    table: PublicFaultTable,
    ending: Callable[[], Collection[str]],
    received_at_ms: int,
) -> Work[tuple[list[PublicFaultReport], list[Problem]]]:
    """Return the reports of a message, and what of it is refused. Raises ``DocumentError`` for all
    of it.

    ``ending`` are the codes of faults of this resource that hold although no table names them any
    more: these may recover.
    """
    left = () if _is_in(message, table) else ending()
    is_listed = message.resource in table.resources
    faults, problems = yield from accepting(
        message,
        document,
        codes=table.levels if is_listed else (),
        resources=(message.resource,) if is_listed or left else table.resources,
        is_serial=bool,  # whose it is, is looked at for each influence by itself
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
                received_at_ms,
            )
            for about in fault.influence or ()
        ]
        yield len(fault.influence or ())
    return found, list(problems)


def _is_in(message: PublicFault, table: PublicFaultTable) -> bool:
    if message.resource not in table.resources:
        return False
    return all(fault.fault_code in table.levels for fault in message.faults or ())


def placed(
    report: PublicFaultReport, places: NodeLookup
) -> tuple[PublicFaultReport | None, list[Problem]]:
    """Return what is left of ``report`` on nodes and chips that exist, and what is refused.

    A recovery is about the fault whatever chips it names. Chips of a node that has reported none
    yet are checked when it has.
    """
    where = f"fault {report.fault_id}"
    if not report.node:
        node = places.node_of(report.serial_number)
        if node is None:
            what = f"no node has the serial number {quoted(repr(report.serial_number))}"
            return None, [Problem(where, what)]
        report = replace(report, node=node, serial_number="")
    if not places.has_node(report.node):
        return None, [Problem(where, f"there is no node {report.node!r}")]
    if report.assertion == "recover":
        return report, []
    existing = existing_devices(report.devices, places.chips(report.node))
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

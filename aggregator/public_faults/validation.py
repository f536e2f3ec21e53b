"""Whether the nodes and chips of a report exist, and the reply to the sender of a message.

``docs/spec/clusterd.md#4.2``; upstream does not check whether nodes and chips exist.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from contract.errors import Problem, quoted

if TYPE_CHECKING:
    from aggregator.public_faults.values import NodeLookup, PublicFaultReport

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


def reply(code: int, refused: tuple[Problem, ...], *, held: int = 0) -> ValidationReply:
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
            what = f"no node has the serial number {quoted(repr(report.serial_number))}"
            return None, [Problem(where, what)]
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

"""Conditions of a node: ``True`` is healthy, ``Unknown`` is blind or silent. Pure.

``False`` beats ``Unknown``, which beats ``True``: what is known to be broken is broken, whatever
else gives no answer. Sub-health is ``True`` with its reason.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from aggregator.scheduler_signals.node_evidence import CHIP, LINK, PART
from contract.codes.reference import describe_code
from contract.node_signals import (
    FALSE,
    MAX_MESSAGE_BYTES,
    NODE_HARDWARE_HEALTHY,
    NPU_HEALTHY,
    NPU_LINKS_HEALTHY,
    NPU_WATCHED,
    TRUE,
    UNKNOWN,
    NodeCondition,
)
from service.clock import shown_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from aggregator.scheduler_signals.node_evidence import NodeEvidence, NodeFault
    from contract.pages.blind import BlindStatus

SILENT = "AgentSilent"
BLIND = "SourceBlind"
NOT_REPORTED = "NotReported"
_UNKNOWN_FAULT = "UnknownFault"
_MAX_REASON = 128
_COUNT_BYTES = 16
"""For the count of what does not fit."""
_HEALTHY = {
    NPU_HEALTHY: (CHIP, "ChipsHealthy"),
    NPU_LINKS_HEALTHY: (LINK, "LinksHealthy"),
    NODE_HARDWARE_HEALTHY: (PART, "HardwareHealthy"),
}
"""Of what faults a condition is, and its reason while there is none."""


class Wanted(NamedTuple):
    """The desired content of a condition, without times."""

    type: str
    status: str
    reason: str
    message: str


def wanted_conditions(evidence: NodeEvidence, false_levels: Collection[str]) -> tuple[Wanted, ...]:
    """Return the conditions of a node; faults at ``false_levels`` make one ``False``."""
    return (
        *(
            _of_faults(type_, of, reason, evidence, false_levels)
            for type_, (of, reason) in _HEALTHY.items()
        ),
        _watched(evidence),
    )


def _of_faults(
    type_: str, of: str, healthy: str, evidence: NodeEvidence, false_levels: Collection[str]
) -> Wanted:
    faults = [fault for fault in evidence.faults if fault.of == of]
    if any(fault.level in false_levels for fault in faults):
        return Wanted(type_, FALSE, reason_of(faults[0]), message_of(faults))
    if evidence.is_silent:
        return Wanted(type_, UNKNOWN, SILENT, _silence(evidence))
    blind = evidence.blind_of(of)
    if blind:
        return Wanted(type_, UNKNOWN, BLIND, blind_message(blind))
    is_reported = (
        evidence.has_parts or evidence.is_watched if of == PART else evidence.chips is not None
    )
    if not is_reported:
        return Wanted(type_, UNKNOWN, NOT_REPORTED, "no document of the node is about these parts")
    if faults:
        return Wanted(type_, TRUE, reason_of(faults[0]), message_of(faults))
    return Wanted(type_, TRUE, healthy, "")


def _watched(evidence: NodeEvidence) -> Wanted:
    if evidence.is_silent:
        return Wanted(NPU_WATCHED, UNKNOWN, SILENT, _silence(evidence))
    if evidence.blind:
        return Wanted(NPU_WATCHED, FALSE, BLIND, blind_message(evidence.blind))
    if evidence.blind is None or not evidence.is_watched:
        text = "no agent reports which sources give it no answer"
        return Wanted(NPU_WATCHED, UNKNOWN, NOT_REPORTED, text)
    return Wanted(NPU_WATCHED, TRUE, "AllSourcesAnswer", "")


def _silence(evidence: NodeEvidence) -> str:
    if evidence.silent_since_ms is None:
        return "the agent sends no heartbeats"
    return f"the agent sends no heartbeats since {shown_time(evidence.silent_since_ms)}"


def reason_of(fault: NodeFault) -> str:
    """Return the name of a fault in the catalogue as one CamelCase word."""
    return _reason(fault.code)


@lru_cache(256)
def _reason(code: str) -> str:
    described = describe_code(code)
    words = re.findall(r"[A-Za-z0-9]+", "" if described is None else described.name("en"))
    reason = "".join(word[0].upper() + word[1:] for word in words)[:_MAX_REASON]
    return reason if reason[:1].isalpha() else _UNKNOWN_FAULT


def message_of(faults: Sequence[NodeFault]) -> str:
    """Return a message that names faults, the worst first, within what a condition may have."""
    return _fitting(f"{fault.subject}: {_named(fault.code)} {fault.level}" for fault in faults)


@lru_cache(256)
def _named(code: str) -> str:
    described = describe_code(code)
    return code if described is None else f"{code} ({described.name('en')})"


def blind_message(blind: Iterable[BlindStatus]) -> str:
    """Return a message that names sources that give no answer, and since when."""
    return _fitting(
        f"{source.source}{'' if source.chip is None else f' of {source.chip}'}"
        f"{'' if source.since_ms is None else f' since {shown_time(source.since_ms)}'}"
        f"{f': {source.reason}' if source.reason else ''}"
        for source in blind
    )


def _fitting(texts: Iterable[str]) -> str:
    """Join texts; those that do not fit are counted."""
    waiting = list(texts)
    text, room = "", MAX_MESSAGE_BYTES - _COUNT_BYTES
    for number, part in enumerate(waiting):
        longer = f"{text}; {part}" if text else part
        if len(longer.encode()) > room:
            text = text or part.encode()[:room].decode(errors="ignore")
            return f"{text}; {len(waiting) - max(number, 1)} more" if len(waiting) > 1 else text
        text = longer
    return text


def next_condition(wanted: Wanted, seen: NodeCondition | None, now_ms: int) -> NodeCondition | None:
    """Return the condition to write; ``None`` where the Node has it already.

    ``lastTransitionTime`` moves only with the status, and no time goes back: another leader's clock
    may be ahead of ours. Since when a node is silent is known exactly only to the leader that saw
    it, so another leader lets that text stand.
    """
    if seen is None:
        return NodeCondition(*wanted, changed_at_ms=now_ms, written_at_ms=now_ms)
    if (seen.status, seen.reason) == (wanted.status, wanted.reason) and (
        seen.message == wanted.message or wanted.reason == SILENT
    ):
        return None
    is_same_status = seen.status == wanted.status and seen.changed_at_ms > 0
    return NodeCondition(
        *wanted,
        changed_at_ms=seen.changed_at_ms if is_same_status else max(now_ms, seen.changed_at_ms),
        written_at_ms=max(now_ms, seen.written_at_ms),
    )

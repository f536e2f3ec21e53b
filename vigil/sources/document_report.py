"""Reports and explanations from the documents of a store, without any daemon."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from contract.codes.levels import ChipLevel
from contract.codes.reference import CodeKind
from contract.documents.separation import chip_of
from contract.errors import ConfigurationError, Problem
from service.clock import shown_time
from service.log.shortened import shortened
from vigil.daemon_client import UnknownNode
from vigil.reports.explanation import NodeExplanation, PartExplanation, explained_fault, is_meant
from vigil.reports.status_report import (
    NAMED,
    SERVER,
    SWITCHES,
    BlindRow,
    StatusReport,
    levels_of_chips,
    rank,
    reasons_of_blind,
    reasons_of_faults,
    reasons_of_names,
)
from vigil.sources.document_rows import ComparedFault, compared_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from contract.documents.isolation_request import IsolationRequest
    from vigil.reports.explanation import FaultExplanation
    from vigil.sources.store_contents import NodeContents, StoreContents

SOURCE = "documents of a store, without any daemon"
_WELL = frozenset({"Healthy", ""})


def report_of_documents(contents: StoreContents, address: str, node: str | None) -> StatusReport:
    """Return what the documents at ``address`` show, of ``node`` only with one.

    Raises ``UnknownNode`` for a node that no document is about.
    """
    nodes = _chosen(contents, address, node)
    seen = [
        compared_fault
        for name, result in nodes.items()
        for compared_fault in compared_faults(name, result)
    ]
    rows = tuple(item.row for item in seen)
    blind = tuple(row for name, result in nodes.items() for row in _blind(name, result))
    levels = levels_of_chips(rows)
    well = sum(len(_chips(node)) for node in nodes.values()) - sum(levels.values())
    if well:
        levels[ChipLevel.NORMAL_NPU.value] = levels.get(ChipLevel.NORMAL_NPU, 0) + well
    states = Counter(_state(node) for node in nodes.values())
    return StatusReport(
        source=SOURCE,
        server=address,
        about=node or "the cluster",
        at_ms=contents.at_ms,
        # Without a live agent nothing is known to be well: ``vigil status`` ends with 1.
        well=False,
        reasons=(
            *contents.problems,
            *_reasons(nodes, node, rows_of=seen),
            *reasons_of_blind(blind, node),
        ),
        not_known=tuple(_not_known(contents, nodes)),
        counts={
            "nodes": dict(sorted(states.items())),
            "chips": dict(sorted(levels.items(), key=lambda item: rank(item[0]))),
        },
        facts={},
        faults=rows,
        blind=blind,
    )


def explanation_of_documents(
    contents: StoreContents, address: str, node: str, part: str
) -> NodeExplanation:
    """Return what the documents at ``address`` show of ``node``, with ``part`` of that only.

    Raises ``UnknownNode``, and ``ConfigurationError`` for a part that no document names.
    """
    nodes = _chosen(contents, address, node)
    result = nodes[node]
    seen: dict[str, list[ComparedFault]] = {}
    for compared_fault in compared_faults(node, result):
        seen.setdefault(compared_fault.row.part, []).append(compared_fault)
    names = [*sorted(_chips(result)), *(name for name in seen if name not in _chips(result))]
    if part:
        names = [name for name in names if is_meant(part, name)]
        if not names:
            text = f"no document at {address} names this part"
            raise ConfigurationError("command line", [Problem(f"{node}/{part}", text)])
    parts = tuple(
        PartExplanation(
            name,
            tuple(_lists(result, name)),
            (),
            tuple(
                _explained(compared_fault, result.isolations)
                for compared_fault in seen.get(name, ())
            ),
        )
        for name in names
        if part or name in seen
    )
    shown = [compared_fault for name in names for compared_fault in seen.get(name, ())]
    blind = tuple(row for row in _blind(node, result) if not part or is_meant(part, row.part))
    of_node = {} if part else nodes
    return NodeExplanation(
        source=SOURCE,
        server=address,
        node=node,
        part=", ".join(names) if part else "",
        at_ms=contents.at_ms,
        well=False,
        reasons=(*_reasons(of_node, node, rows_of=shown), *reasons_of_blind(blind, node)),
        not_known=tuple(_not_known(contents, nodes)),
        because=(),
        documents=() if part else tuple(_places(result, shown)),
        parts=parts,
        blind=blind,
        jobs=(),
    )


def _chosen(contents: StoreContents, address: str, node: str | None) -> Mapping[str, NodeContents]:
    if node is None:
        return contents.nodes
    if node not in contents.nodes:
        raise UnknownNode(node, f"no document at {address} is about a node of this name")
    return {node: contents.nodes[node]}


def _state(contents: NodeContents) -> str:
    if contents.problems:
        return "unreadable"
    if contents.reported.device is not None:
        return "reported"
    return "without device-info"


def _chips(contents: NodeContents) -> frozenset[str]:
    none: frozenset[str] = frozenset()
    views = (contents.reported.device, contents.published.device)
    return none.union(*(view.chips for view in views if view is not None))


def _reasons(
    nodes: Mapping[str, NodeContents], about: str | None, *, rows_of: Iterable[ComparedFault]
) -> Iterator[str]:
    for name, contents in nodes.items():
        for text in contents.problems:
            yield text if name == about else f"{name}: {text}"
    by_word: dict[str, list[str]] = {}
    for name, contents in nodes.items():
        for message, word in _statuses(contents):
            if word not in _WELL:
                by_word.setdefault(f"{message} {word}", []).append(name)
        if contents.beat is not None and contents.beat.is_broken:
            by_word.setdefault("the connection of the agent broke", []).append(name)
        if contents.reported.device is None and not contents.problems:
            by_word.setdefault("there is no device-info", []).append(name)
    yield from reasons_of_names(by_word, about)
    yield from reasons_of_faults((item.row for item in rows_of), about)


def _statuses(contents: NodeContents) -> Iterator[tuple[str, str]]:
    """Yield the states of switches and server; what is published goes before."""
    switch = contents.published.switch or contents.reported.switch
    server = contents.published.server or contents.reported.server
    if switch is not None:
        yield SWITCHES, switch.status
    if server is not None:
        yield SERVER, server.status


def _blind(node: str, contents: NodeContents) -> Iterator[BlindRow]:
    for item in () if contents.own is None else contents.own.blind:
        view = contents.reported.device
        kind = "chip " if view is None else f"{view.chip_type}-"
        part = "" if item.chip is None else f"{kind}{item.chip}"
        yield BlindRow(node, part, item.source, item.since_ms, item.why)


def _not_known(contents: StoreContents, nodes: Mapping[str, NodeContents]) -> Iterator[str]:
    yield "whether agents are alive, and whether these documents are current"
    yield "which jobs are hit, why a fault has its level, who leads"
    yield from contents.unread
    if not contents.has_cluster_info and not any(
        text.startswith("cluster-info") for text in contents.unread
    ):
        yield "what the scheduler reads: there is no cluster-info"
    silent = [
        name
        for name, result in nodes.items()
        if result.own is None and (result.beat is None or result.beat.blind is not False)
    ]
    if silent:
        yield f"which sources are blind on {shortened(silent, NAMED)}"


def _lists(contents: NodeContents, chip: str) -> Iterator[str]:
    """Yield in which lists each side has a chip."""
    for side, view in (("reported", contents.reported), ("published", contents.published)):
        record = view.device
        if record is None or chip not in record.chips:
            continue
        lists = {
            "available": record.available,
            "unhealthy": record.unhealthy,
            "network unhealthy": record.network_unhealthy,
            "recovering": record.recovering,
        }
        named = [word for word, names in lists.items() if chip in names]
        yield f"{side} as {', '.join(named) or 'in no list'}"


def _places(contents: NodeContents, seen: Iterable[ComparedFault]) -> Iterator[str]:
    other = {item.row.kind for item in seen if item.reported != item.published}
    for name in contents.places:
        kind = _KINDS_OF_DOCUMENT.get(name.rpartition("-")[0], CodeKind.NODE)
        text = "other faults than" if kind in other else "the faults that"
        yield f"{name} has {text} the node reports"


_KINDS_OF_DOCUMENT = {
    "cluster-info-device": CodeKind.CHIP,
    "cluster-info-switch": CodeKind.SWITCH,
}


def _explained(
    fault: ComparedFault, isolations: Mapping[int, IsolationRequest]
) -> FaultExplanation:
    chip = chip_of(fault.row.part)
    request = None if chip is None else isolations.get(chip)
    because: tuple[str, ...] = ()
    if fault.row.code == ChipLevel.MANUALLY_SEPARATE_NPU and request is not None:
        at = shown_time(request.at_ms)
        because = (f"{request.by} (as stated) isolated it at {at}: {request.reason}",)
    return explained_fault(fault.row, fault.reported, fault.published, because=because)

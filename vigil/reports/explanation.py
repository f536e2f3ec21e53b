"""Explains the state of a node and its parts, from an agent or an aggregator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from contract.codes.reference import CodeKind, text_of_level
from contract.errors import ConfigurationError, Problem
from contract.pages.agent_status import AgentStatus
from contract.pages.aggregator_status import LeaderPage
from contract.pages.explanation import ExplainedNode
from contract.pages.faults import FaultRule, FaultsPage
from contract.sentences import joined, message, sentence
from vigil.daemon_client import OtherNode, UnknownNode
from vigil.language import translate_messages
from vigil.reports.status_report import (
    STATUS,
    BlindRow,
    FaultRow,
    blind_of,
    fault_row,
    faults_of,
    is_all_known,
    not_known_of_nodes,
    of_agent,
    of_cluster,
    of_nodes,
    reasons_of_blind,
    reasons_of_faults,
    reasons_of_links,
    reasons_of_nodes,
    source_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vigil.daemon_client import DaemonClient
    from vigil.reports.status_report import StatusReport

_AVAILABLE = "available"
_WRITTEN = message("every store has {name} as it is now")
_IN_WRITING = message("{name} is being written")
_CHIP = re.compile(r"([A-Za-z0-9]+-)?[0-9]+")


class FaultExplanation(msgspec.Struct, frozen=True):
    """A fault, and why it has its level.

    ``reported`` is the level that the node reports, ``published`` that in cluster-info; ``None``
    where it has none or that is not known here. ``until_ms`` (epoch milliseconds) is when what
    ``because`` names ends by time alone. ``effect`` is what happens to jobs, ``remedy`` what to do.
    ``observed_by`` are the sources that report the fault now, ``rules`` what the node's fault
    configuration has about the code; an agent alone knows both.
    """

    fault: FaultRow
    reported: str | None
    published: str | None
    until_ms: int | None
    because: tuple[str, ...]
    effect: str
    remedy: str
    observed_by: tuple[str, ...] = ()
    rules: tuple[FaultRule, ...] = ()


class PartExplanation(msgspec.Struct, frozen=True):
    """A part of a node; ``pods`` use it, as ``namespace/name``."""

    part: str
    because: tuple[str, ...]
    pods: tuple[str, ...]
    faults: tuple[FaultExplanation, ...]


class JobExplanation(msgspec.Struct, frozen=True):
    """A job (``namespace/name``) with pods on the node, and what the node does to it."""

    job: str
    health: str
    since_ms: int | None
    pods: tuple[str, ...]
    because: tuple[str, ...]


class NodeExplanation(msgspec.Struct, frozen=True):
    """Why a node, or one ``part`` of it, is well or not.

    ``reasons`` are why it is not well; none: it is well. ``because`` is about the node as a whole.
    ``parts``: those with something to explain. ``documents`` are of each document of the node how
    far it is written. ``not_known`` is as in ``Report``.
    """

    source: str
    server: str
    node: str
    part: str
    at_ms: int
    well: bool
    reasons: tuple[str, ...]
    not_known: tuple[str, ...]
    because: tuple[str, ...]
    documents: tuple[str, ...]
    parts: tuple[PartExplanation, ...]
    blind: tuple[BlindRow, ...]
    jobs: tuple[JobExplanation, ...]


def explain_node(client: DaemonClient, node: str, part: str) -> NodeExplanation:
    """Return what the daemon knows of ``node``, with ``part`` of that only (``3`` names a chip).

    Raises ``UnknownNode``, ``ConfigurationError`` for a part that the node lacks,
    ``StoreUnavailable`` where the daemon does not answer.
    """
    # Only an agent has this page; without it the daemon is an aggregator.
    answer = client.find(STATUS, AgentStatus)
    if answer is not None:
        if answer.node != node:
            text = sentence(
                "is not a valid fault code, and the daemon at {server} knows no node of this name: "
                "it is the agent of {node}. Name an aggregator with --server",
                server=client.server,
                node=answer.node,
            )
            raise OtherNode(node, text)
        return _of_agent(client, answer, part)
    return _of_aggregator(client, _node_of(client, node, may_be_code=True), part)


def report_of(client: DaemonClient, node: str | None) -> StatusReport:
    """Return what is wrong with ``node``, or with everything that the daemon knows.

    Raises ``UnknownNode`` for a node that it does not know, ``StoreUnavailable`` where it does
    not answer.
    """
    answer = client.find(STATUS, AgentStatus)
    if answer is not None:
        return of_agent(client.server, answer, node)
    if node is None:
        return of_cluster(client)
    result = _node_of(client, node)
    rows = (
        msgspec.structs.replace(fault.fault, withheld=fault.published is None)
        for part in parts_of(result)
        for fault in part.faults
    )
    facts = {"because": result.because}
    return of_nodes(client, node, None, (result.node,), tuple(rows), facts, result.messages)


def _node_of(client: DaemonClient, node: str, *, may_be_code: bool = False) -> ExplainedNode[Any]:
    result = client.find(f"/api/v1/nodes/{quote(node, safe='')}", ExplainedNode[Any])
    if result is None:
        template = message("the aggregator at {server} knows no node of this name")
        if may_be_code:
            template = message(
                "is not a valid fault code, and the aggregator at {server} knows no node of this "
                "name"
            )
        text = sentence(template, server=client.server)
        raise UnknownNode(node, text)
    translate_messages(result.messages)
    return result


def _of_agent(client: DaemonClient, answer: AgentStatus, part: str) -> NodeExplanation:
    server = client.server
    report = of_agent(server, answer, None)
    rules = _rules(client)
    faults: dict[str, list[FaultExplanation]] = {}
    for row, fault in zip(report.faults, faults_of(answer), strict=True):
        because = (fault.reason,) if fault.reason else ()
        explained = msgspec.structs.replace(
            explained_fault(row, row.level, None, None, because),
            observed_by=fault.reported_by,
            rules=rules.get((row.part, row.code), ()),
        )
        faults.setdefault(row.part, []).append(explained)
    chips = {chip.device: chip for chip in answer.chips}
    names = [*chips, *(name for name in faults if name not in chips)]
    if part:
        names = [name for name in names if is_meant(part, name)]
        if not names:
            text = sentence("the agent of {node} knows no part of this name", node=answer.node)
            raise ConfigurationError("command line", [Problem(part, text)])
    parts = tuple(
        PartExplanation(
            name,
            (sentence("level {level}", level=chips[name].level),) if name in chips else (),
            (),
            tuple(faults.get(name, ())),
        )
        for name in names
        if part or name in faults
    )
    rows = tuple(item.fault for name in names for item in faults.get(name, ()))
    blind = tuple(row for row in report.blind if not part or row.part in names)
    reasons = report.reasons
    if part:
        down = [name for name in names if name in chips and chips[name].link_up is False]
        reasons = (
            *reasons_of_faults(rows, answer.node),
            *reasons_of_links(down),
            *reasons_of_blind(blind, answer.node),
        )
    return NodeExplanation(
        source=report.source,
        server=server,
        node=answer.node,
        part=joined("{before}, {part}", names) if part else "",
        at_ms=answer.at_ms,
        well=not reasons,
        reasons=reasons,
        not_known=report.not_known,
        because=(),
        documents=() if part else report.facts["documents"],
        parts=parts,
        blind=blind,
        jobs=(),
    )


def _rules(client: DaemonClient) -> Mapping[tuple[str, str], tuple[FaultRule, ...]]:
    """Return the rules about each fault of an agent, by part and code."""
    result = client.find("/api/v1/faults", FaultsPage)
    faults = () if result is None else result.faults
    return {(fault.subject, fault.code): fault.rules for fault in faults}


def _of_aggregator(client: DaemonClient, answer: ExplainedNode[Any], part: str) -> NodeExplanation:
    about = client.get("/api/v1/leader", LeaderPage)
    node = answer.node
    parts = tuple(item for item in parts_of(answer, part) if not part or is_meant(part, item.part))
    chips = [chip for chip in answer.chips if not part or is_meant(part, chip.chip)]
    blind = tuple(blind_of(node))
    if part:
        blind = tuple(row for row in blind if is_meant(part, row.part))
    rows = [fault.fault for part in parts for fault in part.faults]
    reasons = (
        *(() if part else reasons_of_nodes([node], node.node)),
        *reasons_of_faults(rows, node.node),
        *reasons_of_blind(blind, node.node),
    )
    not_known = not_known_of_nodes([node])
    if any(
        fault.reported not in (None, fault.fault.code) for part in parts for fault in part.faults
    ):
        not_known.append(
            sentence(
                "which rules of {node} decide; vigil explain on that node shows them",
                node=node.node,
            )
        )
    if part and not parts:
        text = sentence(
            "the aggregator at {server} knows no part of this name that is not well",
            server=client.server,
        )
        if _CHIP.fullmatch(part) is not None:
            text = sentence(
                "the aggregator at {server} knows no such chip of {node}",
                server=client.server,
                node=node.node,
            )
        raise ConfigurationError("command line", [Problem(f"{node.node}/{part}", text)])
    pods = {pod for chip in chips for pod in chip.pods}
    return NodeExplanation(
        source=source_of(about.leader),
        server=client.server,
        node=node.node,
        part=joined("{before}, {part}", [item.part for item in parts] or [part]) if part else "",
        at_ms=about.at_ms,
        well=not reasons and is_all_known([node]),
        reasons=reasons,
        not_known=tuple(not_known),
        because=() if part else answer.because,
        documents=tuple(
            sentence(_WRITTEN if is_written else _IN_WRITING, name=name)
            for name, is_written in answer.documents.items()
            if not part
        ),
        parts=parts,
        blind=blind,
        jobs=tuple(
            JobExplanation(
                f"{job.namespace}/{job.name}" if job.name else job.job,
                job.health,
                job.since_ms,
                job.pods,
                job.because,
            )
            for job in answer.jobs
            if not part or pods & {*job.pods}
        ),
    )


def parts_of(answer: ExplainedNode[Any], part: str = "") -> Iterator[PartExplanation]:
    """Yield the parts with something to explain; with ``part`` also chips that are well."""
    node = answer.node.node
    for chip in answer.chips:
        is_quiet = (chip.reported, chip.published) == (_AVAILABLE, _AVAILABLE)
        if is_quiet and not (chip.faults or chip.blind or part):
            continue
        faults = []
        for fault in chip.faults:
            kind = CodeKind.PUBLIC if fault.fault_type == "PublicFault" else CodeKind.CHIP
            level = fault.published or fault.reported or ""
            row = fault_row(
                node, chip.chip, kind, fault.code, level, fault.severity, fault.since_ms
            )
            faults.append(
                explained_fault(
                    row, fault.reported, fault.published, fault.until_ms, (fault.because,)
                )
            )
        yield PartExplanation(chip.chip, chip.because, chip.pods, tuple(faults))
    for event in answer.switch_events:
        name = f"switch {event.switch} port {event.port}"
        level = event.published or event.reported or ""
        row = fault_row(node, name, CodeKind.SWITCH, event.code, level, None, event.since_ms)
        explained = explained_fault(
            row, event.reported, event.published, event.until_ms, (event.because,)
        )
        yield PartExplanation(name, (), (), (explained,))
    for server in answer.server_faults:
        name = server.subject
        row = fault_row(node, name, CodeKind.NODE, server.code, server.level, None, server.since_ms)
        yield PartExplanation(name, (), (), (explained_fault(row, server.level, server.level),))
    for dpu in answer.dpu_faults:
        since_ms = dpu.since_ms or None
        row = fault_row(node, dpu.subject, CodeKind.DPU, dpu.code, dpu.level, None, since_ms)
        because = tuple(filter(None, (dpu.description, dpu.because)))
        explained = explained_fault(row, dpu.level, None, None, because)
        yield PartExplanation(dpu.subject, (), (), (explained,))


def explained_fault(
    row: FaultRow,
    reported: str | None,
    published: str | None,
    until_ms: int | None = None,
    because: tuple[str, ...] = (),
) -> FaultExplanation:
    """Return ``row`` with what is known of its level; see ``FaultExplanation``."""
    if published is None and until_ms is not None:
        row = msgspec.structs.replace(row, withheld=True)
    text = text_of_level(row.kind, row.code, row.level)
    effect, remedy = ("", "") if text is None else (text.effect, text.remedy)
    return FaultExplanation(row, reported, published, until_ms, because, effect, remedy)


def is_meant(given: str, part: str) -> bool:
    """Return whether a person who writes ``given`` means ``part``: its name, or a chip's number."""
    if given == part or part == f"chip {given.rpartition('-')[2]}":
        return True
    return given.isdecimal() and part.endswith(f"-{given}")

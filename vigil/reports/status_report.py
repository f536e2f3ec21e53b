"""Status of a node or the cluster, in rows and sentences, from an agent or an aggregator."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from contract.codes.chip_codes import parse_code
from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel
from contract.codes.policies import AUTOFILL_CODE
from contract.codes.reference import CodeKind, describe_code, text_of_level
from contract.errors import ConfigurationError, Problem, quoted
from contract.observation import Subject
from contract.pages.agent_status import AgentStatus, HeldFaultStatus, PublicationStatus
from contract.pages.aggregator_status import (
    NODES_IN_STORE,
    LeaderPage,
    LeaderStatus,
    LivenessPage,
    NodesPage,
    NodeStatus,
)
from contract.pages.faults import FaultsPage, subject_name
from contract.pages.readiness import ReadinessPage
from contract.sentences import joined, message, names_in_short, sentence
from vigil.daemon_client import OtherNode
from vigil.language import translate_messages, with_reason
from vigil.reports.times import ago

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from contract.pages.blind import BlindStatus
    from contract.pages.messages import PageMessage
    from vigil.daemon_client import DaemonClient

STATUS = "/api/v1/status"
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
_ALIVE, _UNKNOWN = "alive", "unknown"
_REPORTED = "reported"
HARMLESS = frozenset(
    {ChipLevel.NOT_HANDLE_FAULT, NodeLevel.NOT_HANDLE_FAULT, SwitchLevel.NOT_HANDLE, ""}
)
"""Levels at which a fault changes nothing for jobs."""
_SWITCH_CODE = re.compile(r"\[.*,.*,.*,.*\]")
_RANK = {level: rank for rank, level in enumerate([*ChipLevel, *NodeLevel, *SwitchLevel])}
_KINDS = {
    "switch": CodeKind.SWITCH,
    "host": CodeKind.NODE,
    "storage": CodeKind.PUBLIC,
    "dpu": CodeKind.DPU,
}
_SWITCHES = message("the switches are {status}")
_SERVER = message("the server is {status}")
_ALARM = message(
    "silence alarm: too many nodes fell silent at once, so none of them is published lost"
)
_AGENT_NOT_READY = message("the agent is not ready: {reason}")
_AGGREGATOR_NOT_READY = message("the aggregator is not ready: {reason}")
_DOCUMENT = message("{document}: {reason}")
_HEARTBEAT = message("the heartbeat: {reason}")
_ON_NODES = NODES_IN_STORE.format(store="")
"""How an aggregator begins the name of a place with heartbeats on Nodes, as old agents write."""
_PARTS = message("{count} parts at {level}: {parts}")
_PART = message("{count} part at {level}: {parts}")


class FaultRow(msgspec.Struct, frozen=True):
    """A fault that holds. ``kind`` is that of its code; ``part`` is what it is of.

    ``since_ms`` is when it began (epoch milliseconds), ``None`` where that is not known. ``jobs``
    is in few words what happens to jobs. ``withheld``: the aggregator does not publish it now.
    """

    node: str
    part: str
    kind: CodeKind
    code: str
    name_en: str
    name_zh: str
    severity: str
    level: str
    since_ms: int | None
    jobs: str
    withheld: bool = False

    def name(self, language: str) -> str:
        """Return the name of the fault, in ``language`` where that is known."""
        return in_language(language, self.name_en, self.name_zh)


class BlindRow(msgspec.Struct, frozen=True):
    """A source that gives no answer; ``part`` is empty where it is about the node."""

    node: str
    part: str
    source: str
    since_ms: int | None
    reason: str


class StatusReport(msgspec.Struct, frozen=True):
    """What a daemon knows. ``about`` is a node or "the cluster".

    ``reasons`` are why it is not well, in sentences without a dot, worst first; none: it is well.
    ``not_known`` names what this daemon does not know. ``counts`` are by heading and word,
    ``facts`` are other lines by heading.
    """

    source: str
    server: str
    about: str
    at_ms: int
    well: bool
    reasons: tuple[str, ...]
    not_known: tuple[str, ...]
    counts: dict[str, dict[str, int]]
    facts: dict[str, tuple[str, ...]]
    faults: tuple[FaultRow, ...]
    blind: tuple[BlindRow, ...]


def check_filters(level: str | None, code: str | None) -> None:
    """Raise ``ConfigurationError`` for a level or a code that no fault can have."""
    problems = []
    if level is not None and level not in _RANK:
        text = sentence(
            "{value} is none of {values}",
            value=repr(quoted(level)),
            values=joined("{before}, {part}", dict.fromkeys(map(str, _RANK))),
        )
        problems.append(Problem("--level", text))
    if code is not None and not _is_possible(code):
        text = sentence("{code} is not a valid fault code", code=repr(quoted(code)))
        problems.append(Problem("--code", text))
    if problems:
        raise ConfigurationError("command line", problems)


def _is_possible(code: str) -> bool:
    """Return whether a fault may have this code: one in no table has at least its form.

    A chip that is isolated without a code has its level in the place of it.
    """
    if describe_code(code) is not None or code in {_MANUAL, AUTOFILL_CODE}:
        return True
    try:
        return bool(_SWITCH_CODE.fullmatch(code) or parse_code(code))
    except ValueError:
        return False


def same_code(given: str, code: str) -> bool:
    """Return whether a person who writes ``given`` means ``code``."""
    try:
        return parse_code(given) == code
    except ValueError:
        return given.strip() == code


def of_agent(server: str, answer: AgentStatus, node: str | None) -> StatusReport:
    """Return what an agent knows. Raises ``OtherNode`` for another node than its own."""
    if node not in (None, answer.node):
        raise other_node(server, answer, node)
    translate_messages(answer.messages)
    faults = tuple(
        fault_row(
            answer.node,
            fault.device or _part_of(fault),
            _kind_of(fault.subject),
            fault.code,
            fault.level,
            fault.severity,
            fault.since_ms,
        )
        for fault in faults_of(answer)
    )
    blind = (
        *blind_rows(answer.node, "", answer.blind),
        *(row for chip in answer.chips for row in blind_rows(answer.node, chip.device, chip.blind)),
    )
    down = [chip.device for chip in answer.chips if chip.link_up is False]
    beat = answer.heartbeat
    reasons = [
        *(with_reason(_AGENT_NOT_READY, reason) for reason in answer.not_ready),
        # Tasks have English names, so that is no sentence.
        *(f"a task of the agent stands still: {task}" for task in sorted(answer.stalled)),
        *reasons_of_faults(faults, answer.node),
        *reasons_of_links(down),
        *(
            [sentence("the driver: {reason}", reason=answer.driver.trouble)]
            if answer.driver.trouble
            else []
        ),
        *(
            sentence(
                "{document} is not published: {reason}",
                document=publication.kind,
                reason=publication.trouble,
            )
            for publication in answer.publications
            if publication.trouble
        ),
        *(
            with_reason(_DOCUMENT, publication.conflict, document=publication.kind)
            for publication in answer.publications
            if publication.conflict
        ),
        *([sentence(_HEARTBEAT, reason=beat.trouble)] if beat.trouble else []),
        *(with_reason(_HEARTBEAT, reason) for reason in (beat.withheld, beat.conflict) if reason),
        *reasons_of_blind(blind, answer.node),
    ]
    driver = answer.driver
    named = filter(None, (driver.family, driver.chip_name, driver.version))
    beaten = (
        sentence("not sent yet")
        if beat.beaten_at_ms is None
        else sentence("sent {ago}", ago=ago(beat.beaten_at_ms, answer.at_ms))
    )
    return StatusReport(
        source=agent_source(answer),
        server=server,
        about=answer.node,
        at_ms=answer.at_ms,
        well=not reasons,
        reasons=tuple(reasons),
        not_known=(sentence("what the cluster publishes about this node, which jobs are hit"),),
        counts={message("chips"): counts_of(chip.level for chip in answer.chips)},
        facts={
            message("driver"): (" ".join(named) or sentence("has not answered yet"),),
            message("heartbeat"): (
                sentence(
                    "{beaten}, every {interval} s",
                    beaten=beaten,
                    interval=f"{beat.interval_seconds:g}",
                ),
            ),
            message("documents"): tuple(
                _publication(publication, answer.at_ms) for publication in answer.publications
            ),
            **(
                {message("kernel log"): (sentence("from the pipe {path}", path=pipe),)}
                if (pipe := answer.kernel_log_pipe)
                else {}
            ),
        },
        faults=faults,
        blind=blind,
    )


def of_cluster(client: DaemonClient) -> StatusReport:
    """Return what an aggregator knows of all nodes. Raises ``StoreUnavailable``."""
    nodes = client.get("/api/v1/nodes", NodesPage)
    page = client.get("/api/v1/faults", FaultsPage)
    rows = tuple(_cluster_rows(page))
    return of_nodes(client, None, nodes.at_ms, nodes.nodes, rows)


def of_nodes(
    client: DaemonClient,
    name: str | None,
    at_ms: int | None,
    chosen: Sequence[NodeStatus],
    faults: tuple[FaultRow, ...],
    facts: Mapping[str, tuple[str, ...]] | None = None,
    messages: Mapping[str, PageMessage] | None = None,
) -> StatusReport:
    """Return a report of the ``chosen`` nodes: of the one with this ``name``, else of all.

    ``at_ms`` is the time of the answers, ``None`` where they have none. ``messages`` are those of
    the pages that ``facts`` are from.
    """
    liveness = client.get("/api/v1/liveness", LivenessPage).liveness
    about = client.get("/api/v1/leader", LeaderPage)
    # Not ``get``: an aggregator that is not ready answers 503, with its reasons.
    ready = client.decoded(client.fetch("/readyz")[1], ReadinessPage)
    translate_messages({**(messages or {}), **ready.messages})
    blind = tuple(row for item in chosen for row in blind_of(item))
    reasons = [
        *([sentence(_ALARM)] if liveness.alarm else []),
        *(with_reason(_AGGREGATOR_NOT_READY, reason) for reason in ready.reasons),
        *(_not_read(place, reason) for place, reason in liveness.problems.items()),
        *reasons_of_nodes(chosen, name),
        *reasons_of_faults(faults, name),
        *reasons_of_blind(blind, name),
    ]
    not_known = not_known_of_nodes(chosen)
    return StatusReport(
        source=source_of(about.leader),
        server=client.server,
        about=name or sentence("the cluster"),
        at_ms=about.at_ms if at_ms is None else at_ms,
        well=not reasons and is_all_known(chosen),
        reasons=tuple(reasons),
        not_known=tuple(not_known),
        counts={
            message("nodes"): counts_of(f"{item.state}, {item.heartbeat}" for item in chosen),
            message("chips"): levels_of_chips(faults),
        },
        facts=dict(facts or {message("leader"): (about.leader.holder or sentence("nobody"),)}),
        faults=faults,
        blind=blind,
    )


def _not_read(place: str, reason: str) -> str:
    """Return that the heartbeats of ``place`` are not read; ``reason`` is an error."""
    if place.startswith(_ON_NODES):
        return sentence(
            "heartbeats of nodes in {store} are not read: {reason}",
            store=place.removeprefix(_ON_NODES),
            reason=reason,
        )
    return sentence("heartbeats of {store} are not read: {reason}", store=place, reason=reason)


def agent_source(answer: AgentStatus) -> str:
    """Return which agent it is, in words."""
    return sentence("agent of {node}, version {version}", node=answer.node, version=answer.version)


def other_node(server: str, answer: AgentStatus, node: str | None) -> OtherNode:
    """Return the error for a ``node`` that is not that of the agent at ``server``."""
    text = sentence(
        "the agent at {server} is of {node}; name an aggregator with --server",
        server=server,
        node=answer.node,
    )
    return OtherNode(node or "", text)


def source_of(leader: LeaderStatus) -> str:
    """Return which aggregator it is, in words."""
    if leader.leads:
        return sentence("aggregator, which leads")
    holder = leader.holder or sentence("nobody")
    return sentence("aggregator, a follower of {holder}", holder=holder)


def reasons_of_nodes(nodes: Iterable[NodeStatus], about: str | None = None) -> Iterator[str]:
    """Yield why these nodes are not well, apart from faults and blind sources.

    The node that all is ``about`` is not named again.
    """
    by_word: dict[str, list[str]] = {}
    for node in nodes:
        if node.heartbeat not in (_ALIVE, _UNKNOWN):
            word = sentence("the heartbeat is {state}", state=sentence(node.heartbeat))
            by_word.setdefault(word, []).append(node.node)
        if node.state != _REPORTED:
            word = sentence("device-info is {state}", state=sentence(node.state))
            by_word.setdefault(word, []).append(node.node)
        for status, template in ((node.switch_status, _SWITCHES), (node.node_status, _SERVER)):
            if status not in (None, "", "Healthy"):
                word = sentence(template, status=status)
                by_word.setdefault(word, []).append(node.node)
    yield from reasons_of_names(by_word, about)


def not_known_of_nodes(nodes: Sequence[NodeStatus]) -> list[str]:
    """Return what an aggregator does not know of these nodes, such as those of a real NodeD."""
    if not nodes:
        return [sentence("any node: none has a document or a heartbeat here")]
    unknown = [node.node for node in nodes if node.heartbeat == _UNKNOWN]
    blind = [node.node for node in nodes if node.blind is None]
    nodes_by_gap = {
        message("whether there is a live agent on {nodes}"): unknown,
        message("which sources are blind on {nodes}"): blind,
    }
    return [
        sentence(gap, nodes=names_in_short(names)) for gap, names in nodes_by_gap.items() if names
    ]


def is_all_known(nodes: Sequence[NodeStatus]) -> bool:
    """Return whether there are nodes, and each has a heartbeat."""
    return bool(nodes) and all(node.heartbeat != _UNKNOWN for node in nodes)


def reasons_of_names(by_word: Mapping[str, list[str]], about: str | None) -> Iterator[str]:
    """Yield each word with the nodes that it is true of; ``about`` is not named again."""
    for word, names in by_word.items():
        if names == [about]:
            yield word
        else:
            yield sentence("{reason}: {nodes}", reason=word, nodes=names_in_short(names))


def reasons_of_faults(faults: Iterable[FaultRow], about: str | None = None) -> Iterator[str]:
    """Yield which parts are hit at which level, worst level first."""
    parts: dict[str, dict[str, None]] = {}
    for row in faults:
        if row.level not in HARMLESS:
            parts.setdefault(row.level, {})[_named(row.node, row.part, about)] = None
    for level in sorted(parts, key=rank):
        names = list(parts[level])
        template = _PART if len(names) == 1 else _PARTS
        yield sentence(template, count=len(names), level=level, parts=names_in_short(names))


def reasons_of_links(chips: Sequence[str]) -> Iterator[str]:
    """Yield that the link is down at these ``chips``."""
    if chips:
        yield sentence("the link is down at {chips}", chips=names_in_short(chips))


def reasons_of_blind(rows: Iterable[BlindRow], about: str | None = None) -> Iterator[str]:
    """Yield which sources give no answer."""
    sources = [blind_source(row, about) for row in rows]
    if sources:
        yield sentence("no answer from {sources}", sources=names_in_short(sources))


def blind_source(row: BlindRow, about: str | None = None) -> str:
    """Return the source and what it is about; the node ``about`` is not named again."""
    if row.node == about and not row.part:
        return sentence("{source} of the node", source=row.source)
    return sentence("{source} of {part}", source=row.source, part=_named(row.node, row.part, about))


def _named(node: str, part: str, about: str | None) -> str:
    """Return a part of ``node``, without its name where all is ``about`` this node.

    It is no sentence: a list of names is the same in each language.
    """
    return part if part and node == about else f"{node} {part}".strip()


def _cluster_rows(page: FaultsPage) -> Iterator[FaultRow]:
    for fault in page.faults:
        kind = CodeKind.PUBLIC if fault.fault_type == "PublicFault" else _kind_of(fault.kind)
        # Where the source reports no time, that of the receipt is the closest.
        since = fault.since_ms or fault.received_at_ms
        row = fault_row(
            fault.node, fault.subject, kind, fault.code, fault.level, fault.severity, since
        )
        yield msgspec.structs.replace(row, withheld=fault.hidden is not None)


def faults_of(answer: AgentStatus) -> tuple[HeldFaultStatus, ...]:
    """Return the faults of an agent, and what isolates a chip without a fault that holds."""
    holding = {(fault.device, fault.code) for fault in answer.faults}
    return (
        *answer.faults,
        *(
            HeldFaultStatus(
                chip=chip.chip,
                device=chip.device,
                subject=f"chip {chip.chip}",
                part="",
                # An isolation without a code has a pseudo-code on the wire, which means nothing to
                # people.
                code=_MANUAL if upgrade.code == AUTOFILL_CODE else upgrade.code,
                level=upgrade.level,
                severity=None,
                device_fault=False,
                since_ms=upgrade.upgraded_at_ms,
                episode=upgrade.episode,
                reason=upgrade.because,
                source="",
                reported_by=(),
                once=False,
            )
            for chip in answer.chips
            for upgrade in chip.upgrades
            if upgrade.level == _MANUAL and (chip.device, upgrade.code) not in holding
        ),
    )


def fault_row(
    node: str,
    part: str,
    kind: CodeKind,
    code: str,
    level: str,
    severity: str | None,
    since_ms: int | None,
) -> FaultRow:
    """Return a row with what the tables of this package have of the code."""
    name_en, name_zh = names_of(code)
    text = text_of_level(kind, code, level)
    return FaultRow(
        node=node,
        part=part,
        kind=kind,
        code=code,
        name_en=name_en,
        name_zh=name_zh,
        severity=severity or "",
        level=level,
        since_ms=since_ms,
        jobs=text.short if text else "",
    )


def names_of(code: str) -> tuple[str, str]:
    """Return the name of ``code``, or what follows from it, and its Chinese name."""
    reference = describe_code(code)
    return ("", "") if reference is None else (reference.summary, reference.name_zh)


def in_language(language: str, name_en: str, name_zh: str) -> str:
    """Return the name in ``language`` (``en`` or ``zh``) where that is known."""
    return (name_zh if language == "zh" else "") or name_en


def _part_of(fault: HeldFaultStatus) -> str:
    """Return what a fault is of, in the words of an aggregator."""
    kind, _, number = fault.subject.partition(" ")
    try:
        return subject_name(Subject(kind, int(number), fault.part), "chip")
    except ValueError:
        return f"{fault.subject} {fault.part}".strip()


def _kind_of(subject: str) -> CodeKind:
    """Return what a code on ``subject`` (``switch 2``, or its kind alone) is about."""
    return _KINDS.get(subject.partition(" ")[0], CodeKind.CHIP)


def blind_rows(node: str, part: str, statuses: Iterable[BlindStatus]) -> Iterator[BlindRow]:
    """Yield a row for each blind source of a part."""
    for status in statuses:
        yield BlindRow(node, part, status.source, status.since_ms, status.reason)


def blind_of(node: NodeStatus) -> Iterator[BlindRow]:
    """Yield a row for each blind source of a node that an aggregator knows."""
    for item in node.blind or ():
        yield from blind_rows(node.node, item.chip or "", [item])


def counts_of(words: Iterable[str]) -> dict[str, int]:
    """Return how often each word is there, levels by rank."""
    counts = Counter(words)
    return {word: counts[word] for word in sorted(counts, key=rank)}


def levels_of_chips(faults: Iterable[FaultRow]) -> dict[str, int]:
    """Return how many chips have each level; a chip has its worst one."""
    worst: dict[tuple[str, str], str] = {}
    for row in faults:
        if row.kind in {CodeKind.CHIP, CodeKind.PUBLIC}:
            key = (row.node, row.part)
            worst[key] = min(row.level, worst.get(key, row.level), key=rank)
    return counts_of(worst.values())


def rank(level: str) -> tuple[int, str]:
    """Return the place of a level among all, most serious first; unknown ones come last."""
    return _RANK.get(level, len(_RANK)), level


def _publication(publication: PublicationStatus, now_ms: int) -> str:
    if publication.left_to_writer is not None:
        return sentence(
            "{document} is left to {program}",
            document=publication.kind,
            program=publication.left_to_writer,
        )
    if publication.acknowledged_at_ms is None:
        return sentence("{document} has nothing to report", document=publication.kind)
    written = ago(publication.acknowledged_at_ms, now_ms)
    return sentence("{document} was written {ago}", document=publication.kind, ago=written)

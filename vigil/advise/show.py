"""What ``vigil advise`` prints: line by line for people, or as one line of JSON.

The JSON is made in pieces: placement pod by pod is large in a large cluster.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from advisor.options import COMPUTED_FOR
from advisor.report import Action, flat
from advisor.report_filter import changes
from contract.sentences import counted, english, joined, message, names_in_short, sentence
from vigil.language import listed, shown, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from advisor.report import (
        AdviceReport,
        CreateAdvice,
        ElasticAdvice,
        Finding,
        Gang,
        JobDecision,
        NodeVerdict,
        Placement,
        PodRef,
    )
    from vigil.advise.run import AdvicePair

T = TypeVar("T")

_MAX_SHOWN = 10
"""Of one kind are shown, the rest is counted (``--json`` has all)."""
_MAX_NAMES = 8
_encode = msgspec.json.Encoder(enc_hook=english).encode


def lines(pairs: Sequence[AdvicePair]) -> Iterator[str]:
    """Yield the lines of one session: equal profiles are shown once."""
    if not pairs:
        yield translated("no session yet")
        return
    printed: list[tuple[str, list[str], list[str]]] = []
    for report, base in pairs:
        body = list(_body(report))
        changed = [] if base is None else list(_changed(report, base))
        same = next((item for item in printed if item[1:] == (body, changed)), None)
        if same is not None:
            both = translated("{first} and {second}", first=same[0], second=report.profile)
            printed[printed.index(same)] = (both, body, changed)
        else:
            printed.append((str(report.profile), body, changed))
    for profile, body, changed in printed:
        yield f"{_time(pairs[0].report.now_ms)}  {translated('profile {name}', name=profile)}"
        yield from body
        if pairs[0].base is not None:
            yield f"  {translated('what this changes:')}"
            yield from changed or [f"    {translated('nothing')}"]


def basis() -> Iterator[str]:
    """Yield whose decisions are computed, and where releases differ."""
    yield translated(
        "computed as MindCluster {commit} (master) with Volcano {volcano} decides; known "
        "differences of releases:",
        commit=COMPUTED_FOR.commit,
        volcano=COMPUTED_FOR.volcano,
    )
    yield from (f"  {translated(text)}" for text in COMPUTED_FOR.differences)


def _time(at_ms: int) -> str:
    if not at_ms:
        return translated("at a time that is not in the dump")
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def _body(report: AdviceReport) -> Iterator[str]:
    verdicts = [node_verdict for node_verdict in report.node_verdicts if not node_verdict.is_calm]
    deciding = [
        decision
        for decision in report.decisions
        if decision.action is not Action.NONE or decision.fault_pods
    ]
    yield from _listed(message("nodes"), verdicts, lambda item: [_node(item)])
    yield from _listed(message("jobs"), deciding, _decision)
    yield from _listed(message("placement"), report.placement, _place)
    yield from _listed(message("gangs"), report.gangs, lambda item: [_gang(item)])
    yield from _listed("MindIE Motor", report.create_advice, lambda item: [_creation(item)])
    yield from _listed(
        message("elastic training"), report.elastic_advice, lambda item: [_elastic(item)]
    )
    if not (deciding or report.placement or report.create_advice or report.elastic_advice):
        yield f"  {_nothing(report, verdicts)}"
    yield from _listed(message("findings"), report.findings, lambda item: [_finding(item)])
    unknown = [*(gap.text for gap in report.gaps), *report.not_known]
    yield from _listed(message("not known"), unknown, lambda item: [shown(item)])


def _nothing(report: AdviceReport, faulty: Sequence[NodeVerdict]) -> str:
    """Return that nothing happens and why, or that this is not known."""
    if not report.is_known:
        return translated("what happens is not known")
    if faulty:
        return translated(
            "nothing happens, and nothing waits: no pod is at fault: what the nodes above have "
            "moves no pod"
        )
    return translated("nothing happens, and nothing waits: no pod is at fault")


def _listed(
    heading: str, items: Sequence[T], lines_of: Callable[[T], Iterable[str]]
) -> Iterator[str]:
    """Yield the lines of the first ones; those of the others are not even made."""
    if not items:
        return
    yield f"  {translated(heading)}"
    for item in items[:_MAX_SHOWN]:
        yield from (f"    {line}" for line in lines_of(item))
    if len(items) > _MAX_SHOWN:
        yield f"    {_more(len(items) - _MAX_SHOWN)}"


def _more(count: int) -> str:
    return translated("... and {count} more (--json has all)", count=count)


def _node(verdict: NodeVerdict) -> str:
    parts = [
        sentence(
            "{node} {state}, takes {pods}",
            node=verdict.node,
            state=sentence(verdict.state),
            pods=sentence(verdict.accept_new),
        )
    ]
    if verdict.unhealthy:
        parts.append(sentence("unhealthy {cards}", cards=",".join(verdict.unhealthy)))
    if verdict.network_unhealthy:
        parts.append(sentence("network {cards}", cards=",".join(verdict.network_unhealthy)))
    return shown(joined("{before}; {part}", [*parts, *verdict.reasons]))


def _decision(decision: JobDecision) -> Iterator[str]:
    scope = ""
    if decision.scope is not None:
        scope = translated(", scope {scope}", scope=translated(decision.scope))
    source = f" [{' '.join((decision.row, *decision.rules))}]" if decision.row else ""
    action = translated(decision.action)
    yield f"{decision.job} ({decision.workload}) {action}{scope}: {shown(decision.why)}{source}"
    for pod in decision.fault_pods[:_MAX_NAMES]:
        text = " ".join(filter(None, (",".join(pod.cards), ",".join(pod.codes))))
        fault = f"{pod.type} {text}".rstrip()
        line = translated(
            "at fault {pod} on {node}: {fault}", pod=pod.name, node=pod.node, fault=fault
        )
        yield f"  {line}"
    if len(decision.fault_pods) > _MAX_NAMES:
        more = len(decision.fault_pods) - _MAX_NAMES
        yield f"  {translated('at fault {count} more', count=more)}"
    if decision.also_deleted:
        names = [pod.name for pod in decision.also_deleted]
        pods = shown(names_in_short(names, _MAX_NAMES))
        yield f"  {translated('others delete: {pods}', pods=pods)}"
    for grace in sorted({pod.grace_seconds for pod in decision.pods}):
        names = [pod.name for pod in decision.pods if pod.grace_seconds == grace]
        pods = shown(names_in_short(names, _MAX_NAMES))
        yield f"  {translated('deletes with {seconds} s: {pods}', seconds=grace, pods=pods)}"
    if decision.retry is not None:
        text = translated(
            "retries {before} -> {after}",
            before=decision.retry.before,
            after=decision.retry.after,
        )
        yield f"  {text}"
    if decision.deadline_ms is not None:
        yield f"  {translated('by force from {time} on', time=_time(decision.deadline_ms))}"
    if decision.follow_up:
        follows = shown(decision.follow_up)
        yield f"  {translated('then {text}', text=follows) if decision.pods else follows}"
    if decision.replacement:
        yield f"  {shown(decision.replacement)}"


def _place(placement: Placement) -> Iterator[str]:
    first = placement.pods[0]
    pods: str = f"{first.namespace}/{first.name}"
    if len(placement.pods) > 1:
        pods = sentence("{pod} and {count} like it", pod=pods, count=len(placement.pods) - 1)
    takes = counted(
        len(placement.accepts),
        "{pods}: {count} node can take it",
        "{pods}: {count} nodes can take it",
        pods=pods,
    )
    if placement.accepts:
        names = shown(names_in_short(placement.accepts, _MAX_NAMES))
        yield f"{shown(takes)}: {names}"
    else:
        yield shown(takes)
    reasons: dict[str, list[tuple[str, str]]] = {}
    for node, cause in placement.refuses.items():
        reason, _, text = shown(cause).partition(": ")
        reasons.setdefault(reason, []).append((node, text))
    for reason, nodes in reasons.items():
        if len({text for _, text in nodes}) == 1:
            names = shown(names_in_short([node for node, _ in nodes], _MAX_NAMES))
            yield f"  {reason}: {nodes[0][1]}: {names}"
        else:
            names = shown(names_in_short([f"{node} ({text})" for node, text in nodes], _MAX_NAMES))
            yield f"  {reason}: {names}"


def _gang(gang: Gang) -> str:
    name = f"{gang.namespace}/{gang.name}"
    if not gang.fits:
        return f"{translated('{gang} does not fit', gang=name)}: {shown(gang.short)}"
    if gang.not_predicted:
        text = "{gang} fits by chips; {rest} is not predicted"
        return shown(sentence(text, gang=name, rest=gang.not_predicted))
    return translated("{gang} fits", gang=name)


def _creation(advice: CreateAdvice) -> str:
    index = ""
    if advice.dest_index is not None:
        index = translated(" entry {index}", index=advice.dest_index)
    reason = f" {advice.reason}" if advice.reason else ""
    counts = listed(f"{group} {count}" for group, count in sorted(advice.current.items()))
    answer = f"{advice.namespace}/{advice.name} {advice.verdict}{reason}{index} ({counts})"
    return f"{answer}: {shown(advice.why)}"


def _elastic(advice: ElasticAdvice) -> str:
    size = (
        advice.reason
        if advice.replicas is None
        else shown(
            counted(
                advice.replicas, "goes on with {count} replica", "goes on with {count} replicas"
            )
        )
    )
    flags = f" ({', '.join(advice.flags)})" if advice.flags else ""
    return f"{advice.namespace}/{advice.name} {size} {advice.trigger}: {shown(advice.why)}{flags}"


def _finding(finding: Finding) -> str:
    severity = translated(finding.severity)
    return f"{severity} {finding.code} {finding.object}: {shown(finding.text)}"


_SUMMARIES: dict[str, Callable[[Any], str]] = {
    "node_verdicts": lambda item: translated("node {text}", text=_node(item)),
    "decisions": lambda item: next(_decision(item)),
    "create_advice": _creation,
    "elastic_advice": _elastic,
    "findings": _finding,
    "deletions": lambda item: translated(
        "deletion of {pod} with {seconds} s",
        pod=f"{item.namespace}/{item.name}",
        seconds=item.grace_seconds,
    ),
    "placement": lambda item: next(_place(item)),
    "gangs": lambda item: translated("gang {text}", text=_gang(item)),
}
"""One line for an entry, by the member of the report that has it."""


def _changed(report: AdviceReport, base: AdviceReport) -> Iterator[str]:
    items = changes(report, base)
    for sign, side in (("+", "adds"), ("-", "takes_away")):
        entries = [
            f"{sign} {_SUMMARIES[member](item)}"
            for member, listed in items[side].items()
            for item in listed
        ]
        yield from (f"    {line}" for line in entries[: 2 * _MAX_SHOWN])
        if len(entries) > 2 * _MAX_SHOWN:
            yield f"    {sign} {_more(len(entries) - 2 * _MAX_SHOWN)}"


def json_line(report: AdviceReport, base: AdviceReport | None) -> Iterator[bytes]:
    """Yield the line of ``report``; with ``base``, what assumptions change is in it too."""
    members = flat(msgspec.structs.replace(report, placement=()))
    if base is not None:
        members["what_if"] = changes(report, base)
    separator = b"{"
    for name, value in members.items():
        yield separator + _encode(name) + b":"
        if name == "placement":
            yield from _placement(report.placement)
        else:
            yield _encode(value)
        separator = b","
    yield b"}\n"


def _placement(groups: tuple[Placement, ...]) -> Iterator[bytes]:
    """Yield one object per pod, by namespace and name. The nodes of a group are encoded once."""
    pods: list[tuple[PodRef, int]] = []
    nodes: list[bytes] = []
    for index, group in enumerate(groups):
        pods += ((pod, index) for pod in group.pods)
        nodes.append(
            b',"accepts":' + _encode(group.accepts) + b',"refuses":' + _encode(group.refuses) + b"}"
        )
    pods.sort(key=lambda item: (item[0].namespace, item[0].name, item[0].uid))
    yield b"["
    separator = b""
    for pod, index in pods:
        # Without its closing brace: the encoded members of its group follow.
        yield separator + _encode(pod)[:-1] + nodes[index]
        separator = b","
    yield b"]"

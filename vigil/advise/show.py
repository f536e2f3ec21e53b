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
from contract.plural import plural
from service.log.shortened import shortened

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
_encode = msgspec.json.Encoder().encode


def lines(pairs: Sequence[AdvicePair]) -> Iterator[str]:
    """Yield the lines of one session: equal profiles are shown once."""
    if not pairs:
        yield "no session yet"
        return
    shown: list[tuple[str, list[str], list[str]]] = []
    for report, base in pairs:
        body = list(_body(report))
        changed = [] if base is None else list(_changed(report, base))
        same = next((item for item in shown if item[1:] == (body, changed)), None)
        if same is not None:
            shown[shown.index(same)] = (f"{same[0]} and {report.profile}", body, changed)
        else:
            shown.append((str(report.profile), body, changed))
    for profile, body, changed in shown:
        yield f"{_time(pairs[0].report.now_ms)}  profile {profile}"
        yield from body
        if pairs[0].base is not None:
            yield "  what this changes:"
            yield from changed or ["    nothing"]


def basis() -> Iterator[str]:
    """Yield whose decisions are computed, and where releases differ."""
    yield (
        f"computed as MindCluster {COMPUTED_FOR.commit} (master) with Volcano "
        f"{COMPUTED_FOR.volcano} decides; known differences of releases:"
    )
    yield from (f"  {text}" for text in COMPUTED_FOR.differences)


def _time(at_ms: int) -> str:
    if not at_ms:
        return "at a time that is not in the dump"
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
    yield from _listed("nodes", verdicts, lambda item: [_node(item)])
    yield from _listed("jobs", deciding, _decision)
    yield from _listed("placement", report.placement, _place)
    yield from _listed("gangs", report.gangs, lambda item: [_gang(item)])
    yield from _listed("MindIE Motor", report.create_advice, lambda item: [_creation(item)])
    yield from _listed("elastic training", report.elastic_advice, lambda item: [_elastic(item)])
    if not (deciding or report.placement or report.create_advice or report.elastic_advice):
        yield f"  {_nothing(report, verdicts)}"
    yield from _listed("findings", report.findings, lambda item: [_finding(item)])
    unknown = [*(gap.text for gap in report.gaps), *report.not_known]
    yield from _listed("not known", unknown, lambda item: [item])


def _nothing(report: AdviceReport, faulty: Sequence[NodeVerdict]) -> str:
    """Return that nothing happens and why, or that this is not known."""
    if not report.is_known:
        return "what happens is not known"
    reason = "no pod is at fault"
    if faulty:
        reason = f"{reason}: what the nodes above have moves no pod"
    return f"nothing happens, and nothing waits: {reason}"


def _listed(
    heading: str, items: Sequence[T], lines_of: Callable[[T], Iterable[str]]
) -> Iterator[str]:
    """Yield the lines of the first ones; those of the others are not even made."""
    if not items:
        return
    yield f"  {heading}"
    for item in items[:_MAX_SHOWN]:
        yield from (f"    {line}" for line in lines_of(item))
    if len(items) > _MAX_SHOWN:
        yield f"    ... and {len(items) - _MAX_SHOWN} more (--json has all)"


def _node(verdict: NodeVerdict) -> str:
    parts = [f"{verdict.node} {verdict.state}, takes {verdict.accept_new}"]
    if verdict.unhealthy:
        parts.append(f"unhealthy {','.join(verdict.unhealthy)}")
    if verdict.network_unhealthy:
        parts.append(f"network {','.join(verdict.network_unhealthy)}")
    return "; ".join([*parts, *verdict.reasons])


def _decision(decision: JobDecision) -> Iterator[str]:
    scope = f", scope {decision.scope}" if decision.scope is not None else ""
    source = f" [{' '.join((decision.row, *decision.rules))}]" if decision.row else ""
    yield f"{decision.job} ({decision.workload}) {decision.action}{scope}: {decision.why}{source}"
    for pod in decision.fault_pods[:_MAX_NAMES]:
        text = " ".join(filter(None, (",".join(pod.cards), ",".join(pod.codes))))
        yield f"  at fault {pod.name} on {pod.node}: {pod.type} {text}".rstrip()
    if len(decision.fault_pods) > _MAX_NAMES:
        yield f"  at fault {len(decision.fault_pods) - _MAX_NAMES} more"
    if decision.also_deleted:
        names = [pod.name for pod in decision.also_deleted]
        yield f"  others delete: {shortened(names, _MAX_NAMES)}"
    for grace in sorted({pod.grace_seconds for pod in decision.pods}):
        names = [pod.name for pod in decision.pods if pod.grace_seconds == grace]
        yield f"  deletes with {grace} s: {shortened(names, _MAX_NAMES)}"
    if decision.retry is not None:
        yield f"  retries {decision.retry.before} -> {decision.retry.after}"
    if decision.deadline_ms is not None:
        yield f"  by force from {_time(decision.deadline_ms)} on"
    if decision.follow_up:
        yield f"  {'then ' if decision.pods else ''}{decision.follow_up}"
    if decision.replacement:
        yield f"  {decision.replacement}"


def _place(placement: Placement) -> Iterator[str]:
    first = placement.pods[0]
    more = f" and {len(placement.pods) - 1} like it" if len(placement.pods) > 1 else ""
    takes = f"{plural(len(placement.accepts), 'node')} can take it"
    if placement.accepts:
        takes += f": {shortened(placement.accepts, _MAX_NAMES)}"
    yield f"{first.namespace}/{first.name}{more}: {takes}"
    reasons: dict[str, list[tuple[str, str]]] = {}
    for node, cause in placement.refuses.items():
        reason, _, text = cause.partition(": ")
        reasons.setdefault(reason, []).append((node, text))
    for reason, nodes in reasons.items():
        if len({text for _, text in nodes}) == 1:
            names = shortened([node for node, _ in nodes], _MAX_NAMES)
            yield f"  {reason}: {nodes[0][1]}: {names}"
        else:
            names = shortened([f"{node} ({text})" for node, text in nodes], _MAX_NAMES)
            yield f"  {reason}: {names}"


def _gang(gang: Gang) -> str:
    fits = "fits"
    if gang.not_predicted:
        fits = f"fits by chips; {gang.not_predicted} is not predicted"
    return f"{gang.namespace}/{gang.name} {fits if gang.fits else f'does not fit: {gang.short}'}"


def _creation(advice: CreateAdvice) -> str:
    index = "" if advice.dest_index is None else f" entry {advice.dest_index}"
    reason = f" {advice.reason}" if advice.reason else ""
    counts = ", ".join(f"{group} {count}" for group, count in sorted(advice.current.items()))
    return (
        f"{advice.namespace}/{advice.name} {advice.verdict}{reason}{index} ({counts}): {advice.why}"
    )


def _elastic(advice: ElasticAdvice) -> str:
    size = (
        advice.reason
        if advice.replicas is None
        else f"goes on with {plural(advice.replicas, 'replica')}"
    )
    flags = f" ({', '.join(advice.flags)})" if advice.flags else ""
    return f"{advice.namespace}/{advice.name} {size} {advice.trigger}: {advice.why}{flags}"


def _finding(finding: Finding) -> str:
    return f"{finding.severity} {finding.code} {finding.object}: {finding.text}"


_SUMMARIES: dict[str, Callable[[Any], str]] = {
    "node_verdicts": lambda item: f"node {_node(item)}",
    "decisions": lambda item: next(_decision(item)),
    "create_advice": _creation,
    "elastic_advice": _elastic,
    "findings": _finding,
    "deletions": lambda item: (
        f"deletion of {item.namespace}/{item.name} with {item.grace_seconds} s"
    ),
    "placement": lambda item: next(_place(item)),
    "gangs": lambda item: f"gang {_gang(item)}",
}
"""One line for an entry, by the member of the report that has it."""


def _changed(report: AdviceReport, base: AdviceReport) -> Iterator[str]:
    items = changes(report, base)
    for sign, side in (("+", "adds"), ("-", "takes_away")):
        shown = [
            f"{sign} {_SUMMARIES[member](item)}"
            for member, listed in items[side].items()
            for item in listed
        ]
        yield from (f"    {line}" for line in shown[: 2 * _MAX_SHOWN])
        if len(shown) > 2 * _MAX_SHOWN:
            yield f"    {sign} ... and {len(shown) - 2 * _MAX_SHOWN} more (--json has all)"


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

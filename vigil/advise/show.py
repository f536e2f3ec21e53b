"""What ``vigil advise`` prints for people, line by line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.options import COMPUTED_FOR
from advisor.report import Action
from advisor.report_filter import changes
from contract.counted import counted
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
    )
    from vigil.advise.run import AdvicePair

T = TypeVar("T")

_MOST = 10
"""Of one kind are shown, the rest is counted (``--json`` has all)."""
_MOST_NAMES = 8


def lines(pairs: Sequence[AdvicePair]) -> Iterator[str]:
    """Yield the lines of one session: equal profiles are shown once."""
    if not pairs:
        yield "no session yet"
        return
    shown: list[tuple[str, list[str], list[str]]] = []
    for report, base in pairs:
        body = list(_body(report))
        changed = [] if base is None else list(_changed(report, base))
        same = next((one for one in shown if one[1:] == (body, changed)), None)
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
    verdicts = [one for one in report.node_verdicts if not one.is_calm]
    deciding = [one for one in report.decisions if one.action is not Action.NONE or one.fault_pods]
    yield from _listed("nodes", verdicts, lambda one: [_node(one)])
    yield from _listed("jobs", deciding, _decision)
    yield from _listed("placement", report.placement, _place)
    yield from _listed("gangs", report.gangs, lambda one: [_gang(one)])
    yield from _listed("MindIE Motor", report.create_advice, lambda one: [_creation(one)])
    yield from _listed("elastic training", report.elastic_advice, lambda one: [_elastic(one)])
    if not (deciding or report.placement or report.create_advice or report.elastic_advice):
        yield f"  {_nothing(report, verdicts)}"
    yield from _listed("findings", report.findings, lambda one: [_finding(one)])
    unknown = [*(one.text for one in report.gaps), *report.not_known]
    yield from _listed("not known", unknown, lambda one: [one])


def _nothing(report: AdviceReport, faulty: Sequence[NodeVerdict]) -> str:
    """Return that nothing happens and why, or that this is not known."""
    if not report.is_known:
        return "what happens is not known"
    why = "no pod is at fault"
    if faulty:
        why = f"{why}: what the nodes above have moves no pod"
    return f"nothing happens, and nothing waits: {why}"


def _listed(
    heading: str, found: Sequence[T], lines_of: Callable[[T], Iterable[str]]
) -> Iterator[str]:
    """Yield the lines of the first ones; those of the others are not even made."""
    if not found:
        return
    yield f"  {heading}"
    for one in found[:_MOST]:
        yield from (f"    {line}" for line in lines_of(one))
    if len(found) > _MOST:
        yield f"    ... and {len(found) - _MOST} more (--json has all)"


def _node(one: NodeVerdict) -> str:
    parts = [f"{one.node} {one.state}, takes {one.accept_new}"]
    if one.unhealthy:
        parts.append(f"unhealthy {','.join(one.unhealthy)}")
    if one.network_unhealthy:
        parts.append(f"network {','.join(one.network_unhealthy)}")
    return "; ".join([*parts, *one.reasons])


def _decision(one: JobDecision) -> Iterator[str]:
    scope = f", scope {one.scope}" if one.scope is not None else ""
    source = f" [{' '.join((one.row, *one.rules))}]" if one.row else ""
    yield f"{one.job} ({one.workload}) {one.action}{scope}: {one.why}{source}"
    for pod in one.fault_pods[:_MOST_NAMES]:
        what = " ".join(filter(None, (",".join(pod.cards), ",".join(pod.codes))))
        yield f"  at fault {pod.name} on {pod.node}: {pod.type} {what}".rstrip()
    if len(one.fault_pods) > _MOST_NAMES:
        yield f"  at fault {len(one.fault_pods) - _MOST_NAMES} more"
    if one.also_deleted:
        names = [pod.name for pod in one.also_deleted]
        yield f"  others delete: {shortened(names, _MOST_NAMES)}"
    for grace in sorted({pod.grace_seconds for pod in one.pods}):
        names = [pod.name for pod in one.pods if pod.grace_seconds == grace]
        yield f"  deletes with {grace} s: {shortened(names, _MOST_NAMES)}"
    if one.retry is not None:
        yield f"  retries {one.retry.before} -> {one.retry.after}"
    if one.deadline_ms is not None:
        yield f"  by force from {_time(one.deadline_ms)} on"
    if one.follow_up:
        yield f"  {'then ' if one.pods else ''}{one.follow_up}"
    if one.replacement:
        yield f"  {one.replacement}"


def _place(one: Placement) -> Iterator[str]:
    first = one.pods[0]
    more = f" and {len(one.pods) - 1} like it" if len(one.pods) > 1 else ""
    takes = f"{counted(len(one.accepts), 'node')} can take it"
    if one.accepts:
        takes += f": {shortened(one.accepts, _MOST_NAMES)}"
    yield f"{first.namespace}/{first.name}{more}: {takes}"
    reasons: dict[str, list[tuple[str, str]]] = {}
    for node, why in one.refuses.items():
        reason, _, text = why.partition(": ")
        reasons.setdefault(reason, []).append((node, text))
    for reason, nodes in reasons.items():
        if len({text for _, text in nodes}) == 1:
            names = shortened([node for node, _ in nodes], _MOST_NAMES)
            yield f"  {reason}: {nodes[0][1]}: {names}"
        else:
            names = shortened([f"{node} ({text})" for node, text in nodes], _MOST_NAMES)
            yield f"  {reason}: {names}"


def _gang(one: Gang) -> str:
    fits = "fits"
    if one.not_predicted:
        fits = f"fits by chips; {one.not_predicted} is not predicted"
    return f"{one.namespace}/{one.name} {fits if one.fits else f'does not fit: {one.short}'}"


def _creation(one: CreateAdvice) -> str:
    index = "" if one.dest_index is None else f" entry {one.dest_index}"
    reason = f" {one.reason}" if one.reason else ""
    counts = ", ".join(f"{group} {count}" for group, count in sorted(one.current.items()))
    return f"{one.namespace}/{one.name} {one.verdict}{reason}{index} ({counts}): {one.why}"


def _elastic(one: ElasticAdvice) -> str:
    size = (
        one.reason if one.replicas is None else f"goes on with {counted(one.replicas, 'replica')}"
    )
    flags = f" ({', '.join(one.flags)})" if one.flags else ""
    return f"{one.namespace}/{one.name} {size} {one.trigger}: {one.why}{flags}"


def _finding(one: Finding) -> str:
    return f"{one.severity} {one.code} {one.object}: {one.text}"


_SUMMARIES: dict[str, Callable[[Any], str]] = {
    "node_verdicts": lambda one: f"node {_node(one)}",
    "decisions": lambda one: next(_decision(one)),
    "create_advice": _creation,
    "elastic_advice": _elastic,
    "findings": _finding,
    "deletions": lambda one: f"deletion of {one.namespace}/{one.name} with {one.grace_seconds} s",
    "placement": lambda one: next(_place(one)),
    "gangs": lambda one: f"gang {_gang(one)}",
}
"""One line for an entry, by the member of the report that has it."""


def _changed(report: AdviceReport, base: AdviceReport) -> Iterator[str]:
    found = changes(report, base)
    for sign, side in (("+", "adds"), ("-", "takes_away")):
        shown = [
            f"{sign} {_SUMMARIES[member](one)}"
            for member, listed in found[side].items()
            for one in listed
        ]
        yield from (f"    {line}" for line in shown[: 2 * _MOST])
        if len(shown) > 2 * _MOST:
            yield f"    {sign} ... and {len(shown) - 2 * _MOST} more (--json has all)"

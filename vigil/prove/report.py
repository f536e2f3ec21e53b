"""The result of ``vigil prove``: on one screen, or as JSON."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from contract.sentences import counted, message, names_in_short, sentence
from vigil.exit_status import ExitStatus
from vigil.language import shown, translated
from vigil.prove.match import DeliveryGap, GapName, StepTime
from vigil.reports.show import field, print_json, print_lines, width
from vigil.reports.times import written
from vigil.reports.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from vigil.prove.match import Proof

_MAX_GAPS_SHOWN = 20
_MISSING_PERCENT = 1
_NOT_PROVED = {
    "nothing": (
        message("that the cluster shows what was written: name --server or --store"),
        message("that nothing else is published"),
    ),
    "the documents": (message("what the aggregator published before now: name --server"),),
}


class StepSummary(msgspec.Struct, frozen=True):
    """How long a step took, in milliseconds."""

    count: int
    p50_ms: int
    p99_ms: int
    longest_ms: int


class ProofReport(msgspec.Struct, frozen=True):
    """What ``vigil prove`` prints as JSON. Times are epoch milliseconds.

    ``counts`` are episodes that are neither proved nor a gap, by reason. ``together`` presences
    share an entry of the aggregator with another one. ``not_known`` has why a journal was not read,
    by node or directory.
    """

    at_ms: int
    compared_with: str
    nodes: int
    not_known: dict[str, str]
    episodes: int
    proved: int
    together: int
    counts: dict[str, int]
    gaps_by_name: dict[str, int]
    gaps: tuple[DeliveryGap, ...]
    steps: dict[str, StepSummary]
    slowest: StepTime | None
    not_proved: tuple[str, ...]
    status: int


def report_of(
    proof: Proof, nodes: Collection[str], not_known: Mapping[str, str], compared_with: str
) -> ProofReport:
    """Return the report about ``proof`` of ``nodes``, and of those that are ``not_known``."""
    gaps = [*proof.gaps, *(_missing(name, reason) for name, reason in sorted(not_known.items()))]
    by_step: dict[str, list[int]] = {}
    for step in proof.steps:
        by_step.setdefault(step.step, []).append(step.took_ms)
    total = len(nodes) + len(not_known)
    status = ExitStatus.NOT_WELL if gaps else ExitStatus.OK
    if not nodes or len(not_known) * 100 > total * _MISSING_PERCENT:
        status = ExitStatus.OUTSIDE
    not_proved = next(
        (texts for name, texts in _NOT_PROVED.items() if compared_with.startswith(name)), ()
    )
    return ProofReport(
        at_ms=time.time_ns() // 1_000_000,
        compared_with=compared_with,
        nodes=len(nodes),
        not_known=dict(not_known),
        episodes=proof.episodes,
        proved=proof.proved,
        together=proof.together,
        counts=dict(sorted(proof.counts.items())),
        gaps_by_name=dict(Counter(gap.name.value for gap in gaps)),
        gaps=tuple(gaps),
        steps={step: _summary(times) for step, times in by_step.items()},
        slowest=max(proof.steps, key=lambda step: step.took_ms, default=None),
        not_proved=not_proved,
        status=status,
    )


def _missing(name: str, reason: str) -> DeliveryGap:
    return DeliveryGap(GapName.NOT_KNOWN, name, "", "", (), None, None, f"no journal: {reason}")


def _summary(times: Iterable[int]) -> StepSummary:
    ordered = sorted(times)
    return StepSummary(
        *(len(ordered), ordered[len(ordered) // 2]),
        *(ordered[len(ordered) * 99 // 100], ordered[-1]),
    )


def show(report: ProofReport, *, as_json: bool, utc: bool) -> None:
    """Print the report."""
    if as_json:
        print_json(report)
    else:
        print_lines(_lines(report, width(), utc=utc))


def _lines(report: ProofReport, columns: int, *, utc: bool) -> Iterator[str]:
    yield from wrapped(shown(_verdict(report)), columns)
    yield from field(translated("journals"), _journals(report), columns)
    compared = sentence("with {compared}", compared=report.compared_with)
    yield from field(translated("compared"), compared, columns)
    for text in report.not_proved:
        yield from field(translated("not proved"), translated(text), columns)
    yield from field(translated("episodes"), _episodes(report), columns)
    for reason, number in report.counts.items():
        yield from field(translated("no gap"), f"{number} {translated(reason)}", columns)
    for name, number in report.gaps_by_name.items():
        yield from field(translated("gaps"), f"{number} {translated(name)}", columns)
    for step, times in report.steps.items():
        text = sentence(
            "{step}: p50 {p50} ms, p99 {p99} ms, longest {longest} ms",
            step=sentence(step),
            p50=times.p50_ms,
            p99=times.p99_ms,
            longest=times.longest_ms,
        )
        yield from field(translated("step"), text, columns)
    if report.slowest is not None:
        slowest = report.slowest
        text = sentence(
            "{step} of {code} of {part}: {took} ms",
            step=sentence(slowest.step),
            code=slowest.code,
            part=f"{slowest.node} {slowest.part}",
            took=slowest.took_ms,
        )
        yield from field(translated("slowest"), text, columns)
    if report.gaps:
        yield ""
    for gap in report.gaps[:_MAX_GAPS_SHOWN]:
        yield from wrapped(_gap_text(gap, utc=utc), columns, following="  ")
    if len(report.gaps) > _MAX_GAPS_SHOWN:
        more = len(report.gaps) - _MAX_GAPS_SHOWN
        text = counted(
            more, "and {count} gap more; --json has all", "and {count} gaps more; --json has all"
        )
        yield shown(text)


def _verdict(report: ProofReport) -> str:
    if report.status == ExitStatus.OUTSIDE:
        return sentence("not possible: too many journals are missing")
    if report.gaps:
        return counted(len(report.gaps), "not proved: {count} gap", "not proved: {count} gaps")
    if report.episodes:
        return sentence("proved: no fault was lost")
    return sentence("proved: there was no fault")


def _episodes(report: ProofReport) -> str:
    text = sentence(
        "{count}, of which {proved} are proved", count=report.episodes, proved=report.proved
    )
    if not report.together:
        return text
    return sentence(
        "{counted} ({together} together with another one)", counted=text, together=report.together
    )


def _journals(report: ProofReport) -> str:
    text = _nodes(report.nodes)
    if not report.not_known:
        return text
    return sentence(
        "{nodes}; not known: {missing} ({names})",
        nodes=text,
        missing=_nodes(len(report.not_known)),
        names=names_in_short(sorted(report.not_known)),
    )


def _nodes(count: int) -> str:
    return counted(count, "{count} node", "{count} nodes")


def _gap_text(gap: DeliveryGap, *, utc: bool) -> str:
    place = " ".join(part for part in (gap.node, gap.part, gap.code) if part)
    head = sentence("{gap}: {place}", gap=sentence(gap.name.value), place=place)
    if gap.since_ms is not None:
        head = sentence("{gap}, since {since}", gap=head, since=written(gap.since_ms, utc=utc))
    if gap.until_ms is not None:
        head = sentence("{gap} until {until}", gap=head, until=written(gap.until_ms, utc=utc))
    # The reason may be of an error or a journal, which is English in each language.
    return f"{shown(head)}: {shown(gap.reason)}"

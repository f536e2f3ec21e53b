"""Shows a demo: a live table on a terminal, complete lines elsewhere, JSON for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from contract.sentences import message, sentence
from vigil.language import shown, translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from vigil.demo.reader import DemoNodeView
    from vigil.demo.run import StepResult, Summary


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} ms"


def arrival_line(result: StepResult) -> str:
    """Return how long it took to arrive, and whether it was right."""
    verdict = sentence("NOT as expected") if result.problems else sentence("as expected")
    if result.step.unchanged:
        return shown(sentence("documents keep their state: {verdict}", verdict=verdict))
    never = sentence("never")
    text = sentence(
        "at the nodes after {nodes}, in cluster-info after {cluster}: {verdict}",
        nodes=_milliseconds(result.device_info_ms) or never,
        cluster=_milliseconds(result.cluster_info_ms) or never,
        verdict=verdict,
    )
    return shown(text)


def problem_line(problem: str) -> str:
    """Return a problem, which is English as in the JSON, with its heading."""
    return f"{translated('problem')}: {problem}"


def plain(result: StepResult) -> str:
    """Return one step as lines for a log or a pipe."""
    lines = [
        f"[{result.at_seconds:5.1f} s] {translated(result.step.title)}",
        f"          {translated(result.step.meaning)}",
        f"          {arrival_line(result)}",
    ]
    lines += [f"          {problem_line(problem)}" for problem in result.problems]
    return "\n".join(lines)


def summary_lines(summary: Summary) -> str:
    """Return the result of the demo as text."""
    right = sum(not result.problems for result in summary.results)
    lines = [problem_line(problem) for problem in summary.problems]
    text = sentence(
        "{right} of {count} expected states were reached in {seconds} s: {verdict}",
        right=right,
        count=len(summary.results),
        seconds=f"{summary.seconds:.0f}",
        verdict=sentence("all is well") if summary.well else sentence("NOT well"),
    )
    lines.append(shown(text))
    return "\n".join(lines)


def as_json(summary: Summary) -> dict[str, Any]:
    """Return the summary for machines; times in milliseconds and seconds as named."""
    return {
        "well": summary.well,
        "seconds": round(summary.seconds, 3),
        "problems": list(summary.problems),
        "steps": [
            {
                "number": result.number,
                "title": result.step.title,
                "meaning": result.step.meaning,
                "at_seconds": round(result.at_seconds, 3),
                "device_info_ms": _rounded(result.device_info_ms),
                "cluster_info_ms": _rounded(result.cluster_info_ms),
                "problems": list(result.problems),
            }
            for result in summary.results
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def live(
    nodes: Sequence[str],
    cluster: dict[str, DemoNodeView],
    blind: dict[str, frozenset[int]],
    results: Sequence[StepResult],
) -> RenderableType:
    """Return the cluster as the aggregator sees it, above what happened so far."""
    chips = Table(title="cluster-info", expand=False)
    numbers = range(max((max(_all(view), default=0) for view in cluster.values()), default=0) + 1)
    for column in (message("node"), message("server"), message("switch")):
        chips.add_column(translated(column))
    for chip in numbers:
        chips.add_column(str(chip), justify="center")
    for node in nodes:
        view = cluster.get(node)
        statuses = (
            ("Healthy", "Healthy") if view is None else (view.server.status, view.switches.status)
        )
        chips.add_row(
            node,
            *(Text(status, "green" if status == "Healthy" else "red") for status in statuses),
            *(_cell(view, blind.get(node, frozenset()), chip) for chip in numbers),
        )
    events = Table(title=translated("what happened"), expand=True)
    for column in (
        *(message("at"), message("what happened"), message("what it means")),
        *(message("at the nodes"), "cluster-info", ""),
    ):
        events.add_column(translated(column))
    failed, passed = translated("FAILED"), translated("ok")
    unchanged = translated("unchanged")
    for result in results:
        arrivals = (result.device_info_ms, result.cluster_info_ms)
        events.add_row(
            f"{result.at_seconds:.1f} s",
            translated(result.step.title),
            translated(result.step.meaning),
            *(unchanged if result.step.unchanged else _milliseconds(each) for each in arrivals),
            Text(failed, "bold red") if result.problems else Text(passed, "green"),
        )
    return Group(chips, events)


def _all(view: DemoNodeView) -> frozenset[int]:
    return view.chips.free | view.chips.unhealthy


def _cell(view: DemoNodeView | None, blind: frozenset[int], chip: int) -> Text:
    if view is None:
        return Text("·", "dim")
    chips = view.chips
    if chip in chips.faults:
        codes = sorted(chips.faults[chip])
        more = f"+{len(codes) - 1}" if len(codes) > 1 else ""
        return Text(codes[0] + more, "red" if chip in chips.unhealthy else "yellow")
    if chip in blind:
        return Text(translated("blind"), "magenta")
    if chip in chips.free:
        return Text(translated("ok"), "green")
    return Text("?" if chip in _all(view) else "", "yellow")

"""Prints the findings of ``vigil replay`` as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from contract.sentences import counted, joined, message, sentence
from vigil.language import listed, shown, translated

if TYPE_CHECKING:
    from agent.policy.state import Change
    from agent.replay.comparison import Day, DaySums, Findings, LevelDifference

_SHOWN_DEVIATIONS = 10
_SHOWN_BREAKS = 20
_WIDTH_OF_A_FILE = 160
_SIDES = (message("recorded"), message("replayed"))
_SUMS = (
    *(message("episodes"), message("upgrades"), message("releases")),
    *(message("unhealthy"), message("network"), message("isolated")),
)


def print_findings(findings: Findings, *, compared: bool) -> None:
    """Print all of it on standard output; ``compared``: two runs, not one."""
    # No markup: texts of a journal may have brackets.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # Without a terminal, rich takes 80 columns, and the tables are wider.
        console.width = _WIDTH_OF_A_FILE
    if findings.from_ms is None or findings.until_ms is None:
        text = counted(
            findings.rows,
            "{count} row without a snapshot: nothing can be played",
            "{count} rows without a snapshot: nothing can be played",
        )
        console.print(shown(text))
        return
    text = sentence(
        "node {node}: {begin} to {end}, {inputs} in {rows}",
        node=findings.node,
        begin=_time(findings.from_ms),
        end=_time(findings.until_ms),
        inputs=counted(findings.inputs, "{count} input", "{count} inputs"),
        rows=counted(findings.rows, "{count} row", "{count} rows"),
    )
    console.print(shown(text))
    if findings.pruned:
        text = sentence("the beginning of the journal is gone: played from its oldest snapshot on")
        console.print(shown(text))
    _print_breaks(findings, console)
    _print_days(findings, console, compared=compared)
    differences = [(day, difference) for day in findings.days for difference in day.differences]
    if compared and differences:
        _print_differences(differences, console)
    elif compared:
        console.print(translated("nothing would have been different"))
    _print_deviations(findings, console)


def _print_breaks(findings: Findings, console: Console) -> None:
    for item in findings.breaks[:_SHOWN_BREAKS]:
        text = sentence("{begin} to {end}", begin=_time(item.from_ms), end=_time(item.until_ms))
        console.print(f"{shown(text)}: {shown(item.what)}")
    if len(findings.breaks) > _SHOWN_BREAKS:
        more = len(findings.breaks) - _SHOWN_BREAKS
        console.print(translated("... and {count} more (--json has them)", count=more))


def _print_days(findings: Findings, console: Console, *, compared: bool) -> None:
    title = message("recorded → replayed") if compared else message("recorded")
    table = Table(title=translated(title), title_justify="left")
    for heading in (message("day"), message("subject")):
        table.add_column(translated(heading))
    for heading in _SUMS:
        table.add_column(translated(heading), justify="right")
    table.add_column(translated("at levels"))
    days = [day for day in findings.days if day.recorded or day.replayed]
    for day in days:
        if _is_quiet(day.recorded) and _is_quiet(day.replayed):
            continue
        table.add_row(day.day, day.subject, *_cells(day))
    quiet = sum(_is_quiet(day.recorded) and _is_quiet(day.replayed) for day in days)
    if table.row_count:
        console.print(table)
    if quiet:
        text = counted(
            quiet,
            "{count} chip-day without a fault is not listed",
            "{count} chip-days without a fault are not listed",
        )
        console.print(shown(text))


def _is_quiet(sums: DaySums | None) -> bool:
    return sums is None or not (
        sums.episodes or sums.upgrades or sums.releases or sums.seconds.keys() - {"NormalNPU"}
    )


def _cells(day: Day) -> list[str]:
    def cell(values: list[str]) -> str:
        return values[0] if values[0] == values[-1] else " → ".join(values)

    both = [_shown(sums) for sums in (day.recorded, day.replayed) if sums is not None]
    return [cell([item[column] for item in both]) for column in range(len(both[0]))]


def _shown(sums: DaySums) -> list[str]:
    levels = (
        f"{level} {_duration(seconds)}"
        for level, seconds in sums.seconds.items()
        if level != "NormalNPU"
    )
    return [
        *(str(sums.episodes), str(sums.upgrades), str(sums.releases)),
        *(
            _duration(seconds)
            for seconds in (
                sums.unhealthy_seconds,
                sums.network_unhealthy_seconds,
                sums.isolated_seconds,
            )
        ),
        listed(levels) or "NormalNPU",
    ]


def _print_differences(differences: list[tuple[Day, LevelDifference]], console: Console) -> None:
    table = Table(title=translated("what would have been different"), title_justify="left")
    for heading in (message("day"), message("subject"), message("code"), *_SIDES):
        table.add_column(translated(heading))
    for heading in (message("times"), message("for")):
        table.add_column(translated(heading), justify="right")
    for day, item in differences:
        table.add_row(
            *(day.day, day.subject, item.code),
            _level(item.recorded_level, item.recorded_because),
            _level(item.replayed_level, item.replayed_because),
            *(str(item.times), _duration(item.seconds)),
        )
    console.print(table)


def _level(level: str | None, because: str) -> str:
    if level is None:
        return translated("no level")
    return f"{level or translated('shown only')}\n({because})"


def _print_deviations(findings: Findings, console: Console) -> None:
    if not findings.deviation_count:
        text = sentence("all {count} recorded verdicts are reproduced", count=findings.checked)
        console.print(shown(text))
        return
    text = sentence(
        "{count} of {checked} recorded verdicts are NOT reproduced (the journal was written by "
        "version {versions}):",
        count=findings.deviation_count,
        checked=findings.checked,
        versions=joined("{before}, {part}", findings.versions or [sentence("unknown")]),
    )
    console.print(shown(text))
    for deviation in findings.deviations[:_SHOWN_DEVIATIONS]:
        text = sentence(
            "row {row}, {time}: {difference}",
            row=deviation.sequence,
            time=_time(deviation.at_ms),
            difference=deviation.what,
        )
        console.print(f"  {shown(text)}")
        sides = zip(_SIDES, (deviation.recorded, deviation.replayed), strict=True)
        for word, changes in sides:
            for change in changes:
                console.print(f"    {translated(word)}: {_change(change)}")
    if findings.deviation_count > _SHOWN_DEVIATIONS:
        console.print(f"  {translated('... and more (--json has the first 100)')}")


def _change(change: Change) -> str:
    nothing = translated("nothing")
    return (
        f"{change.subject} {change.code} {change.kind}: "
        f"{change.old_level or nothing} -> {change.new_level or nothing} ({change.because})"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds")[:-6] + "Z"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.1f} min" if hours < 1 else f"{hours:.1f} h"

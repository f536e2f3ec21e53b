"""Prints the findings of ``vigil replay`` as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from contract.plural import plural

if TYPE_CHECKING:
    from agent.policy.state import Change
    from agent.replay.comparison import Day, DaySums, Findings, LevelDifference

_SHOWN_DEVIATIONS = 10
_SHOWN_BREAKS = 20
_WIDTH_OF_A_FILE = 160


def print_findings(findings: Findings, *, compared: bool) -> None:
    """Print all of it on standard output; ``compared``: two runs, not one."""
    # No markup: texts of a journal may have brackets.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # Without a terminal, rich takes 80 columns, and the tables are wider.
        console.width = _WIDTH_OF_A_FILE
    if findings.from_ms is None or findings.until_ms is None:
        console.print(f"{plural(findings.rows, 'row')} without a snapshot: nothing can be played")
        return
    console.print(
        f"node {findings.node}: {_time(findings.from_ms)} to {_time(findings.until_ms)}, "
        f"{plural(findings.inputs, 'input')} in {plural(findings.rows, 'row')}"
    )
    if findings.pruned:
        console.print("the beginning of the journal is gone: played from its oldest snapshot on")
    _print_breaks(findings, console)
    _print_days(findings, console, compared=compared)
    differences = [(day, difference) for day in findings.days for difference in day.differences]
    if compared and differences:
        _print_differences(differences, console)
    elif compared:
        console.print("nothing would have been different")
    _print_deviations(findings, console)


def _print_breaks(findings: Findings, console: Console) -> None:
    for item in findings.breaks[:_SHOWN_BREAKS]:
        console.print(f"{_time(item.from_ms)} to {_time(item.until_ms)}: {item.what}")
    if len(findings.breaks) > _SHOWN_BREAKS:
        console.print(f"... and {len(findings.breaks) - _SHOWN_BREAKS} more (--json has them)")


def _print_days(findings: Findings, console: Console, *, compared: bool) -> None:
    table = Table(title="recorded → replayed" if compared else "recorded", title_justify="left")
    for heading in ("day", "subject"):
        table.add_column(heading)
    for heading in ("episodes", "upgrades", "releases", "unhealthy", "network", "isolated"):
        table.add_column(heading, justify="right")
    table.add_column("at levels")
    shown = [day for day in findings.days if day.recorded or day.replayed]
    for day in shown:
        if _is_quiet(day.recorded) and _is_quiet(day.replayed):
            continue
        table.add_row(day.day, day.subject, *_cells(day))
    quiet = sum(_is_quiet(day.recorded) and _is_quiet(day.replayed) for day in shown)
    if table.row_count:
        console.print(table)
    if quiet:
        console.print(
            f"{plural(quiet, 'chip-day')} without a fault "
            f"{'is' if quiet == 1 else 'are'} not listed"
        )


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
        ", ".join(levels) or "NormalNPU",
    ]


def _print_differences(differences: list[tuple[Day, LevelDifference]], console: Console) -> None:
    table = Table(title="what would have been different", title_justify="left")
    for heading in ("day", "subject", "code", "recorded", "replayed"):
        table.add_column(heading)
    for heading in ("times", "for"):
        table.add_column(heading, justify="right")
    for day, item in differences:
        table.add_row(
            *(day.day, day.subject, item.code),
            _level(item.recorded_level, item.recorded_because),
            _level(item.replayed_level, item.replayed_because),
            *(str(item.times), _duration(item.seconds)),
        )
    console.print(table)


def _level(level: str | None, because: str) -> str:
    return "no level" if level is None else f"{level or 'shown only'}\n({because})"


def _print_deviations(findings: Findings, console: Console) -> None:
    if not findings.deviation_count:
        console.print(f"all {findings.checked} recorded verdicts are reproduced")
        return
    console.print(
        f"{findings.deviation_count} of {findings.checked} recorded verdicts are NOT reproduced "
        f"(the journal was written by version {', '.join(findings.versions) or 'unknown'}):"
    )
    for deviation in findings.deviations[:_SHOWN_DEVIATIONS]:
        console.print(f"  row {deviation.sequence}, {_time(deviation.at_ms)}: {deviation.what}")
        for word, changes in (("recorded", deviation.recorded), ("replayed", deviation.replayed)):
            for change in changes:
                console.print(f"    {word}: {_change(change)}")
    if findings.deviation_count > _SHOWN_DEVIATIONS:
        console.print("  ... and more (--json has the first 100)")


def _change(change: Change) -> str:
    return (
        f"{change.subject} {change.code} {change.kind}: "
        f"{change.old_level or 'nothing'} -> {change.new_level or 'nothing'} ({change.because})"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds")[:-6] + "Z"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.1f} min" if hours < 1 else f"{hours:.1f} h"

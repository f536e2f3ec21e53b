"""``vigil advise``: what the scheduler and the controllers will do about faults."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from advisor.report import Report
    from vigil.advising.run import Advised

_DELETES = 1


class Profiles(StrEnum):
    """Whose decisions are shown."""

    UPSTREAM = "upstream"
    CORRECTED = "corrected"
    BOTH = "both"


def advise(
    dump: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|-",
            help="Lists of kubectl get -o json, or sessions as JSON Lines; repeatable.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from an earlier run, and keep the state for the next one.",
            show_default=False,
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Assume, e.g. 'chip 3 of node-7 SeparateNPU' or 'node-7 gone'; repeatable.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        Profiles, typer.Option(help="What the real programs do, what they should do, or both.")
    ] = Profiles.BOTH,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NS/NAME", help="Of this PodGroup, or of its owner.", show_default=False
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this node.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one object per session and profile.")
    ] = False,
) -> None:
    """Say which pods go, with which grace, who makes them anew and where they fit.

    Exit status: 0 nothing is deleted, 1 something is, 2 wrong input.
    """
    import sys

    from advisor.options import Profile
    from contract.errors import ConfigurationError, Problem
    from vigil.advising.assumptions import parse_all
    from vigil.advising.json_line import json_line
    from vigil.advising.narrow import check_node, groups_of, of_job, of_node
    from vigil.advising.run import run
    from vigil.advising.show import lines

    if not dump:
        raise ConfigurationError("command line", [Problem("--dump", "is missing: name a file")])
    if job is not None and (job.count("/") != 1 or not all(job.split("/"))):
        what = f"{job!r} is not NAMESPACE/NAME"
        raise ConfigurationError("command line", [Problem("--job", what)])
    profiles = [one for one in Profile if profile in (one.value, Profiles.BOTH)]

    def narrowed(report: Report, one: Advised) -> Report:
        if job is not None:
            report = of_job(report, one.snapshot, job, groups_of(one.snapshot, job))
        if node is not None:
            check_node(one.snapshot, node)
            report = of_node(report, one.snapshot, node)
        return report

    deletes = False
    reports: list[Report] = []
    bases: list[Report | None] = []
    for one in run(dump, profiles, parse_all(what_if or []), state):
        report = narrowed(one.report, one)
        base = None if one.base is None else narrowed(one.base, one)
        deletes = deletes or bool(report.deletions)
        if as_json:
            sys.stdout.buffer.writelines(json_line(report, base))
            continue
        reports.append(report)
        bases.append(base)
        if len(reports) == len(profiles):
            print("\n".join(lines(reports, bases)))
            reports.clear()
            bases.clear()
    sys.stdout.flush()
    raise typer.Exit(_DELETES if deletes else 0)

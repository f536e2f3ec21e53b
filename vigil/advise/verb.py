"""``vigil advise``: what the scheduler and the controllers will do about faults."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer

from vigil.exit_status import ExitStatus
from vigil.options import takes_login


class Profiles(StrEnum):
    """Whose decisions are shown."""

    UPSTREAM = "upstream"
    CORRECTED = "corrected"
    BOTH = "both"


@takes_login
def advise(
    dump: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|-",
            help="Lists of kubectl get -o json or yaml, or sessions as JSON Lines; repeatable.",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="VIGIL_SERVER",
            help="Ask this aggregator instead: http://HOST:PORT or unix:PATH.",
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
            metavar="NS/NAME",
            help="Of this PodGroup, or of what owns it, directly or by way of others.",
            show_default=False,
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this node.", show_default=False)
    ] = None,
    network_faults: Annotated[
        bool,
        typer.Option("--network-faults", help="With --dump: vigil elastic has this option."),
    ] = False,
    dead_nodes: Annotated[
        bool, typer.Option("--dead-nodes", help="With --dump: vigil elastic has this option.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="With --server: show what changes, until interrupted.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one object per session and profile.")
    ] = False,
) -> None:
    """Show which pods go, with which grace, who makes them anew and where they fit.

    Exit status: 0 no pod is deleted, 1 a pod is deleted or an answer is not known. Wrong input is
    2, no answer of the aggregator is 3.
    """
    import sys

    from advisor.options import Profile
    from advisor.what_if.assumptions import parse_all
    from contract.errors import ConfigurationError, Problem
    from vigil.advise.run import from_dumps
    from vigil.advise.server import from_server
    from vigil.advise.show import basis, json_line, lines

    problems = []
    if bool(dump) == (server is not None):
        problems.append(Problem("--dump, --server", "give one of them, and not both"))
    parts = {"ends_on_network_faults": network_faults, "deletes_on_dead_nodes": dead_nodes}
    of_dumps = {"--state": state, "--network-faults": network_faults, "--dead-nodes": dead_nodes}
    if server is not None:
        problems += [Problem(name, "needs --dump") for name, value in of_dumps.items() if value]
    if watch and (server is None or what_if):
        problems.append(Problem("--watch", "needs --server, and takes no --what-if"))
    if job is not None and (job.count("/") != 1 or not all(job.split("/"))):
        problems.append(Problem("--job", f"{job!r} is not NAMESPACE/NAME"))
    if problems:
        raise ConfigurationError("command line", problems)
    assumptions = parse_all(what_if or [])
    profiles = [item for item in Profile if profile in (item.value, Profiles.BOTH)]
    if server is not None:
        answers = from_server(server, profiles, job, node, what_if or [], watch=watch)
    else:
        answers = from_dumps(dump or [], profiles, job, node, assumptions, state, parts)
    is_calm, is_named = True, False
    try:
        for pairs in answers:
            is_calm = is_calm and all(pair.report.is_calm for pair in pairs)
            if as_json:
                for pair in pairs:
                    sys.stdout.buffer.writelines(json_line(*pair))
            else:
                print("\n".join([*lines(pairs), *([] if is_named else basis())]))
                is_named = True
            # A pipe is buffered in blocks: a reader of --watch would get a change much later.
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # The way to end --watch.
    raise typer.Exit(0 if is_calm else ExitStatus.NOT_WELL)

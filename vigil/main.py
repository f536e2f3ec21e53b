"""The command ``vigil``: registers the verbs and turns errors into exit statuses.

Verb modules import only ``typer`` and the standard library at their top, so that no verb pays for
what another one needs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from contract.errors import (
    ConfigurationError,
    DriverError,
    ListenError,
    StoreError,
    VigilError,
    printable,
)
from service.log.setup import last_words
from service.log.standard_streams import open_missing
from vigil import emulator
from vigil.advise.verb import advise
from vigil.agent import agent
from vigil.aggregator import aggregator
from vigil.demo.verb import demo
from vigil.elastic import verb as elastic
from vigil.exit_status import ExitStatus
from vigil.explain import explain
from vigil.faults import faults
from vigil.forget.verb import forget
from vigil.isolation.verbs import isolate, release
from vigil.jobs import jobs
from vigil.lint.verb import lint
from vigil.replay.verb import replay
from vigil.scan.verb import scan
from vigil.simulate import verb as simulate
from vigil.status import status
from vigil.timeline.verb import timeline
from vigil.uninstall.verb import uninstall
from vigil.validate import validate

if TYPE_CHECKING:
    from collections.abc import Sequence


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"vigil {version('npu-vigil')}")
        raise typer.Exit


def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Watch Ascend NPUs and report their faults to the cluster."""


def _without_verbs() -> typer.Typer:
    made = typer.Typer(
        name="vigil",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(options)
    return made


app = _without_verbs()
for _verb in (
    *(advise, agent, aggregator, demo, explain, faults, forget, isolate, jobs, lint, release),
    *(replay, scan, status, timeline, uninstall, validate),
):
    app.command(_verb.__name__)(_verb)
app.add_typer(elastic.app, name="elastic")
app.add_typer(emulator.app, name="emulator")
app.add_typer(simulate.app, name="simulate")


def main() -> NoReturn:
    """Run a verb. Exit status: 0 done, 1 not well, 2 wrong use, 3 an outside part failed."""
    open_missing()
    try:
        _called(sys.argv[1:])()
    except ConfigurationError as error:
        _end(error, ExitStatus.WRONG_USE)
    except (DriverError, ListenError, StoreError) as error:
        _end(error, ExitStatus.OUTSIDE)
    except VigilError as error:
        _end(error, ExitStatus.NOT_WELL)
    sys.exit(0)


def _called(arguments: Sequence[str]) -> typer.Typer:
    """Return what has the verb that is called: to build the options of all takes 0.03 s."""
    commands = [one for one in app.registered_commands if one.name in arguments[:1]]
    groups = [one for one in app.registered_groups if one.name in arguments[:1]]
    if not (commands or groups):
        return app
    only = _without_verbs()
    only.registered_commands, only.registered_groups = commands, groups
    return only


def _end(error: VigilError, status: ExitStatus) -> NoReturn:
    """End with ``status``; no control character of a file, an argument or an answer is printed."""
    lines = (printable(line) for line in f"vigil: {error}".split("\n"))
    print(last_words("\n".join(lines)), file=sys.stderr)
    sys.exit(status)

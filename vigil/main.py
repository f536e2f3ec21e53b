"""The command ``vigil``: registers the verbs and turns errors into exit statuses.

Verb modules import only ``typer`` and the standard library at their top, so that no verb pays for
what another one needs. ``simulate`` is made of the emulator's methods, and imports these.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias, get_args, get_type_hints

import typer
import typer.core
import typer.main

from contract.errors import (
    ConfigurationError,
    DriverError,
    ListenError,
    StoreError,
    VigilError,
    printable,
)
from contract.sentences import message
from service.log.setup import last_words
from service.log.standard_streams import open_missing
from vigil.exit_status import ExitStatus
from vigil.language import OPTION, Language, choose, chosen, shown_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Command: TypeAlias = Any
"""Of the click that typer has in itself, or of the one that it depends on: by its release."""

_VERBS = {
    "advise": "vigil.advise.verb:advise",
    "agent": "vigil.agent:agent",
    "aggregator": "vigil.aggregator:aggregator",
    "demo": "vigil.demo.verb:demo",
    "explain": "vigil.explain:explain",
    "faults": "vigil.faults:faults",
    "forget": "vigil.forget.verb:forget",
    "isolate": "vigil.isolation.verbs:isolate",
    "jobs": "vigil.jobs:jobs",
    "lint": "vigil.lint.verb:lint",
    "release": "vigil.isolation.verbs:release",
    "prove": "vigil.prove.verb:prove",
    "replay": "vigil.replay.verb:replay",
    "scan": "vigil.scan.verb:scan",
    "status": "vigil.status:status",
    "support": "vigil.support.verb:support",
    "timeline": "vigil.timeline:timeline",
    "uninstall": "vigil.uninstall.verb:uninstall",
    "validate": "vigil.validate:validate",
    "elastic": "vigil.elastic.verb:app",
    "emulator": "vigil.emulator:app",
    "simulate": "vigil.simulate.verb:app",
}
"""Each verb, in the order of the help, and its function or its group of commands."""

_DAEMONS = frozenset(("agent", "aggregator"))
"""Verbs whose options are checked with the rest of their configuration."""


def _skipping_absent(parameter: Any) -> Any:
    """Return ``parameter``, whose value is converted only where there is one."""
    if not isinstance(parameter.process_value, partial):
        parameter.process_value = partial(_process, parameter.process_value)
    return parameter


def _process(process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    return None if value is None else process(context, value)


class _DaemonCommand(typer.core.TyperCommand):
    """Leaves options as text, which the configuration reads with all others.

    typer converts by pydantic, which a daemon needs for nothing else: it takes 10 MiB.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options; only the one for help is converted."""
        assert self.callback is not None
        types = get_type_hints(self.callback)
        parameters = [_skipping_absent(parameter) for parameter in super().get_params(ctx)]
        for parameter in parameters:
            if parameter.callback is None:
                is_path = Path in get_args(types[parameter.name])
                parameter.process_value = partial(_as_text, is_path)
        return parameters


def _as_text(is_path: bool, _context: Any, value: Any) -> Any:
    return Path(value) if is_path and isinstance(value, str) else value


class LazyGroup(typer.core.TyperGroup):
    """Imports the module of a verb when it is called: to build the options of all takes 0.03 s."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the verb of the command line; texts of the program itself get their language."""
        _translate(self)
        return super().main(*args, **settings)

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Parse the options of the program itself."""
        with _usage_errors():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Parse the options of the verb and run it."""
        with _usage_errors():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options; an absent one is not converted, for which typer loads pydantic."""
        return [_skipping_absent(parameter) for parameter in super().get_params(ctx)]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names of all verbs."""
        return list(_VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Command | None:
        """Return the verb ``cmd_name``; ``None`` where there is none."""
        # Of an unknown verb the group shows similar names, so it must have all of them.
        for verb in (cmd_name,) if cmd_name in _VERBS else _VERBS:
            if verb not in self.commands:
                # Kept: click asks several times for one verb, as for its help.
                self.commands[verb] = _command(verb)
                _translate(self.commands[verb])
        return super().get_command(ctx, cmd_name)


def _translate(command: Command) -> None:
    if chosen() is Language.CHINESE:
        from vigil.help_text import translate_help

        translate_help(command)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Let an error of the command line be shown in the chosen language."""
    try:
        yield
    except Exception as error:
        if chosen() is Language.CHINESE:
            from vigil.help_text import translate_error

            translate_error(error)
        raise


def _command(verb: str) -> Command:
    module, _, member = _VERBS[verb].partition(":")
    verb_or_group = getattr(importlib.import_module(module), member)
    # A group around it, because a Typer with a single command has no name for it.
    group = typer.Typer(add_completion=False, rich_markup_mode=None)
    # Without a callback typer makes the only command the program itself.
    group.callback()(lambda: None)
    if isinstance(verb_or_group, typer.Typer):
        group.add_typer(verb_or_group, name=verb)
    else:
        group.command(verb, cls=_DaemonCommand if verb in _DAEMONS else None)(verb_or_group)
    built = typer.main.get_command(group)
    assert isinstance(built, typer.core.TyperGroup)
    return built.commands[verb]


def _print_version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from vigil.installation import version_json, version_text

        print(version_json() if context.params["as_json"] else version_text())
        raise typer.Exit


def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Print the version and end.")
    ] = False,
    # Eager, so that it is set when the callback of --version runs, whichever stands first.
    as_json: Annotated[
        bool, typer.Option("--json", is_eager=True, help="With --version: print one JSON object.")
    ] = False,
    # ``main`` has chosen it before the command was built; here it is only checked.
    __: Annotated[
        Language | None,
        typer.Option(
            OPTION, help="Language of what people read (also VIGIL_LANG).", show_default="en"
        ),
    ] = None,
) -> None:
    """Watch Ascend NPUs and report their faults to the cluster."""
    if as_json:
        text = message("it belongs to --version; a verb has its own")
        raise typer.BadParameter(text, param_hint="--json")


app = typer.Typer(
    name="vigil",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    # A traceback goes to a log or a report as Python writes it, without boxes.
    pretty_exceptions_enable=False,
)
app.callback()(options)


def main() -> NoReturn:
    """Run a verb. Exit status: 0 done, 1 not well, 2 wrong use, 3 an external dependency failed."""
    # Before anything is opened: a closed descriptor 2 would become the first file.
    open_missing()
    if choose(sys.argv[1:], os.environ) is Language.CHINESE:
        for stream in (sys.stdout, sys.stderr):
            # A terminal without Chinese gets question marks and not a traceback.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
    try:
        app()
    except ConfigurationError as error:
        _end(error, ExitStatus.WRONG_USE)
    # Before their base class: what failed outside has a status of its own.
    except (DriverError, ListenError, StoreError) as error:
        _end(error, ExitStatus.OUTSIDE)
    except VigilError as error:
        _end(error, ExitStatus.NOT_WELL)
    sys.exit(0)


def _end(error: VigilError, status: ExitStatus) -> NoReturn:
    """End with ``status``; no control character of a file, an argument or an answer is printed."""
    # Names of files and answers of servers may hold escape sequences of a terminal.
    lines = (printable(line) for line in f"vigil: {shown_error(error)}".split("\n"))
    print(last_words("\n".join(lines)), file=sys.stderr)
    sys.exit(status)

"""Makes the manual pages in ``vigil/man`` of the commands.

::

    python -m tests.vigil.man_pages
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import typer.core
import typer.main

from tests.parts.tree import ROOT
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

Command: TypeAlias = Any
"""Of the click that typer has in itself."""
FOLDER = ROOT / "vigil" / "man"
_STATUS = (
    "0 done; 1 the requested object is unhealthy; 2 wrong use or wrong configuration; 3 an "
    "external dependency, such as an API server or a broker, could not be used."
)


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file: ``vigil``, and one for each verb."""
    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    context = typer.Context(whole, info_name="vigil")
    verbs: dict[str, Command] = {
        f"vigil-{name}": whole.get_command(context, name) for name in whole.list_commands(context)
    }
    summaries = [(f"{name}(1)", _summary(one)) for name, one in verbs.items()]
    found = {"vigil.1": [*_head("vigil", whole, context), *_section(".SH COMMANDS", summaries)]}
    for name, one in verbs.items():
        within = typer.Context(one, context, info_name=name)
        found[f"{name}.1"] = [
            *_head(name, one, within),
            *_below(name.replace("-", " ", 1), one, within),
            ".SH SEE ALSO",
            ".BR vigil (1)",
        ]
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


def _summary(command: Command) -> str:
    return (command.help or "").partition("\n")[0]


def _head(name: str, command: Command, context: typer.Context) -> Iterator[str]:
    yield f'.TH {name.upper()} 1 "" npu-vigil "NPU Vigil"'
    yield ".SH NAME"
    yield f"{name} \\- {_roff(_summary(command).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {name.replace('-', ' ', 1)}"
    yield _roff(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command)
    yield from _section(".SH OPTIONS", _options(command, context))
    if "Exit status:" not in (command.help or ""):
        yield ".SH EXIT STATUS"
        yield _STATUS


def _below(name: str, command: Command, context: typer.Context) -> Iterator[str]:
    """Yield each command of a group, and of the groups in it."""
    for below, one in getattr(command, "commands", {}).items():
        called = f"{name} {below}"
        within = typer.Context(one, context, info_name=below)
        if not hasattr(one, "commands"):
            yield f".SH {called.upper()}"
            yield f".B {called}"
            yield _roff(" ".join(one.collect_usage_pieces(within)))
            yield from _paragraphs(one)
            yield from _section(".PP", _options(one, within))
        yield from _below(called, one, within)


def _paragraphs(command: Command) -> Iterator[str]:
    for paragraph in (command.help or "").split("\n\n"):
        yield ".PP"
        yield _roff(" ".join(paragraph.split()))


def _options(command: Command, context: typer.Context) -> list[tuple[str, str]]:
    records = [one.get_help_record(context) for one in command.get_params(context)]
    return [one for one in records if one is not None]


def _section(title: str, records: list[tuple[str, str]]) -> Iterator[str]:
    if records:
        yield title
    for term, text in records:
        yield ".TP"
        yield f".B {_roff(term)}"
        yield _roff(" ".join(text.split()))


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.1"):
        old.unlink()
    for file, content in pages().items():
        (FOLDER / file).write_text(content, encoding="utf-8")

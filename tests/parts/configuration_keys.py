"""Options of the daemons: keys with defaults, and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from contract.settings import Section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def leaves(model: type[Section], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the key of each option of ``model`` in the file, and its default."""
    for field in msgspec.structs.fields(model):
        key = f"{above}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from leaves(field.type, f"{key}.")
        elif field.default_factory is not msgspec.NODEFAULT:
            yield key, field.default_factory()
        else:
            yield key, ... if field.required else field.default


def flags(verb: Callable[..., None]) -> set[str]:
    """Return what can be given on the command line."""
    application = typer.Typer(add_completion=False)
    application.command()(verb)
    command = typer.main.get_command(application)
    return {name for parameter in command.params for name in parameter.opts} - {"--help"}

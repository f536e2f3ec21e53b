"""Options of the daemons: keys with defaults, and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def leaves(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the key of each option of ``model`` in the file, and its default."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{above}{name}.")
        else:
            yield f"{above}{name}", ... if field.is_required() else field.default


def flags(verb: Callable[..., None]) -> set[str]:
    """Return what can be given on the command line."""
    application = typer.Typer(add_completion=False)
    application.command()(verb)
    command = typer.main.get_command(application)
    return {name for parameter in command.params for name in parameter.opts} - {"--help"}

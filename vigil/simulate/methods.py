"""Verbs made of the methods of the emulator, whose names, parameters and docstrings they show."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vigil.emulator import EmulatorDir, open_emulator, severity_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from dcmi_shim.emulator.control import Emulator

CHIP = Annotated[int, typer.Argument(metavar="CHIP", help="Physical id.")]
CODE = Annotated[str, typer.Argument(metavar="CODE", help="Fault code, as 80E01801.")]
SEVERITY = Annotated[
    str | None,
    typer.Option(
        "--severity", help="suggestion, minor, major or critical; default: that of the driver."
    ),
]
ON_CHIP = Annotated[int | None, typer.Option("--chip", help="Only on this chip (physical id).")]
_PARAMETERS: dict[str, Any] = {
    "code": CODE,
    "severity": SEVERITY,
    "hard": Annotated[bool, typer.Option("--hard", help="Every call of the chip fails.")],
    "function": Annotated[
        str, typer.Argument(metavar="FUNCTION", help="Driver function, with or without dcmi_.")
    ],
    "delay_ms": Annotated[int, typer.Argument(metavar="MS", help="Milliseconds.")],
    "return_code": Annotated[int, typer.Argument(metavar="RETURN_CODE", help="As -8005.")],
    "count": Annotated[int, typer.Argument(metavar="COUNT", help="How many; 0 for a whole chip.")],
}
"""What the command line shows of a parameter, by its name; ``chip`` depends on its default."""

_METHODS = {"return": "return_card"}
"""The method of a verb whose name is a keyword of Python."""


def add_methods(
    app: typer.Typer,
    kind: type,
    verbs: Iterable[str],
    parameters: Mapping[str, Any] | None = None,
    part: Callable[[Emulator], object] = lambda emulator: emulator,
) -> None:
    """Register ``verbs`` that call the methods of ``kind`` with these names.

    The help is the first paragraph of the method's docstring. ``parameters`` are declared as here
    instead of as usual. ``part`` returns the object in the emulator whose methods these are.
    """
    for verb in verbs:
        # A return code such as -8005 would be taken for an option.
        settings = {"ignore_unknown_options": True} if verb == "fail" else None
        method = getattr(kind, _METHODS.get(verb, verb))
        function = _function(method, {**_PARAMETERS, **(parameters or {})}, part)
        app.command(verb, context_settings=settings)(function)


def _function(
    method: Callable[..., None],
    declared: Mapping[str, Any],
    part: Callable[[Emulator], object],
) -> Callable[..., None]:
    """Return what opens the emulator of the command line and calls ``method``."""

    def run(emulator_dir: Path | None, **values: Any) -> None:
        if values.get("severity") is not None:
            values["severity"] = severity_named(values["severity"])
        with open_emulator(emulator_dir) as emulator:
            method(part(emulator), **values)

    parameters = [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY, annotation=_declaration(parameter, declared)
        )
        for parameter in list(inspect.signature(method).parameters.values())[1:]
    ]
    directory = inspect.Parameter(
        "emulator_dir", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=EmulatorDir
    )
    # typer reads the signature; the annotations of the function itself would win over it.
    run.__signature__ = inspect.Signature([*parameters, directory])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    run.__name__ = method.__name__
    run.__doc__ = (inspect.getdoc(method) or "").partition("\n\n")[0].replace("``", "")
    return run


def _declaration(parameter: inspect.Parameter, declared: Mapping[str, Any]) -> Any:
    if parameter.name == "chip":
        return CHIP if parameter.default is inspect.Parameter.empty else ON_CHIP
    return declared[parameter.name]

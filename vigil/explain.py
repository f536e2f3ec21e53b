"""``vigil explain``: what a fault code means, from the tables of this package."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.code_reference import CodeReference

_UNKNOWN = 2
_WIDTH = 100
_INDENT = " " * 12


class Language(StrEnum):
    """Language of the names of faults. Codes, levels and keys are never translated."""

    ENGLISH = "en"
    CHINESE = "zh"


def explain(
    code: Annotated[
        str,
        typer.Argument(metavar="CODE", help="For example 80E01801, or '[0x08520003,na,cpu,na]'."),
    ],
    language: Annotated[
        Language | None,
        typer.Option(
            "--lang", envvar="VIGIL_LANG", help="Of the names of faults.", show_default="from LANG"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="VIGIL_JSON", help="Print one JSON document.")
    ] = False,
) -> None:
    """Explain a fault code: its name, its level, what happens to jobs, what to do.

    Exit status: 0 done, 2 the code is in no table.
    """
    import os
    import sys

    import msgspec

    from contract.code_reference import describe_code

    found = describe_code(code)
    if found is None:
        print(_unknown(code), file=sys.stderr)
        sys.exit(_UNKNOWN)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    if language is None:
        locale = next(
            (
                value
                for name in ("LC_ALL", "LC_MESSAGES", "LANG")
                if (value := os.environ.get(name))
            ),
            "",
        )
        language = Language.CHINESE if locale.startswith("zh") else Language.ENGLISH
    encoding = sys.stdout.encoding or "ascii"
    for line in _lines(found, language):
        # A terminal without UTF-8 shows a question mark for each character that it lacks.
        print(line.encode(encoding, "replace").decode(encoding))


def _unknown(code: str) -> str:
    from contract.errors import quoted

    return (
        f"vigil: {quoted(code)!r} is in no table of fault codes. An unlisted code of a chip is "
        "SeparateNPU when the driver calls it major or critical, and NotHandleFault when it calls "
        "it minor or suggestion. docs/codes.md lists all codes."
    )


def _lines(found: CodeReference, language: str) -> Iterator[str]:
    name = found.name(language)
    yield f"{found.code}  {name}"
    if name != found.summary:
        yield from _field("english", found.summary)
    about = ", ".join(part for part in (found.component, found.module) if part)
    yield from _field("part", about)
    if found.severity:
        yield from _field("severity", found.severity)
    yield from _field("level", found.level)
    for rule in found.rules:
        yield from _field("rule", rule)
    yield from _field("jobs", found.effect)
    yield from _field("to do", found.remedy)
    follows = ", ".join(sorted({_FIELDS.get(name, name) for name in found.follows}))
    yield ""
    yield from _field("sources", "; ".join(_sources(found)))
    if follows:
        yield from _field("derived", f"{follows}: follow from the code and its level")


_FIELDS = {"effect": "jobs", "remedy": "to do", "summary": "name", "module": "part"} | {
    "component": "part"
}


def _sources(found: CodeReference) -> list[str]:
    return sorted({*found.known.values(), *found.follows.values()})


def _field(heading: str, text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"  {heading:<10}",
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )

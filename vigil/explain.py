"""``vigil explain``: what a fault code means, from the tables of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vigil.status.options import Json, Lang, language_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.codes.reference import CodeReference

_UNKNOWN = 2
_WIDTH = 100
_INDENT = " " * 12


def explain(
    code: Annotated[
        str,
        typer.Argument(metavar="CODE", help="For example 80E01801, or '[0x08520003,na,cpu,na]'."),
    ],
    lang: Lang = None,
    as_json: Json = False,
) -> None:
    """Explain a fault code: its name, its level, what happens to jobs, what to do.

    Exit status: 0 done, 2 the code is in no table.
    """
    import sys

    import msgspec

    from contract.codes.reference import describe_code
    from vigil.status.show import print_lines

    found = describe_code(code)
    if found is None:
        print(_unknown(code), file=sys.stderr)
        sys.exit(_UNKNOWN)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print_lines(_lines(found, language_of(lang)))


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

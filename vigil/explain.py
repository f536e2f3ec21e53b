"""``vigil explain``: what a fault code means, or why a node or chip is in its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contract.sentences import message
from vigil.exit_status import ExitStatus, print_refusal
from vigil.language import listed, translated
from vigil.options import takes_login
from vigil.sources import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.codes.reference import CodeReference
    from vigil.sources.source import AnswerSource

_WIDTH = 100
_DRIVER_DIGITS = 8
_INDENT = " " * 12
_NODE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


@takes_login
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CODE|NODE[/CHIP]",
            help="For example 80E01801, '[0x08520003,na,cpu,na]', node-1 or node-1/3.",
        ),
    ],
    server: options.Server = None,
    state_dir: options.StateDir = None,
    kubeconfig: options.Kubeconfig = None,
    store: options.Store = None,
    watch: options.Watch = False,
    lang: options.Lang = None,
    utc: options.Utc = False,
    as_json: options.Json = False,
) -> None:
    """Explain a fault code, or why a node or a chip is in its state, and what to do.

    A code needs no daemon, and comes before a node of the same name.

    Exit status: 0 done and well, 1 not well or only partly known, 2 wrong use or an unknown name,
    3 no answer.
    """
    import re
    import sys

    from contract.codes.reference import describe_code
    from contract.errors import StoreUnavailable
    from vigil.reports.show import answering, print_json, print_lines

    language = options.language_of(lang)
    description = describe_code(name)
    if description is not None:
        with answering():
            if as_json:
                print_json(description)
            else:
                print_lines(_lines(description, language))
        return
    node, _, part = name.partition("/")
    if re.fullmatch(_NODE, node) is None:
        sys.exit(print_refusal(_unknown(name), ExitStatus.WRONG_USE))

    from vigil.daemon_client import UnknownNode
    from vigil.reports.show import explanation_lines
    from vigil.sources.watch import Output, show

    def query(source: AnswerSource) -> Output:
        explained = source.explanation(node, part)
        return Output(
            explained,
            lambda columns: explanation_lines(
                explained, language=language, utc=utc, columns=columns
            ),
            explained.well,
        )

    sources = options.sources_of(server, state_dir, kubeconfig, store)
    try:
        show(sources, query, node=node, watching=watch, as_json=as_json, utc=utc)
    except (UnknownNode, StoreUnavailable):
        # Without a daemon it may be the name of a node; with one it is not.
        if not _has_digits_of_code(name):
            raise
        sys.exit(print_refusal(_unknown(name), ExitStatus.WRONG_USE))


def _unknown(code: str) -> str:
    from contract.errors import quoted
    from contract.sentences import sentence

    return sentence(
        "vigil: {code} is in no table of fault codes. {level}docs/codes.md lists all codes.",
        code=repr(quoted(code)),
        level=_level_of_unlisted(code),
    )


def _level_of_unlisted(code: str) -> str:
    """Return what level a code of the form of ``code`` has without a table; empty for no code."""
    from contract.sentences import sentence

    code = code.strip()
    if code.startswith("["):
        return sentence("A switch code without a level is shown, and changes nothing for jobs. ")
    if not _has_digits_of_code(code):
        return sentence(
            "Codes have eight or nine hexadecimal digits, or the form [0x08520003,na,cpu,na]. "
        )
    if len(code.lower().removeprefix("0x")) > _DRIVER_DIGITS:
        return sentence("A public fault without a level is refused. ")
    return sentence(
        "Without a level, a chip code that the driver calls major or critical is SeparateNPU. "
        "One that it calls minor or suggestion is NotHandleFault. "
        "A code of the BMC without a level is shown, and changes nothing for jobs. "
    )


def _has_digits_of_code(text: str) -> bool:
    from contract.codes.chip_codes import parse_code

    try:
        parse_code(text)
    except ValueError:
        return False
    return True


def _lines(reference: CodeReference, language: str) -> Iterator[str]:
    from vigil.reports.wrapping import wrapped

    name = reference.name(language)
    yield from wrapped(f"{reference.code}  {name}", _columns())
    if name != reference.summary:
        yield from _field(translated("english"), reference.summary)
    about = listed(filter(None, (reference.component, reference.module)))
    yield from _field(translated("part"), about)
    if reference.severity:
        yield from _field(translated("severity"), reference.severity)
    yield from _field(translated("level"), reference.level)
    for rule in reference.rules:
        yield from _field(translated("rule"), rule)
    yield from _field(translated("jobs"), translated(reference.effect))
    yield from _field(translated("to do"), translated(reference.remedy))
    follows = sorted({_FIELDS.get(name, name) for name in reference.follows})
    yield ""
    sources = sorted({*reference.known.values(), *reference.follows.values()})
    yield from _field(translated("sources"), listed(sources, message("{before}; {part}")))
    if follows:
        names = listed(map(translated, follows))
        text = translated("{fields} (from the code and its level)", fields=names)
        yield from _field(translated("derived"), text)


_FIELDS = {
    "effect": message("jobs"),
    "remedy": message("to do"),
    "summary": message("name"),
    "module": message("part"),
    "component": message("part"),
}


def _field(heading: str, text: str) -> list[str]:
    from vigil.reports.wrapping import padded, wrapped

    return wrapped(text, _columns(), f"  {padded(heading, 10)}", _INDENT)


def _columns() -> int:
    """Return the columns of a line: those of the terminal, but none that is hard to read."""
    from vigil.reports.show import width

    return min(width(), _WIDTH)

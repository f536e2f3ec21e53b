"""Texts of the product that people read, and their sentences."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import typer.core
import typer.main

from contract.documents.device_info import DESCRIPTION
from tests.parts.tree import ROOT, files, syntax
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = (
    "advisor",
    "agent",
    "aggregator",
    "collectors",
    "contract",
    "dcmi_shim",
    "elastic",
    "pacing",
    "service",
    "stores",
    "vigil",
)
_GENERATED = ("contract/wire/",)
_OF_UPSTREAM = {DESCRIPTION}
_OTHER_LANGUAGE = re.compile(r"\b(?:SELECT|CREATE|DELETE)\b|^\[\w+\]$", re.MULTILINE)
"""SQL and TOML."""
_CODE_FENCE = re.compile(r"^(`{3,}).*?^\1`*\s*$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(`+)[^`].*?\1", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)", re.DOTALL)
_PLACE = re.compile(r"%[-.\d]*[a-z]|\{[^{}]*\}")
_LIMIT = re.compile(r"(?:more than|at (?:most|least)|already|of|to|,|or) $")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[*+-]|\d+\.|#+|>)\s)|\n(?=\|)")
_END = re.compile(r"(?<=[.?!])(?<!e\.g\.)(?<!i\.e\.)[)*\"']*\s+(?=[A-Z\d`\"'(*_%{-])|:\s*\n")


class Text(NamedTuple):
    """One text, and the file and line where it starts."""

    place: str
    text: str


@cache
def documents() -> tuple[Text, ...]:
    """Return each block of the documents: paragraph, item of a list, table cell.

    Specifications and decisions are left out: the former follow another program's text, the latter
    are records of their day. Translations are left out, because Chinese has no spaces between
    words.
    """
    return tuple(
        block
        for name in files("*.md")
        if name.startswith(("docs/", "README", "CONTRIBUTING", "SECURITY", "CHANGELOG"))
        and not name.startswith(("docs/spec/", "docs/decisions/"))
        and not name.endswith(".zh-CN.md")
        for block in blocks(name, (ROOT / name).read_text(encoding="utf-8"))
    )


def blocks(name: str, text: str) -> Iterator[Text]:
    """Yield the blocks of one Markdown text. Code stands for one word, a link for its text."""
    text = _CODE_FENCE.sub(lambda found: "\n" * found[0].count("\n") + "\n", text)
    line = 1
    at = 0
    for block in _BLOCK.split(text):
        start = text.index(block, at)
        line += text.count("\n", at, start)
        at = start
        place = f"{name}:{line}"
        words = _LINK.sub(r"\1", _INLINE_CODE.sub("`x`", block)).strip()
        if words.startswith("|"):
            for cell in words.strip("|").split(" | "):
                yield Text(place, cell.strip())
        else:
            yield Text(place, re.sub(r"^(?:[*+-]|\d+\.|#+|>)\s+", "", words))


@cache
def messages() -> tuple[Text, ...]:
    """Return each text in the code of each package: errors, log lines, explanations, HELP.

    Docstrings are for those who read code. SQL, configuration files and text of upstream's
    documents are no sentences.
    """
    return tuple(
        Text(place, text)
        for place, part in _parts()
        for text in _texts(part)
        if text not in _OF_UPSTREAM and not _OTHER_LANGUAGE.search(text)
    )


@cache
def counts() -> tuple[Text, ...]:
    """Return each f-string with a number before a noun in the plural, which may be 1.

    A constant is no such number, nor is the second one of a range or of a limit.
    """
    return tuple(
        Text(place, text)
        for place, part in _parts()
        if isinstance(part, ast.JoinedStr)
        for text in _counts(part)
    )


@cache
def _parts() -> tuple[tuple[str, ast.expr], ...]:
    """Return each string in the code of each package, with its file and line."""
    return tuple(
        (f"{name}:{part.lineno}", part)
        for name in files("*.py")
        if name.partition("/")[0] in PACKAGES and not name.startswith(_GENERATED)
        for part in _written(syntax(name))
    )


def _counts(part: ast.JoinedStr) -> Iterator[str]:
    before = ""
    for one, following in zip(part.values, part.values[1:], strict=False):
        if isinstance(one, ast.Constant):
            before = str(one.value)
        elif isinstance(one, ast.FormattedValue) and isinstance(following, ast.Constant):
            is_constant = isinstance(one.value, ast.Name) and one.value.id.isupper()
            if not is_constant and not _LIMIT.search(before):
                yield "{}" + str(following.value)
            before = ""


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the strings below ``node``. What is filled in is looked at by itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.JoinedStr):
            yield child
            for part in child.values:
                if isinstance(part, ast.FormattedValue):
                    yield from _written(part)
        elif isinstance(child, ast.Constant):
            yield child
        else:
            yield from _written(child)


def _texts(part: ast.expr) -> Iterator[str]:
    """Yield the strings that ``part`` may be; what is filled in stands for one word."""
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        yield part.value
    elif isinstance(part, ast.JoinedStr):
        yield "".join(
            str(one.value) if isinstance(one, ast.Constant) else "{}" for one in part.values
        )


def sentences(text: str) -> list[str]:
    """Return the sentences of ``text``. A colon at the end of a line
    ends one, a semicolon does not.
    """
    return [one.strip() for one in _END.split(text) if one and one.strip()]


def length(sentence: str) -> int:
    """Return the number of words. A code, a place to be filled in and a number are one each."""
    words = _PLACE.sub(" x ", _INLINE_CODE.sub(" x ", sentence))
    return len(re.findall(r"[^\W_](?:[\w'.’/:-]*\w)?", words))


@cache
def command_help() -> tuple[Text, ...]:
    """Return the help of each command, option and argument of ``vigil``."""
    return tuple(_help_of(typer.main.get_command(app), "vigil"))


def _help_of(command: Any, name: str) -> Iterator[Text]:
    yield Text(name, command.help or "")
    for parameter in command.params:
        yield Text(f"{name} {parameter.name}", getattr(parameter, "help", None) or "")
    if isinstance(command, typer.core.TyperGroup):
        context = typer.Context(command)
        for verb in command.list_commands(context):
            yield from _help_of(command.get_command(context, verb), f"{name} {verb}")

"""Keeps the entries of ``vigil/locale/zh_CN.po`` equal to the texts of the verbs.

::

    python -m tests.vigil.catalogue

A new text gets an empty translation, which a person fills in. What no verb has is left out.
"""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import typer.core
import typer.main

from advisor.findings import RULES, FindingSeverity
from advisor.report import Acceptance, Action, Scope
from advisor.scheduler_view.nodes import NodeHealthState
from contract.codes.reference import CodeKind, all_codes, level_texts
from contract.pages.aggregator_status import HEARTBEATS, STATES
from contract.sentences import counted, joined, message, sentence
from tests.parts.tree import ROOT
from vigil.help_text import replace_texts
from vigil.language import CATALOGUE, read_catalogue, translated
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEADER = (
    "Project-Id-Version: npu-vigil",
    "Language: zh_CN",
    "MIME-Version: 1.0",
    "Content-Type: text/plain; charset=UTF-8",
    "Content-Transfer-Encoding: 8bit",
)
_FOLDERS = ("vigil", "agent", "advisor", "aggregator", "service", "contract")
"""Packages that make texts of verbs, or of pages that verbs show."""
_MARKS = {
    **dict.fromkeys(
        (function.__name__ for function in (translated, message, sentence, joined)), slice(1)
    ),
    counted.__name__: slice(1, 3),
}
"""Functions that take a text of the catalogue, and which of their arguments it is."""

_NODE_STATES = (
    NodeHealthState.HEALTHY,
    NodeHealthState.NODE,
    NodeHealthState.CARD,
    NodeHealthState.NETWORK,
)


def texts() -> dict[str, None]:
    """Return the texts of all verbs, each once: help, what their code marks, and of fault codes."""
    collected: dict[str, None] = {}

    def collect(text: str) -> str:
        collected.setdefault(text)
        return text

    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    replace_texts(whole, collect)
    context = typer.Context(whole)
    for name in whole.list_commands(context):
        replace_texts(whole.get_command(context, name), collect)
    for folder in _FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for text in marked(file.read_text(encoding="utf-8")):
                collect(text)
    collected |= dict.fromkeys((*STATES, *HEARTBEATS))
    collected |= dict.fromkeys((*Action, *Scope, *Acceptance, *FindingSeverity, *_NODE_STATES))
    for rule in RULES:
        collected |= dict.fromkeys((rule.happens, rule.write))
    for kind in CodeKind:
        for level in level_texts(kind).values():
            collected |= dict.fromkeys((level.effect, level.remedy, level.short))
    for code in all_codes():
        collected |= dict.fromkeys((code.effect, code.remedy))
    return collected


def marked(source: str) -> Iterator[str]:
    """Yield each text that a module marks for the catalogue.

    Raises ``ValueError`` for an f-string: its text has values of one run.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            for text in node.args[_MARKS.get(node.func.id, slice(0))]:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value
                elif isinstance(text, ast.JoinedStr):
                    raise ValueError(f"line {node.lineno}: an f-string cannot be translated")


def catalogue(translations: Mapping[str, str]) -> str:
    """Return the text of the catalogue, with the ``translations`` that there are."""
    lines = ['msgid ""', 'msgstr ""', *(_quoted(f"{line}\n") for line in _HEADER)]
    for text in texts():
        lines += ["", f"msgid {_quoted(text)}", f"msgstr {_quoted(translations.get(text, ''))}"]
    return "\n".join(lines) + "\n"


def current() -> dict[str, str]:
    """Return the translations of the catalogue as it is."""
    return read_catalogue(CATALOGUE.read_text(encoding="utf-8").splitlines())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    CATALOGUE.write_text(catalogue(current()), encoding="utf-8")

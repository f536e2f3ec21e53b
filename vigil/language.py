"""The language of what verbs print for people, and its catalogue.

The English text is the key of its translation: a whole sentence or heading, with named fields. A
text without a translation stays English. JSON, logs and names are the same in each language.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, VigilError
from contract.sentences import Sentence, counted, joined, message, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from contract.pages.messages import PageMessage

CATALOGUE = Path(__file__).with_name("locale") / "zh_CN.po"
OPTION, VARIABLE = "--lang", "VIGIL_LANG"
_COMMAND_LINE = message("command line")
"""The source of an error that is about no file."""


class Language(StrEnum):
    """Language of texts and of the names of faults. Codes, levels and keys are not translated."""

    ENGLISH = "en"
    CHINESE = "zh"


class _Chosen:
    """What this process prints in: the language that was asked for, and its texts."""

    language: Language | None = None
    texts: Mapping[str, str] = {}
    of_daemons: Mapping[str, str] = {}


def choose(arguments: Sequence[str], environment: Mapping[str, str]) -> Language | None:
    """Set and return the language of this process; ``None``: none was asked for, so English.

    The locale does not count: programs that read a verb's text would get another text from each
    person who calls them. A wrong value is reported when the option is parsed.
    """
    _Chosen.language = _asked_for(arguments, environment)
    _Chosen.texts, _Chosen.of_daemons = {}, {}
    if _Chosen.language is Language.CHINESE:
        with CATALOGUE.open(encoding="utf-8") as lines:
            _Chosen.texts = read_catalogue(lines)
    return _Chosen.language


def chosen() -> Language | None:
    """Return the language that was asked for, by option or environment."""
    return _Chosen.language


def translated(text: str, /, **fields: object) -> str:
    """Return ``text`` in the chosen language, with its ``{fields}`` filled in."""
    template = _Chosen.texts.get(text, text)
    return template.format(**fields) if fields else template


def shown(text: str) -> str:
    """Return a sentence in the chosen language, also one of a daemon; another text as it is."""
    if not isinstance(text, Sentence):
        return _Chosen.of_daemons.get(text, text)
    fields = {
        name: shown(value) if isinstance(value, str) else value
        for name, value in text.fields.items()
    }
    return translated(text.template, **fields)


def listed(names: Iterable[str], text: str = "{before}, {part}", /) -> str:
    """Return ``names`` joined by ``text``, in the chosen language; empty without names."""
    return shown(joined(text, [*names] or [""]))


def shown_error(error: VigilError) -> str:
    """Return the text of an error in the chosen language; one that is no sentence is English."""
    # An error that has a text of its own, such as that of a store, is English.
    if type(error).__str__ is not VigilError.__str__:
        return str(error)
    if isinstance(error, ConfigurationError):
        head = counted(
            len(error.problems),
            "{source}: {count} problem",
            "{source}: {count} problems",
            source=translated(_COMMAND_LINE) if error.source == _COMMAND_LINE else error.source,
        )
        lines = (f"  {shown(problem.where)}: {shown(problem.what)}" for problem in error.problems)
        return "\n".join((shown(head), *lines))
    return shown(error.args[0]) if error.args else str(error)


def translate_messages(messages: Mapping[str, PageMessage]) -> None:
    """Translate the sentences of a page, by their English text; ``shown`` returns them then.

    Those of an earlier page are dropped: with ``--watch`` there is a page for each change. One that
    the catalogue lacks stays English as a whole, as a daemon of another release may have.
    """
    # No template of a daemon is filled in, only those of the catalogue.
    translations = {text: _in_language(of_daemon) for text, of_daemon in messages.items()}
    _Chosen.of_daemons = {
        text: translation for text, translation in translations.items() if translation
    }


def with_reason(template: str, reason: str, /, **fields: object) -> str:
    """Return ``template``, of the catalogue, with the ``{reason}`` that a page has.

    It is a sentence where the reason is, or has a translation. Otherwise it is plain text, so it
    stays English as a whole.
    """
    if isinstance(reason, Sentence) or reason in _Chosen.of_daemons:
        return sentence(template, reason=reason, **fields)
    return template.format(reason=reason, **fields)


def _in_language(of_daemon: PageMessage) -> str | None:
    """Return a sentence of a daemon in the chosen language; ``None`` where that is not possible."""
    template = _Chosen.texts.get(of_daemon.id)
    fields = {
        name: value if isinstance(value, (str, int, float)) else _in_language(value)
        for name, value in of_daemon.parameters.items()
    }
    if template is None or None in fields.values():
        return None
    try:
        return template.format(**fields)
    # Parameters of another daemon than ours.
    except (KeyError, IndexError):
        return None


def read_catalogue(lines: Iterable[str]) -> dict[str, str]:
    """Return the translations of a gettext catalogue (``.po``) by their English text.

    What has no translation yet is left out.
    """
    entries: list[dict[str, str]] = [{}]
    keyword = ""
    for line in lines:
        word, quote, rest = line.strip().partition('"')
        if not quote or word.startswith("#"):
            continue
        # A line without a keyword goes on with the text of the line before.
        keyword = word.strip() or keyword
        if keyword == "msgid" and word:
            entries.append({})
        # Its escapes are those of JSON.
        entries[-1][keyword] = entries[-1].get(keyword, "") + json.loads(quote + rest)
    return {
        entry["msgid"]: entry["msgstr"]
        for entry in entries
        if entry.get("msgid") and entry.get("msgstr")
    }


def _asked_for(arguments: Sequence[str], environment: Mapping[str, str]) -> Language | None:
    """Return the last ``--lang`` before or after the verb, else that of the environment."""
    requested = environment.get(VARIABLE, "")
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for argument, following in zip(options, [*options[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name == OPTION:
            requested = value if equals else following
    return Language(requested) if requested in list(Language) else None

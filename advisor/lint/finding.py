"""One finding: a row of the table with the words of the place where it holds."""

from __future__ import annotations

import re
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, NamedTuple

from advisor.findings import BY_CODE, Rule
from contract.errors import quoted
from contract.sentences import Sentence, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHORT = 60
_MAX_NAMES_LENGTH = 180
"""Characters of the names of one word, before the rest is counted; ``quoted`` cuts at 200."""
_TWO_WORDS = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")


class PlacedText(NamedTuple):
    """A value with its place."""

    value: str
    line: int
    file: str


class FindingPlace(NamedTuple):
    """A line of a file, and the object in it."""

    file: str
    line: int
    object: str

    def at(self, line: int, file: str = "") -> FindingPlace:
        """Return another line of the same object."""
        return FindingPlace(file or self.file, line, self.object)

    def at_text(self, text: PlacedText) -> FindingPlace:
        """Return the place of a value of the same object."""
        return self.at(text.line, text.file)


class LintFinding(NamedTuple):
    """``happens`` and ``write`` are sentences without braces, which a verb can translate."""

    place: FindingPlace
    rule: Rule
    happens: str
    write: str

    def without_line(self) -> LintFinding:
        """Return it for an object that is in no file."""
        return self._replace(place=self.place.at(0))


def in_words(names: Iterable[str]) -> str:
    """Return ``names`` as one word of a finding: as many as fit, and how many more there are.

    The first one is always shown; ``finding`` cuts it where it is long.
    """
    first, *others = names
    listed, length = [first], len(first)
    for name in others:
        length += len(name) + len(", ")
        if length > _MAX_NAMES_LENGTH:
            break
        listed.append(name)
    shown = joined("{before}, {part}", listed)
    more = len(others) + 1 - len(listed)
    return sentence("{names} and {count} more", names=shown, count=more) if more else shown


def _shown(word: object) -> str:
    text = word if isinstance(word, str) else str(word)
    # Most words are short and printable, and quoting takes its time for each letter.
    if text.isprintable() and len(text) <= _SHORT:
        return text
    if isinstance(text, Sentence):
        # Its names are cut each by itself, so it can still be translated.
        fields = {
            name: _shown(value) if isinstance(value, str) else value
            for name, value in text.fields.items()
        }
        return sentence(text.template, **fields)
    return quoted(text)


def _filled(template: str, words: Mapping[str, str]) -> str:
    """Return ``template`` with its words as a sentence, as plain text where a word is English.

    So no sentence has two languages.
    """
    if any(_is_english(word) for name, word in words.items() if f"{{{name}}}" in template):
        return template.format(**words)
    return sentence(template, **words)


def _is_english(word: object) -> bool:
    """Return whether a word is text that is no sentence, such as that of an error."""
    if isinstance(word, Sentence):
        return any(map(_is_english, word.fields.values()))
    return isinstance(word, str) and _TWO_WORDS.search(word) is not None


def finding(code: str, place: FindingPlace, **words: object) -> LintFinding:
    """Return the finding ``code`` with its words filled in."""
    rule = BY_CODE[code]
    shown = {key: _shown(word) for key, word in words.items()}
    return LintFinding(place, rule, _filled(rule.happens, shown), _filled(rule.write, shown))


def defect(error: Exception, place: FindingPlace) -> LintFinding:
    """Return the finding that a check ended with ``error``, and where in the program."""
    frames = extract_tb(error.__traceback__)
    # The place in the program, not the text of the error, which may contain data of the user.
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return finding("NOT_JUDGED", place, why=f"{type(error).__name__}{where}")

"""One finding: a row of the table with the words of the place where it holds."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import NamedTuple

from advisor.findings import BY_CODE, Rule
from contract.errors import quoted

_SHORT = 60


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
    """``happens`` and ``write`` are sentences without braces."""

    place: FindingPlace
    rule: Rule
    happens: str
    write: str

    def without_line(self) -> LintFinding:
        """Return it for an object that is in no file."""
        return self._replace(place=self.place.at(0))


def _shown(word: str) -> str:
    # Most words are short and printable, and quoting takes its time for each letter.
    return word if word.isprintable() and len(word) <= _SHORT else quoted(word)


def finding(code: str, place: FindingPlace, **words: object) -> LintFinding:
    """Return the finding ``code`` with its words filled in."""
    rule = BY_CODE[code]
    shown = {key: _shown(str(word)) for key, word in words.items()}
    return LintFinding(place, rule, rule.happens.format(**shown), rule.write.format(**shown))


def defect(error: Exception, place: FindingPlace) -> LintFinding:
    """Return the finding that a check ended with ``error``, and where in the program."""
    frames = extract_tb(error.__traceback__)
    # The place in the program, not the text of the error, which may contain data of the user.
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return finding("NOT_JUDGED", place, why=f"{type(error).__name__}{where}")

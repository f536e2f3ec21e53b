"""What a part of the archive is: its name, what it has, and how it is had."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PART_BYTES = 8_000_000
"""Of one file before it is compressed; larger ones are cut or left out."""


class PartFileKind(Enum):
    """What a file has: a JSON value, a JSON value in each line, or lines of text."""

    JSON = "json"
    JSON_LINES = "jsonl"
    TEXT = "txt"


@dataclass(frozen=True)
class RawFile:
    """A file before secrets are removed; ``value`` is a text or, for other kinds, JSON."""

    name: str
    form: PartFileKind
    value: object


class NotApplicable(Exception):
    """There is nothing to have, for the reason in the text: no failure."""


@dataclass
class PartContents:
    """What a part has so far. It is kept where the part fails or misses its deadline."""

    files: list[RawFile] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def json(self, name: str, value: object) -> None:
        """Add a JSON value."""
        self.files.append(RawFile(f"{name}.json", PartFileKind.JSON, value))

    def lines(self, name: str, values: list[object]) -> None:
        """Add a JSON value in each line, oldest first."""
        self.files.append(RawFile(f"{name}.jsonl", PartFileKind.JSON_LINES, values))

    def text(self, name: str, text: str) -> None:
        """Add lines of text, oldest first."""
        self.files.append(RawFile(f"{name}.txt", PartFileKind.TEXT, text))


@dataclass(frozen=True)
class SupportPart:
    """One entry of the fixed list.

    ``collect`` adds to what it is given. It raises ``NotApplicable``, ``VigilError`` or
    ``OSError``. Where the archive is too large, parts with the highest ``priority`` are cut first.
    """

    name: str
    content: str
    priority: int
    collect: Callable[[PartContents], None]

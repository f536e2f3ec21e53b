"""Results of reading a file: documents, and errors of the text itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.lint.model import Node

DEPTH = 100
"""How deep values may be nested. Manifests of Kubernetes have some twenty levels."""
MAX_VALUES = 500_000
"""Of one document, each of which takes some 500 bytes. A List of 4,000 Jobs has as many."""

# Below 4 MiB a List is read as a whole: its nodes take some 500 bytes for each value.
IN_ONE = 4 << 20
"""So many characters of a List are read as one value."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A key that a mapping has twice. ``is_same``: with the same value."""

    key: str
    line: int
    first_line: int
    is_same: bool


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One value of a file.

    ``is_template``: it has actions of Helm or Jinja2. ``is_partial``: it is what a page shows of a
    manifest, with ``...`` for the rest.
    """

    root: Node
    line: int
    repeated: tuple[Repeated, ...] = ()
    is_template: bool = False
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a text, or a document of it, cannot be read."""

    line: int
    why: str


@dataclass(slots=True)
class UnparsedText:
    """What was read of a text that is not valid YAML or JSON in places."""

    unreadable: list[Unreadable] = field(default_factory=list)
    templates: list[int] = field(default_factory=list)
    """Lines at which a template begins that is not valid YAML."""
    left_out: list[int] = field(default_factory=list)
    """Lines that are not YAML and between documents, or stand for a part that is not shown."""
    no_manifests: list[Unreadable] = field(default_factory=list)
    """What of ``unreadable`` is in YAML that is not an object of Kubernetes."""


class UnreadableFrom(Exception):
    """A text cannot be read from ``line`` on."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.why = reason


class TooMuch(Exception):
    """Aliases make a document many times larger than its text."""

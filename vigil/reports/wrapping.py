"""Breaks text into lines of a width, as a terminal shows it."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_DOUBLE = ("W", "F")
"""The widths of Unicode that take two columns."""
_SECOND_COLUMN = "\ufdd0"
"""Stands behind a character that takes two columns; Unicode gives it no meaning."""
_PIECE = re.compile(
    f"(?:[（「“《【]{_SECOND_COLUMN})*"
    f"(?:[^{_SECOND_COLUMN}]{_SECOND_COLUMN}|(?:[^{_SECOND_COLUMN}](?!{_SECOND_COLUMN}))+)"
    f"(?:[，。；：、！？）」”》】]{_SECOND_COLUMN})*"
)
"""What stays in one line: a character of two columns or a word, with its punctuation."""


def wrapped(
    text: str,
    columns: int,
    indent: str = "",
    following: str | None = None,
    *,
    breaks_words: bool = True,
) -> list[str]:
    """Return ``text`` in lines of at most ``columns``; the later ones begin with ``following``.

    Characters of East Asia take two columns. Without ``breaks_words`` a word that is longer than a
    line stays in one piece.
    """
    spread = _spread(text)
    # The second column of a character may come to lie in the next line.
    wrapper = _Wrapper(
        columns - (spread != text),
        initial_indent=_spread(indent),
        subsequent_indent="    " if following is None else following,
        break_on_hyphens=False,
        break_long_words=breaks_words,
    )
    lines = wrapper.wrap(spread) or [indent.rstrip()]
    return [line.replace(_SECOND_COLUMN, "") for line in lines]


def _spread(text: str) -> str:
    """Return ``text`` with a second character behind each that takes two columns."""
    return "".join(
        letter + _SECOND_COLUMN if unicodedata.east_asian_width(letter) in _DOUBLE else letter
        for letter in text.replace(_SECOND_COLUMN, "?")
    )


def padded(text: str, columns: int) -> str:
    """Return ``text`` with spaces behind it, so that a terminal shows it in ``columns``."""
    return text + " " * (columns - columns_of(text))


def columns_of(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(letter) in _DOUBLE for letter in text)


class _Wrapper(textwrap.TextWrapper):
    """Begins a new line with a word that is longer than a line, such as a path, and breaks it.

    Between characters of two columns a line may end, because these texts have no spaces.
    """

    def _split(self, text: str) -> list[str]:
        splitting: Any = super()
        return [piece for chunk in splitting._split(text) for piece in _PIECE.findall(chunk)]

    def _handle_long_word(
        self, reversed_chunks: list[str], cur_line: list[str], cur_len: int, width: int
    ) -> None:
        if not cur_line:
            handle: Any = super()
            handle._handle_long_word(reversed_chunks, cur_line, cur_len, width)

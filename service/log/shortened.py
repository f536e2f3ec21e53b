"""Long lists in lines that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def shortened(
    texts: Sequence[str], most: int = 10, *, count: int | None = None, separator: str = ", "
) -> str:
    """Return the first few of ``texts`` as one, with the number of ``count`` that it lacks."""
    more = (len(texts) if count is None else count) - most
    return separator.join(texts[:most]) + (f" and {more} more" if more > 0 else "")

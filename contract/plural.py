"""Numbers with their nouns, in the texts of both daemons and of the command line."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Return ``number`` with the regular noun in its form: ``1 part``, ``2 parts``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""The health word of one chip whose driver has no events. Pure: times are passed in.

It bounds the severity of codes that no table has, so it is read with each change of the code list.
A chip without an answer is then asked three times within 3 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.observation import HealthRead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.observation import Report, Subject

_MAX_QUERIES = 3
_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 3.0


class ChipWord:
    """The health word of a chip, reported when it changes something."""

    def __init__(self, source: str, chip: Subject) -> None:
        self._source = source
        self._chip = chip
        self._codes: tuple[str, ...] = ()
        self._reported: tuple[int | None, tuple[str, ...]] | None = None
        self._changed_at = 0.0
        self._unanswered: int | None = None
        """Questions without an answer since the list changed; ``None``: none is open."""
        self.asks_again_at: float | None = None
        """When the next question is due because the last one had no answer."""

    def record_list(self, codes: Iterable[str], at: float) -> None:
        """Record that the chip lists other codes than before."""
        self._codes = tuple(sorted(codes))
        if self._unanswered is None:
            self._unanswered, self._changed_at = 0, at

    def observe_word(self, word: int | None, at: float, now_ms: int) -> list[Report]:
        """Apply the word that was asked for at ``at``; ``None``: the chip did not return it."""
        self.asks_again_at = None
        if word is None:
            if self._unanswered is None:
                return []
            self._unanswered += 1
            again_at = at + _RETRY_SECONDS
            if self._unanswered < _MAX_QUERIES and again_at < self._changed_at + _MAX_RETRY_SECONDS:
                self.asks_again_at = again_at
                return []
        self._unanswered = None
        read = word, self._codes
        if read == self._reported:
            return []
        self._reported = read
        return [HealthRead(self._source, self._chip, now_ms, *read)]

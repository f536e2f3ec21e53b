"""Whether a source gives answers: blindness and its end, each reported once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.observation import NODE, SourceAnswered, SourceBlind

if TYPE_CHECKING:
    from contract.observation import Report, Subject


class AnswerTracker:
    """Whether ``source`` answers about ``subject``.

    ``is_answering`` is ``None`` before the first answer or failure: the first of either is
    reported.
    """

    def __init__(
        self, source: str, subject: Subject = NODE, *, is_answering: bool | None = None
    ) -> None:
        self._source = source
        self._subject = subject
        self.is_answering = is_answering

    def observe_answer(self, now_ms: int) -> list[Report]:
        """Apply an answer; return the report of it unless it follows another answer."""
        if self.is_answering:
            return []
        self.is_answering = True
        return [SourceAnswered(self._source, self._subject, now_ms)]

    def observe_failure(
        self, reason: str, since_ms: int, *, by_driver: bool = False
    ) -> list[Report]:
        """Apply a failure; return the report of it unless the source is blind already."""
        if self.is_answering is False:
            return []
        self.is_answering = False
        return [SourceBlind(self._source, self._subject, since_ms, reason, by_driver)]

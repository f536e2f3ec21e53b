"""Recent texts of documents, also those that the documents do not have any more.

The next leader begins with the state that the leader before has stored, and reads the documents as
they are then. A text between was seen only by replicas that followed then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.public_faults.message_documents import MessageOrigin
    from service.clock import Instant

FOR_MS = 60_000
"""Longer than no replica leads after a kill, with the second that a leader may not have
stored yet.
"""
_MOST_CHARACTERS = 16 << 20


class _RecentText(NamedTuple):
    at_ms: int
    origin: MessageOrigin
    text: str


class RecentTexts:
    """Recent texts in the order of their arrival."""

    def __init__(self) -> None:
        self._texts: deque[_RecentText] = deque()
        self._size = 0

    def record(self, origin: MessageOrigin, text: str, now: Instant) -> None:
        """Record the text of a document."""
        self._texts.append(_RecentText(now.steady_ms, origin, text))
        self._size += len(text)
        while self._size > _MOST_CHARACTERS or self._texts[0].at_ms + FOR_MS < now.steady_ms:
            self._size -= len(self._texts.popleft().text)

    def since(self, now: Instant) -> Iterator[tuple[MessageOrigin, str]]:
        """Yield the texts of the last ``FOR_MS``."""
        return ((o, text) for at_ms, o, text in self._texts if at_ms + FOR_MS >= now.steady_ms)

"""Failures that last for a while: one line of the log when one begins and one when it ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")


class OngoingFailure:
    """The reason why something does not work, logged when it begins and when it ends.

    ``on_start`` is logged at ``level`` and gets ``about`` and the reason; ``on_end`` gets
    ``about``. The end of an error is a warning, that of a warning an information. Without
    ``on_end`` it has no line.
    """

    def __init__(
        self,
        log: logging.Logger,
        on_start: str,
        on_end: str = "",
        *about: object,
        level: int = logging.WARNING,
    ) -> None:
        self._log = log
        self._on_start, self._on_end, self._about = on_start, on_end, about
        self._level = level
        self.reason: str | None = None
        """Why it does not work now; ``None`` while it does."""

    def record_failure(self, reason: str) -> None:
        """Record that it does not work."""
        if self.reason is None:
            self._log.log(self._level, self._on_start, *self._about, reason)
        self.reason = reason

    def end(self, *more: object) -> None:
        """Record that it works; ``more`` goes into the line, behind what it is about."""
        if self.reason is not None and self._on_end:
            # Python's levels are ten apart, so this is the next lower one.
            self._log.log(self._level - 10, self._on_end, *self._about, *more)
        self.reason = None


class OngoingFailures(Generic[K]):
    """A ``OngoingFailure`` for each key, which ``shown`` names in the lines."""

    def __init__(
        self,
        log: logging.Logger,
        on_start: str,
        on_end: str = "",
        shown: Callable[[K], object] = str,
        level: int = logging.WARNING,
    ) -> None:
        self._of: Callable[[K], OngoingFailure] = lambda key: OngoingFailure(
            log, on_start, on_end, shown(key), level=level
        )
        self._now: dict[K, OngoingFailure] = {}

    @property
    def reasons(self) -> dict[K, str]:
        """What does not work now, and why, in the order in which it began."""
        return {
            key: failure.reason for key, failure in self._now.items() if failure.reason is not None
        }

    def record_failure(self, key: K, reason: str) -> None:
        """Record that this does not work."""
        if key not in self._now:
            self._now[key] = self._of(key)
        self._now[key].record_failure(reason)

    def end(self, key: K) -> None:
        """Record that this works."""
        if (failure := self._now.pop(key, None)) is not None:
            failure.end()

    def forget(self, key: K) -> None:
        """Forget a key that is gone, without a line."""
        self._now.pop(key, None)

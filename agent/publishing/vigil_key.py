"""The text of our own data key: which sources are blind, at the pace at which it may be written.

A source is named once it has been blind for ``SETTLE_MS``; that of a chip which gave no answer
since the start at once, because the process before may have named it. The text changes at most once
in ``PACE_SECONDS``, so that a source that comes and goes costs few writes; whatever else is written
meanwhile carries the last text along.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from contract.observation import storage_subject
from contract.storage_faults import RESOURCES
from contract.vigil_key import BlindSource, encode_vigil_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.policy.state import State, SubjectState

PACE_SECONDS = 10.0
SETTLE_MS = 2_000
_STORAGE = {str(storage_subject(client)): client for client in RESOURCES}


def blind_sources(state: State) -> Iterator[BlindSource]:
    """Every source that gives no answer: those about the node first, then those about chips."""
    for subject, known in sorted(state.others.items()):
        client = f" {_STORAGE[subject]}" if subject in _STORAGE else ""
        yield from _of(known, client, None)
    for chip, known in sorted(state.chips.items()):
        yield from _of(known, "", chip)


def _of(known: SubjectState, client: str, chip: int | None) -> Iterator[BlindSource]:
    for source, why in sorted(known.blind.items()):
        yield BlindSource(f"{source}{client}", why.since_ms, why.reason, chip)


class VigilKeyText:
    """Makes the text from ``state``; ``wake`` is called when it may have changed by time alone."""

    def __init__(
        self,
        state: Callable[[], State],
        wall_clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._wall_clock = wall_clock
        self._wake = wake
        self._text: str | None = None
        self._undated: str | None = None
        """The text without the time of its last change."""
        self._changed_at = -math.inf
        self._of: State | None = None
        self._look_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def text(self) -> str | None:
        """The text of the key now; ``None``: it is absent. The same object while it stays."""
        loop, state = asyncio.get_running_loop(), self._state()
        now = loop.time()
        if state is self._of and now < self._look_at:
            return self._text
        settled, settles_in = self._settled(state)
        undated = encode_vigil_key(settled)
        look_at = now + settles_in
        if undated != self._undated:
            due = self._changed_at + PACE_SECONDS
            if now >= due:
                self._text = encode_vigil_key(settled, self._wall_clock())
                self._undated, self._changed_at = undated, now
            else:
                look_at = min(look_at, due)
        self._of, self._look_at = state, look_at
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if math.isinf(look_at) else loop.call_at(look_at, self._wake)
        return self._text

    def _settled(self, state: State) -> tuple[list[BlindSource], float]:
        """Who is to be named, and in how many seconds the next one is."""
        now_ms = self._wall_clock()
        settled, next_ms = [], math.inf
        for entry in blind_sources(state):
            is_silent = entry.chip is not None and state.chips[entry.chip].silent
            left_ms = 0 if is_silent else entry.since_ms + SETTLE_MS - now_ms
            if left_ms <= 0:
                settled.append(entry)
            else:
                # A clock that was set back does not keep it unnamed for long.
                next_ms = min(next_ms, left_ms, SETTLE_MS)
        return settled, next_ms / 1000

"""The time of a List: the newest one that the API server or a kubelet wrote into it.

A List has no time of its own, and the reader's clock would give each run of a dump another result.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class _Metadata(msgspec.Struct):
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")


class _Condition(msgspec.Struct):
    heartbeat: str | None = msgspec.field(default=None, name="lastHeartbeatTime")
    transition: str | None = msgspec.field(default=None, name="lastTransitionTime")


class _Status(msgspec.Struct):
    start: str | None = msgspec.field(default=None, name="startTime")
    conditions: list[_Condition] | None = None


class _Times(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


_times = msgspec.json.Decoder(_Times)


class LatestTime:
    """The newest time seen, in ``at_ms``; 0 before any."""

    def __init__(self) -> None:
        self.at_ms = 0
        self._newest = ""

    def update(self, raw: msgspec.Raw) -> None:
        """Take in the times of an object."""
        try:
            read = _times.decode(raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return  # Objects differ in what their status is.
        status = read.status or _Status()
        texts = [read.metadata.creation, status.start]
        for one in status.conditions or ():
            texts += (one.heartbeat, one.transition)
        for text in texts:
            # Times of one form sort as texts, so that few are read.
            if text is not None and text > self._newest:
                self._read(text)

    def _read(self, text: str) -> None:
        try:
            time = datetime.fromisoformat(text)
            at_ms = int(time.timestamp() * 1000) if time.tzinfo is not None else 0
        except (ValueError, OverflowError):
            return
        if at_ms > self.at_ms:
            self.at_ms, self._newest = at_ms, text

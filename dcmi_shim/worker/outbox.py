"""Messages of the driver child: frames on a pipe, from several threads, never waiting for long.

A frame is a 4-byte big-endian length and that many bytes of JSON. Runs in the driver child.
"""

from __future__ import annotations

import json
import os
import select
import threading
from collections import deque

_QUEUE_BYTES = 4 << 20


class Outbox:
    """Writes frames in the order in which they are sent.

    A frame is written by its sender while the pipe accepts it, so that an event leaves the process
    before the library's callback returns. Otherwise it is queued for a writer thread. A full queue
    drops events, and reports how many as soon as there is room.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._dropped = 0
        threading.Thread(target=self._drain, daemon=True).start()

    def send(self, message: dict[str, object], *, may_drop: bool = False) -> None:
        """Send ``message``; one that ``may_drop`` is dropped and counted when the queue is full."""
        # Not msgspec: ``-S`` leaves the packages outside of the standard library out.
        body = json.dumps(message, separators=(",", ":")).encode()
        frame = len(body).to_bytes(4, "big") + body
        with self._lock:
            # Answers are never dropped: the agent would wait for
            # its deadline and replace the process.
            if may_drop and (self._dropped or self._queued + len(frame) > _QUEUE_BYTES):
                self._dropped += 1
                return
            # Only with an empty queue, or this frame would overtake or cut another one.
            if not self._queue:
                frame = frame[self._write(frame) :]
            if frame:
                self._queue.append(frame)
                self._queued += len(frame)
                self._work.set()

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            # The agent, which reads the pipe, is gone.
            os._exit(0)

    def _drain(self) -> None:
        while True:
            self._work.wait()
            # Without the lock, for which the library's thread would wait in ``send``.
            select.select([], [self._fd], [])
            dropped = 0
            with self._lock:
                while self._queue:
                    frame = self._queue[0]
                    written = self._write(frame)
                    self._queued -= written
                    if written < len(frame):
                        # A part of a frame is on the pipe already, so its rest is next in any case.
                        self._queue[0] = frame[written:]
                        break
                    self._queue.popleft()
                else:
                    self._work.clear()
                    dropped, self._dropped = self._dropped, 0
            if dropped:
                # Behind the queue and without the lock, which ``send`` takes itself.
                self.send({"dropped": dropped})

"""Messages of the driver child: frames on a pipe, from several threads, never waiting for long.

A frame is a 4-byte big-endian length and that many bytes of JSON. Runs in the driver child.
"""

from __future__ import annotations

import _thread
import os
import select
from _json import encode_basestring_ascii

_QUEUE_BYTES = 4 << 20


def json_of(value: object) -> str:
    """Return ``value`` as ASCII JSON: of dicts, lists, tuples, texts, numbers and ``None``.

    Neither msgspec, which ``-S`` leaves out, nor ``json``, which imports ``re`` and ``enum``. Of
    ``json`` only its function in C is used, because a driver may send 10,000 events in a second.
    """
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        items = [f"{encode_basestring_ascii(key)}:{json_of(item)}" for key, item in value.items()]
        return f"{{{','.join(items)}}}"
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(json_of, value))}]"
    return repr(value)


class Outbox:
    """Writes frames in the order in which they are sent.

    A frame is written by its sender while the pipe accepts it, so that an event leaves the process
    before the library's callback returns. Otherwise it is queued for a writer thread. A full queue
    drops events, and reports how many as soon as there is room.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._lock = _thread.allocate_lock()
        # Held while the queue is empty: the writer thread waits for it.
        self._idle = _thread.allocate_lock()
        self._idle.acquire()
        self._queue = bytearray()
        self._dropped = 0
        _thread.start_new_thread(self._drain, ())

    def send(self, message: dict[str, object], *, may_drop: bool = False) -> None:
        """Send ``message``; one that ``may_drop`` is dropped and counted when the queue is full."""
        body = json_of(message).encode()
        frame = len(body).to_bytes(4, "big") + body
        with self._lock:
            # Answers are never dropped: the agent would wait for
            # its deadline and replace the process.
            if may_drop and (self._dropped or len(self._queue) + len(frame) > _QUEUE_BYTES):
                self._dropped += 1
                return
            # Behind a queue, or this frame would overtake or cut another one.
            if self._queue:
                self._queue += frame
                return
            self._queue += frame[self._write(frame) :]
            if self._queue:
                self._idle.release()

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            # The agent, which reads the pipe, is gone.
            os._exit(0)

    def _drain(self) -> None:
        while True:
            self._idle.acquire()
            while not self._drained():
                pass

    def _drained(self) -> bool:
        """Write what the pipe takes next; return whether the queue is empty then."""
        # Without the lock, for which the library's thread would wait in ``send``.
        select.select([], [self._fd], [])
        with self._lock:
            del self._queue[: self._write(self._queue)]
            if self._queue:
                return False
            dropped, self._dropped = self._dropped, 0
        if dropped:
            # Behind the queue and without the lock, which ``send`` takes itself.
            self.send({"dropped": dropped})
        return True

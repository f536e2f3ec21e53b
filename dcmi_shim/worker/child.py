"""The driver child: a minimal process that holds the vendor library.

Started by exec as ``python -I -S child.py PARENT_PID chip|switch``; the last argument selects the
library. It reads requests from its standard input and answers on its standard output, both in
frames of ``outbox``:

  -> {"id": 1, "call": "open", "arguments": ["/path/libdcmi.so"]}
  <- {"id": 1, "answer": 0, "value": null}      or  {"id": 1, "failed": "dlopen: ..."}
  -> {"id": 2, "call": "dcmi_get_device_health", "arguments": [3, 0]}
  <- {"id": 2, "answer": -8012, "value": null}  or  {"id": 2, "answer": 0, "wrong": "..."}
  <- {"event": {...}}                           at any time, from the library's thread
  <- {"dropped": 7}                             events that did not fit into the queue

Requests are served one after another on the main thread, because the library is not thread safe.
The process ends with its parent, even while a call hangs (``PR_SET_PDEATHSIG``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from ctypes import CDLL

if __name__ == "__main__":
    # Last, so that nothing beside our package can shadow the standard library.
    here = os.path.abspath(__file__)  # noqa: PTH100
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))  # noqa: PTH120

from dcmi_shim.library import abi, binding
from dcmi_shim.library.return_codes import NOT_LOADED
from dcmi_shim.worker.outbox import Outbox

# Importing ``typing`` would make each driver process start later and hold more memory.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)


def _end_with_parent(parent: int) -> None:
    # SIGKILL, because a call that hangs in the library handles no other signal.
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have ended before the call of prctl(2), which then has no effect.
    if os.getppid() != parent:
        os._exit(0)


def _own_pipes() -> tuple[int, int]:
    """Move the protocol away from the standard streams, which the library may write to."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    return requests, answers


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    # A pipe gives what it has, which may be less than a frame.
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        # End of file: the agent is gone, or has closed the pipe to end this process.
        if not chunk:
            os._exit(0)
        data += chunk
    return data


def _interface(kind: str) -> binding.Interface:
    """Return the calls for a kind of library; a child does not load those of the other."""
    if kind == "switch":
        from dcmi_shim.library import switch_calls

        return switch_calls
    from dcmi_shim.library import chip_calls

    return chip_calls


class Child:
    """Serves requests until its parent is gone."""

    def __init__(self, interface: binding.Interface, requests: int, outbox: Outbox) -> None:
        self._interface = interface
        self._requests = requests
        self._outbox = outbox
        self._library: binding.Library | None = None
        # Kept: ctypes frees a callback without references, and the library would still call it.
        self._handler = abi.FaultHandler(self._on_event)

    def serve(self) -> NoReturn:
        while True:
            size = int.from_bytes(_read_exactly(self._requests, 4), "big")
            request = json.loads(_read_exactly(self._requests, size))
            reply = self._answer(request["call"], request["arguments"])
            reply["id"] = request["id"]
            self._outbox.send(reply)

    def _answer(self, call: str, arguments: list[object]) -> dict[str, object]:
        try:
            if call == "open":
                self._library = binding.Library(str(arguments[0]), self._interface.SIGNATURES)
                return {"answer": 0}
            if self._library is None:
                return {"answer": NOT_LOADED}
            if call == self._interface.SUBSCRIBE:
                return {"answer": self._interface.subscribe(self._library, self._handler)}
            answer, value = self._interface.CALLS[call](self._library, *arguments)
        except binding.CannotLoad as error:
            return {"failed": str(error)}
        except binding.Implausible as error:
            return {"answer": 0, "wrong": str(error)}
        return {"answer": answer, "value": value}

    def _on_event(self, pointer: int | None) -> None:
        """Copy and send an event, on the library's thread.

        ``pointer`` is valid only until this returns.
        """
        # First of all, so that no later work on the event changes its time.
        seen_at_ms = time.time_ns() // 1_000_000
        try:
            if not pointer:
                raise binding.Implausible("an event without data")
            event = self._interface.copy_event(pointer)
            event["seen_at_ms"] = seen_at_ms
            message: dict[str, object] = {"event": event}
        # An exception must not leave a callback of C; the agent makes a gap of it.
        except Exception as error:
            message = {"invalid_event": str(error)}
        self._outbox.send(message, may_drop=True)


def main() -> NoReturn:
    """Entry point of the process."""
    _end_with_parent(int(sys.argv[1]))
    # The agent decides when its child ends; a terminal or a service manager signals both.
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    requests, answers = _own_pipes()
    Child(_interface(sys.argv[2]), requests, Outbox(answers)).serve()


if __name__ == "__main__":
    main()

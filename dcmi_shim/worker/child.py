"""The driver child: a minimal process that holds the vendor library.

Started by exec as ``python -I -S child.py PARENT_PID chip|switch BEGUN_FD``; the second argument
selects the library. It reads requests from its standard input and answers on its standard output.
A frame is a 4-byte big-endian length and that many bytes. Those of requests are of ``marshal``,
because they come from the same interpreter. Answers are JSON, which the agent checks (``outbox``):

  -> {"id": 1, "call": "open", "arguments": ("/path/libdcmi.so",)}
  <- {"id": 1, "answer": 0, "value": null}      or  {"id": 1, "failed": "dlopen: ..."}
  -> {"id": 2, "call": "dcmi_get_device_health", "arguments": (3, 0)}
  <- {"id": 2, "answer": -8012, "value": null}  or  {"id": 2, "answer": 0, "wrong": "..."}
  -> {"id": 3, "call": "dcmi_get_device_health", "each": [(3, 0), (4, 0)]}
  <- {"id": 3, "each": [{"answer": 0, "value": 1}, {"answer": -8012, "value": null}]}
  <- {"event": {...}}                           at any time, from the library's thread
  <- {"dropped": 7}                             events that did not fit into the queue

Requests are served one after another on the main thread, because the library is not thread safe.
So are the calls of ``each``. Before each one, the child writes to the pipe ``BEGUN_FD`` the id of
the request and the monotonic clock (ns), because a call that hangs sends no answer. After
``_EACH_SECONDS`` the answer has no further calls: other requests must not wait longer. The same
holds when the pipe is full.
The process ends with its parent, even while a call hangs (``PR_SET_PDEATHSIG``).

``json``, ``signal``, ``threading`` and ``collections`` are not imported: with what they import
they are 1.3 MiB in each child, and a third of the time until it serves.
"""

from __future__ import annotations

import marshal
import os
import sys
import time
from ctypes import CDLL, c_int, c_void_p

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
_EACH_SECONDS = 0.1
# Of ``signal.h``, the same on x86_64 and on Arm.
_SIGKILL = 9
_SIG_IGN = 1
_IGNORED = (1, 2, 10, 12, 14, 15)
"""SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM."""


def _end_with_parent(parent: int) -> None:
    # SIGKILL, because a call that hangs in the library handles no other signal.
    CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    # The parent may have ended before the call of prctl(2), which then has no effect.
    if os.getppid() != parent:
        os._exit(0)


def _ignore_signals() -> None:
    """Ignore what a terminal or a service manager sends: the agent decides when its child ends."""
    signal = CDLL(None).signal
    signal.argtypes, signal.restype = (c_int, c_void_p), c_void_p
    for number in _IGNORED:
        signal(number, _SIG_IGN)


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

    def __init__(
        self, interface: binding.Interface, requests: int, begun: int, outbox: Outbox
    ) -> None:
        self._interface = interface
        self._requests = requests
        self._begun = begun
        self._outbox = outbox
        self._library: binding.Library | None = None
        # Kept: ctypes frees a callback without references, and the library would still call it.
        self._handler = abi.FaultHandler(self._on_event)

    def serve(self) -> NoReturn:
        while True:
            size = int.from_bytes(_read_exactly(self._requests, 4), "big")
            request = marshal.loads(_read_exactly(self._requests, size))
            call = request["call"]
            reply: dict[str, object] = (
                {"each": self._answer_each(request["id"], call, request["each"])}
                if "each" in request
                else self._answer(call, request["arguments"])
            )
            reply["id"] = request["id"]
            self._outbox.send(reply)

    def _answer_each(
        self, request_id: int, call: str, each: list[tuple[object, ...]]
    ) -> list[dict[str, object]]:
        answers: list[dict[str, object]] = []
        end_ns = time.monotonic_ns() + round(_EACH_SECONDS * 1e9)
        for arguments in each:
            begin_ns = time.monotonic_ns()
            if begin_ns > end_ns:
                break
            record = request_id.to_bytes(8, "big") + begin_ns.to_bytes(8, "big")
            try:
                os.write(self._begun, record)
            # A call without a record could not be named if it hung.
            except BlockingIOError:
                break
            answers.append(self._answer(call, arguments))
        return answers

    def _answer(self, call: str, arguments: tuple[object, ...]) -> dict[str, object]:
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
    _ignore_signals()
    requests, answers = _own_pipes()
    Child(_interface(sys.argv[2]), requests, int(sys.argv[3]), Outbox(answers)).serve()


if __name__ == "__main__":
    main()

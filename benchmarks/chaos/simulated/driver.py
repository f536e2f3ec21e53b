"""Emulated hardware in Python, and the driver processes that answer for it over real pipes.

A ``DriverProcess`` takes the place of ``subprocess.Popen`` in ``dcmi_shim.worker.process``. All
above the pipe is the product's: frames, deadlines, restarts, the event queue. Its calls and answers
are those of ``dcmi_shim.worker.child``. The real library would wait in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import marshal
import os
import signal
import subprocess
from contextvars import Context
from io import FileIO
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec

from dcmi_shim.emulator.codes import parse_code, severity_of
from dcmi_shim.library.return_codes import UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Callable

CHIPS = 8
CODES = "dcmi_get_device_errorcode_v2"
_HEALTH = "dcmi_get_device_health"
_SUBSCRIBE = "dcmi_subscribe_fault_event"
_LISTED_AFTER_SECONDS = 0.05
_UNLISTED_AFTER_SECONDS = 0.3
_CALL_SECONDS = 2**-12
"""How long a call takes without a trouble."""
_EACH_SECONDS = 0.1
"""After that, the driver child begins no further call of a request."""
_RECOVERED, _OCCURRED = 0, 1
_BEGIN = Struct(">QQ")
_pids = itertools.count(1_000_000)

_NUMBERS: dict[str, object] = {
    "dcmi_init": None,
    "dcmi_get_dcmi_version": "24.1.rc3",
    "dcmi_get_card_list": [CHIPS, list(range(CHIPS))],
    "dcmi_get_device_num_in_card": 1,
    "dcmi_get_device_chip_info_v2": ["Ascend", "910B3", "V1", 20],
    "dcmi_get_device_board_info": 0x30,
    "dcmi_get_device_hbm_info": 65_536,
    "dcmi_get_device_network_health": 0,
}
"""Answers that are the same for every chip."""


class Hardware:
    """The chips of one node, with the methods of ``dcmi_shim.emulator.control.Emulator``.

    ``wall_clock`` is the clock of the host (epoch ms).
    """

    def __init__(self, wall_clock: Callable[[], int]) -> None:
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()
        self._lists: dict[int, list[int]] = {chip: [] for chip in range(CHIPS)}
        self._serial = 0
        self._loses_events = False
        self._hanging: set[str] = set()
        self._failing: dict[str, int] = {}
        self._slow_seconds: dict[str, float] = {}
        self.processes: list[DriverProcess] = []

    def occur(self, chip: int, code: str) -> None:
        """Begin a fault: the event now, the list a moment later."""
        self._event(chip, parse_code(code), _OCCURRED)
        self._later(_LISTED_AFTER_SECONDS, self._list, chip, parse_code(code))

    def recover(self, chip: int, code: str) -> None:
        """End a fault: the event now, the list a moment later."""
        self._event(chip, parse_code(code), _RECOVERED)
        self._later(_UNLISTED_AFTER_SECONDS, self._unlist, chip, parse_code(code))

    def lose_events(self) -> None:
        """Send no events; the list shows what happens."""
        self._loses_events = True

    def keep_events(self, *, dropped: bool) -> None:
        """Send events again, and where they were ``dropped`` how many, as the driver child does."""
        self._loses_events = False
        if dropped:
            for process in self.processes:
                process.send({"dropped": 1})

    def hang(self, function: str) -> None:
        """Let calls of ``function`` never return."""
        self._hanging.add(function)

    def fail(self, function: str, answer: int) -> None:
        """Let calls of ``function`` return an error."""
        self._failing[function] = answer

    def slow(self, function: str, milliseconds: int) -> None:
        """Let calls of ``function`` take longer."""
        self._slow_seconds[function] = milliseconds / 1000

    def clear(self, function: str) -> None:
        """End what is wrong with ``function``."""
        self._hanging.discard(function)
        self._failing.pop(function, None)
        self._slow_seconds.pop(function, None)

    def crash(self) -> None:
        """End all driver processes as a fault of the library does."""
        for process in tuple(self.processes):
            process.end(-signal.SIGSEGV)

    def garble(self) -> None:
        """Let all driver processes send a frame that is none."""
        for process in self.processes:
            process.write(b"\x00\x00\x00\x05{]{]{")

    def answer(self, call: str, arguments: list[int]) -> dict[str, object]:
        """Return the answer to a call, as the driver child sends it."""
        failing = self._failing.get(call)
        if failing is not None:
            return {"answer": failing, "value": None}
        match call:
            case "dcmi_get_device_logic_id" | "dcmi_get_device_phyid_from_logicid":
                value: object = arguments[0]
            case "dcmi_get_device_die_v2":
                value = [arguments[0], 2, 3, 4, 5]
            case "dcmi_get_card_elabel_v2":
                value = f"SN-{arguments[0]}"
            case "dcmi_get_device_health":
                codes = self._lists[arguments[0]]
                value = max((int(severity_of(code)) for code in codes), default=0)
            case "dcmi_get_device_errorcode_v2":
                value = self._lists[arguments[0]]
            case call if call in _NUMBERS:
                value = _NUMBERS[call]
            case _:
                return {"answer": UNSUPPORTED, "value": None}
        return {"answer": 0, "value": value}

    def hangs(self, call: str) -> bool:
        """Return whether a call never returns."""
        return call in self._hanging

    def call_seconds(self, call: str) -> float:
        """Return how long a call takes."""
        return self._slow_seconds.get(call, _CALL_SECONDS)

    def _later(
        self, seconds: float, work: Callable[[int, int], None], chip: int, code: int
    ) -> None:
        self._loop.call_later(seconds, work, chip, code, context=Context())

    def _list(self, chip: int, code: int) -> None:
        if code not in self._lists[chip]:
            self._lists[chip].append(code)

    def _unlist(self, chip: int, code: int) -> None:
        if code in self._lists[chip]:
            self._lists[chip].remove(code)

    def _event(self, chip: int, code: int, assertion: int) -> None:
        self._serial += assertion == _OCCURRED
        if self._loses_events:
            return
        now_ms = self._wall_clock()
        event = {
            "of": "chip",
            "code": code,
            "logic_id": chip,
            "severity": int(severity_of(code)),
            "assertion": assertion,
            "seen_at_ms": now_ms,
            "driver_raised_at_ms": now_ms,
            "serial": self._serial,
            "node_type": 0,
            "node_id": 0,
            "sub_node_type": 0,
            "sub_node_id": 0,
            "name": "",
            "information": "",
        }
        for process in self.processes:
            if process.is_subscribed:
                process.send({"event": event})


class DriverProcess:
    """A driver child of ``hardware``, with what ``ChildProcess`` uses of ``subprocess.Popen``.

    ``begun`` is the pipe for the begins of calls, of which it takes a copy.
    """

    def __init__(self, hardware: Hardware, begun: int) -> None:
        self.pid = next(_pids)
        self.returncode: int | None = None
        self.is_subscribed = False
        self._hardware = hardware
        self._buffer = bytearray()
        self._requests, request_end = os.pipe()
        answer_end, self._answers = os.pipe()
        self._begun = os.dup(begun)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        self.stdin = FileIO(request_end, "w")
        self.stdout = FileIO(answer_end, "r")
        self._loop = asyncio.get_running_loop()
        # Of no program: a driver runs while its agent is paused.
        Context().run(self._loop.add_reader, self._requests, self._read)
        hardware.processes.append(self)

    def poll(self) -> int | None:
        """Return the exit status, ``None`` while it runs."""
        return self.returncode

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.end(-signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Return the exit status. Raises ``TimeoutExpired`` at once while it runs."""
        if self.returncode is None:
            raise subprocess.TimeoutExpired("driver", timeout)
        return self.returncode

    def end(self, status: int) -> None:
        """End it; its pipes close."""
        if self.returncode is None:
            self.returncode = status
            self._hardware.processes.remove(self)
            self._loop.remove_reader(self._requests)
            for pipe in (self._requests, self._answers, self._begun):
                os.close(pipe)

    def send(self, message: dict[str, object]) -> None:
        """Send a message to the agent, unless the pipe is full."""
        body = msgspec.json.encode(message)
        self.write(len(body).to_bytes(4, "big") + body)

    def write(self, frame: bytes) -> None:
        """Write bytes to the agent."""
        # A closed pipe: the agent is gone. A full one: it is paused for long, and drops are counted
        # by the product's own outbox, which is not simulated.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._answers, frame)

    def _read(self) -> None:
        data = os.read(self._requests, 1 << 16)
        if not data:
            self.end(0)
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            self._serve(marshal.loads(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]

    def _serve(self, request: dict[str, Any]) -> None:
        call = request["call"]
        if call == _SUBSCRIBE:
            self.is_subscribed = True
        if call in ("open", _SUBSCRIBE):
            self.send({"id": request["id"], "answer": 0})
            return
        if "each" in request:
            self._begin_each(request, [], self._loop.time() + _EACH_SECONDS)
        elif not self._hardware.hangs(call):
            seconds = self._hardware.call_seconds(call)
            self._loop.call_later(seconds, self._answer, request, context=Context())

    def _answer(self, request: dict[str, Any]) -> None:
        if self.returncode is None:
            answer = self._hardware.answer(request["call"], request["arguments"])
            self.send({"id": request["id"], **answer})

    def _begin_each(
        self, request: dict[str, Any], answers: list[dict[str, object]], end: float
    ) -> None:
        """Begin the next calls of ``each``; after ``end`` or the last one, send the answers."""
        request_id, call, now = request["id"], request["call"], self._loop.time()
        rest = len(request["each"]) - len(answers)
        if not rest or now > end:
            self.send({"id": request_id, "each": answers})
            return
        seconds = self._hardware.call_seconds(call)
        # One timer for all calls that begin until ``end``: a virtual day has 200,000 such calls.
        number = 1 if self._hardware.hangs(call) else min(rest, 1 + int((end - now) / seconds))
        begins = (round((now + i * seconds) * 1e9) for i in range(number))
        os.write(self._begun, b"".join(_BEGIN.pack(request_id, begin) for begin in begins))
        self._loop.call_later(
            number * seconds, self._answer_each, request, answers, number, end, context=Context()
        )

    def _answer_each(
        self, request: dict[str, Any], answers: list[dict[str, object]], number: int, end: float
    ) -> None:
        call, first = request["call"], len(answers)
        # A call that hangs, perhaps since it was begun, is the last one that the agent sees begin:
        # a driver of virtual time does not begin to hang in the middle of a round.
        if self.returncode is None and not self._hardware.hangs(call):
            for arguments in request["each"][first : first + number]:
                answers.append(self._hardware.answer(call, arguments))
            self._begin_each(request, answers, end)

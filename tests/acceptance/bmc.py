"""A BMC of its own for acceptance tests: a socket that answers by the steps of recordings.

A program reaches it through the preloaded ``driver/ipmi.c`` or ``driver/ipmitool.py``.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

_SOURCES = Path(__file__).parent / "driver"
_HEAD = struct.Struct("<8sBB")
_ALARM_LIST, _LABELS = 0x94, 0x90
_SERIAL = 4
_LONGEST = 2048


def compile_device(directory: Path) -> Path:
    """Compile the library that stands in the kernel's place."""
    library = directory / "ipmi.so"
    subprocess.run(
        [
            *("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
            *(str(_SOURCES / "ipmi.c"), "-o", str(library), "-ldl"),
        ],
        check=True,
    )
    return library


class Bmc:
    """One BMC. ``do`` takes steps of recordings."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bmc-"))
        self.socket = self._directory / "socket"
        self._changed = threading.Condition()
        self._alarms: list[list[Any]] = []
        self._a_page = 10
        self._delay_seconds = 0.0
        self._hangs = False
        self._code: int | None = None
        self._raw: list[tuple[str, bytes]] = []
        self._texts = {_SERIAL: "2102314ORACLE0001", 0: "Huawei"}
        self._connections: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.between_pages: list[list[Any]] | None = None
        """The alarms that are there behind the next first page."""
        self.speed = 1.0
        """By what delays are divided: a recording may be played faster than it was made."""
        self._listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._vanish()
        with self._changed:
            self._hangs = False
            self._changed.notify_all()
        shutil.rmtree(self._directory)

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of a recording now."""
        with self._changed:
            if step["do"] == "bmc-hang":
                self._hangs = step["on"]
            elif step["do"] == "bmc-error":
                code = step["completion_code"]
                self._code = None if code is None else int(code, 16)
            else:
                self._alarms = step.get("alarms", self._alarms)
                self._a_page = step.get("events_per_reply", self._a_page)
                self._delay_seconds = step.get("delay_ms", self._delay_seconds * 1000) / 1000
                self._texts[_SERIAL] = step.get("serial", self._texts[_SERIAL])
                if "raw_replies" in step:
                    raw = step["raw_replies"]
                    self._raw = [(one["for"], bytes.fromhex(one["reply"])) for one in raw]
            self._changed.notify_all()
        if step.get("present") is False:
            self._vanish()
        elif step.get("present") and self._listener is None:
            self._listen()

    def _listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.socket))
        listener.listen()
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="bmc", daemon=True).start()

    def _vanish(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self.socket.unlink()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        connections, self._connections = self._connections, []
        for one in connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while packet := connection.recv(_LONGEST):
                head, request = packet[: _HEAD.size], packet[_HEAD.size :]
                with self._changed:
                    self._changed.wait_for(lambda: not self._hangs)
                    reply = self._reply(head[-1], request)
                    delay_seconds = self._delay_seconds
                threading.Event().wait(delay_seconds / self.speed)
                connection.send(head + reply)
        with suppress(ValueError):
            self._connections.remove(connection)

    def _reply(self, command: int, request: bytes) -> bytes:
        key = int.from_bytes(request[5:7], "little") if command == _ALARM_LIST else request[3]
        for pattern, reply in self._raw:
            if pattern in (f"{command:x}@{key}", f"{command:x}@*"):
                return reply
        if self._code is not None:
            return bytes([self._code])
        if command == _LABELS:
            return b"\0\0" + self._texts[key].encode()
        if command != _ALARM_LIST:
            return b"\xc1"
        asked = [alarm for alarm in self._alarms if request[7] >> alarm[3] & 1]
        page = asked[key : key + self._a_page]
        if self.between_pages is not None:
            self._alarms, self.between_pages = self.between_pages, None
        events = [
            bytes.fromhex(code)[::-1]
            + bytes([0, 0xF1, 0x53, 0x65, severity, part, index, *bytes(4)])
            for code, part, index, severity in page
        ]
        head = b"\0\xdb\x07\0" + len(asked).to_bytes(2, "little") + bytes([len(page), 0])
        return head + b"".join(events)

"""A BMC in memory that follows the steps of a recording, and the device for it.

It builds replies in a way of its own; the code that asks for pages and judges them is the
product's. A reading happens in the loop's time, without the thread of the real device.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, NoReturn

from contract.errors import BmcError
from dcmi_shim.ipmi.device import NoDevice, checked
from dcmi_shim.ipmi.tool import NoTool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dcmi_shim.ipmi.alarms import Reading
    from dcmi_shim.ipmi.request import Request

_MANUFACTURER = bytes.fromhex("db0700")
_ALARMS, _LABELS = 0x94, 0x90
_SERIAL, _MANUFACTURER_NAME = 4, 0
_REQUEST_SECONDS = 2**-10
"""How long a command takes that is answered at once."""


class RecordedBmc:
    """A BMC whose alarms and troubles are those of the recording."""

    def __init__(self) -> None:
        self._alarms: list[list[Any]] = []
        self._page = 10
        self._delay_seconds = 0.0
        self._is_present = True
        self._answers = asyncio.Event()
        self._answers.set()
        self._refusal: int | None = None
        self._raw: list[tuple[str, bytes]] = []
        self.between_pages: Callable[[], None] | None = None
        """Done once, behind the next first page."""
        self._texts = {_SERIAL: "2102314ORACLE0001", _MANUFACTURER_NAME: "Huawei"}

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of the recording now."""
        match step["do"]:
            case "bmc-hang":
                (self._answers.clear if step["on"] else self._answers.set)()
            case "bmc-error":
                code = step["completion_code"]
                self._refusal = None if code is None else int(code, 16)
            case "bmc":
                self._set(step)
            case other:
                raise AssertionError(f"the recorded BMC cannot {other}")

    def _set(self, step: dict[str, Any]) -> None:
        self._alarms = step.get("alarms", self._alarms)
        self._page = step.get("events_per_reply", self._page)
        self._delay_seconds = step.get("delay_ms", self._delay_seconds * 1000) / 1000
        self._is_present = step.get("present", self._is_present)
        if "serial" in step:
            self._texts[_SERIAL] = step["serial"]
        if "raw_replies" in step:
            self._raw = [
                (reply["for"], bytes.fromhex(reply["reply"])) for reply in step["raw_replies"]
            ]

    def open(self) -> None:
        """Raise ``NoDevice`` if the recorded host has no device."""
        if not self._is_present:
            raise NoDevice

    async def ask(self, request: Request, deadline_seconds: float) -> bytes | None:
        """Return the reply, its completion code first; ``None`` if none came within the deadline.

        The content is that of the time of the request. A BMC that hung answers when the hang is
        over.
        """
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._answers.wait()
                reply = self._reply(request)
                if self.between_pages is not None:
                    between, self.between_pages = self.between_pages, None
                    between()
                await asyncio.sleep(self._delay_seconds or _REQUEST_SECONDS)
        except TimeoutError:
            return None
        return reply

    def _reply(self, request: Request) -> bytes:
        data = request.data
        key = int.from_bytes(data[5:7], "little") if request.command == _ALARMS else data[3]
        for wanted, reply in self._raw:
            if wanted in (f"{request.command:X}@{key}", f"{request.command:X}@*"):
                return reply
        if self._refusal is not None:
            return bytes([self._refusal])
        if request.command == _LABELS:
            return b"\0\0" + self._texts[key].encode()
        asked_for = [alarm for alarm in self._alarms if 1 << alarm[3] & data[7]]
        page = asked_for[key : key + self._page]
        events = b"".join(
            struct.pack("<IIBBB4x", int(code, 16), 0, severity, kind, number)
            for code, kind, number, severity in page
        )
        return b"\0" + _MANUFACTURER + struct.pack("<HBx", len(asked_for), len(page)) + events


class RecordedDevice:
    """What the agent takes for its ``IpmiDevice``."""

    def __init__(self, bmc: RecordedBmc, path: Path, deadline_seconds: float) -> None:
        self._bmc = bmc
        self._path = path
        self._deadline_seconds = deadline_seconds

    async def read(self, reading: Reading, limit_seconds: float) -> Any:
        """Do a whole reading, as the real device does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_seconds
        self._bmc.open()
        request = next(reading)
        while True:
            if loop.time() > end:
                raise BmcError(f"{self._path}: the list takes more than {limit_seconds:g} s")
            reply = await self._bmc.ask(request, self._deadline_seconds)
            if reply is None:
                raise BmcError(
                    f"the BMC does not answer within {self._deadline_seconds:g} s "
                    f"(request {request})"
                )
            try:
                request = reading.send(checked(reply, request))
            except StopIteration as stop:
                return stop.value


class NoRecordedTool:
    """What the agent takes for its ``IpmiTool``: the recorded hosts had none."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def read(self, reading: Reading, limit_seconds: float) -> NoReturn:
        del reading, limit_seconds
        raise NoTool

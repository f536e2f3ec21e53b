"""IPMI commands through the character device of the kernel (OpenIPMI), as in ``noded#4.1``.

Opening the device or an ioctl may hang in the kernel. All of it happens in a thread that no task
waits for: while it hangs, nothing else is tried, and the process can end.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from contract.errors import BmcError, ForeignBmc
from pacing.abandonable_thread import AbandonableThread

if TYPE_CHECKING:
    from pathlib import Path

    from dcmi_shim.ipmi.request import Exchange, Request

T = TypeVar("T")

SEND_COMMAND = 0x8028690D
RECEIVE_MESSAGE_TRUNCATED = 0xC030690B
# ``@`` aligns as C does; the ioctls name the 40 and 48 bytes of the last two (noded#4.1).
SYSTEM_ADDRESS = struct.Struct("@ihB")
"""Type, channel, logical unit; the kernel expects it padded to 8 bytes."""
SENT = struct.Struct("@PIlBBHP")
"""Address and its length, message id, network function, command, data length, data."""
RECEIVED = struct.Struct("@iPIlBBHP")
"""Kind of message, then as above."""

_SYSTEM_INTERFACE = 0x0C
_BMC_CHANNEL = 0x0F
# The size of ``struct ipmi_system_interface_addr`` with its padding (noded#4.1).
_ADDRESS_BYTES = 8
_REPLY_BYTES = 1024
_RESPONSE = 1
_NO_DEVICE = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV)
_GRACE_SECONDS = 1.0
_CHECK_SECONDS = 0.5
UNKNOWN_COMMAND = (0xC1, 0xC2)
"""Completion codes of a BMC that does not have a command (IPMI 2.0, table 5-2)."""

_COMPLETION_TEXTS = {
    0xC0: "it is busy",
    0xC1: "it does not know this command",
    0xC2: "it does not know this command here",
    0xC3: "it timed out",
    0xC7: "wrong length",
    0xCC: "a field that it does not know",
    0xD4: "not allowed",
}


class NoDevice(Exception):
    """There is no such device now."""


class IpmiDevice:
    """The device ``path``; it is opened for each exchange."""

    def __init__(self, path: Path, deadline_seconds: float) -> None:
        self._path = path
        self._deadline_seconds = deadline_seconds
        self._doing = ""
        self._since = 0.0
        self._work: AbandonableThread[Any] | None = None

    async def read(self, exchange: Exchange[T], limit_seconds: float) -> T:
        """Do a whole exchange. Each command has the deadline, all together ``limit_seconds``.

        Raises ``NoDevice``, and ``BmcError`` when it fails, or hangs now or still.
        """
        # A second thread would hang at the same device; there is never more than one.
        if self._work is not None and self._work.is_stuck:
            raise self._stuck()
        self._begin("the start of a thread")
        work = AbandonableThread(partial(self._read, exchange, limit_seconds), "ipmi")
        self._work = work
        while True:
            try:
                return await work.result(_CHECK_SECONDS)
            except TimeoutError:
                age = time.monotonic() - self._since
                if age > self._deadline_seconds + _GRACE_SECONDS:
                    raise self._stuck() from None

    def _stuck(self) -> BmcError:
        age = time.monotonic() - self._since
        return BmcError(
            f"{self._path}: {self._doing} has not returned for {age:.0f} s, and nothing else is "
            "tried until it does. The BMC or the kernel's ipmi modules may need a restart"
        )

    def _begin(self, doing: str) -> None:
        self._since = time.monotonic()
        self._doing = doing

    def _read(self, exchange: Exchange[T], limit_seconds: float) -> T:
        """Do the exchange, in the thread."""
        end = time.monotonic() + limit_seconds
        self._begin("open")
        self._refuse_socket()
        try:
            device = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NO_DEVICE:
                raise NoDevice from None
            raise BmcError(
                f"{self._path} cannot be opened: {error.strerror}; the agent must be allowed to "
                "read and write it"
            ) from None
        try:
            request = next(exchange)
            number = 0
            while True:
                number += 1
                if time.monotonic() > end:
                    raise BmcError(f"{self._path}: the list takes more than {limit_seconds:g} s")
                try:
                    reply = self._ask(device, number, request)
                except OSError as error:
                    text = f"{self._doing} failed: {error.strerror}"
                    raise BmcError(f"{self._path}: {text} (request {request})") from None
                try:
                    request = exchange.send(reply)
                except StopIteration as stop:
                    return cast("T", stop.value)
        finally:
            self._begin("close")
            with suppress(OSError):
                os.close(device)

    def _refuse_socket(self) -> None:
        """Raise ``BmcError`` for a socket, which the kernel does not open, as if it was missing."""
        if self._path.is_socket():
            raise BmcError(
                f"{self._path} cannot be opened: it is a socket, not the kernel's IPMI device; set "
                "bmc.device"
            )

    def _ask(self, device: int, number: int, request: Request) -> bytes:
        address = ctypes.create_string_buffer(
            SYSTEM_ADDRESS.pack(_SYSTEM_INTERFACE, _BMC_CHANNEL, 0), _ADDRESS_BYTES
        )
        data = ctypes.create_string_buffer(request.data, len(request.data))
        sent = SENT.pack(
            ctypes.addressof(address),
            _ADDRESS_BYTES,
            number,
            request.network_function,
            request.command,
            len(request.data),
            ctypes.addressof(data),
        )
        self._begin("the send ioctl")
        fcntl.ioctl(device, SEND_COMMAND, sent)
        self._begin("poll")
        readable = select.poll()
        readable.register(device, select.POLLIN)
        end = self._since + self._deadline_seconds
        while (remaining_seconds := end - time.monotonic()) > 0:
            events = readable.poll(remaining_seconds * 1000)
            if not events:
                continue
            # POLLERR or POLLHUP: the kernel's driver has gone, and no reply can come.
            if not events[0][1] & select.POLLIN:
                raise BmcError(f"{self._path}: the device is gone (request {request})")
            self._begin("the receive ioctl")
            reply = _receive(device, number, request)
            self._begin("poll")
            if reply is not None:
                return checked(reply, request)
        raise BmcError(
            f"the BMC does not answer within {self._deadline_seconds:g} s (request {request})"
        )


def _receive(device: int, number: int, request: Request) -> bytes | None:
    """Return the next message if it is the reply to this request; ``None`` for another."""
    address = ctypes.create_string_buffer(4 * _ADDRESS_BYTES)
    buffer = ctypes.create_string_buffer(_REPLY_BYTES)
    argument = bytearray(
        RECEIVED.pack(
            *(0, ctypes.addressof(address), len(address), 0),
            *(0, 0, _REPLY_BYTES, ctypes.addressof(buffer)),
        )
    )
    try:
        fcntl.ioctl(device, RECEIVE_MESSAGE_TRUNCATED, argument, True)
    except BlockingIOError:
        return None
    kind, _, _, message, _, command, length, _ = RECEIVED.unpack(argument)
    if (kind, message, command) != (_RESPONSE, number, request.command):
        return None
    return buffer.raw[:length]


def checked(reply: bytes, request: Request) -> bytes:
    """Return what follows the completion code.

    Raises ``BmcError`` unless the code is 0, ``ForeignBmc`` for a command that the BMC lacks.
    """
    if not reply:
        raise BmcError(f"the BMC's reply has no byte (request {request})")
    if reply[0] != 0:
        text = _COMPLETION_TEXTS.get(reply[0])
        reason = "" if text is None else f": {text}"
        refusal = f"the BMC refuses with completion code {reply[0]:02X}{reason} (request {request})"
        raise ForeignBmc(refusal) if reply[0] in UNKNOWN_COMMAND else BmcError(refusal)
    return reply[1:]

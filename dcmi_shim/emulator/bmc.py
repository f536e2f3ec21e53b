"""Changes the emulated BMC from Python: ``Emulator(...).bmc``."""

from __future__ import annotations

import ctypes
import errno
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from contract.codes.bmc_device_types import parse_device_type
from contract.codes.levels import Severity
from contract.errors import ConfigurationError, EmulatorError, Problem
from dcmi_shim.emulator.codes import parse_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Where: TypeAlias = Literal["reply", "ioctl", "open"]
"""Where commands hang: the BMC sends no reply, or the kernel does not return from a call."""

_HANGS: tuple[str, ...] = get_args(Where)
MAX_EVENTS_PER_REPLY = 60
_MAX_ALARMS = 1024
_MAX_REPLIES = 32
_REPLY_BYTES = 1024
TEXT_BYTES = 63
_MAX_DELAY_MS = 3_600_000
_UNCHANGED = -1
_COMPLETION_CODE = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{2})")
_REQUEST = re.compile(r"(90|94)@(\*|\d{1,5})")


class _AlarmStruct(ctypes.Structure):
    """``struct alarm`` of ``bmc.h``."""

    _fields_ = (
        ("code", ctypes.c_uint32),
        ("raised_s", ctypes.c_uint32),
        ("severity", ctypes.c_uint8),
        ("subject_type", ctypes.c_uint8),
        ("index", ctypes.c_uint8),
        ("spare", ctypes.c_uint8),
    )


class _ReplyStruct(ctypes.Structure):
    """``struct played_reply`` of ``bmc.h``."""

    _fields_ = (
        ("key", ctypes.c_int32),
        ("length", ctypes.c_uint16),
        ("command", ctypes.c_uint8),
        ("spare", ctypes.c_uint8),
        ("bytes", ctypes.c_uint8 * _REPLY_BYTES),
    )


@dataclass(frozen=True)
class BmcAlarm:
    """An active alarm. ``device`` is a device type by name or byte (``bmc_device_types``).

    ``raised_at_seconds`` is the BMC's own time (Unix epoch), now unless given.
    """

    code: str
    device: str
    index: int = 0
    severity: Severity = Severity.MAJOR
    raised_at_seconds: int | None = None


class EmulatedBmc:
    """The BMC of an emulated server.

    Wrong values raise ``ConfigurationError``; what is not possible now raises ``EmulatorError``.
    """

    def __init__(self, ask: Callable[..., int], check: Callable[[int], None]) -> None:
        self._ask = ask
        self._check = check

    def alarms(self, alarms: Iterable[BmcAlarm]) -> None:
        """Replace the list of active alarms, in the BMC's order; may name one twice."""
        listed = [_alarm(alarm) for alarm in alarms]
        self._call("alarms", (_AlarmStruct * len(listed))(*listed), len(listed))

    def occur(self, alarm: BmcAlarm) -> None:
        """Add an alarm at the end of the list; a listed one gets the new severity and time."""
        self._call("occur", ctypes.byref(_alarm(alarm)))

    def recover(self, code: str, device: str, index: int = 0) -> None:
        """End an alarm."""
        result = self._ask("bmc_recover", ctypes.byref(_alarm(BmcAlarm(code, device, index))))
        if result == errno.ESRCH:
            raise EmulatorError(f"the BMC has no alarm {code} on {device} {index}")
        self._check(result)

    def clear(self) -> None:
        """End all alarms."""
        self.alarms(())

    def present(self, is_present: bool) -> None:
        """Set whether there is a BMC: without one neither the device nor the tool works."""
        self._set(absent=not is_present)

    def hang(self, where: str = "reply") -> None:
        """Let commands get no answer.

        ``where`` is the call in which they hang, until ``ok``.
        """
        if where not in _HANGS:
            raise _wrong("where", f"{where!r} is none of {', '.join(_HANGS)}")
        self._set(hang=1 + _HANGS.index(where))

    def slow(self, delay_ms: int) -> None:
        """Let every command take longer.

        ``delay_ms`` is added to each.
        """
        self._set(delay_ms=_between("delay_ms", delay_ms, 1, _MAX_DELAY_MS))

    def fail(self, completion_code: int) -> None:
        """Answer every command with this completion code."""
        self._set(completion_code=_between("completion_code", completion_code, 1, 255))

    def page(self, alarms: int) -> None:
        """Hand the list out in pages of N alarms (10 at first)."""
        limit = MAX_EVENTS_PER_REPLY
        self._set(events_per_reply=_between("events_per_reply", alarms, 1, limit))

    def label(self, serial: str | None = None, manufacturer: str | None = None) -> None:
        """Change what the BMC reports about the server."""
        for name, text in (("serial", serial), ("manufacturer", manufacturer)):
            if text is not None and not (text.isascii() and len(text) <= TEXT_BYTES):
                raise _wrong(name, f"{text!r} is not ASCII text of at most {TEXT_BYTES} bytes")
        texts = (None if text is None else text.encode() for text in (serial, manufacturer))
        self._call("label", *texts)

    def replies(self, replies: Sequence[tuple[str, bytes]]) -> None:
        """Set replies that are sent as they are, first match first; none removes them.

        Each has the request it is for, and all bytes beginning with the completion code. Requests
        are ``94@N`` (alarms from index N on), ``94@*`` (alarms), ``90@4`` (serial number), ``90@0``
        (manufacturer).
        """
        structs = [_reply(request, reply) for request, reply in replies]
        if len(structs) > _MAX_REPLIES:
            raise _wrong("replies", f"{len(structs)} are too many; at most {_MAX_REPLIES}")
        self._call("replies", (_ReplyStruct * len(structs))(*structs), len(structs))

    def ok(self) -> None:
        """Let the BMC work again; its alarms stay.

        It ends absence, hangs, delays, failures and set replies. The page size stays as well.
        """
        self.replies(())
        self._set(absent=0, hang=0, delay_ms=0, completion_code=0)

    def _set(
        self,
        absent: int = _UNCHANGED,
        hang: int = _UNCHANGED,
        delay_ms: int = _UNCHANGED,
        completion_code: int = _UNCHANGED,
        events_per_reply: int = _UNCHANGED,
    ) -> None:
        self._call("set", absent, hang, delay_ms, completion_code, events_per_reply)

    def _call(self, verb: str, *values: object) -> None:
        result = self._ask(f"bmc_{verb}", *values)
        if result == errno.ENOSPC:
            raise EmulatorError(f"the BMC lists as many alarms as it can ({_MAX_ALARMS})")
        self._check(result)


def signatures(handle: type) -> dict[str, list[type]]:
    """Return the argument types of the control library's functions for the BMC."""
    integer, unsigned, text = ctypes.c_int, ctypes.c_uint, ctypes.c_char_p
    alarms, replies = ctypes.POINTER(_AlarmStruct), ctypes.POINTER(_ReplyStruct)
    return {
        "bmc_alarms": [handle, alarms, unsigned],
        "bmc_occur": [handle, alarms],
        "bmc_recover": [handle, alarms],
        "bmc_set": [handle, integer, integer, integer, integer, integer],
        "bmc_label": [handle, text, text],
        "bmc_replies": [handle, replies, unsigned],
    }


def parse_request(text: str) -> tuple[int, int]:
    """Return command and key of a request like ``94@10`` or ``94@*`` (-1).

    Raises ``ValueError``.
    """
    match = _REQUEST.fullmatch(text)
    if match is None or (match[2] != "*" and int(match[2]) > 0xFFFF):
        raise ValueError(
            f"{text!r} is not a valid request; write 94@N or 94@* for alarms, 90@4 for the serial "
            "number, 90@0 for the manufacturer"
        )
    return int(match[1], 16), -1 if match[2] == "*" else int(match[2])


def parse_reply(text: str) -> bytes:
    """Return the bytes of a reply like ``00 DB 07 00 01 00``. Raises ``ValueError``."""
    try:
        reply = bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a valid reply; write its bytes in hexadecimal") from None
    if len(reply) > _REPLY_BYTES:
        raise ValueError(f"a reply has at most {_REPLY_BYTES} bytes, not {len(reply)}")
    return reply


def parse_completion_code(text: str) -> int:
    """Return the completion code in ``text``, as ``C1``. Raises ``ValueError``."""
    match = _COMPLETION_CODE.fullmatch(text)
    if match is None or int(match[1], 16) == 0:
        raise ValueError(f"{text!r} is not a valid completion code of a failure; write one as C1")
    return int(match[1], 16)


def _alarm(alarm: BmcAlarm) -> _AlarmStruct:
    try:
        code = parse_code(alarm.code)
    except ValueError as error:
        raise _wrong("code", str(error)) from None
    try:
        subject_type = parse_device_type(alarm.device)
    except ValueError as error:
        raise _wrong("device", str(error)) from None
    index = _between("index", alarm.index, 0, 255)
    raised = int(time.time()) if alarm.raised_at_seconds is None else alarm.raised_at_seconds
    _between("raised_at_seconds", raised, 0, 0xFFFFFFFF)
    return _AlarmStruct(code, raised, alarm.severity, subject_type, index)


def _reply(request: str, reply: bytes) -> _ReplyStruct:
    try:
        command, key = parse_request(request)
        parse_reply(reply.hex())
    except ValueError as error:
        raise _wrong("reply", str(error)) from None
    content = (ctypes.c_uint8 * _REPLY_BYTES).from_buffer_copy(reply.ljust(_REPLY_BYTES, b"\0"))
    return _ReplyStruct(key, len(reply), command, 0, content)


def _between(where: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise _wrong(where, f"{value} is not between {least} and {most}")
    return value


def _wrong(where: str, text: str) -> ConfigurationError:
    return ConfigurationError("emulator", [Problem(where, text)])

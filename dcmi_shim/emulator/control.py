"""Changes the emulated hardware from Python. A change takes a few microseconds."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from contract.codes.chip_codes import format_code
from contract.codes.levels import Severity
from contract.codes.switch_codes import format_switch_code
from contract.errors import ConfigurationError, EmulatorError, Problem
from dcmi_shim.emulator.bmc import EmulatedBmc
from dcmi_shim.emulator.bmc import signatures as bmc_signatures
from dcmi_shim.emulator.codes import parse_code, severity_of
from dcmi_shim.emulator.functions import EmulatedCall, find_function, tools
from dcmi_shim.emulator.tools import TROUBLES, ToolTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault

CONTROL_LIBRARY = "libvigil_emulator_ctl.so"
PROFILES = ("a2", "a3", "910a", "310p", "310", "duo", "a5")
_STATUS_BYTES = 1 << 20
_RECOVERED, _HEALTH_ONLY, _EVERY_CALL = 0, 1, 2
_EVERY_CHIP = -1
_NO_ADDRESS = 0xFFFFFFFF
_UNCHANGED = -1
_RECOVERY, _OCCURRENCE, _NOTICE = 0, 1, 2
_NO_SUB_TYPE = 0xFFFFFFFF


class Emulator:
    """One emulated server. ``chip`` is a physical id, ``code`` like ``80E01801``.

    Wrong values raise ``ConfigurationError``; what is not possible now raises ``EmulatorError``.
    """

    def __init__(self, emulator_dir: Path) -> None:
        self._directory = emulator_dir
        self._library = _load(emulator_dir)
        self._handle = ctypes.c_void_p()
        result = self._library.vigil_emulator_open(
            os.fsencode(emulator_dir), ctypes.byref(self._handle)
        )
        if result != 0:
            raise EmulatorError(f"emulator directory {emulator_dir}: {os.strerror(result)}")
        self.bmc = EmulatedBmc(self._ask, lambda result: self._check(result, None))

    def close(self) -> None:
        """Close the state file; the hardware stays as it is."""
        if self._handle:
            self._library.vigil_emulator_close(self._handle)
            self._handle = ctypes.c_void_p()

    def start(self, profile: str = "a2") -> None:
        """Become a healthy server of ``profile``; creates the state file, or repairs it."""
        check_profile(profile)
        self._call("start", profile.encode())

    def reset(self) -> None:
        """Make everything healthy and normal again.

        Silently, without recovery events; hooks go as well.
        """
        self._call("reset")

    def status(self) -> dict[str, object]:
        """Return the present state, as ``vigil emulator status --json`` prints it."""
        buffer = ctypes.create_string_buffer(_STATUS_BYTES)
        self._call("status", buffer, _STATUS_BYTES)
        status: dict[str, object] = json.loads(buffer.value)
        return status

    def occur(self, chip: int, code: str, severity: Severity | None = None) -> None:
        """Raise a fault on a chip.

        The event comes now, and the list of the chip has it 50 ms later. A fault that is active
        already is announced again. Without ``severity`` it is the driver's.
        """
        number = _number(code)
        self._change("occur", chip, number, severity_of(number) if severity is None else severity)

    def recover(self, chip: int, code: str) -> None:
        """End a fault of a chip.

        The event comes now, and the list of the chip lacks it 300 ms later.
        """
        number = _number(code)
        try:
            self._change("recover", chip, number)
        except _NoSuchFault:
            raise EmulatorError(
                f"chip {chip} has no fault {format_code(number)} to recover from"
            ) from None

    def once(self, chip: int, code: str, severity: Severity | None = None) -> None:
        """Send a one-off event, after which no recovery follows.

        It never enters the list.
        """
        number = _number(code)
        self._change("once", chip, number, severity_of(number) if severity is None else severity)

    def switch_occur(self, fault: EmulatedSwitchFault, severity: Severity | None = None) -> None:
        """Raise a fault of an on-board switch: event now, in the list 50 ms later.

        One that is active already is announced again. Without ``severity`` it is major.
        """
        self._switch(_OCCURRENCE, fault, severity)

    def switch_recover(self, fault: EmulatedSwitchFault) -> None:
        """End a fault of an on-board switch: event now, out of the list 300 ms later."""
        try:
            self._switch(_RECOVERY, fault, None)
        except _NoSuchFault:
            code = format_switch_code(fault.code)
            raise EmulatorError(f"{fault} has no fault {code} to recover from") from None

    def switch_once(self, fault: EmulatedSwitchFault, severity: Severity | None = None) -> None:
        """Send a notice of an on-board switch; it never enters the list."""
        self._switch(_NOTICE, fault, severity)

    def _switch(
        self, assertion: int, fault: EmulatedSwitchFault, severity: Severity | None
    ) -> None:
        code = fault.code
        result = self._ask(
            "switch",
            assertion,
            code.event_type,
            _NO_SUB_TYPE if code.sub_type is None else code.sub_type,
            code.peer,
            fault.peer_port,
            fault.chip,
            fault.port,
            Severity.MAJOR if severity is None else severity,
        )
        if result == errno.EDOM:
            raise _wrong("profile", "this server has no on-board switches; an a3 has")
        if result == errno.ENOSPC:
            raise EmulatorError("the switches have as many faults as the emulator can keep (512)")
        self._check(result, None)

    def drop(self, chip: int, hard: bool = False) -> None:
        """Take a card away: its health call answers -8012.

        With ``hard`` every call of the chip does.
        """
        self._change("drop", chip, _EVERY_CALL if hard else _HEALTH_ONLY)

    def return_card(self, chip: int) -> None:
        """Bring a dropped card back."""
        self._change("drop", chip, _RECOVERED)

    def replace(self, chip: int) -> None:
        """Put another card without faults in the place of the one with ``chip``; no event."""
        self._change("replace", chip)

    def hang(self, function: str, chip: int | None = None) -> None:
        """Let calls of a function not return until it is cleared.

        ``reset`` and ``start`` clear it, too.
        """
        self._hook(function, chip, hang=1)

    def slow(self, function: str, delay_ms: int, chip: int | None = None) -> None:
        """Let calls of a function take longer.

        Each takes ``delay_ms`` more.
        """
        if not 0 < delay_ms <= _MAX_DELAY_MS:
            raise _wrong("delay_ms", f"{delay_ms} is not between 1 and {_MAX_DELAY_MS}")
        self._hook(function, chip, slow_ms=delay_ms)

    def fail(self, function: str, return_code: int, chip: int | None = None) -> None:
        """Let calls of a function answer a return code.

        A ``return_code`` is negative.
        """
        if not -(2**31) <= return_code < 0:
            raise _wrong("return_code", f"{return_code} is not a negative 32-bit number")
        self._hook(function, chip, fail=return_code)

    def clear(self, function: str, chip: int | None = None) -> None:
        """Let a function be normal again, on one chip or everywhere."""
        call = _function(function, chip)
        self._change("clear", _EVERY_CHIP if chip is None else chip, before=(call.number,))

    def link(self, chip: int, *, up: bool, quietly: bool = False, ports: int = 1) -> None:
        """Take a link down with its fault 81078603, or up with the fault's recovery.

        ``quietly``: no event shows it. A link that is so already keeps its counters. ``ports`` are
        down, 2 only on an ``a5``, whose fault is 81078607.
        """
        if ports not in (1, 2):
            raise _wrong("ports", f"{ports} is not 1 or 2")
        result = self._ask("link", chip, 0 if up else ports, 1 if quietly else 0)
        if result == errno.ERANGE:
            raise _wrong("ports", "only a chip of an a5 has two Ethernet ports")
        self._check(result, chip)

    def tool(
        self,
        tool: str,
        trouble: str,
        chip: int | None = None,
        *,
        delay_ms: int | None = None,
        exit_status: int | None = None,
        text: str = "",
    ) -> None:
        """Let runs of a command line tool fail, on ``chip`` or on any subject.

        ``trouble`` is one of ``tools.TROUBLES``: ``slow`` takes ``delay_ms``, ``fail`` an
        ``exit_status`` and the ``text`` that goes to standard error. ``ok`` ends all troubles.
        """
        problems = ToolTrouble(tool, trouble, chip, delay_ms, exit_status, text).problems()
        if problems:
            raise ConfigurationError("emulator", problems)
        on = _EVERY_CHIP if chip is None else chip
        value = delay_ms or exit_status or 0
        order = (tools()[tool].number, on, TROUBLES.index(trouble), value, text.encode("ascii"))
        self._check(self._ask("tool", *order), chip)

    def load(
        self,
        chip: int,
        *,
        aicore: int | None = None,
        hbm: int | None = None,
        traffic: bool | None = None,
        processes: Sequence[int] | None = None,
    ) -> None:
        """Set the activity of a chip: utilisation in percent, whether packets flow, its processes.

        ``None`` leaves that part as it is. ``processes`` are ids of the host, at most 32.
        """
        listed = (ctypes.c_int * len(processes or ()))(*(processes or ()))
        values = (_UNCHANGED if value is None else value for value in (aicore, hbm))
        still = _UNCHANGED if traffic is None else int(not traffic)
        count = _UNCHANGED if processes is None else len(processes)
        self._load("load", chip, *values, still, count, listed)

    def address(self, chip: int, address: str | None) -> None:
        """Set the IPv4 address of a chip's network port, or remove it."""
        try:
            word = _NO_ADDRESS if address is None else int(IPv4Address(address))
        except ValueError as error:
            raise _wrong("address", str(error)) from None
        self._load("address", chip, word)

    def virtual(self, chip: int, count: int) -> None:
        """Cut a chip into virtual devices.

        There are at most 32; 0 makes it whole again.
        """
        self._load("virtual", chip, count)

    def _load(self, verb: str, chip: int, *values: Any) -> None:
        if not 0 <= chip <= _MAX_ID:
            raise _wrong("chip", f"{chip} is not a chip; ids are 0 to {_MAX_ID}")
        result = self._ask(verb, chip, *values)
        if result == errno.ERANGE:
            raise _wrong(
                verb, "more than a driver can report: 100 percent, 32 processes or devices"
            )
        self._check(result, chip)

    def lose_next_event(self) -> None:
        """Drop the next event; the list changes all the same."""
        self._call("lose", 1, 0)

    def lose_everything_next(self) -> None:
        """Drop the next change completely: neither an event nor a change of the list."""
        self._call("lose", 0, 1)

    def _hook(
        self,
        function: str,
        chip: int | None,
        hang: int = _UNCHANGED,
        slow_ms: int = _UNCHANGED,
        fail: int = 0,
    ) -> None:
        call = _function(function, chip)
        on = _EVERY_CHIP if chip is None else chip
        self._change("hook", on, hang, slow_ms, fail, before=(call.number,))

    def _change(self, verb: str, chip: int, *values: int, before: tuple[int, ...] = ()) -> None:
        if not _EVERY_CHIP <= chip <= _MAX_ID:
            raise _wrong("chip", f"{chip} is not a chip; ids are 0 to {_MAX_ID}")
        self._check(self._ask(verb, *before, chip, *values), chip)

    def _call(self, verb: str, *values: Any) -> None:
        self._check(self._ask(verb, *values), None)

    def _ask(self, verb: str, *values: Any) -> int:
        if not self._handle:
            raise EmulatorError(f"the emulator in {self._directory} was closed")
        result: int = getattr(self._library, f"vigil_emulator_{verb}")(self._handle, *values)
        return result

    def _check(self, result: int, chip: int | None) -> None:
        if result == 0:
            return
        if result == errno.EDOM:
            raise _wrong("chip", f"{chip} is not a chip of this server; see vigil emulator status")
        if result == errno.ENOSPC and chip is not None:
            raise EmulatorError(f"chip {chip} has as many faults as a driver lists (128)")
        if result == errno.ESRCH:
            raise _NoSuchFault
        if result in (errno.ENOENT, errno.EINVAL):
            raise EmulatorError(
                f"{self._directory} holds no sound state; run vigil emulator start to make one"
            )
        raise EmulatorError(f"emulator directory {self._directory}: {os.strerror(result)}")


_MAX_DELAY_MS = 3_600_000
_MAX_ID = 255


class _NoSuchFault(Exception):
    """The code is not active on the chip."""


def _load(emulator_dir: Path) -> ctypes.CDLL:
    path = emulator_dir / CONTROL_LIBRARY
    try:
        library = ctypes.CDLL(os.fspath(path.absolute()))
    except OSError as error:
        raise EmulatorError(
            f"no emulator is installed in {emulator_dir} ({error}); run vigil emulator install"
        ) from error
    integer, handle = ctypes.c_int, ctypes.c_void_p
    number, unsigned, short = ctypes.c_uint32, ctypes.c_uint, ctypes.c_uint16
    signatures: dict[str, list[Any]] = {
        "open": [ctypes.c_char_p, ctypes.POINTER(handle)],
        "start": [handle, ctypes.c_char_p],
        "reset": [handle],
        "occur": [handle, integer, number, number],
        "recover": [handle, integer, number],
        "once": [handle, integer, number, number],
        "drop": [handle, integer, number],
        "replace": [handle, integer],
        "hook": [handle, unsigned, integer, integer, integer, integer],
        "clear": [handle, unsigned, integer],
        "switch": [handle, unsigned, number, number, short, short, short, short, number],
        "link": [handle, integer, integer, integer],
        "tool": [handle, unsigned, integer, unsigned, number, ctypes.c_char_p],
        "load": [handle, *[integer] * 5, ctypes.POINTER(integer)],
        "virtual": [handle, integer, unsigned],
        "address": [handle, integer, unsigned],
        "lose": [handle, number, number],
        "status": [handle, ctypes.c_char_p, ctypes.c_size_t],
        **bmc_signatures(handle),
    }
    for name, arguments in signatures.items():
        function = getattr(library, f"vigil_emulator_{name}")
        function.argtypes = arguments
        function.restype = integer
    library.vigil_emulator_close.argtypes = [handle]
    library.vigil_emulator_close.restype = None
    return library


def check_profile(profile: str) -> None:
    """Raise ``ConfigurationError`` when there is no such profile."""
    if profile not in PROFILES:
        raise _wrong("profile", f"{profile!r} is unknown; there are {', '.join(PROFILES)}")


def _wrong(where: str, text: str) -> ConfigurationError:
    return ConfigurationError("emulator", [Problem(where, text)])


def _number(code: str) -> int:
    try:
        return parse_code(code)
    except ValueError as error:
        raise _wrong("code", str(error)) from None


def _function(name: str, chip: int | None) -> EmulatedCall:
    call = find_function(name)
    if call is None:
        raise _wrong("function", f"{name!r} is not a function of the driver")
    if chip is not None and not call.is_about_a_chip:
        raise _wrong("chip", f"{call.name} is not about a chip; leave the chip out")
    if chip is not None and chip < 0:
        raise _wrong("chip", f"{chip} is not a chip of this server; see vigil emulator status")
    return call

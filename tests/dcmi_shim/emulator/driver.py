"""A small binding of ``libdcmi.so`` for tests, independent of the shim."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from ctypes import byref, c_int, c_uint, c_ulonglong
from typing import TYPE_CHECKING

from tests.parts import deadlines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Filter(ctypes.Structure):
    _fields_ = (
        ("flag", c_ulonglong),
        ("event_id", c_uint),
        ("severity", ctypes.c_ubyte),
        ("node_type", ctypes.c_ubyte),
        ("reserve", ctypes.c_ubyte * 32),
    )


class FaultEvent(ctypes.Structure):
    _fields_ = (
        ("code", c_uint),
        ("deviceid", ctypes.c_ushort),
        ("node_type", ctypes.c_ubyte),
        ("node_id", ctypes.c_ubyte),
        ("sub_node_type", ctypes.c_ubyte),
        ("sub_node_id", ctypes.c_ubyte),
        ("severity", ctypes.c_ubyte),
        ("assertion", ctypes.c_ubyte),
        ("serial", c_int),
        ("notify_serial", c_int),
        ("raised", c_ulonglong),
        ("name", ctypes.c_char * 256),
        ("information", ctypes.c_char * 32),
        ("reserve", ctypes.c_ubyte * 32),
    )


class Event(ctypes.Structure):
    _fields_ = (("type", c_int), ("fault", FaultEvent))


Handler = ctypes.CFUNCTYPE(None, ctypes.POINTER(Event))


class Driver:
    """Answers are return codes, or values where a call has only one way to succeed."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(os.fspath(library))

    def init(self) -> int:
        return int(self.library.dcmi_init())

    def health(self, card: int, device: int = 0) -> int:
        """Return the health word, or the negative return code."""
        word = c_uint(99)
        code = int(self.library.dcmi_get_device_health(card, device, byref(word)))
        return code if code != 0 else word.value

    def network_health(self, card: int, device: int = 0) -> tuple[int, int]:
        """Return the return code, and the word, which is valid if the code is 0."""
        found = ctypes.c_int()
        code = self.library.dcmi_get_device_network_health(card, device, ctypes.byref(found))
        return int(code), found.value

    def codes(self, card: int, device: int = 0) -> list[str]:
        """Return the error list, and check that the unused part is zero."""
        count = c_int(-1)
        listed = (c_uint * 128)(*[0xAAAAAAAA] * 128)
        code = self.library.dcmi_get_device_errorcode_v2(card, device, byref(count), listed, 128)
        assert code == 0
        assert not any(listed[count.value :])
        return [f"{number:08X}" for number in listed[: count.value]]

    def fault_event(self, timeout_ms: int, card: int = -1, device: int = -1) -> FaultEvent | int:
        """Return the next event, or the return code."""
        event = Event()
        function = self.library.dcmi_get_fault_event
        code = int(function(card, device, timeout_ms, Filter(), byref(event)))
        return code if code != 0 else event.fault


def wait_until(holds: Callable[[], bool], timeout_s: float = 3) -> float:
    """Wait until ``holds``; return the duration (s). Fails when it takes too long."""
    begin = time.monotonic()
    deadlines.wait_until(holds, seconds=timeout_s, step_seconds=0.001)
    return time.monotonic() - begin


class Call(threading.Thread):
    """A call in a thread; ctypes lets others run meanwhile."""

    def __init__(self, call: Callable[[], int]) -> None:
        super().__init__()
        self._call = call
        self.answer: int | None = None
        self.start()

    def run(self) -> None:
        self.answer = self._call()


class Hbm(ctypes.Structure):
    """``dcmi_hbm_info``."""

    _fields_ = (
        ("size", c_ulonglong),
        ("mhz", c_uint),
        ("used", c_ulonglong),
        ("temperature", c_int),
        ("percent", c_uint),
    )

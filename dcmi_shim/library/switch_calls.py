"""``liblingqu-dcmi.so`` as a driver child uses it: its ABI and calls (``docs/spec/dcmi.md#6``).

Runs in the driver child: ctypes only.
"""

from __future__ import annotations

from ctypes import (
    Structure,
    c_char,
    c_ubyte,
    c_uint,
    c_uint16,
    c_uint64,
    c_void_p,
)

from dcmi_shim.library.abi import FaultHandler, check_sizes
from dcmi_shim.library.binding import known_severity, output, raised_at_ms, text, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dcmi_shim.library.binding import Answer, Library

LIST_LENGTH = 128
"""How many faults the library is asked for; one that has more truncates the list."""

# More than is asked for: a library that writes too much must not reach other memory.
_ROOM = 4 * LIST_LENGTH
_NO_SUB_TYPE = 0xFFFFFFFF


class LqDcmiEvent(Structure):
    _fields_ = (
        ("event_type", c_uint),
        ("sub_type", c_uint),
        ("peerport_device", c_uint16),
        ("peerport_id", c_uint16),
        ("switch_chipid", c_uint16),
        ("switch_portid", c_uint16),
        ("severity", c_ubyte),
        ("assertion", c_ubyte),
        ("res", c_char * 6),
        ("event_serial_num", c_uint),
        ("notify_serial_num", c_uint),
        ("alarm_raised_time", c_uint64),
        ("additional_param", c_ubyte * 40),
        ("additional_info", c_ubyte * 32),
    )


class LqDcmiEventFilter(Structure):
    """``lq_dcmi_event_filter``, passed by value; all zero lets everything through."""

    _fields_ = (
        ("filter_flag", c_uint),
        ("event_type_id", c_uint),
        ("event_id", c_uint),
        ("severity", c_ubyte),
        ("chip_id", c_uint),
    )


check_sizes({LqDcmiEvent: 112, LqDcmiEventFilter: 20})

SIGNATURES = {
    "lq_dcmi_init": (),
    "lq_dcmi_subscribe_fault_event": (LqDcmiEventFilter, FaultHandler),
    "lq_dcmi_get_fault_info": (c_uint, c_void_p, c_void_p),
}
SUBSCRIBE = "lq_dcmi_subscribe_fault_event"


def subscribe(library: Library, handler: object) -> int:
    """Call ``handler`` for every event of every switch; return the library's return code."""
    return library.call(SUBSCRIBE, LqDcmiEventFilter(), handler)


def copy_event(address: int) -> dict[str, object]:
    """Return the event at ``address``, as ``DriverSwitchEvent`` has it."""
    return _members(LqDcmiEvent.from_address(address))


def _members(event: LqDcmiEvent) -> dict[str, object]:
    return {
        "of": "switch",
        "event_type": event.event_type,
        "sub_type": None if event.sub_type == _NO_SUB_TYPE else event.sub_type,
        "peer_device": event.peerport_device,
        "peer_port": event.peerport_id,
        "chip": event.switch_chipid,
        "port": event.switch_portid,
        "severity": known_severity(event.severity),
        "assertion": event.assertion,
        "serial": event.event_serial_num,
        "driver_raised_at_ms": raised_at_ms(event.alarm_raised_time),
        "information": text(bytes(event.additional_info)),
        # The child sets it for an event; what a list shows has no such time.
        "seen_at_ms": 0,
    }


def init(library: Library) -> Answer:
    """Call ``lq_dcmi_init``, once in a process."""
    return library.call("lq_dcmi_init"), None


def faults(library: Library) -> Answer:
    """Return the faults that hold now, at most ``LIST_LENGTH``."""
    count, count_at = output(c_uint)
    listed, listed_at = output(LqDcmiEvent * _ROOM)
    answer = library.call("lq_dcmi_get_fault_info", LIST_LENGTH, count_at, listed_at)
    if answer:
        return answer, None
    length = within("the number of switch faults", count.value, 0, LIST_LENGTH)
    return answer, [_members(event) for event in listed[:length]]


CALLS: dict[str, Callable[..., Answer]] = {
    "lq_dcmi_init": init,
    "lq_dcmi_get_fault_info": faults,
}

"""The list of active alarms of a BMC: its requests, and which replies count as an answer. Pure.

Get Event Record of the vendor's BMCs (``dcmi#8.3``, ``noded#4.1``) sends the list in pages, and the
list may change between two of them. ``reading`` yields requests, is sent the replies, and returns a
list only if it is complete and consistent. Replies are without their completion code, which the
transport has checked.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from contract.codes.bmc_device_types import device_type
from contract.codes.chip_codes import format_code
from contract.codes.levels import Severity
from contract.errors import BmcError, ForeignBmc
from contract.plural import plural
from dcmi_shim.ipmi.request import Request

if TYPE_CHECKING:
    from collections.abc import Collection

    from dcmi_shim.ipmi.request import Exchange

MAX_PASSES = 5
"""How often a list that changes while it is read is read again before that is an error."""

# Huawei's enterprise number 2011, little-endian (noded#4.1).
_MANUFACTURER = bytes.fromhex("db0700")
# A bitmap: minor, major and critical (dcmi#8.3).
_SEVERITIES = 0x0E
_EVERY_SUBJECT = 0xFF
_HEADER = struct.Struct("<3sHBx")
_EVENT = struct.Struct("<IIBBB4x")
_SHOWN_BYTES = 24


class Alarm(msgspec.Struct, frozen=True):
    """One active alarm, as the BMC lists it.

    ``code`` has 8 upper-case hexadecimal digits, ``device`` is a name of ``bmc_device_types``.
    ``raised_at_seconds`` is the BMC's own clock (Unix epoch), right or wrong. ``severity`` is
    ``None`` for a value that has no name.
    """

    code: str
    device: str
    index: int
    severity: Severity | None
    raised_at_seconds: int

    @property
    def identity(self) -> tuple[str, str, int]:
        """The fields that identify an alarm."""
        return self.code, self.device, self.index


class AlarmPage(msgspec.Struct, frozen=True):
    """One reply: how many alarms there are, and some of them."""

    total: int
    alarms: tuple[Alarm, ...]


Reading: TypeAlias = "Exchange[tuple[Alarm, ...]]"


def request_from(index: int) -> Request:
    """Return the request for alarms from ``index`` on: all that are minor or worse, of every
    part.
    """
    # Sub-command 0x40, and 0 for the alarms that are active now (dcmi#8.3).
    data = struct.pack("<3s2BH2B", _MANUFACTURER, 0x40, 0, index, _SEVERITIES, _EVERY_SUBJECT)
    return Request(0x30, 0x94, data)


def reading(before: Collection[Alarm] | None) -> Reading:
    """Read the whole list; return alarms in the BMC's order, each once (the first counts).

    A list of several pages counts only when two passes agree, or it is the one ``before``: when one
    alarm ends and another begins, the others move between pages and the total stays. Raises
    ``BmcError`` that names the page and what is wrong; nothing of the list counts then.
    """
    previous = None if before is None else _identities(before)
    reason = ""
    for _ in range(MAX_PASSES):
        first = yield request_from(0)
        page = parse_page(first, 0)
        alarms = list(page.alarms)
        last = page
        while len(alarms) < page.total and last.total == page.total:
            if not last.alarms:
                raise _wrong(len(alarms), f"it is empty, but the total is {page.total}")
            index = len(alarms)
            last = parse_page((yield request_from(index)), index)
            alarms += last.alarms
        # The list changed while it was read; what is on which page is not known any more.
        if last.total != page.total:
            reason = f"the total went from {page.total} to {last.total}"
            previous = None
            continue
        if len(alarms) > page.total:
            raise _wrong(0, f"the total is {page.total}, but {len(alarms)} came")
        identities = _identities(alarms)
        # One page is one reply of the BMC, so it is consistent in itself.
        if last is page or identities == previous:
            once: dict[tuple[str, str, int], Alarm] = {}
            for alarm in alarms:
                once.setdefault(alarm.identity, alarm)
            return tuple(once.values())
        previous = identities
        reason = "no two passes agree"
    raise BmcError(f"the list of alarms changes while it is read, {MAX_PASSES} times now: {reason}")


def parse_page(reply: bytes, index: int) -> AlarmPage:
    """Return the page in ``reply``, which was asked for from ``index`` on.

    Raises ``BmcError``, which is ``ForeignBmc`` for an empty reply and one of another manufacturer.
    Zeros behind all the alarms that it counts are not alarms.
    """
    if len(reply) < _HEADER.size:
        text = f"it has {plural(len(reply), 'byte')}, not even {_HEADER.size}"
        short = _wrong(index, text, reply)
        raise short if reply else ForeignBmc(str(short))
    manufacturer, total, count = _HEADER.unpack_from(reply)
    if manufacturer != _MANUFACTURER:
        text = f"it begins with {manufacturer.hex(' ')} instead of {_MANUFACTURER.hex(' ')}"
        raise ForeignBmc(str(_wrong(index, f"{text}: shifted, or of another maker", reply)))
    events = reply[_HEADER.size :]
    size = count * _EVENT.size
    if len(events) > size and not any(events[size:]):
        events = events[:size]  # some BMCs fill their replies up
    if len(events) % _EVENT.size:
        text = f"its alarms take {len(events)} bytes, no multiple of {_EVENT.size}"
        raise _wrong(index, text, reply)
    alarms = tuple(map(_alarm, _EVENT.iter_unpack(events)))
    if count != len(alarms):
        raise _wrong(index, f"its count of alarms is {count}, but it holds {len(alarms)}", reply)
    return AlarmPage(total, alarms)


def _alarm(fields: tuple[int, int, int, int, int]) -> Alarm:
    code, raised_at_seconds, severity, subject_type, index = fields
    return Alarm(
        code=format_code(code),
        device=device_type(subject_type),
        index=index,
        severity=Severity(severity) if severity <= max(Severity) else None,
        raised_at_seconds=raised_at_seconds,
    )


def _identities(alarms: Collection[Alarm]) -> frozenset[tuple[str, str, int]]:
    return frozenset(alarm.identity for alarm in alarms)


def _wrong(index: int, text: str, reply: bytes | None = None) -> BmcError:
    shown = ""
    if reply is not None:
        more = " ..." if len(reply) > _SHOWN_BYTES else ""
        shown = f" ({reply[:_SHOWN_BYTES].hex(' ') or 'no byte'}{more})"
    return BmcError(f"the BMC's reply with the alarms from index {index} on is bad: {text}{shown}")

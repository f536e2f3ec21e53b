"""Programs that keep the clock, as evidence beside the kernel's own: which one answers, and what.

chronyd is asked for its tracking (command protocol 6, port 323), ntpd as any NTP client would ask
(RFC 5905, port 123); both accept that from this host alone. Others, such as systemd-timesyncd and
ptp4l, answer no such question and are only listed as running.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collectors.process_files import process_files

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOPBACK = "127.0.0.1"
_CHRONY_PORT = 323
_NTP_PORT = 123
_MAX_ANSWER_BYTES = 1024
_UNSYNCHRONISED = 3
"""The leap indicator of a clock that is not synchronised."""

_CHRONY = struct.Struct(">BBHHHIII")
"""Version, type, two reserved bytes; command, attempt; sequence; two words of padding."""
_TRACKING = 33
_REQUEST, _REPLY, _REPLY_TRACKING = 1, 2, 5
_CHRONY_VERSION = 6
_CHRONY_BYTES = 104
"""A request is as long as its reply, so that no program can be flooded with its help."""
_CHRONY_REPLY = struct.Struct(">BBxxHHH")
# Behind the head of the reply, the reference id and the address.
_STRATUM_AT = 28 + 4 + 20
# Version 4, mode 3 (client); all other fields may be 0 in a request.
_NTP_CLIENT = bytes([0x23]) + bytes(47)
_NTP_SERVER_MODE = 4

KEEPERS = frozenset(
    ("chronyd", "ntpd", "ntpsec", "ntp-daemon", "systemd-timesyn", "ptp4l", "phc2sys", "timemaster")
)
"""Names of such programs as the kernel shows them, at most 15 characters."""


class ClockAnswer(NamedTuple):
    """The answer of ``program``: whether it is synchronised, and its stratum."""

    program: str
    is_synchronised: bool
    stratum: int

    def __str__(self) -> str:
        if not self.is_synchronised:
            return f"{self.program} answers that it is not synchronised"
        return f"{self.program} answers that it is synchronised (stratum {self.stratum})"


def clock_answers(
    seconds: float, chrony_port: int = _CHRONY_PORT, ntp_port: int = _NTP_PORT
) -> list[ClockAnswer]:
    """Return what the programs of this host answer, each within ``seconds``. Blocking."""
    sequence = int.from_bytes(os.urandom(4), "big")
    head = _CHRONY.pack(_CHRONY_VERSION, _REQUEST, 0, _TRACKING, 0, sequence, 0, 0)
    queries: tuple[tuple[int, bytes, Callable[[bytes], ClockAnswer | None]], ...] = (
        (chrony_port, head.ljust(_CHRONY_BYTES, b"\0"), chrony_answer),
        (ntp_port, _NTP_CLIENT, ntp_answer),
    )
    answers = (answer(_ask(port, request, seconds)) for port, request, answer in queries)
    return [answer for answer in answers if answer is not None]


def running_keepers(proc: Path = Path("/proc")) -> list[str]:
    """Return the names of programs that keep the clock and run on this host. Blocking."""
    names = {text.decode(errors="replace").strip() for _, text in process_files("comm", proc)}
    return sorted(names & KEEPERS)


def chrony_answer(reply: bytes) -> ClockAnswer | None:
    """Return the answer in a reply of chronyd; ``None`` where it is not one."""
    if len(reply) < _CHRONY_BYTES:
        return None
    version, kind, command, reply_kind, status = _CHRONY_REPLY.unpack_from(reply)
    expected = (_CHRONY_VERSION, _REPLY, _TRACKING, _REPLY_TRACKING, 0)
    if (version, kind, command, reply_kind, status) != expected:
        return None
    stratum, leap = struct.unpack_from(">HH", reply, _STRATUM_AT)
    return ClockAnswer("chronyd", leap != _UNSYNCHRONISED, stratum)


def ntp_answer(reply: bytes) -> ClockAnswer | None:
    """Return the answer in a reply of an NTP server; ``None`` where it is not one."""
    if len(reply) < len(_NTP_CLIENT) or reply[0] & 7 != _NTP_SERVER_MODE:
        return None
    stratum = reply[1]
    return ClockAnswer(
        "the NTP server of this host",
        # Stratum 0 is unspecified or invalid, 16 is unsynchronised (RFC 5905).
        reply[0] >> 6 != _UNSYNCHRONISED and 0 < stratum < 16,
        stratum,
    )


def _ask(port: int, request: bytes, seconds: float) -> bytes:
    """Return the answer from ``port`` of this host, empty where there is none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(seconds)
            # With a peer, the kernel reports a closed port at once, and answers of others do not
            # arrive.
            connection.connect((_LOOPBACK, port))
            connection.send(request)
            return connection.recv(_MAX_ANSWER_BYTES)
    except OSError:
        return b""

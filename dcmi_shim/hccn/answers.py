"""What ``hccn_tool`` prints on 910, 910B and A3 (``docs/spec/dcmi.md#7.2`` to 7.4). Pure.

Parsers take the whole standard output of a run that ended with status 0, and the chip that was
asked about. They forgive spacing, unknown and missing lines and either device prefix. An answer
that is empty, names another chip or does not hold what was asked for is ``ToolNonsense``, which
quotes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from contract.errors import ToolNonsense

_DEVICE = re.compile(r"\s*\[dev(?:id|ice)[ \t]+(\d{1,9})\][ \t]*", re.ASCII)
_LINK = re.compile(r"link status\s*:\s*(\w+)\s*", re.ASCII | re.IGNORECASE)
_SPEED = re.compile(r"speed\s*:\s*(?:(\d{1,12})\s*Mb/s|(Unknown!?))\s*", re.ASCII | re.IGNORECASE)
_COUNT = re.compile(r"link (up|down) count\s*:\s*(\d{1,18})\s*", re.ASCII | re.IGNORECASE)
_RECORD = re.compile(
    r"(?:\d+\s+)?(\w{3}\s+\w{3}\s+\d{1,2}\s+\d{1,2}:\d{2}:\d{2}\s+\d{4})\s+LINK (UP|DOWN)\s*",
    re.ASCII,
)
_COUNTER = re.compile(r"(\w+)\s*:\s*(\d{1,20})\s*", re.ASCII)
_RATE = re.compile(r"bandwidth ([TR])X\s*:\s*(\d{1,12}(?:\.\d{1,9})?)\s*MB/s.*", re.ASCII | re.I)
_HEALTH = re.compile(r"net health status\s*:\s*(\w+(?: \w+){0,2})\s*", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,9})?)(?:\s+\S+)?", re.ASCII)

NET_HEALTH: Mapping[str, int] = {
    "success": 0,
    "socket fail": 1,
    "socket failed": 1,
    "receive timeout": 2,
    "unreachable": 3,
    "time exceeded": 4,
    "fault": 5,
    "init": 6,
    "thread error": 7,
    "detect ip set": 8,
}
"""Words of the tool to the driver's numbers (``docs/spec/dcmi.md#4.3``)."""

LOOPBACKS = frozenset(
    {
        "no loopback mode",
        "host side input loopback mode",
        "media side output loopback mode",
        "host side output loopback mode",
        "media side input loopback mode",
    }
)


class LinkRecord(msgspec.Struct, frozen=True):
    """A change of the link; ``time`` is as printed, in the zone of the host."""

    time: str
    up: bool


class LinkHistory(msgspec.Struct, frozen=True):
    """How often the link came up and went down, and its last changes, newest first.

    ``downs`` is ``None`` where an older tool does not count them.
    """

    ups: int
    downs: int | None
    records: tuple[LinkRecord, ...]


class Optical(msgspec.Struct, frozen=True):
    """The optical module: values as printed, blanks in names replaced by ``_``."""

    values: Mapping[str, str]

    @property
    def present(self) -> bool | None:
        """Whether there is a module; ``None`` when the tool does not show it."""
        word = self.values.get("present")
        return None if word is None else word == "present"

    def number(self, name: str) -> float | None:
        """The number before the unit; ``None`` when missing, ``NA`` or ``not supported``."""
        return number(self.values.get(name, ""))


class Bandwidth(msgspec.Struct, frozen=True):
    """What flows now, in MB/s."""

    tx: float
    rx: float


class Neighbour(msgspec.Struct, frozen=True):
    """The other end of the cable, as far as it is announced (LLDP)."""

    port: str | None
    switch: str | None


def number(text: str) -> float | None:
    """The number in ``47 C`` or ``1.4035 mW``; ``None`` for any other text."""
    found = _NUMBER.fullmatch(text.strip())
    return None if found is None else float(found[1])


def lines_of(text: str, chip: int) -> list[str]:
    """The lines without their device prefix, which must be that of ``chip``."""
    lines = []
    for line in text.splitlines():
        prefix = _DEVICE.match(line)
        if prefix is not None and int(prefix[1]) != chip:
            what = f"hccn_tool answered for chip {int(prefix[1])} when chip {chip} was asked for"
            raise ToolNonsense(what, text)
        lines.append(line if prefix is None else line[prefix.end() :])
    return lines


def nonsense(asked: str, chip: int, text: str) -> ToolNonsense:
    """The error for an answer in which ``asked`` was not found."""
    return ToolNonsense(f"hccn_tool gave no {asked} of chip {chip}", text)


def _only(pattern: re.Pattern[str], asked: str, text: str, chip: int) -> re.Match[str]:
    """The one line that is what was asked for; two that agree are one."""
    matches = [found for line in lines_of(text, chip) if (found := pattern.fullmatch(line.strip()))]
    if len({found.groups() for found in matches}) != 1:
        raise nonsense(asked, chip, text)
    return matches[0]


def parse_link(text: str, chip: int) -> bool:
    """``-link -g``: whether the link is up. Any word but UP and DOWN is nonsense."""
    word = _only(_LINK, "link status", text, chip)[1]
    if word not in ("UP", "DOWN"):
        raise nonsense("link status", chip, text)
    return word == "UP"


def parse_speed(text: str, chip: int) -> int | None:
    """``-speed -g``: Mb/s, or ``None`` for ``Unknown!``."""
    speed = _only(_SPEED, "speed", text, chip)[1]
    return None if speed is None else int(speed)


def parse_link_history(text: str, chip: int) -> LinkHistory:
    """``-link_stat -g`` of all families: counters and records."""
    counts: dict[str, int] = {}
    records = []
    for line in lines_of(text, chip):
        if count := _COUNT.fullmatch(line.strip()):
            counts[count[1].lower()] = int(count[2])
        elif record := _RECORD.fullmatch(line.strip()):
            records.append(LinkRecord(" ".join(record[1].split()), record[2] == "UP"))
    if "up" not in counts:
        raise nonsense("link up count", chip, text)
    return LinkHistory(counts["up"], counts.get("down"), tuple(records))


def parse_counters(text: str, chip: int) -> Mapping[str, int]:
    """``-stat -g`` of all families: packet counters by the tool's names."""
    found = (_COUNTER.fullmatch(line.strip()) for line in lines_of(text, chip))
    counters = {match[1]: int(match[2]) for match in found if match is not None}
    if not counters:
        raise nonsense("packet statistics", chip, text)
    return counters


def _pairs(text: str, chip: int) -> dict[str, str]:
    parted = (line.partition(":") for line in lines_of(text, chip))
    return {
        "_".join(key.split()): value.strip()
        for key, colon, value in parted
        if colon and key.strip() and value.strip()
    }


def parse_optical(text: str, chip: int) -> Optical:
    """``-optical -g``: the module's values; at least one must be one that every tool prints."""
    values = _pairs(text, chip)
    if not values.keys() & {"present", "temperature", "Vcc", "Tx_Power0", "Tx_Power"}:
        raise nonsense("optical info", chip, text)
    return Optical(values)


def parse_loopback(text: str, chip: int) -> str | None:
    """``-optical -g dfx_cfg``: the loop-back mode in the tool's words, ``None`` for ``NA``."""
    mode = _pairs(text, chip).get("loopback_status")
    if mode is None or (mode not in LOOPBACKS and mode != "NA"):
        raise nonsense("loopback status", chip, text)
    return None if mode == "NA" else mode


def parse_signal(text: str, chip: int) -> Mapping[str, float | None]:
    """``-scdr -t 5``: signal to noise in dB by lane (``Cdr_Host_SNR_Lane0``)."""
    by_lane = {
        name: number(value) for name, value in _pairs(text, chip).items() if "_SNR_Lane" in name
    }
    if not by_lane:
        raise nonsense("signal quality", chip, text)
    return by_lane


def parse_bandwidth(text: str, chip: int) -> Bandwidth:
    """``-bandwidth -g``: MB/s in both directions."""
    found = (_RATE.fullmatch(line.strip()) for line in lines_of(text, chip))
    rates = {match[1].upper(): float(match[2]) for match in found if match is not None}
    if rates.keys() != {"T", "R"}:
        raise nonsense("bandwidth", chip, text)
    return Bandwidth(rates["T"], rates["R"])


def parse_net_health(text: str, chip: int) -> int:
    """``-net_health -g``: the driver's number; 0 and 6 are healthy."""
    words = _only(_HEALTH, "net health", text, chip)[1].lower()
    if words not in NET_HEALTH:
        raise nonsense("net health", chip, text)
    return NET_HEALTH[words]


def parse_neighbour(text: str, chip: int) -> Neighbour:
    """``-lldp -g``: the switch and its port."""
    lines = [line.strip() for line in lines_of(text, chip)]
    if not any(line.endswith(" TLV") for line in lines):
        raise nonsense("LLDP information", chip, text)
    after = dict(pairwise(lines))
    port = after.get("Port ID TLV", "")
    port = port.removeprefix("Ifname:").strip() if port.startswith("Ifname:") else ""
    switch = after.get("System Name TLV", "")
    return Neighbour(port or None, switch or None)

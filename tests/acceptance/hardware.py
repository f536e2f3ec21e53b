"""The hardware behind the libraries and tools in ``driver``, by the files that they read."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SOURCES = Path(__file__).parent / "driver"
_A3_BOARD = 0xB1
_C_FILES = {"libdcmi": "dcmi", "liblingqu-dcmi": "lingqu"}
_FOR_EVER = 10**15
HEALTH = "dcmi_get_device_health"
CODES = "dcmi_get_device_errorcode_v2"


def compile_library(directory: Path, *without: str, name: str = "libdcmi") -> Path:
    """Compile a library; each of ``without`` is a macro that leaves symbols out."""
    library = directory / "-".join((name, *without))
    source = _SOURCES / f"{_C_FILES[name]}.c"
    subprocess.run(
        [
            *("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
            *("-Wl,-z,nodelete", f"-Wl,-soname,{name}.so"),
            *(f"-D{macro}" for macro in without),
            *(str(source), "-o", str(library), "-lpthread"),
        ],
        check=True,
    )
    return library


@dataclass(frozen=True)
class Chip:
    """Ids of a chip."""

    card: int
    device: int
    logic: int
    physical: int


GAPPED = tuple(
    Chip(card, device, logic, physical)
    for logic, (card, device, physical) in enumerate(
        [(2, 0, 4), (2, 1, 5), (5, 0, 10), (5, 1, 11), (9, 0, 18), (9, 1, 19), (12, 0, 1)]
    )
)
"""Three boards of two chips and one of one; gaps between cards; no two kinds of id agree."""


@dataclass(frozen=True)
class SwitchFault:
    """A fault of an on-board switch, in the library's numbers."""

    event_type: int
    sub_type: int
    peer: int
    peer_port: int
    switch: int
    port: int
    severity: int = 2


class Hardware:
    """One node's chips and the driver in ``root``. ``chip`` is a physical id throughout.

    The tools are there from the start, and every link is up; ``tools`` is for ``PATH``.
    """

    def __init__(self, root: Path, library: Path, chips: tuple[Chip, ...] = GAPPED) -> None:
        self.root = root
        self.chips = {chip.physical: chip for chip in chips}
        self.library = root / "lib64" / "driver" / "libdcmi.so"
        self.library.parent.mkdir(parents=True)
        shutil.copy(library, self.library)
        self.control = root / "control"
        self.control.mkdir()
        self.list_chips(chips)
        self.write("events", "")
        self.write("alarms", "")
        self.write("switch-faults", "")
        self.write("switch-events", "")
        self.tools = root / "bin"
        self.hccn_tool = root / "tools" / "hccn_tool"
        _copy_program(_SOURCES / "hccn_tool.sh", self.hccn_tool)
        _copy_program(_SOURCES / "ipmitool.sh", self.tools / "ipmitool")
        self._switch_faults: dict[SwitchFault, int] = {}
        self._alarms: dict[tuple[str, int, int], str] = {}
        self._codes: dict[int, dict[str, tuple[int, int]]] = {one.physical: {} for one in chips}
        self._raised: dict[tuple[int, str], tuple[int, int]] = {}
        self._serial = 100
        self.lag_ms = 50
        self.recovery_lag_ms = 300
        self.event_name = b"deviceid=0, event state=\xff\xfe\x80 not UTF-8 \xc3"

    def write(self, name: str, text: str) -> None:
        """Replace a control file at once."""
        draft = self.control / f".{name}"
        draft.write_text(text)
        draft.replace(self.control / name)

    def list_chips(self, chips: Iterable[Chip]) -> None:
        """Set the chips that the driver lists; they may have other ids than before."""
        lines = (f"{one.card} {one.device} {one.logic} {one.physical}\n" for one in chips)
        self.write("chips", "".join(lines))

    def name_die(self, chip: int, number: int) -> None:
        """Give the chip with this physical id the die ``number``."""
        self.write(f"die.{chip}", f"{number:x} 1 2 3 4\n")

    def event(
        self,
        logic: int,
        code: str,
        assertion: int,
        severity: int = 2,
        serial: int = 0,
        raised: int = 0,
    ) -> None:
        """Deliver one event, whatever the lists have."""
        line = f"{logic} {code} {severity} {assertion} {serial} {raised} ".encode()
        with (self.control / "events").open("ab") as file:
            file.write(line + self.event_name + b"\n")

    def list_code(self, chip: int, code: str, after_ms: int = 0) -> None:
        """Put ``code`` on the list of ``chip``, without an event."""
        self._codes[chip][code] = (_now_ms() + after_ms, _FOR_EVER)
        self._save(chip)

    def unlist_code(self, chip: int, code: str, after_ms: int = 0) -> None:
        """Take ``code`` from the list of ``chip``, without an event."""
        begin, _ = self._codes[chip][code]
        self._codes[chip][code] = (begin, _now_ms() + after_ms)
        self._save(chip)

    def occur(self, chip: int, code: str, severity: int = 2, raised: int | None = None) -> None:
        """Begin a fault: the event comes at once, the list entry after ``lag_ms``."""
        self._serial += 1
        self._raised[chip, code] = (self._serial, _now_ms() if raised is None else raised)
        self.list_code(chip, code, self.lag_ms)
        self._report(chip, code, 1, severity)

    def recover(self, chip: int, code: str, severity: int = 2) -> None:
        """End a fault: the event comes at once with the time of the occurrence, the list later."""
        self.unlist_code(chip, code, self.recovery_lag_ms)
        self._report(chip, code, 0, severity)

    def once(self, chip: int, code: str, severity: int = 2) -> None:
        """Send an event that has no recovery and no list entry."""
        self._serial += 1
        self.event(self.chips[chip].logic, code, 2, severity, self._serial, _now_ms())

    def link(self, chip: int, state: str) -> None:
        """Set what the link tool reports of a chip, without an event: UP or DOWN."""
        self.write(f"link.{chip}", f"{state}\n")

    def tool(self, chip: int, command: str | None) -> None:
        """Let the link tool run ``command`` for a chip first; ``None`` takes it back."""
        self._order(f"tool.{chip}", command)

    def become_a3(self, lingqu: Path) -> None:
        """Make the server an A3 with on-board switches and their library."""
        self.write("board", f"{_A3_BOARD}\n")
        shutil.copy(lingqu, self.library.with_name("liblingqu-dcmi.so"))

    def switch_occur(self, fault: SwitchFault) -> None:
        """Begin a switch fault in the list, and send its event."""
        self._switch_faults[fault] = _now_ms()
        self._switch(fault, 1)

    def switch_recover(self, fault: SwitchFault) -> None:
        """End a switch fault, also one that never occurred, and send its event."""
        raised = self._switch_faults.pop(fault, 0)
        self._switch(fault, 0, raised)

    def switch_once(self, fault: SwitchFault) -> None:
        """Send the event of a switch notice, which has no list entry."""
        self._switch(fault, 2, _now_ms())

    def alarm(self, code: str, part: int, index: int, severity: int = 2) -> None:
        """Raise an alarm of the BMC about a part of the server, which its type byte identifies."""
        number = int(code, 16).to_bytes(4, "little") + bytes(4)
        event = number + bytes([severity, part, index]) + bytes(4)
        self._alarms[code, part, index] = event.hex(" ")
        self._save_alarms()

    def end_alarm(self, code: str, part: int, index: int) -> None:
        """End an alarm of the BMC."""
        del self._alarms[code, part, index]
        self._save_alarms()

    def bmc(self, command: str | None) -> None:
        """Let ``ipmitool`` run ``command`` first; ``None`` takes it back."""
        self._order("bmc", command)

    def command(self, what: str, function: str, chip: int | None = None, value: int = 1) -> None:
        """Make a driver function answer, wrong, slow, hang or crash, as ``what`` names it.

        Name a card function by its file.
        """
        self.write(self._file(what, function, chip), str(value))

    def forget(self, what: str, function: str, chip: int | None = None) -> None:
        """Take back what was set."""
        with suppress(FileNotFoundError):
            (self.control / self._file(what, function, chip)).unlink()

    def raised(self, chip: int, code: str) -> int:
        """Return the time of the last occurrence of a code (ms)."""
        return self._raised[chip, code][1]

    def was_raised(self, chip: int, code: str) -> bool:
        """Return whether any event of its occurrence was sent."""
        return (chip, code) in self._raised

    @staticmethod
    def now_ms() -> int:
        """Return the time of the driver's clock (ms)."""
        return _now_ms()

    @property
    def was_entered_twice(self) -> bool:
        """Return whether two calls ran at the same time in one process."""
        return (self.control / "concurrent").exists()

    def _order(self, name: str, command: str | None) -> None:
        if command is None:
            (self.control / name).unlink(missing_ok=True)
        else:
            self.write(name, f"{command}\n")

    def _switch(self, fault: SwitchFault, assertion: int, raised: int = 0) -> None:
        lines = [f"{_numbers(one)} {at}\n" for one, at in self._switch_faults.items()]
        self.write("switch-faults", "".join(lines))
        at = self._switch_faults.get(fault, raised)
        with (self.control / "switch-events").open("a") as file:
            file.write(f"{assertion} {_numbers(fault)} {at}\n")

    def _save_alarms(self) -> None:
        self.write("alarms", "".join(f"{line}\n" for line in self._alarms.values()))

    def _file(self, what: str, function: str, chip: int | None) -> str:
        return f"{what}.{function}" + ("" if chip is None else f".{self.chips[chip].logic}")

    def _report(self, chip: int, code: str, assertion: int, severity: int) -> None:
        serial, raised = self._raised[chip, code]
        self.event(self.chips[chip].logic, code, assertion, severity, serial, raised)

    def _save(self, chip: int) -> None:
        lines = (f"{code} {begin} {end}\n" for code, (begin, end) in self._codes[chip].items())
        self.write(f"codes.{chip}", "".join(lines))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _numbers(fault: SwitchFault) -> str:
    ends = f"{fault.peer} {fault.peer_port} {fault.switch} {fault.port} {fault.severity}"
    return f"{fault.event_type:08x} {fault.sub_type} {ends}"


def _copy_program(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(0o755)

"""The hardware behind ``driver/dcmi.c``, by the files that it reads."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).parent / "driver" / "dcmi.c"
_FOR_EVER = 10**15
HEALTH = "dcmi_get_device_health"
CODES = "dcmi_get_device_errorcode_v2"


def compile_library(directory: Path, *without: str) -> Path:
    """Compile the library; each of ``without`` is a macro that leaves symbols out."""
    library = directory / "-".join(("libdcmi", *without))
    subprocess.run(
        [
            *("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
            *("-Wl,-z,nodelete", "-Wl,-soname,libdcmi.so"),
            *(f"-D{macro}" for macro in without),
            *(str(_SOURCE), "-o", str(library), "-lpthread"),
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


class Hardware:
    """One node's chips and the driver in ``root``. ``chip`` is a physical id throughout."""

    def __init__(self, root: Path, library: Path, chips: tuple[Chip, ...] = GAPPED) -> None:
        self.root = root
        self.chips = {chip.physical: chip for chip in chips}
        self.library = root / "lib64" / "driver" / "libdcmi.so"
        self.library.parent.mkdir(parents=True)
        shutil.copy(library, self.library)
        self.control = root / "control"
        self.control.mkdir()
        lines = (f"{one.card} {one.device} {one.logic} {one.physical}\n" for one in chips)
        self.write("chips", "".join(lines))
        self.write("events", "")
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

    def event(
        self,
        logic: int,
        code: str,
        assertion: int,
        severity: int = 2,
        serial: int = 0,
        raised: int = 0,
    ) -> None:
        """Deliver one event, whatever the lists say."""
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
        """The event at once, the list a little later."""
        self._serial += 1
        self._raised[chip, code] = (self._serial, _now_ms() if raised is None else raised)
        self.list_code(chip, code, self.lag_ms)
        self._tell(chip, code, 1, severity)

    def recover(self, chip: int, code: str, severity: int = 2) -> None:
        """The event at once, with the time of the occurrence; the list later."""
        self.unlist_code(chip, code, self.recovery_lag_ms)
        self._tell(chip, code, 0, severity)

    def once(self, chip: int, code: str, severity: int = 2) -> None:
        """An event without a recovery and without a list entry."""
        self._serial += 1
        self.event(self.chips[chip].logic, code, 2, severity, self._serial, _now_ms())

    def tell(self, what: str, function: str, chip: int | None = None, value: int = 1) -> None:
        """``what`` is answer, wrong, slow, hang or crash; for a card function name it by file."""
        self.write(self._file(what, function, chip), str(value))

    def forget(self, what: str, function: str, chip: int | None = None) -> None:
        """Take back what was told."""
        with suppress(FileNotFoundError):
            (self.control / self._file(what, function, chip)).unlink()

    def raised(self, chip: int, code: str) -> int:
        """The time that the last occurrence carried."""
        return self._raised[chip, code][1]

    @property
    def was_entered_twice(self) -> bool:
        """Whether two calls were made at a time in one process."""
        return (self.control / "concurrent").exists()

    def _file(self, what: str, function: str, chip: int | None) -> str:
        return f"{what}.{function}" + ("" if chip is None else f".{self.chips[chip].logic}")

    def _tell(self, chip: int, code: str, assertion: int, severity: int) -> None:
        serial, raised = self._raised[chip, code]
        self.event(self.chips[chip].logic, code, assertion, severity, serial, raised)

    def _save(self, chip: int) -> None:
        lines = (f"{code} {begin} {end}\n" for code, (begin, end) in self._codes[chip].items())
        self.write(f"codes.{chip}", "".join(lines))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

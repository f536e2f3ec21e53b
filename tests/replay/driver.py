"""A driver in memory that follows the steps of a recording."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from contract.codes.chip_codes import LINK_DOWN, RESET_FINISHED
from contract.codes.levels import Severity
from contract.errors import DriverCallError, DriverCallStuck
from dcmi_shim.library.return_codes import NOT_READY, meaning
from dcmi_shim.values import (
    Chip,
    DriverEvent,
    DriverGap,
    Inventory,
    NodeFacts,
    StuckCall,
    SuperPod,
)
from dcmi_shim.worker.supervisor import DriverSettings
from tests.collectors.scripted import ask_each

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from contract.errors import DriverError
    from dcmi_shim.values import Utilization

LISTED_AFTER_SECONDS = 0.05
UNLISTED_AFTER_SECONDS = 0.3
"""How much later than its events the driver's list changed in the recordings."""

CODES = "dcmi_get_device_errorcode_v2"
HEALTH = "dcmi_get_device_health"
NETWORK_HEALTH = "dcmi_get_device_network_health"
ADDRESS = "dcmi_get_device_ip"
_EVERY = "_all"
_RECOVER, _OCCUR, _ONCE = 0, 1, 2

_SUPER_POD = SuperPod(
    sdid=0, size=384, super_pod_id=0, server_index=0, chassis_id=0, super_pod_type=0
)


def _server(
    family: str, name: str, version: str, chips: int, per_card: int = 1, pod: SuperPod | None = None
) -> Inventory:
    return Inventory(
        chips=tuple(Chip(n, n, n // per_card, n % per_card) for n in range(chips)),
        family=family,
        chip_name=name,
        board_id=None,
        driver_version=version,
        super_pod=pod,
        library="recording",
    )


PROFILES = {
    "a2": _server("Ascend910B", "910B3", "24.1.rc3", 8),
    "a3": _server("Ascend910A3", "Ascend910", "25.5.0", 16, 2, _SUPER_POD),
    "910": _server("Ascend910", "910", "24.1.rc3", 8),
    "310p": _server("Ascend310P", "310P3", "24.1.rc3", 8),
    "310": _server("Ascend310", "310", "24.1.rc3", 8),
}
_WITHOUT_EVENTS = ("310p", "310")

_OF_8 = NodeFacts(20, 65_536, None, ("",), dict.fromkeys(range(8), 0))
_OF_A3 = NodeFacts(24, 65_536, None, ("",), {n: (n // 2 << 2 | n % 2) << 16 | n for n in range(16)})


class RecordedDriver:
    """A ``Driver`` whose hardware is the recording.

    Calls that hang are treated as the real one treats them: a missed deadline is followed by a new
    child, hence a gap, and the call is left out until a probe of every ``probe_seconds`` ends.
    """

    polling_reason: str | None = None
    trouble: str | None = None

    def __init__(self, profile: str, wall_clock: Callable[[], int]) -> None:
        self._inventory = PROFILES[profile]
        self._facts = _OF_A3 if profile == "a3" else _OF_8
        if profile in _WITHOUT_EVENTS:
            self.polling_reason = "this family has none"
        self._wall_clock = wall_clock
        self._settings = DriverSettings()
        self._events: asyncio.Queue[DriverEvent | DriverGap] = asyncio.Queue()
        self._lists: dict[int, list[str]] = {chip.logic_id: [] for chip in self._inventory.chips}
        self._serials: dict[tuple[int, str], int] = {}
        self._last_serial = 0
        self._answers: dict[tuple[int, str], int] = {}
        self._hanging: set[tuple[int, str]] = set()
        self._left_out: dict[tuple[int, str], StuckCall] = {}
        self._busy = asyncio.Lock()
        self._addresses = {n: f"192.168.100.{10 + n}" for n in self._lists}

    async def run(self) -> NoReturn:
        """Probe what is left out."""
        while True:
            await asyncio.sleep(self._settings.probe_seconds)
            for call in self._left_out.keys() - self._hanging:
                del self._left_out[call]

    def subscribe(self) -> None:
        """Subscribe another process: it receives what happens from now on."""
        self._events = asyncio.Queue()
        self._left_out = {}

    def close(self) -> None:
        """Do nothing, as there are no processes to kill."""

    async def inventory(self) -> Inventory:
        return self._inventory

    @property
    def found(self) -> Inventory:
        return self._inventory

    @property
    def library(self) -> str:
        return self._inventory.library

    async def listed(self) -> tuple[Chip, ...]:
        return self._inventory.chips

    def wait_for_library(self) -> None:
        """Return at once, because the recorded library is present from the start."""

    def list_again(self, is_missing: bool) -> None:
        """Change nothing, because a recording has all chips."""

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        await self._call(CODES, chip)
        return tuple(int(code, 16) for code in self._lists[chip.logic_id])

    async def code_lists(self, chips: Sequence[Chip]) -> dict[Chip, tuple[int, ...] | DriverError]:
        return await ask_each(chips, self.error_codes)

    async def health_words(self, chips: Sequence[Chip]) -> dict[Chip, int | DriverError | None]:
        return await ask_each(chips, self.health)

    async def health(self, chip: Chip) -> int | None:
        await self._call(HEALTH, chip)
        return 0

    async def is_in_place(self) -> bool:
        return True

    async def network_health(self, chip: Chip) -> int:
        await self._call(NETWORK_HEALTH, chip)
        return 0

    async def facts(self) -> tuple[NodeFacts, tuple[str, ...]]:
        return self._facts, ()

    async def address(self, chip: Chip) -> str:
        await self._call(ADDRESS, chip)
        address = self._addresses[chip.logic_id]
        if not address:
            raise DriverCallError(ADDRESS, str(chip), NOT_READY, meaning(NOT_READY))
        return address

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        return ()

    async def process_lists(
        self, chips: Sequence[Chip]
    ) -> dict[Chip, tuple[int, ...] | DriverError]:
        return await ask_each(chips, self.processes)

    async def utilization(self, chip: Chip, kind: Utilization) -> int:
        return 0

    async def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        while True:
            yield await self._events.get()

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        return tuple(self._left_out.values())

    async def _call(self, function: str, chip: Chip) -> None:
        """Let one call after the other end as in the recording."""
        call = chip.logic_id, function
        if call in self._left_out:
            raise DriverCallStuck(function, str(chip), self._left_out[call].since_ms)
        async with self._busy:
            if call in self._hanging:
                await asyncio.sleep(self._settings.call_seconds)
                now_ms = self._wall_clock()
                self._left_out[call] = StuckCall(function, chip, now_ms)
                self._events.put_nowait(DriverGap(now_ms, f"{function} hangs"))
                raise DriverCallStuck(function, str(chip), now_ms)
        for shown in (function, _EVERY):
            code = self._answers.get((chip.logic_id, shown), 0)
            if code:
                raise DriverCallError(function, str(chip), code, meaning(code))

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of the recording now."""
        chip = step["chip"]
        match step["do"]:
            case "occur":
                self._occur(chip, step["code"], _severity(step["severity"]))
            case "recover":
                self._send(chip, step["code"], None, _RECOVER)
                self._later(UNLISTED_AFTER_SECONDS, self._unlist, chip, step["code"])
            case "occur-without-event":
                self._lists[chip].append(step["code"])
            case "recover-without-event":
                self._unlist(chip, step["code"])
            case "once":
                self._numbered(chip, step["code"])
                self._send(chip, step["code"], Severity(step["severity"]), _ONCE)
            case "set-codes":
                self._lists[chip] = list(step["codes"])
            case "reset-chip":
                self._lists[chip] = list(step["codes_after"])
                self._numbered(chip, RESET_FINISHED)
                self._send(chip, RESET_FINISHED, Severity.MINOR, _ONCE)
            case "event-only":
                self._send(chip, step["code"], _severity(step["severity"]), step["assertion"])
            case "burst":
                for _ in range(step["count"]):
                    self._numbered(chip, step["code"])
                    severity = _severity(step["severity"])
                    self._send(chip, step["code"], severity, step["assertion"])
            case "link":
                self._numbered(chip, LINK_DOWN)
                down = step["state"] == "DOWN"
                self._send(chip, LINK_DOWN, Severity.MINOR, _OCCUR if down else _RECOVER)
            case "drop":
                self._answers[chip, _EVERY if step.get("hard") else HEALTH] = NOT_READY
            case "return":
                self._answers.pop((chip, _EVERY), None)
                self._answers.pop((chip, HEALTH), None)
            case "driver-error":
                self._answers[chip, step["function"]] = step["rc"]
            case "driver-hang":
                call = chip, step["function"]
                (self._hanging.add if step["on"] else self._hanging.discard)(call)
            case "set":
                assert step["field"] == "ip", step
                self._addresses[chip], _, _ = step["value"].partition(" ")
            case other:
                raise AssertionError(f"the recorded driver cannot {other}")

    def _occur(self, chip: int, code: str, severity: Severity | None) -> None:
        self._numbered(chip, code)
        self._send(chip, code, severity, _OCCUR)
        self._later(LISTED_AFTER_SECONDS, self._list, chip, code)

    def _later(self, seconds: float, do: Callable[[int, str], None], chip: int, code: str) -> None:
        asyncio.get_running_loop().call_later(seconds, do, chip, code)

    def _list(self, chip: int, code: str) -> None:
        if code not in self._lists[chip]:
            self._lists[chip].append(code)

    def _unlist(self, chip: int, code: str) -> None:
        if code in self._lists[chip]:
            self._lists[chip].remove(code)

    def _numbered(self, chip: int, code: str) -> None:
        self._last_serial += 1
        self._serials[chip, code] = self._last_serial

    def _send(self, chip: int, code: str, severity: Severity | None, assertion: int) -> None:
        if self.polling_reason is not None:
            return
        now_ms = self._wall_clock()
        self._events.put_nowait(
            DriverEvent(
                code=int(code, 16),
                logic_id=chip,
                severity=severity,
                assertion=assertion,
                seen_at_ms=now_ms,
                driver_raised_at_ms=now_ms,
                serial=self._serials.get((chip, code), 0),
                node_type=0,
                node_id=0,
                sub_node_type=0,
                sub_node_id=0,
                name="",
                information="",
            )
        )


def _severity(value: int) -> Severity | None:
    """Return the severity as the shim does: ``None`` for a number that is no severity."""
    return Severity(value) if value <= Severity.CRITICAL else None

"""A driver in memory that does what the steps of a recording say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from contract.codes import CARD_DROP, LINK_DOWN
from contract.errors import DriverCallError
from contract.levels import Severity
from contract.observation import Assertion, Observation
from contract.switch_info import SwitchPort, port_subject
from dcmi_shim.types import Chip, DriverEvent, Inventory, SuperPod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dcmi_shim.enums import Utilization
    from dcmi_shim.types import DriverGap, StuckCall

LISTED_AFTER_SECONDS = 0.05
UNLISTED_AFTER_SECONDS = 0.3
"""How much later than its events the driver's list changed in the recordings."""

_SUPER_POD = SuperPod(
    sdid=0, size=384, super_pod_id=0, server_index=0, chassis_id=0, super_pod_type=0
)
PROFILES = {
    "a2": Inventory(
        chips=tuple(Chip(n, n, n, 0) for n in range(8)),
        family="Ascend910B",
        chip_name="910B3",
        board_id=None,
        driver_version="24.1.rc3",
        super_pod=None,
        library="recording",
    ),
    "a3": Inventory(
        chips=tuple(Chip(n, n, n // 2, n % 2) for n in range(16)),
        family="Ascend910A3",
        chip_name="Ascend910",
        board_id=None,
        driver_version="25.5.0",
        super_pod=_SUPER_POD,
        library="recording",
    ),
}


def switch_report(step: dict[str, Any], now_ms: int) -> Observation:
    """What the switch collector reports of a recorded event of a switch, in the moment of it."""
    kind = "na" if step["sub_type"] == -1 else step["sub_type"]
    peer = _PEERS.get(step["peer_device"], "na")
    port = SwitchPort(
        step["switch_chip"], step["switch_port"], step["peer_device"], step["peer_port"]
    )
    return Observation(
        "switch",
        port_subject(port),
        f"[{step['event_type']},{kind},{peer},na]",
        _ASSERTIONS[step["assertion"]],
        now_ms,
        Severity(step["severity"]),
        now_ms,
    )


_PEERS = {0: "cpu", 1: "npu", 2: "L2"}
_ASSERTIONS = {0: Assertion.RECOVER, 1: Assertion.OCCUR, 2: Assertion.ONCE}


class RecordedDriver:
    """A ``ChipDriver`` whose hardware is the recording."""

    polling_reason: str | None = None

    def __init__(self, profile: str, wall_clock: Callable[[], int]) -> None:
        self._inventory = PROFILES[profile]
        self._wall_clock = wall_clock
        self._events: asyncio.Queue[DriverEvent] = asyncio.Queue()
        self._lists: dict[int, list[str]] = {chip.logic_id: [] for chip in self._inventory.chips}
        self._serials: dict[tuple[int, str], int] = {}
        self._last_serial = 0

    async def inventory(self) -> Inventory:
        return self._inventory

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        return tuple(int(code, 16) for code in self._lists[chip.logic_id])

    async def health(self, chip: Chip) -> int | None:
        if CARD_DROP in self._lists[chip.logic_id]:
            raise DriverCallError("dcmi_get_device_health", str(chip), -8012, "not ready")
        return 0

    async def network_health(self, chip: Chip) -> int:
        return 0

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        return ()

    async def utilization(self, chip: Chip, kind: Utilization) -> int:
        return 0

    async def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        while True:
            yield await self._events.get()

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        return ()

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of the recording now."""
        match step["do"]:
            case "occur":
                self._occur(step["chip"], step["code"], Severity(step["severity"]))
            case "recover":
                self._recover(step["chip"], step["code"])
            case "set-codes":
                self._lists[step["chip"]] = list(step["codes"])
            case "event-only":
                severity = Severity(step["severity"])
                self._send(step["chip"], step["code"], severity, step["assertion"])
            case "link":
                self._last_serial += 1
                self._serials[step["chip"], LINK_DOWN] = self._last_serial
                down = step["state"] == "DOWN"
                self._send(step["chip"], LINK_DOWN, Severity.MINOR, 1 if down else 0)
            case other:
                raise AssertionError(f"the recorded driver cannot {other}")

    def _occur(self, chip: int, code: str, severity: Severity) -> None:
        self._last_serial += 1
        self._serials[chip, code] = self._last_serial
        self._send(chip, code, severity, 1)
        listed = self._lists[chip]
        asyncio.get_running_loop().call_later(LISTED_AFTER_SECONDS, listed.append, code)

    def _recover(self, chip: int, code: str) -> None:
        self._send(chip, code, None, 0)
        listed = self._lists[chip]
        asyncio.get_running_loop().call_later(UNLISTED_AFTER_SECONDS, listed.remove, code)

    def _send(self, chip: int, code: str, severity: Severity | None, assertion: int) -> None:
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

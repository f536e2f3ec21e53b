"""A switch library that follows the steps of a recording, without a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from contract.codes.levels import Severity
from dcmi_shim.values import DriverSwitchEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dcmi_shim.values import DriverGap

_RECOVER, _OCCUR = 0, 1
_INVALID_SUB_TYPE = -1


class RecordedSwitches:
    """The library of one node: its list has what occurred and did not recover."""

    polling_reason: str | None = None

    def __init__(self) -> None:
        self._events: asyncio.Queue[DriverSwitchEvent] = asyncio.Queue()
        self._list: dict[tuple[object, ...], DriverSwitchEvent] = {}
        self._serial = 0

    def do(self, step: dict[str, Any], now_ms: int) -> None:
        """Do a step of the recording now."""
        self._serial += 1
        event = DriverSwitchEvent(
            event_type=int(step["event_type"], 16),
            sub_type=None if step["sub_type"] == _INVALID_SUB_TYPE else step["sub_type"],
            peer_device=step["peer_device"],
            peer_port=step["peer_port"],
            chip=step["switch_chip"],
            port=step["switch_port"],
            severity=Severity(step["severity"]),
            assertion=step["assertion"],
            seen_at_ms=now_ms,
            driver_raised_at_ms=now_ms,
            serial=self._serial,
            information="",
        )
        key = event.event_type, event.sub_type, event.peer_device, event.chip, event.port
        if event.assertion == _OCCUR:
            self._list[key] = replace(event, seen_at_ms=0)
        elif event.assertion == _RECOVER:
            self._list.pop(key, None)
        self._events.put_nowait(event)

    def here(self, find: object, wall_clock: Callable[[], int]) -> RecordedSwitches:
        """Return the switches as the collector's driver."""
        del find, wall_clock
        return self

    async def run(self) -> NoReturn:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody ends the wait")

    async def faults(self) -> tuple[DriverSwitchEvent, ...]:
        return tuple(self._list.values())

    async def events(self) -> AsyncIterator[DriverSwitchEvent | DriverGap]:
        while True:
            yield await self._events.get()

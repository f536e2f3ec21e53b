"""The on-board switches as the collector uses them: events and the list of faults.

``liblingqu-dcmi.so`` lives in child processes of its own (``supervisor``). One that is missing, or
that cannot be loaded or initialised, is tried again after growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

import msgspec

from contract.errors import DriverError, DriverGone
from dcmi_shim.library.driver_upgrade import Installed
from dcmi_shim.values import DriverSwitchEvent
from dcmi_shim.worker.calls import Calls
from dcmi_shim.worker.event_queue import EventQueue
from dcmi_shim.worker.supervisor import DriverSettings, Supervisor
from pacing.backoff import Backoff
from pacing.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.values import DriverGap

_log = logging.getLogger(__name__)
_LIST = "lq_dcmi_get_fault_info"
# An aborted initialisation begins again, so a slow one must be allowed to end.
_SETTINGS = DriverSettings(open_seconds=90.0, retry_first_seconds=1.0, retry_last_seconds=60.0)


class SwitchDriver:
    """Calls ``liblingqu-dcmi.so``. ``run`` must be running while anything else is used.

    ``find`` finds the library or raises ``DriverNotFound``; it is called in a thread. No call waits
    longer than ``start_seconds`` for a library that is being initialised.
    """

    def __init__(
        self,
        find: Callable[[], FoundLibrary],
        wall_clock: Callable[[], int],
        settings: DriverSettings = _SETTINGS,
        start_seconds: float = 10.0,
    ) -> None:
        self._start_seconds = start_seconds
        self._find = find
        self._wall_clock = wall_clock
        self._settings = settings
        self._events: EventQueue[DriverSwitchEvent] = EventQueue(wall_clock, "switch")
        self._tried = asyncio.Event()
        self._reason = "the switch library was not searched yet"
        self._supervisor: Supervisor | None = None
        self._calls: Calls | None = None

    async def run(self) -> NoReturn:
        """Keep the library usable until cancelled."""
        pauses = Backoff(
            self._settings.retry_first_seconds, self._settings.retry_last_seconds, jitter=0.0
        )
        while True:
            try:
                await self._serve(await asyncio.to_thread(self._find))
            except DriverError as error:
                self._failed("; ".join(line.strip() for line in str(error).splitlines()))
            await asyncio.sleep(pauses.next_seconds())

    async def _serve(self, library: FoundLibrary) -> None:
        for warning in library.warnings:
            _log.warning("switch library: %s", warning)
        installed = Installed(library, self._find)
        supervisor = Supervisor(installed, self._settings, self._events, asyncio.Event())
        self._supervisor = supervisor
        self._calls = Calls(
            installed, self._settings, supervisor, self._wall_clock, self._events.gap
        )
        self._tried.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(supervisor.run(), name="switch child")
                tasks.create_task(supervisor.watch(), name="switch files")
                tasks.create_task(self._calls.run(), name="switch probes")
        except BaseExceptionGroup as group:
            # ``run`` handles the error of the task, which a group would hide from its ``except``.
            raise group.exceptions[0] from None
        finally:
            self._supervisor = None
            supervisor.close()
            # Wakes the calls that wait for a start, which will not come any more.
            supervisor.tried.set()

    def _failed(self, reason: str) -> None:
        self._reason = reason
        self._tried.set()

    def close(self) -> None:
        """Kill the library's processes; never waits for one that hangs."""
        if self._supervisor is not None:
            self._supervisor.close()

    async def faults(self) -> tuple[DriverSwitchEvent, ...]:
        """Return the faults that the library lists, in its order, at most ``LIST_LENGTH``.

        Waits a while for the first attempt to use the library. Raises ``DriverCallError``,
        ``DriverCallStuck``, or ``DriverGone`` (also while there is no library).
        """
        calls = await self._opened()
        value = await calls.make(_LIST, ())
        return msgspec.json.decode(value, type=tuple[DriverSwitchEvent, ...])

    async def _opened(self) -> Calls:
        while True:
            await self._tried.wait()
            supervisor, calls = self._supervisor, self._calls
            if supervisor is None or calls is None:
                raise DriverGone(self._reason)
            if not await wait_for_event(supervisor.tried, self._start_seconds):
                waited = f"the switch library has been starting for {self._start_seconds:g} s"
                raise DriverGone(f"{waited} or longer")
            # The library may have been given up and searched again during the wait.
            if supervisor is self._supervisor:
                return calls

    def events(self) -> AsyncIterator[DriverSwitchEvent | DriverGap]:
        """Yield fault events as they arrive. One reader only."""
        return self._events.read()

    @property
    def polling_reason(self) -> str | None:
        """Why no events arrive, so that only polls work; ``None`` while subscribed."""
        return None if self._supervisor is None else self._supervisor.polling_reason

    @property
    def child_pid(self) -> int | None:
        """Process id of the child that serves calls, for measurements."""
        child = None if self._supervisor is None else self._supervisor.serving
        return None if child is None else child.pid

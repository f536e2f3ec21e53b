"""The driver as collectors use it: calls with deadlines, events, inventory.

``Driver`` is the real ``interface.ChipDriver``. The vendor library lives in child processes
(``supervisor``); calls go to it one at a time, without those that hang (``calls``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from contract.errors import DriverCallError, DriverCallStuck, DriverError, DriverGone
from dcmi_shim.library.driver_upgrade import Installed
from dcmi_shim.library.survey import chip_names, node_facts, survey, virtual_chips
from dcmi_shim.worker.calls import Calls
from dcmi_shim.worker.event_queue import EventQueue
from dcmi_shim.worker.supervisor import DriverSettings, Supervisor
from pacing.waiting import shared_pause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.values import (
        Chip,
        ChipNames,
        DriverEvent,
        DriverGap,
        Inventory,
        NodeFacts,
        StuckCall,
        Utilization,
    )
    from dcmi_shim.worker.process import StartedProcess

T = TypeVar("T")

_log = logging.getLogger(__name__)
_HEALTH = "dcmi_get_device_health"
_NETWORK_HEALTH = "dcmi_get_device_network_health"
_ERROR_CODES = "dcmi_get_device_errorcode_v2"
_ADDRESS = "dcmi_get_device_ip"
_PROCESSES = "dcmi_get_device_resource_info"
_UTILIZATION = "dcmi_get_device_utilization_rate"
_VIRTUAL_SECONDS = 60.0
_numbers_decoder: msgspec.json.Decoder[tuple[int, ...]] = msgspec.json.Decoder(tuple[int, ...])
_health_decoder: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)
"""Made once: ``msgspec.json.decode`` reads a type anew with each of a round's many calls."""


class Driver:
    """Calls ``libdcmi.so``. ``run`` must be running while anything else is used.

    ``find`` finds the library again, which may be replaced while the agent runs. ``first`` is a
    process that was started before, for the first child.
    """

    def __init__(
        self,
        library: FoundLibrary,
        wall_clock: Callable[[], int],
        settings: DriverSettings | None = None,
        find: Callable[[], FoundLibrary] | None = None,
        first: StartedProcess | None = None,
    ) -> None:
        self._installed = Installed(library, find)
        self._settings = settings or DriverSettings()
        self._events: EventQueue[DriverEvent] = EventQueue(wall_clock, "driver")
        self._reopened = asyncio.Event()
        self._supervisor = Supervisor(
            self._installed, self._settings, self._events, self._reopened, first
        )
        self._calls = Calls(
            self._installed, self._settings, self._supervisor, wall_clock, self._events.gap
        )
        self._inventory: Inventory | None = None
        self._surveyed = asyncio.Event()
        self._listed: tuple[Chip, ...] | None = None
        self._was_listed = asyncio.Event()
        self._is_complete = True
        self._survey_problems: tuple[str, ...] = ()

    async def run(self) -> NoReturn:
        """Keep the driver usable until cancelled.

        Raises ``DriverNotFound`` when the library cannot be loaded at start, and ``DriverError``
        when its generation or its chips are not supported.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._supervisor.run(), name="driver child")
                tasks.create_task(self._supervisor.watch(), name="driver files")
                tasks.create_task(self._survey(), name="driver inventory")
                tasks.create_task(self._calls.run(), name="driver probes")
                tasks.create_task(self._virtual(), name="driver virtual devices")
        except BaseExceptionGroup as group:
            # Callers handle the error of the task, and know no groups.
            raise group.exceptions[0] from None
        finally:
            self.close()
        raise AssertionError("the driver's tasks never end")

    def close(self) -> None:
        """Kill the driver's processes; never waits for one that hangs."""
        self._supervisor.close()

    async def inventory(self) -> Inventory:
        """Return chips and identity; waits until the driver has answered once."""
        while self._inventory is None:
            await self._surveyed.wait()
        return self._inventory

    @property
    def library(self) -> str:
        """The path of the library, or the path where it is expected."""
        return str(self._installed.library.path)

    @property
    def found(self) -> Inventory | None:
        """The value of ``inventory``; ``None`` until the driver has answered."""
        return self._inventory

    async def listed(self) -> tuple[Chip, ...]:
        """Return the chips whose ids the driver lists, perhaps none, once it has listed its
        cards.
        """
        while self._listed is None:
            await self._was_listed.wait()
        return self._listed

    def forget(self, physical_id: int) -> None:
        """Remove a chip from the lists until the driver lists it again."""
        if self._listed is not None:
            self._listed = tuple(item for item in self._listed if item.physical_id != physical_id)
        if self._inventory is not None:
            chips = (chip for chip in self._inventory.chips if chip.physical_id != physical_id)
            self._inventory = msgspec.structs.replace(self._inventory, chips=tuple(chips))

    def wait_for_library(self) -> None:
        """Search a library that is missing or cannot be loaded at the start until it can be
        loaded.
        """
        self._supervisor.wait_for_library()

    def list_again(self, is_missing: bool) -> None:
        """List the chips again every ``probe_seconds`` while some are missing."""
        self._is_complete = not is_missing
        if is_missing:
            self._reopened.set()

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        """Return the fault codes that the driver lists as active on ``chip``, in its order."""
        value = await self._on_chip(_ERROR_CODES, chip)
        return _numbers_decoder.decode(value)

    async def code_lists(self, chips: Sequence[Chip]) -> dict[Chip, tuple[int, ...] | DriverError]:
        """Return ``error_codes`` of ``chips``, or its error, as far as one message has them."""
        return await self._on_each(_ERROR_CODES, chips, _numbers_decoder)

    async def health_words(self, chips: Sequence[Chip]) -> dict[Chip, int | DriverError | None]:
        """Return ``health`` of ``chips``, or its error, as far as one message has them."""
        return await self._on_each(_HEALTH, chips, _health_decoder)

    async def health(self, chip: Chip) -> int | None:
        """Return 0 healthy, 1 minor, 2 major, 3 critical, or ``None`` for the driver's
        "unknown".
        """
        value = await self._on_chip(_HEALTH, chip)
        return _health_decoder.decode(value)

    async def network_health(self, chip: Chip) -> int:
        """Return 0 or 6 if the chip reaches its network, else another code
        (``docs/spec/dcmi.md#4.3``).
        """
        return msgspec.json.decode(await self._on_chip(_NETWORK_HEALTH, chip), type=int)

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        """Return the ids of the processes that use ``chip``, as the host counts them."""
        return _numbers_decoder.decode(await self._on_chip(_PROCESSES, chip))

    async def process_lists(
        self, chips: Sequence[Chip]
    ) -> dict[Chip, tuple[int, ...] | DriverError]:
        """Return ``processes`` of ``chips``, or its error, as far as one message has them."""
        return await self._on_each(_PROCESSES, chips, _numbers_decoder)

    async def utilization(self, chip: Chip, kind: Utilization) -> int:
        """Return the utilization in percent."""
        return msgspec.json.decode(await self._on_chip(_UTILIZATION, chip, int(kind)), type=int)

    async def names(self, chip: Chip) -> tuple[ChipNames, tuple[str, ...]]:
        """Return the names of ``chip``, and why not all of them are known."""
        return await chip_names(self._calls.make, chip)

    async def facts(self) -> tuple[NodeFacts, tuple[str, ...]]:
        """Return what labels and annotations of the node are made of, and why not all of it is
        known.
        """
        return await node_facts(self._calls.make, await self.inventory())

    async def address(self, chip: Chip) -> str:
        """Return the IP address of the chip's network port."""
        octets = msgspec.json.decode(await self._on_chip(_ADDRESS, chip), type=list[int])
        return str(ip_address(bytes(octets)))

    def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        """Yield fault events as they arrive. One reader only."""
        return self._events.read()

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        """Return the calls that are left out now."""
        return self._calls.left_out()

    async def is_in_place(self) -> bool:
        """Return whether the loaded library is the one that is installed now."""
        return await self._installed.is_in_use()

    @property
    def polling_reason(self) -> str | None:
        """Why no events arrive, so that only polls work; ``None`` while subscribed."""
        return self._supervisor.polling_reason

    @property
    def trouble(self) -> str | None:
        """Why the driver does not answer, or what its inventory lacks; ``None`` without trouble."""
        return self._supervisor.trouble or "; ".join(self._survey_problems) or None

    @property
    def child_pid(self) -> int | None:
        """Process id of the child that serves calls, for measurements."""
        child = self._supervisor.serving
        return None if child is None else child.pid

    async def _on_chip(self, function: str, chip: Chip, *more: int) -> msgspec.Raw:
        return await self._calls.make(function, (*chip.place, *more), str(chip), chip)

    async def _on_each(
        self, function: str, chips: Sequence[Chip], decoder: msgspec.json.Decoder[T]
    ) -> dict[Chip, T | DriverError]:
        results = await self._calls.make_each(function, chips)
        return {
            chip: result if isinstance(result, DriverError) else decoder.decode(result)
            for chip, result in results.items()
        }

    async def _survey(self) -> NoReturn:
        # What opened the library until then is part of the first survey.
        await self._supervisor.tried.wait()
        self._reopened.clear()
        while True:
            before = self._inventory
            calls, library = self._calls, str(self._installed.library.path)
            try:
                result = await survey(calls.make, calls.make_each, library, before)
            except (DriverGone, DriverCallError, DriverCallStuck) as error:
                problems: tuple[str, ...] = (str(error),)
            else:
                if self._inventory is not before:
                    continue  # it changed during the survey, which began with an older one
                problems = (*result.problems, *self._other_family(result.inventory))
                is_one = problems == result.problems and not result.is_refused
                # Without an inventory, chips are not replaced: documents stay (decision 18).
                if is_one and (result.inventory is not None or before is None or not before.chips):
                    self._take_over(result.inventory, result.listed)
            if problems != self._survey_problems:
                for problem in problems:
                    _log.warning("inventory: %s", problem)
                self._survey_problems = problems
            pause = self._settings.probe_seconds
            # Until a first list no document is written (decision
            # 18), so it is asked for again soon.
            if self._listed is None:
                pause = min(pause, self._settings.call_seconds)
            await wait_for_event(
                self._reopened, pause if problems or not self._is_complete else None
            )
            self._reopened.clear()

    def _other_family(self, inventory: Inventory | None) -> tuple[str, ...]:
        """Return why chips that are listed with another family than before are refused."""
        before = self._inventory
        if inventory is None or before is None or inventory.family == before.family:
            return ()
        return (
            f"the driver calls the chips {inventory.chip_name} ({inventory.family}) now, and "
            f"called them {before.chip_name} ({before.family}) before: the last inventory stays. "
            "Restart the agent if the cards were exchanged",
        )

    async def _virtual(self) -> NoReturn:
        """Update the inventory when chips are divided into virtual devices or made whole again."""
        while True:
            await asyncio.sleep(shared_pause(_VIRTUAL_SECONDS))
            before = await self.inventory()
            with contextlib.suppress(DriverGone):
                virtual = await virtual_chips(
                    self._calls.make, self._calls.make_each, before.chips, before.virtual
                )
                # A survey may have replaced it meanwhile, from a newer list.
                if self._inventory is before:
                    self._take_over(msgspec.structs.replace(before, virtual=virtual), before.chips)

    def _take_over(self, inventory: Inventory | None, listed: tuple[Chip, ...]) -> None:
        news = listed != self._listed or (inventory is not None and inventory != self._inventory)
        # A gap makes the collector audit, which a change of chips needs.
        if news and self._listed is not None:
            self._events.gap("the driver lists other chips than before")
        self._listed = listed
        self._was_listed.set()
        if inventory is not None:
            self._inventory = inventory
            self._surveyed.set()

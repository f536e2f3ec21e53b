"""The driver as collectors see it: calls with deadlines, events, inventory.

``Driver`` is the real ``interface.ChipDriver``. The vendor library lives in child processes
(``keeper``); calls go to it one at a time. One that misses its deadline, or crashes the child
twice, is left out for that chip until a probe in a throw-away child gets an answer. One that turns
out to be slow only is given more time from then on (``patience``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec

from contract.errors import DriverCallError, DriverCallStuck, DriverError, DriverGone
from dcmi_shim.budget import Backoff
from dcmi_shim.event_queue import EventQueue
from dcmi_shim.keeper import DriverSettings, Keeper, open_child
from dcmi_shim.patience import Patience
from dcmi_shim.return_codes import meaning
from dcmi_shim.survey import chip_names, survey
from dcmi_shim.types import Chip, StuckCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import TypeAlias

    from dcmi_shim.discovery import FoundLibrary
    from dcmi_shim.process import ChildProcess, Message
    from dcmi_shim.types import ChipNames, DriverEvent, DriverGap, Inventory

    Call: TypeAlias = tuple[str, tuple[int, ...]]

_log = logging.getLogger(__name__)
_HEALTH = "dcmi_get_device_health"
_NETWORK_HEALTH = "dcmi_get_device_network_health"
_ERROR_CODES = "dcmi_get_device_errorcode_v2"
_CRASHES = 2
_FIRST_PROBE = 1 / 8
"""How soon a call is tried again the first time, in probe periods; then the pause doubles."""


@dataclass
class _LeftOut:
    """A call that is not made any more. ``child`` is the last process that hung in it.

    ``due`` is the loop time of the next probe.
    """

    chip: Chip | None
    where: str | None
    since_ms: int
    child: ChildProcess
    pauses: Backoff
    due: float


class Driver:
    """Talks to ``libdcmi.so``. ``run`` must be running while anything else is used."""

    def __init__(
        self,
        library: FoundLibrary,
        wall_clock: Callable[[], int],
        settings: DriverSettings | None = None,
    ) -> None:
        self._library = library
        self._wall_clock = wall_clock
        self._settings = settings or DriverSettings()
        self._events = EventQueue(wall_clock)
        self._reopened = asyncio.Event()
        self._keeper = Keeper(library, self._settings, self._events, self._reopened)
        self._turn = asyncio.Lock()
        self._patience = Patience(self._settings.call_seconds, self._settings.longest_call_seconds)
        self._left_out: dict[Call, _LeftOut] = {}
        self._crashes: Counter[Call] = Counter()
        self._inventory: Inventory | None = None
        self._surveyed = asyncio.Event()
        self._survey_problems: tuple[str, ...] = ()

    async def run(self) -> NoReturn:
        """Keep the driver usable until cancelled.

        Raises ``DriverNotFound`` when the library cannot be loaded at start, and ``DriverError``
        when it is of a generation or for chips that are not supported.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keeper.run(), name="driver child")
                tasks.create_task(self._survey(), name="driver inventory")
                tasks.create_task(self._probe(), name="driver probes")
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self.close()
        raise AssertionError("the driver's tasks never end")

    def close(self) -> None:
        """Kill the driver's processes; never waits for one that hangs."""
        self._keeper.close()

    async def inventory(self) -> Inventory:
        """Chips and identity; waits until the driver has answered once."""
        while self._inventory is None:
            await self._surveyed.wait()
        return self._inventory

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        """Fault codes that the driver lists as active on ``chip``, in its order."""
        value = await self._on_chip(_ERROR_CODES, chip)
        return msgspec.json.decode(value, type=tuple[int, ...])

    async def health(self, chip: Chip) -> int | None:
        """0 healthy, 1 minor, 2 major, 3 critical, ``None`` for the driver's "unknown"."""
        value = await self._on_chip(_HEALTH, chip)
        return msgspec.json.decode(value, type=int | None)

    async def network_health(self, chip: Chip) -> int:
        """0 or 6: the chip reaches its network; else it does not (``spec/dcmi.md`` 4.3)."""
        return msgspec.json.decode(await self._on_chip(_NETWORK_HEALTH, chip), type=int)

    async def names(self, chip: Chip) -> tuple[ChipNames, tuple[str, ...]]:
        """What ``chip`` is called, and why not all of it is known."""
        return await chip_names(self._ask, chip)

    def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        """Fault events as they arrive. One reader only."""
        return self._events.read()

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        """Calls that are left out now."""
        return tuple(
            StuckCall(call[0], left_out.chip, left_out.since_ms)
            for call, left_out in self._left_out.items()
        )

    @property
    def polling_reason(self) -> str | None:
        """Why no events arrive and polls must do; ``None`` while subscribed."""
        return self._keeper.polling_reason

    @property
    def trouble(self) -> str | None:
        """Why the driver does not answer, or what its inventory lacks; ``None`` if all is well."""
        return self._keeper.trouble or "; ".join(self._survey_problems) or None

    @property
    def child_pid(self) -> int | None:
        """Process id of the child that serves calls, for measurements."""
        child = self._keeper.serving
        return None if child is None else child.pid

    async def _on_chip(self, function: str, chip: Chip) -> msgspec.Raw:
        return await self._call((function, (chip.card_id, chip.device_id)), chip, str(chip))

    async def _ask(
        self, function: str, arguments: tuple[int, ...], where: str | None
    ) -> msgspec.Raw:
        return await self._call((function, arguments), None, where)

    async def _call(self, call: Call, chip: Chip | None, where: str | None) -> msgspec.Raw:
        while True:
            self._refuse_left_out(call)
            child = await self._keeper.ready(self._settings.call_seconds)
            async with self._turn:
                self._refuse_left_out(call)
                if child is self._keeper.serving:
                    return _value(call, where, await self._request(child, call, chip, where))

    def _refuse_left_out(self, call: Call) -> None:
        left_out = self._left_out.get(call)
        if left_out is not None:
            raise DriverCallStuck(call[0], left_out.where, left_out.since_ms)

    async def _request(
        self, child: ChildProcess, call: Call, chip: Chip | None, where: str | None
    ) -> Message:
        function, arguments = call
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            message = await child.request(function, arguments, self._patience.of(call))
        except TimeoutError:
            self._leave_out(call, chip, where, child)
            stuck = DriverCallStuck(function, where, self._left_out[call].since_ms)
            _log.warning("%s; it is left out from now on", stuck)
            self._keeper.replace(child, str(stuck))
            raise stuck from None
        except DriverGone as error:
            self._crashes[call] += child.crashed
            if self._crashes[call] >= _CRASHES:
                self._leave_out(call, chip, where, child)
                _log.warning("%s in %s again; the call is left out from now on", error, function)
            at = "" if where is None else f" on {where}"
            raise DriverGone(f"{error} in {function}{at}") from error
        self._patience.answered(call, loop.time() - begun)
        return message

    async def _survey(self) -> NoReturn:
        while True:
            known = () if self._inventory is None else self._inventory.chips
            try:
                found = await survey(self._ask, str(self._library.path), known)
            except (DriverGone, DriverCallError, DriverCallStuck) as error:
                problems: tuple[str, ...] = (str(error),)
            else:
                problems = found.problems
                self._take_over(found.inventory)
            if problems != self._survey_problems:
                for problem in problems:
                    _log.warning("inventory: %s", problem)
                self._survey_problems = problems
            pause = self._settings.probe_seconds
            if self._inventory is None:
                pause = min(pause, self._settings.call_seconds)
            try:
                async with asyncio.timeout(pause if problems else None):
                    await self._reopened.wait()
            except TimeoutError:
                continue
            self._reopened.clear()

    def _take_over(self, found: Inventory | None) -> None:
        if found is None or found == self._inventory:
            return
        if self._inventory is not None:
            self._events.gap("the driver shows other chips than before")
        self._inventory = found
        self._surveyed.set()

    def _leave_out(
        self, call: Call, chip: Chip | None, where: str | None, child: ChildProcess
    ) -> None:
        period = self._settings.probe_seconds
        pauses = Backoff(_FIRST_PROBE * period, period)
        due = asyncio.get_running_loop().time() + pauses.failed()
        self._left_out[call] = _LeftOut(chip, where, self._wall_clock(), child, pauses, due)

    async def _probe(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_FIRST_PROBE * self._settings.probe_seconds)
            due = [
                call
                for call, left_out in self._left_out.items()
                if left_out.due <= loop.time() and left_out.child.reaped
            ]
            # When much hangs, processes are not started in a rush.
            for call in due:
                if not await self._try_again(call):
                    break

    async def _try_again(self, call: Call) -> bool:
        """Probe ``call``; whether it is made again from now on."""
        left_out = self._left_out.pop(call)
        # Behind the others, so that each gets its turn.
        self._left_out[call] = left_out
        loop = asyncio.get_running_loop()
        left_out.due = loop.time() + left_out.pauses.failed()
        try:
            child = await open_child(self._library, self._settings, _ignore, _ignore)
        except DriverError as error:
            _log.info("no probe of %s: %s", call[0], error)
            return False
        left_out.child = child
        begun = loop.time()
        try:
            await child.request(*call, self._patience.longest)
        except (TimeoutError, DriverGone):
            return False
        finally:
            child.close()
        seconds = loop.time() - begun
        self._patience.answered(call, seconds)
        del self._left_out[call]
        self._crashes.pop(call, None)
        at = "" if left_out.where is None else f" on {left_out.where}"
        slowly = "" if seconds < self._settings.call_seconds else f", after {seconds:.1f} s"
        self._events.gap(f"{call[0]}{at} answers again{slowly}")
        return True


def _value(call: Call, where: str | None, message: Message) -> msgspec.Raw:
    if message.answer != 0:
        raise DriverCallError(call[0], where, message.answer, meaning(message.answer))
    if message.wrong is not None:
        raise DriverCallError(call[0], where, 0, f"an answer that cannot be: {message.wrong}")
    return message.value


def _ignore(*_arguments: object) -> None:
    """A probe's child has nothing to say beside its answer."""

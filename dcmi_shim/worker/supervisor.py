"""Keeps one working driver child alive (docs/decisions/001).

A child that hangs delivers events until a moment after its successor has subscribed; only then it
is killed. A child that died is replaced, within a restart budget. Without a subscription the child
serves polls, and a new child tries to subscribe after growing pauses. A library that is replaced on
disk is loaded into a new child, also while the old one serves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

from contract.errors import DriverCallError, DriverError, DriverGone, DriverNotFound
from contract.plural import plural
from contract.record import Record
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED
from dcmi_shim.worker.event_queue import EventQueue, Overlap
from dcmi_shim.worker.process import ChildProcess, Message, start_process
from pacing.backoff import Backoff
from pacing.token_bucket import TokenBucket
from pacing.waiting import shared_pause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.library.driver_upgrade import Installation, Installed
    from dcmi_shim.worker.process import StartedProcess

_log = logging.getLogger(__name__)
# The bound of decision 1 on processes that hang in the kernel and cannot be killed.
_UNKILLABLE = 16
_MAX_QUICK_STARTS = 20
_START_PERIOD_MS = 3000
"""After that many starts at once there is one in each period."""
_READ_AFTER_KILL_SECONDS = 1.0
# The switch library polls events every 300 ms; they must be sent before it is killed.
_LINGER_SECONDS = 0.5
_LATE_COPIES_SECONDS = 5.0
"""How long a process may be behind one that ended, with events that both received."""


class DriverSettings(Record, frozen=True):
    """Deadlines and periods, in seconds.

    ``call_seconds`` is the usual deadline of one call, ``longest_call_seconds`` that of one that
    turned out to be slow, and of a repeated subscription; ``open_seconds`` is that of loading and
    initialising the library, ``subscribe_seconds`` that of the subscription while no other child
    serves. Every ``probe_seconds`` (at first sooner) calls that are left out are tried again, and
    so are chips that the inventory misses. A failed start is repeated after
    ``retry_first_seconds``, doubling up to ``retry_last_seconds``. Every ``look_seconds`` the files
    of the library are checked: a replaced library is loaded when two checks find the same files.
    """

    call_seconds: float = 0.5
    longest_call_seconds: float = 5.0
    open_seconds: float = 10.0
    subscribe_seconds: float = 1.0
    probe_seconds: float = 10.0
    retry_first_seconds: float = 0.25
    retry_last_seconds: float = 10.0
    look_seconds: float = 5.0


async def open_child(
    library: FoundLibrary,
    settings: DriverSettings,
    on_message: Callable[[ChildProcess, Message], None],
    on_end: Callable[[ChildProcess], None],
    started: StartedProcess | None = None,
) -> ChildProcess:
    """Start a child that has loaded and initialised ``library``, or use ``started`` for it.

    Raises ``DriverNotFound`` (cannot be loaded), ``DriverError`` (another generation of DCMI),
    ``DriverCallError`` (its initialisation refused) or ``DriverGone`` (crashed, hangs).
    """
    try:
        child = ChildProcess(started or start_process(library), on_message, on_end)
    except OSError as error:
        # Too many open files or processes: other programs may free some.
        raise DriverGone(f"no process can be started for {library.path}: {error}") from error
    try:
        loaded = await child.request("open", (str(library.path),), settings.open_seconds)
        if loaded.failed is not None:
            raise DriverNotFound(f"{library.path} cannot be loaded: {loaded.failed}")
        vendor = library.vendor
        reply = await child.request(vendor.init, (), settings.open_seconds)
        vendor.check_init(library.path, reply.answer, reply.value)
    # Also when it is cancelled: without an owner the process would stay.
    except BaseException as error:
        child.close()
        if isinstance(error, TimeoutError):
            raise DriverGone(
                f"loading and initialising {library.path} takes longer than "
                f"{settings.open_seconds:g} s"
            ) from error
        if isinstance(error, DriverGone):
            raise DriverGone(f"{error} while loading or initialising {library.path}") from error
        raise
    return child


class Supervisor:
    """Owns the children that serve calls and events.

    ``run`` keeps one alive, ``watch`` replaces it when the library is replaced. ``reopened`` is set
    when the library was opened again after its process was gone, or when another library was
    opened. ``first`` is a process that the first child takes, if it suits the library.
    """

    def __init__(
        self,
        installed: Installed,
        settings: DriverSettings,
        events: EventQueue[Any],
        reopened: asyncio.Event,
        first: StartedProcess | None = None,
    ) -> None:
        self._installed = installed
        self._first = first
        self._settings = settings
        self._events = events
        self._reopened = reopened
        self._overlap = Overlap()
        self._starts = TokenBucket(_MAX_QUICK_STARTS, 1, _START_PERIOD_MS)
        # No jitter: the driver belongs to this process alone (``Backoff``).
        self._failing = Backoff(
            settings.retry_first_seconds, settings.retry_last_seconds, jitter=0.0
        )
        self._refused = Backoff(1.0, 60.0, jitter=0.0)
        self._serving: ChildProcess | None = None
        self._hanging: ChildProcess | None = None
        self._starting: ChildProcess | None = None
        self._killed: list[ChildProcess] = []
        self._usable = asyncio.Event()
        self._start_requested = asyncio.Event()
        self._opened_once = False
        self._tried: Installation | None = None
        self._subscribe_at: float | None = None
        self._reason = "the driver is being loaded"
        self._not_replaced_reason: str | None = None
        self.tried = asyncio.Event()
        """Whether a start has succeeded or failed."""
        self._waits_for_library = False
        """Whether a library that cannot be loaded at the start is searched again."""
        self.polling_reason: str | None = None
        """Why no events arrive; ``None`` while subscribed."""

    def wait_for_library(self) -> None:
        """Search a library that cannot be loaded at the start again and again."""
        self._waits_for_library = True

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def serving(self) -> ChildProcess | None:
        """The child that serves calls now."""
        return self._serving

    @property
    def trouble(self) -> str | None:
        """Why no calls can be made; ``None`` while they can."""
        return None if self._serving is not None else self._reason

    async def ready(self, deadline_seconds: float) -> ChildProcess:
        """Return the child that serves calls.

        Raises ``DriverGone`` when there is none within the deadline.
        """
        child = self._serving
        if child is not None:
            return child
        try:
            async with asyncio.timeout(deadline_seconds):
                # Again after each wake: the child that became usable may have ended meanwhile.
                while (child := self._serving) is None:
                    await self._usable.wait()
                return child
        except TimeoutError:
            # On a busy machine it may become usable in the turn in which the time is over.
            if self._serving is not None:
                return self._serving
            raise DriverGone(self._reason) from None

    def replace(self, child: ChildProcess, reason: str) -> None:
        """Replace ``child``, which hangs: it serves no more calls, and is killed after its
        successor starts.
        """
        if child is self._serving:
            self._serving, self._hanging = None, child
            self._usable.clear()
            self._reason = reason
            self._start_requested.set()

    def close(self) -> None:
        """Kill all children at once; never waits."""
        if self._first is not None:
            self._first.close()
            self._first = None
        children = (self._serving, self._hanging, self._starting, *self._killed)
        self._serving = self._hanging = self._starting = None
        self._usable.clear()
        for child in children:
            if child is not None:
                child.close()
        self._reason = "the driver was closed"

    async def run(self) -> NoReturn:
        """Keep a child alive until cancelled. Raises when no start can ever succeed."""
        while True:
            # Before the start: a request that comes during it must lead to another one.
            self._start_requested.clear()
            child = await self._start_with_retries()
            if child is not None:
                self._adopt(child)
            pause = None if self._subscribe_at is None else self._subscribe_at - self.now()
            if not await wait_for_event(self._start_requested, pause):
                _log.info("trying to subscribe again: %s", self.polling_reason)

    async def watch(self) -> NoReturn:
        """Request a new child when the library is replaced on disk, whatever its processes do."""
        while True:
            await asyncio.sleep(shared_pause(self._settings.look_seconds))
            # Without a serving child each start searches the library again anyway.
            if await self._installed.is_replaced() and self._serving is not None:
                self._start_requested.set()

    async def _start_with_retries(self) -> ChildProcess | None:
        """Return a new child; ``None`` if that failed and the one that serves still does."""
        while True:
            await self._wait_for_budget()
            try:
                return await self._start()
            except DriverError as error:
                is_passing = isinstance(error, DriverCallError | DriverGone)
                # A library that never loaded is a mistake of the set-up, which no retry repairs.
                if not self._opened_once and not is_passing and not self._waits_for_library:
                    raise
                if self._serving is not None:
                    self._not_replaced(error)
                    return None
                self.tried.set()
                if self._reason != str(error):
                    self._reason = str(error)
                    self._events.gap(f"no driver: {error}")
            await asyncio.sleep(self._failing.next_seconds())

    async def _wait_for_budget(self) -> None:
        while True:
            # One that hung in the kernel may be gone since.
            self._killed = [child for child in self._killed if not child.reaped]
            wait = self._starts.wait_ms(round(self.now() * 1000)) / 1000
            # Each more would hang in the kernel as well, and hold memory there.
            if len(self._killed) >= _UNKILLABLE:
                wait = 1.0
            elif not wait:
                self._starts.take()
                return
            if self._serving is None:
                _log.warning("waiting %.1f s before the driver is started again", wait)
            await asyncio.sleep(wait)

    def _not_replaced(self, error: DriverError) -> None:
        """Log once that the serving process stays because its successor cannot start."""
        reason = str(error)
        if reason != self._not_replaced_reason:
            _log.warning("no new driver process, the old one continues: %s", reason)
        self._not_replaced_reason = reason

    async def _start(self) -> ChildProcess:
        library = await self._installed.find()
        first, self._first = self._first, None
        if first is not None and not first.suits(library.library):
            first.close()
            first = None
        child = await open_child(
            library.library, self._settings, self._on_message, self._on_end, first
        )
        self._starting = child
        self._opened_once = True
        if library != self._tried:
            # This library may have what the one before refused for ever.
            self._subscribe_at, self._tried = None, library
        try:
            for other in (self._serving, self._hanging):
                if other is not None and not other.ended:
                    # Before the subscription: from then on both receive each event.
                    self._overlap.expect_copies(other.pid, child.pid)
            await self._subscribe(child)
        except BaseException:
            # It may be subscribed, so that it has events already.
            self._kill_and_read(child)
            raise
        finally:
            self._starting = None
        self._failing.reset()
        self._not_replaced_reason = None
        if self._installed.adopt(library):
            self._reopened.set()
            if self._serving is not None:
                self._reason = "its library was replaced on disk"
        return child

    async def _subscribe(self, child: ChildProcess) -> None:
        if self._subscribe_at is not None and self.now() < self._subscribe_at:
            return
        # While another child serves polls, a slow subscription delays no call.
        alone = self._serving is None
        subscribe = self._installed.library.vendor.subscribe
        settings = self._settings
        deadline = settings.subscribe_seconds if alone else settings.longest_call_seconds
        try:
            reply = await child.request(subscribe, (), deadline)
        except (TimeoutError, DriverGone) as error:
            text = "does not return" if isinstance(error, TimeoutError) else f"fails: {error}"
            self._poll_only(f"{subscribe} {text}", self._refused.next_seconds())
            # Its successor does not subscribe before the pause is over.
            raise DriverGone(f"{subscribe} {text}") from error
        if reply.answer == 0:
            self.polling_reason = None
            self._subscribe_at = None
            self._refused.reset()
            return
        # Such an answer depends on the library only, so a new try waits for another library.
        never = reply.answer in (UNSUPPORTED, SYMBOL_MISSING)
        refusal = self._installed.library.vendor.failed(subscribe, None, reply.answer)
        self._poll_only(str(refusal), float("inf") if never else self._refused.next_seconds())

    def _poll_only(self, reason: str, pause_seconds: float) -> None:
        if self.polling_reason != reason:
            self._events.gap(f"no events, polls only: {reason}")
        self.polling_reason = reason
        self._subscribe_at = self.now() + pause_seconds

    def _adopt(self, child: ChildProcess) -> None:
        predecessors = [old for old in (self._serving, self._hanging) if old is not None]
        first = self._reason == "the driver is being loaded"
        # The successor serves before its predecessors are retired, so no call finds none.
        self._serving, self._hanging = child, None
        self._usable.set()
        self.tried.set()
        for old in predecessors:
            self._retire(old)
        if not predecessors:
            self._reopened.set()
        if not first:
            self._events.gap(f"the driver process was replaced: {self._reason}")
        self._reason = "the driver process is being replaced"

    def _retire(self, child: ChildProcess) -> None:
        """Kill ``child`` soon: its thread may have events from before its successor subscribed."""
        self._killed.append(child)
        loop = asyncio.get_running_loop()
        loop.call_later(_LINGER_SECONDS, child.kill)
        loop.call_later(_LINGER_SECONDS + _READ_AFTER_KILL_SECONDS, child.close)

    def _kill_and_read(self, child: ChildProcess) -> None:
        """Kill ``child``, read what it still sent, and keep it until it is really gone."""
        child.kill()
        self._killed.append(child)
        asyncio.get_running_loop().call_later(_READ_AFTER_KILL_SECONDS, child.close)

    def _on_message(self, child: ChildProcess, message: Message) -> None:
        if message.event is not None:
            if not self._overlap.is_copy(message.event, child.pid):
                self._events.add_event(message.event)
        elif message.dropped:
            self._events.gap(f"{plural(message.dropped, 'event')} dropped: the agent was too slow")
        elif message.invalid_event is not None:
            self._events.gap(f"the driver sent {message.invalid_event}")

    def _on_end(self, child: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        # Copies of its events may still come from the child that overlaps with it.
        loop.call_later(_LATE_COPIES_SECONDS, self._overlap.end, child.pid)
        if child is self._hanging:
            self._hanging = None
        elif child is self._serving:
            self._serving = None
            self._usable.clear()
            self._reason = child.exit_reason()
            self._events.gap(self._reason)
            self._start_requested.set()

"""Calls to a vendor library: one at a time, with deadlines, without those that hang.

A call that misses its deadline, or crashes the child twice, is left out until a probe in a
temporary child gets an answer. One that turns out to be slow only gets a longer deadline
(``AdaptiveDeadline``).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from contract.errors import DriverCallError, DriverCallStuck, DriverError, DriverGone
from dcmi_shim.values import StuckCall
from dcmi_shim.worker.supervisor import open_child
from pacing.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import TypeAlias

    import msgspec

    from dcmi_shim.library.driver_upgrade import Installed
    from dcmi_shim.values import Chip
    from dcmi_shim.worker.process import ChildProcess, Message
    from dcmi_shim.worker.supervisor import DriverSettings, Supervisor

    Call: TypeAlias = tuple[str, tuple[int, ...]]

_log = logging.getLogger(__name__)
_CRASHES = 2
_FIRST_PROBE = 1 / 8
"""How soon a call is tried again the first time, in probe periods; then the pause doubles."""
_MARGIN = 2.0
_DECAY = 0.9


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


class Calls:
    """Makes the calls of one library through ``supervisor``. ``run`` must be running meanwhile.

    ``log`` is called when a call that was left out answers again.
    """

    def __init__(
        self,
        installed: Installed,
        settings: DriverSettings,
        supervisor: Supervisor,
        wall_clock: Callable[[], int],
        log: Callable[[str], None],
    ) -> None:
        self._installed = installed
        self._installation = installed.in_use
        self._settings = settings
        self._supervisor = supervisor
        self._wall_clock = wall_clock
        self._log_state = log
        self._turn = asyncio.Lock()
        self._deadlines = AdaptiveDeadline(settings.call_seconds, settings.longest_call_seconds)
        self._left_out: dict[Call, _LeftOut] = {}
        self._has_left_out = asyncio.Event()
        self._crashes: Counter[Call] = Counter()

    def left_out(self) -> tuple[StuckCall, ...]:
        """Return the calls that are left out now."""
        self._follow_library()
        return tuple(
            StuckCall(call[0], left_out.chip, left_out.since_ms)
            for call, left_out in self._left_out.items()
        )

    async def make(
        self,
        function: str,
        arguments: tuple[int, ...],
        where: str | None = None,
        chip: Chip | None = None,
    ) -> msgspec.Raw:
        """Return the value of ``function``; errors name its subject by ``where``.

        Raises ``DriverCallError``, ``DriverCallStuck`` or ``DriverGone``.
        """
        call = (function, arguments)
        while True:
            self._refuse_left_out(call)
            child = await self._supervisor.ready(self._settings.call_seconds)
            # The vendor forbids concurrent calls from several threads (dcmi#12).
            async with self._turn:
                # Again: while this call waited for its turn, the same call may have hung.
                self._refuse_left_out(call)
                # One that was replaced meanwhile is not asked; the next round takes its successor.
                if child is self._supervisor.serving:
                    message = await self._request(child, call, chip, where)
                    return self._value(call, where, message)

    async def make_each(
        self, function: str, chips: Sequence[Chip], *more: int
    ) -> dict[Chip, msgspec.Raw | DriverError]:
        """Call ``function`` for each of ``chips`` by one message; return the value or error of
        each. ``more`` are its arguments behind the chip.

        Each call has its own deadline, from its own begin. Chips that the child has not asked in
        its time, or because another one hangs, are missing. Raises ``DriverGone``.
        """
        results: dict[Chip, msgspec.Raw | DriverError] = {}
        child = await self._supervisor.ready(self._settings.call_seconds)
        async with self._turn:
            # One that was replaced meanwhile is not asked; the caller asks chip by chip then.
            if child is not self._supervisor.serving:
                return results
            asked: list[Chip] = []
            for chip in chips:
                try:
                    self._refuse_left_out((function, (*chip.place, *more)))
                    asked.append(chip)
                except DriverCallStuck as error:
                    results[chip] = error
            if asked:
                results |= await self._request_each(child, function, asked, more)
        return results

    async def _request_each(
        self, child: ChildProcess, function: str, chips: Sequence[Chip], more: tuple[int, ...]
    ) -> dict[Chip, msgspec.Raw | DriverError]:
        """Return value or error of the first of ``chips``, or only the error of the one that hangs.

        Raises ``DriverGone``.
        """
        loop = asyncio.get_running_loop()
        calls: list[Call] = [(function, (*chip.place, *more)) for chip in chips]
        sent = loop.time()
        try:
            message = await child.request_each(
                function, [arguments for _, arguments in calls], [*map(self._deadlines.of, calls)]
            )
        except (TimeoutError, DriverGone) as error:
            at = max(len(child.begun) - 1, 0)
            failed = self._failed(error, calls[at], chips[at], str(chips[at]), child)
            if isinstance(failed, DriverGone):
                raise failed from error
            return {chips[at]: failed}
        times = [*(child.begun or [sent]), loop.time()]
        for call, (begin, end) in zip(calls, itertools.pairwise(times), strict=False):
            self._deadlines.record(call, end - begin)
        results: dict[Chip, msgspec.Raw | DriverError] = {}
        for chip, call, answer in zip(chips, calls, message.each, strict=False):
            try:
                results[chip] = self._value(call, chip, answer)
            except DriverCallError as error:
                results[chip] = error
        return results

    def _value(self, call: Call, subject: str | Chip | None, message: Message) -> msgspec.Raw:
        if message.answer == 0 and message.wrong is None:
            return message.value
        # Only errors name the chip, and an agent at rest asks for each of them every 5 s.
        where = None if subject is None else str(subject)
        if message.answer != 0:
            raise self._installed.library.vendor.failed(call[0], where, message.answer)
        # The library answered 0 and filled in what cannot be (``binding.Implausible``).
        raise DriverCallError(call[0], where, 0, f"an answer that is not possible: {message.wrong}")

    def _follow_library(self) -> None:
        """Make all calls again after the library was replaced: the calls hung in the old one."""
        if self._installation is not self._installed.in_use:
            self._installation = self._installed.in_use
            self._left_out.clear()
            self._crashes.clear()

    def _refuse_left_out(self, call: Call) -> None:
        self._follow_library()
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
            message = await child.request(function, arguments, self._deadlines.of(call))
        except (TimeoutError, DriverGone) as error:
            raise self._failed(error, call, chip, where, child) from error
        # Only of a call that returned: a deadline must not grow by calls that hang.
        self._deadlines.record(call, loop.time() - begun)
        return message

    def _failed(
        self,
        error: TimeoutError | DriverGone,
        call: Call,
        chip: Chip | None,
        where: str | None,
        child: ChildProcess,
    ) -> DriverCallStuck | DriverGone:
        """Return the error of ``call``, which missed its deadline or in which ``child`` ended.

        It is left out from now on, where a child ended from the second time on.
        """
        function = call[0]
        if isinstance(error, TimeoutError):
            self._leave_out(call, chip, where, child)
            stuck = DriverCallStuck(function, where, self._left_out[call].since_ms)
            _log.warning("%s; it is left out from now on", stuck)
            # A thread of a library cannot be ended, so the whole process is replaced.
            self._supervisor.replace(child, str(stuck))
            return stuck
        # Once may be chance, or another call that damaged the memory.
        self._crashes[call] += child.crashed
        if self._crashes[call] >= _CRASHES:
            self._leave_out(call, chip, where, child)
            _log.warning("%s in %s again; the call is left out from now on", error, function)
        at = "" if where is None else f" on {where}"
        return DriverGone(f"{error} in {function}{at}")

    def _leave_out(
        self, call: Call, chip: Chip | None, where: str | None, child: ChildProcess
    ) -> None:
        period = self._settings.probe_seconds
        pauses = Backoff(_FIRST_PROBE * period, period, jitter=0.0)
        due = asyncio.get_running_loop().time() + pauses.next_seconds()
        self._left_out[call] = _LeftOut(chip, where, self._wall_clock(), child, pauses, due)
        self._has_left_out.set()

    async def run(self) -> NoReturn:
        """Probe calls that are left out, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            # An agent at rest does not wake up for it.
            self._has_left_out.clear()
            if not self._left_out:
                await self._has_left_out.wait()
            await asyncio.sleep(_FIRST_PROBE * self._settings.probe_seconds)
            due = [
                call
                for call, left_out in self._left_out.items()
                # While its last process hangs in the kernel, a probe would leave one more.
                if left_out.due <= loop.time() and left_out.child.reaped
            ]
            # When much hangs, processes are not started in a rush.
            for call in due:
                if not await self._try_again(call):
                    break

    async def _try_again(self, call: Call) -> bool:
        """Probe ``call``; return whether it is made again from now on."""
        left_out = self._left_out.pop(call)
        # Behind the others, so that each gets its turn.
        self._left_out[call] = left_out
        loop = asyncio.get_running_loop()
        left_out.due = loop.time() + left_out.pauses.next_seconds()
        try:
            child = await open_child(self._installed.library, self._settings, _ignore, _ignore)
        except DriverError as error:
            _log.info("no probe of %s: %s", call[0], error)
            return False
        left_out.child = child
        begun = loop.time()
        try:
            # The longest deadline: a call that is only slow is not to count as hanging.
            await child.request(*call, self._deadlines.longest)
        except (TimeoutError, DriverGone):
            return False
        finally:
            child.close()
        seconds = loop.time() - begun
        self._deadlines.record(call, seconds)
        del self._left_out[call]
        self._crashes.pop(call, None)
        at = "" if left_out.where is None else f" on {left_out.where}"
        slowly = "" if seconds < self._settings.call_seconds else f", after {seconds:.1f} s"
        self._log_state(f"{call[0]}{at} answers again{slowly}")
        return True


def _ignore(*_arguments: object) -> None:
    """Ignore messages: a probe's child sends nothing but its answer."""


class AdaptiveDeadline:
    """Deadlines in seconds, from the times of earlier answers.

    A call may take twice as long as it took last, at least ``usual`` and at most ``longest``; a
    longer deadline shrinks slowly. A call that never answered has the longest of all deadlines: a
    driver that is slow is so in most calls, and must not cost a process for each of them.
    """

    def __init__(self, usual: float, longest: float) -> None:
        self._usual = usual
        self.longest = max(usual, longest)
        self._by_call: dict[Hashable, float] = {}

    def of(self, call: Hashable) -> float:
        """Return the deadline of ``call`` in seconds."""
        state = self._by_call.get(call)
        return max(self._by_call.values(), default=self._usual) if state is None else state

    def record(self, call: Hashable, seconds: float) -> None:
        """Record that ``call`` answered after ``seconds``."""
        before = self._by_call.get(call, self._usual)
        deadline = max(self._usual, _MARGIN * seconds, _DECAY * before)
        self._by_call[call] = min(deadline, self.longest)

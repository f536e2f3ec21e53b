"""Which of its documents this agent writes now, and which it leaves to another program.

A document has one writer (docs/architecture.md, invariant 5). While a Device Plugin or NodeD writes
one of ours, it stays theirs, and the agent publishes the others. A program that has not written for
its longest period and a minute is gone: the Device Plugin rewrites ``device-info`` every 5 minutes,
NodeD ``node-info`` every 30 (``device-plugin#1.7``, ``noded#2.5``). With its next write the
document is theirs again.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from contract.errors import StoreError, StoreRefused
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    node_info_name,
)
from contract.record import Record
from contract.sentences import sentence
from pacing.backoff import Backoff
from pacing.waiting import TICK_SECONDS, now_seconds, shared_pause, wait_for_event
from stores.base import READ_SECONDS
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from service.watchdog import Watchdog
    from stores.base import LastWriter, Store

log = logging.getLogger("agent.ownership")

OURS = "npu-vigil"
"""The name under which we write."""
VENDOR_PROGRAMS = frozenset({"device-plugin", "noded"})
"""The names under which the real programs write: those of their executables."""
_STALL_SECONDS = 30.0
_GRACE_SECONDS = 60
_PROGRESS_SECONDS = 10.0


class Owned(Record, frozen=True):
    """A document that this agent is configured to write.

    ``kind`` is its name in ``documents``; ``rewritten_seconds`` the longest period with which
    another program writes it again.
    """

    kind: str
    namespace: str
    name: str
    rewritten_seconds: int


class OtherProgram(Record, frozen=True):
    """Another program that writes ``owned``; ``left_seconds`` until it counts as gone."""

    owned: Owned
    writer: LastWriter
    left_seconds: float

    @property
    def text(self) -> str:
        """The sentence about the program, and what to do."""
        owned = self.owned
        at = datetime.fromtimestamp(self.writer.at_ms / 1000, UTC)
        return sentence(
            "{namespace}/{name} is left to {program}, which wrote it at {time}: a document can "
            "have only one writer. Stop {program} on this node, or take {kind} out of "
            "`documents`. After the stop this agent writes it {seconds} s after that write, or at "
            "once after kubectl delete configmap -n {namespace} {name}",
            namespace=owned.namespace,
            name=owned.name,
            program=repr(self.writer.name),
            time=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            kind=owned.kind,
            seconds=f"{_silence_seconds(owned, self.writer):.0f}",
        )


def owned_by(node: str, kinds: Collection[str]) -> tuple[Owned, ...]:
    """Return the documents of ``node`` for an agent whose ``documents`` are ``kinds``."""
    both = (
        Owned("device-info", DEVICE_INFO_NAMESPACE, device_info_name(node), 300),
        Owned("node-info", NODE_INFO_NAMESPACE, node_info_name(node), 1800),
    )
    return tuple(owned for owned in both if owned.kind in kinds)


def other_program(owned: Owned, writer: LastWriter | None, now_ms: int) -> OtherProgram | None:
    """Return the program that writes ``owned``, given its last ``writer``; ``None`` for none.

    ``now_ms`` is epoch milliseconds.
    """
    if writer is None or writer.name == OURS:
        return None
    left_seconds = _silence_seconds(owned, writer) - (now_ms - writer.at_ms) / 1000
    return OtherProgram(owned, writer, left_seconds) if left_seconds > 0 else None


def _silence_seconds(owned: Owned, writer: LastWriter) -> float:
    """Return how long ``writer`` must be silent to count as gone, in seconds.

    One minute if unknown.
    """
    is_real = writer.name in VENDOR_PROGRAMS
    # The period of an unknown program is not known: one write of it must not hold the document for
    # long (decision 16).
    return (owned.rewritten_seconds if is_real else 0) + _GRACE_SECONDS


class Ownership:
    """Whether ``owned`` is this agent's to write; undecided until the store has answered once.

    ``on_change`` is called when that changes, ``on_failure`` with the error of each request that
    leaves it undecided.
    """

    def __init__(
        self,
        store: Store,
        owned: Owned,
        stalls: Watchdog,
        wall_clock: Callable[[], int],
        on_change: Callable[[], None],
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self.other: OtherProgram | None = None
        """The program to which the document is left."""
        self.decided = asyncio.Event()
        self.was_others = False
        """Whether another program wrote the document before; it may do so again."""
        self._store = store
        self._owned = owned
        self._wall_clock = wall_clock
        self._progress = stalls.register(f"ownership of {owned.kind}", _STALL_SECONDS)
        self._on_change = on_change
        self._on_failure = on_failure
        self._seen: LastWriter | None = None
        """The last write of another program."""
        self._until = 0.0
        self._woken = asyncio.Event()

    @property
    def is_ours(self) -> bool:
        """Whether the document may be written."""
        return self.decided.is_set() and self.other is None

    def wake(self) -> None:
        """Ask the store again, because the document was written or deleted."""
        self._woken.set()

    async def run(self) -> NoReturn:
        """Decide at the start, and again when the other program should have written."""
        backoff = Backoff()
        while True:
            self._progress()
            self._woken.clear()
            try:
                await self._ask()
            except StoreError as error:
                if not self.decided.is_set():
                    self._on_failure(error)
                await asyncio.sleep(backoff.next_seconds())
                continue
            backoff.reset()
            await self._wait()

    async def _wait(self) -> None:
        """Return when the other program counts as gone, or when woken."""
        while not self._woken.is_set() and (self.other is None or self._left_seconds() > 0):
            self._progress()
            seconds = shared_pause(_PROGRESS_SECONDS)
            if self.other is not None:
                seconds = max(TICK_SECONDS, min(seconds, self._left_seconds()))
            await wait_for_event(self._woken, seconds)

    async def _ask(self) -> None:
        """Read the last writer from the store. Raises ``StoreError``."""
        try:
            async with answered_within(READ_SECONDS):
                writer = await self._store.writer(self._owned.namespace, self._owned.name)
        # Faults are published without the right to see writers: they matter more than a conflict,
        # as in decision 5.
        except StoreRefused as error:
            log.warning("the other writers of %s are unknown: %s", self._owned.name, error)
            writer = None
        is_others = writer is not None and writer.name != OURS
        self.was_others = self.was_others or is_others
        if writer is None or not is_others:
            self._take_over()
        elif self._seen is None:
            # Only the age of the first write that is seen is by the host's clock (decision 16).
            other = other_program(self._owned, writer, self._wall_clock())
            if other is None:
                self._take_over()
            else:
                self._leave_to(other)
        elif self._is_news(writer):
            self._leave_to(self._back(writer))
        elif self._left_seconds() <= 0:
            self._take_over()

    async def query_after_change(self) -> None:
        """Leave the document to a real Device Plugin or NodeD that has written it.

        The same holds for the program from which it was taken over. Returns when that is decided; a
        store that does not answer decides nothing.
        """
        if not self.is_ours:
            return
        try:
            async with answered_within(READ_SECONDS):
                writer = await self._store.other_writer(self._owned.namespace, self._owned.name)
        except StoreError:
            return
        if writer is None or not self._is_news(writer):
            return
        if self._seen is not None and writer.name == self._seen.name:
            self._leave_to(self._back(writer))
        # Another program that begins while the document is ours is repaired (decision 16).
        elif writer.name in VENDOR_PROGRAMS:
            other = other_program(self._owned, writer, self._wall_clock())
            if other is not None:
                self._leave_to(other)

    def _is_news(self, writer: LastWriter) -> bool:
        # Both times are the store's, so the clocks of hosts do not matter (decision 16).
        return self._seen is None or writer.at_ms > self._seen.at_ms

    def _back(self, writer: LastWriter) -> OtherProgram:
        """Return the program that has just written once more: its period counts from now."""
        # An unknown program that returns gets the period of the real one, too (decision 16).
        return OtherProgram(self._owned, writer, self._owned.rewritten_seconds + _GRACE_SECONDS)

    def _leave_to(self, other: OtherProgram) -> None:
        before, self.other, self._seen = self.other, other, other.writer
        self.was_others = True
        # By a monotonic clock, because the clocks of hosts differ and are set.
        self._until = now_seconds() + other.left_seconds
        self.decided.set()
        if before is None:
            log.warning("%s", other.text)
            self._on_change()

    def _take_over(self) -> None:
        before, self.other = self.other, None
        if before is not None:
            name, writer = self._owned.name, before.writer.name
            log.warning("%s is written by this agent: %r does not write it any more", name, writer)
        if before is not None or not self.decided.is_set():
            self.decided.set()
            self._on_change()

    def _left_seconds(self) -> float:
        return self._until - now_seconds()

"""Sends the changes of faults in the journal to the aggregator until it acknowledges them.

A thread reads the journal in slices, so nothing here blocks the event loop, and memory is bounded
however much is to be sent. Only committed rows are sent, so a process that continues after ``kill
-9`` sends the same rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from typing import TYPE_CHECKING, NoReturn

from agent.history_forwarding.ack_window import AckWindow, Sent
from agent.history_forwarding.batch import batch_of
from agent.journal.file import FILE_NAME
from agent.journal.unacknowledged import read_behind, read_unacknowledged
from contract.errors import StoreError
from contract.pages.agent_status import HistoryForwarderStatus
from pacing.waiting import now_seconds, wait_for_event
from service.log.ongoing_failure import OngoingFailure
from stores.base import HistoryAck, HistoryBatch
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.journal.journal import Journal
    from agent.journal.unacknowledged import UnacknowledgedRows
    from stores.base import EventChannel

log = logging.getLogger("agent.episodes")

_MAX_ROWS = 64
_MAX_BYTES = 64 << 10
_SEND_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_TROUBLE = (sqlite3.Error, OSError)


class HistoryForwarder:
    """Send the changes in ``journal``, which lies in ``directory``, over ``channel`` for
    ``node``.
    """

    def __init__(
        self,
        channel: EventChannel,
        node: str,
        journal: Journal,
        directory: Path,
        wall_clock: Callable[[], int],
    ) -> None:
        self._channel = channel
        self._node = node
        self._journal = journal
        self._path = directory / FILE_NAME
        self._wall_clock = wall_clock
        self._window = AckWindow(0.0)
        self._name: str | None = None
        """The journal's own name."""
        self._name_before: str | None = None
        """The journal's name before it was found to be set back."""
        self._last_ack: HistoryAck | None = None
        self._wake = asyncio.Event()
        self._more = True
        self._behind = 0
        self._since_ms: int | None = None
        self._acknowledged: int | None = None
        self._sent = self._repeats = self._unanswered = 0
        self._trouble = OngoingFailure(
            log,
            "the history is not sent to an aggregator: %s; the journal keeps it",
            "an aggregator acknowledges the history again",
        )
        journal.notify(self.count)

    def status(self) -> HistoryForwarderStatus:
        """Return how far the aggregator is now."""
        return HistoryForwarderStatus(
            behind=self._behind,
            since_ms=self._since_ms,
            acknowledged=self._acknowledged,
            sent=self._sent,
            repeats=self._repeats,
            trouble=self._trouble.reason,
        )

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        self._window = AckWindow(now_seconds())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive_acks(), name="history acknowledgements")
            tasks.create_task(self._send_changes(), name="history batches")
        raise AssertionError("the tasks never end")

    def count(self, rows: int) -> None:
        """Count ``rows`` of changes that the journal has committed; they are sent next."""
        self._behind += rows
        if self._since_ms is None:
            self._since_ms = self._wall_clock()
        self._more = True
        self._wake.set()

    async def _receive_acks(self) -> NoReturn:
        async for event in self._channel.acks(self._node):
            if isinstance(event, Interrupted):
                self._last_ack = None
                self._window.forget(now_seconds())
                self._trouble.record_failure(event.reason)
            else:
                self._last_ack = event
                await self._apply_acks()
            self._wake.set()
        raise StoreError("the channel of the history ended")

    async def _apply_acks(self) -> None:
        """Apply the last acknowledgement.

        One of another journal counts as sequence 0 of this one.
        """
        if self._last_ack is None or self._name is None:
            return
        sequence = self._last_ack.sequence if self._last_ack.journal == self._name else 0
        # The journal was set back: the aggregator would take its new rows for those that it has.
        if sequence > self._journal.last_sequence:
            self._restart_renamed()
            return
        self._unanswered = 0
        self._trouble.end()
        begins = self._window.sent_upto is None or sequence < (self._acknowledged or 0)
        rows = self._window.acknowledge(sequence, now_seconds())
        self._acknowledged = sequence
        self._journal.acknowledged = sequence
        self._more = True
        if begins:
            await self._count(sequence)
            return
        self._behind = max(0, self._behind - rows)
        if self._behind == 0:
            self._since_ms = None
        elif self._window.sent:
            self._since_ms = self._window.sent[0].at_ms

    def _restart_renamed(self) -> None:
        """Begin again under a new name: the aggregator has rows that this older copy does not
        have.
        """
        log.error(
            "the journal is older than an aggregator's last acknowledgement; it is sent again "
            "under a new name"
        )
        self._name, self._name_before = None, self._name
        self._last_ack = None
        self._acknowledged = None
        self._journal.rename()
        self._window.forget(now_seconds())

    async def _count(self, acknowledged: int) -> None:
        """Count the rows behind ``acknowledged`` in the journal."""
        with contextlib.suppress(*_TROUBLE):
            behind = await asyncio.to_thread(read_behind, self._path, acknowledged)
            self._behind, self._since_ms = behind

    async def _send_changes(self) -> NoReturn:
        while True:
            self._wake.clear()
            pause = await self._step()
            await wait_for_event(self._wake, pause)

    async def _step(self) -> float | None:
        """Send all batches that may be sent now.

        Returns the seconds to wait, ``None`` until something happens.
        """
        if self._name is None and not await self._begin():
            return _RETRY_SECONDS
        if self._window.seconds(now_seconds()) == 0:
            await self._repeat()
        while self._more and self._window.may_send():
            if not await self._send_next():
                return _RETRY_SECONDS
        return self._window.seconds(now_seconds())

    async def _begin(self) -> bool:
        """Read the journal's name and its stored acknowledgement, which protects rows from
        retention.
        """
        unacknowledged = await self._read(0, rows=0)
        if unacknowledged is None or unacknowledged.journal == self._name_before:
            return False
        self._name = unacknowledged.journal
        if self._journal.acknowledged is None:
            self._journal.acknowledged = unacknowledged.acknowledged
        await self._count(unacknowledged.acknowledged)
        await self._apply_acks()
        return True

    async def _repeat(self) -> None:
        self._unanswered += 1
        if self._unanswered > 1:
            self._trouble.record_failure(
                "no aggregator answers: none runs, it cannot write its history, or the broker's "
                "access rules forbid it"
            )
        if self._window.repeat(now_seconds()):
            assert self._name is not None
            # An aggregator answers an empty batch with its sequence.
            await self._send(HistoryBatch(self._node, self._name, 0, 0, ()))
        else:
            self._repeats += 1
            self._more = True

    async def _send_next(self) -> bool:
        """Send the next batch; return ``False`` while the journal cannot be read."""
        after = self._window.sent_upto
        self._more = False
        unacknowledged = await self._read(after or 0, rows=_MAX_ROWS)
        if unacknowledged is None:
            self._more = True
            return False
        if after is None or self._window.sent_upto != after:
            self._more = True  # an acknowledgement came meanwhile
            return True
        if unacknowledged.journal != self._name:
            log.warning("the journal was replaced; from here on the new one is sent")
            self._name = unacknowledged.journal
            self._window.forget(now_seconds())
            self._more = True
            return True
        batch = batch_of(self._node, unacknowledged, after)
        if batch is not None:
            self._more = self._more or unacknowledged.more
            at_ms = unacknowledged.rows[0].at_ms if unacknowledged.rows else self._wall_clock()
            sent = Sent(after, batch.upto, len(unacknowledged.rows), at_ms)
            self._window.record_sent(sent, now_seconds())
            await self._send(batch)
        return True

    async def _read(self, after: int, rows: int) -> UnacknowledgedRows | None:
        try:
            return await asyncio.to_thread(
                read_unacknowledged, self._path, after, max_rows=rows, max_bytes=_MAX_BYTES
            )
        except _TROUBLE:
            return None  # the journal logs what is wrong with it

    async def _send(self, batch: HistoryBatch) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._channel.send(batch)
            self._sent += 1
        except TimeoutError:
            pass  # not acknowledged, so it is sent again
        except StoreError as error:
            self._trouble.record_failure(str(error))
            self._window.forget(now_seconds())

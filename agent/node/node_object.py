"""Keeps the labels and annotations of our Node.

Source: ``docs/spec/device-plugin.md#6.2`` and 6.3, ``docs/spec/noded.md#4.2``. They are written
once where they differ, and repaired when another program changes or removes them. A key that
another program keeps writing is written again after pauses. All other keys, and the status that the
kubelet writes often, cost nothing but a comparison.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from agent.node.labels import ANNOTATION, LABEL
from agent.node.serial_number import ANNOTATION as SERIAL_NUMBER
from contract.errors import StoreConflict, StoreError, StoreRefused
from contract.pages.agent_status import NodeObjectStatus
from pacing.backoff import Backoff
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure
from service.owned_documents.foreign_writes import ForeignWrites
from stores.base import WRITE_SECONDS
from stores.deadline import answered_within
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.name_claim import NameClaim
    from agent.node.chip_labels import ChipLabels
    from agent.node.labels import Key
    from agent.node.serial_number import SerialNumber
    from stores.base import ClusterObjects, NodeObject

log = logging.getLogger("agent.node_object")

_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 60.0
_SHOWN_SECONDS = 5.0
"""How long a watch may take to show what was written."""


class NodeObjectWriter:
    """Keeps the Node called ``node`` while ``claim`` permits it."""

    def __init__(
        self,
        objects: ClusterObjects,
        node: str,
        claim: NameClaim,
        chips: ChipLabels | None,
        serial_number: SerialNumber | None,
    ) -> None:
        self._objects = objects
        self._node = node
        self._claim = claim
        self._chips = chips
        self._serial_number = serial_number
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        if serial_number is not None:
            serial_number.notify(self.wake)
        self._first_read = asyncio.Event()
        self._seen: NodeObject | None = None
        self._shown: dict[Key, str | None] = {}
        self._written: dict[Key, tuple[str | None, float]] = {}
        self._foreign: defaultdict[Key, ForeignWrites] = defaultdict(ForeignWrites)
        self._writes = 0
        self._trouble = OngoingFailure(
            log,
            "%s; retried until it succeeds",
            f"node {node} can be read and written again",
            level=logging.ERROR,
        )

    def wake(self) -> None:
        """Compare the Node again: its desired keys may have changed."""
        self._wake.set()

    def status(self) -> NodeObjectStatus:
        """Return the state of the writer now."""
        fought = (name for (_, name), foreign in self._foreign.items() if foreign.is_conflict)
        conflicts = tuple(sorted(fought))
        changes = sum(foreign.total for foreign in self._foreign.values())
        return NodeObjectStatus(self._writes, changes, conflicts, self._trouble.reason)

    async def run(self) -> NoReturn:
        """Keep the Node until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="node watch")
            tasks.create_task(self._follow_chips(), name="node facts")
            tasks.create_task(self._write(), name="node labels")
        raise AssertionError("these tasks never end")

    # The observed Node.

    async def _follow(self) -> None:
        watch = partial(self._objects.watch_node, self._node)
        # Labels are not worth the end of the agent, so a refusal is not an error here.
        async for seen in followed(watch, _REFUSED_SECONDS):
            if isinstance(seen, Interrupted):
                self._trouble.record_failure(f"node {self._node} cannot be watched: {seen.reason}")
            else:
                self._trouble.end()
                self._observe(seen)
            self._first_read.set()

    def _observe(self, seen: NodeObject) -> None:
        """Apply the Node as it is now, and count foreign writes of our keys."""
        self._seen = seen
        # The Node is not there, which is not a foreign change of its keys.
        if not seen.version:
            self._shown.clear()
            self._written.clear()
            return
        now = self._loop.time()
        for key, (value, _) in tuple(self._written.items()):
            if _value_of(seen, key) == value:
                del self._written[key]
                self._shown[key] = value
        for key, value in self._ours():
            there = _value_of(seen, key)
            # Only what was shown with our value can have been changed by another program.
            if key not in self._written and self._shown.get(key) == value and there != value:
                self._count_foreign(key, now)
            self._shown[key] = there
        self._wake.set()

    def _count_foreign(self, key: Key, now: float) -> None:
        foreign = self._foreign[key]
        foreign.record_foreign_write(now)
        if not foreign.is_conflict:
            log.warning("%s: the agent repaired a foreign change", _text(key))
        foreign.report(log, _text(key))

    async def _follow_chips(self) -> None:
        if self._chips is not None:
            await self._first_read.wait()
            await self._chips.run(lambda: self._seen, self._wake.set)

    def _ours(self) -> Iterable[tuple[Key, str]]:
        """Return our keys with their desired values."""
        if self._seen is None:
            return
        if self._chips is not None:
            yield from self._chips.desired(self._seen)
        if self._serial_number is not None and self._serial_number.number is not None:
            yield (ANNOTATION, SERIAL_NUMBER), self._serial_number.number

    # Writing.

    async def _write(self) -> NoReturn:
        backoff = Backoff()
        while True:
            differences, due = self._differences()
            if not differences or not self._claim.may_publish:
                pause = _RETRY_SECONDS if differences else due
                await wait_for_event(self._wake, pause)
                self._wake.clear()
                continue
            # The watch may show it before the answer is here.
            now = self._loop.time()
            until = now + _SHOWN_SECONDS
            for key in differences:
                self._foreign[key].record_write(now)
            self._written.update((key, (value, until)) for key, value in differences.items())
            try:
                async with answered_within(WRITE_SECONDS):
                    await self._objects.set_node(
                        self._node,
                        _of(LABEL, differences),
                        _of(ANNOTATION, differences),
                        # One that arrives late undoes nothing that was written after it.
                        expected=None if self._seen is None else self._seen.version,
                    )
            except StoreConflict:
                # It has changed since, maybe by an attempt of ours that got no answer.
                self._written.clear()
                await asyncio.sleep(backoff.next_seconds())
                continue
            except StoreError as error:
                self._written.clear()
                self._trouble.record_failure(
                    f"labels of node {self._node} cannot be written: {error}"
                )
                refused = isinstance(error, StoreRefused)
                await asyncio.sleep(_REFUSED_SECONDS if refused else backoff.next_seconds())
                continue
            backoff.reset()
            self._trouble.end()
            self._writes += 1

    def _differences(self) -> tuple[dict[Key, str | None], float | None]:
        """Return what to write now, and the seconds until the next comparison."""
        if self._seen is None or not self._seen.version:
            return {}, None
        now = self._loop.time()
        differing: dict[Key, str | None] = {}
        due: list[float] = []
        for key, foreign in self._foreign.items():
            foreign.end_if_over(now)
            foreign.report(log, _text(key))
            if foreign.is_conflict:
                due.append(foreign.seconds_until_over(now))
        for key, value in (*self._ours(), *self._obsolete_keys()):
            if _value_of(self._seen, key) == value:
                continue
            mine = self._written.get(key)
            fought = self._foreign[key].pause_seconds(now)
            if mine is not None and mine[0] == value and now < mine[1]:
                due.append(mine[1] - now)
            elif fought > 0:
                due.append(fought)
            else:
                differing[key] = value
        return differing, min(due, default=None)

    def _obsolete_keys(self) -> Iterable[tuple[Key, None]]:
        if self._chips is not None and self._seen is not None:
            yield from ((key, None) for key in self._chips.obsolete_keys(self._seen))


def _text(key: Key) -> str:
    """Return the name of a key as the log has it."""
    return f"{' '.join(key)} of the node"


def _value_of(node: NodeObject, key: Key) -> str | None:
    kind, name = key
    return (node.labels if kind == LABEL else node.annotations).get(name)


def _of(kind: str, differences: dict[Key, str | None]) -> dict[str, str | None]:
    return {name: value for (where, name), value in differences.items() if where == kind}

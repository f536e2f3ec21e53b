"""The documents of this node: who makes each, and who publishes those that this agent owns.

In shadow nobody publishes anything: device-info is compared with what somebody else writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from agent.journal.file import Kind, body_of
from agent.pages.status import publication_status
from agent.policy.state import LINK_SOURCE, Acknowledged
from agent.policy.stepping import Input, is_one_off_waiting
from agent.publishing.device_info import DeviceInfoDocument
from agent.publishing.node_info import NodeInfoDocument
from agent.publishing.publisher import Edges, Publisher
from agent.shadow.reasons import Background
from agent.shadow.shadow import Edges as ShadowEdges
from agent.shadow.shadow import Shadow
from contract.isolation import chip_of
from contract.observation import Observation, SourceAnswered, chip_subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from agent.journal.journal import Journal
    from agent.pages.status import PublicationStatus
    from agent.policy.state import State
    from agent.publishing.publication import Publication
    from agent.publishing.publisher import Wanted
    from agent.shadow.ledger import Told
    from agent.verdicts import Verdicts
    from collectors.base import WallClock
    from service.stalls import Stalls
    from stores.base import Document, Store

_COMMIT_SECONDS = 0.020
_MEMORY_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0


class Made(Protocol):
    """One document, made from the state."""

    namespace: str
    name: str

    def wanted(self) -> Wanted | None:
        """What is to be published now; ``None``: what is there must stay as it is."""

    def take_over(self, existing: Document | None) -> tuple[Input, ...]:
        """What the document that is there remembers, for an agent without a journal."""

    def released(self, foreign: Document, now_ms: int) -> tuple[Input, ...]:
        """What an operator had the right to change in a foreign write."""

    def named(self, document: Document | None) -> tuple[int, ...] | None:
        """The chips that ``document`` isolates; ``None`` for one that never does."""

    def stamp_of(self, document: Document) -> int | None:
        """The time of a stored document in seconds; ``None`` when it cannot be trusted."""

    def verify(self, document: Document) -> None:
        """Raises ``DocumentError`` if readers would refuse ``document``."""


@dataclass(frozen=True)
class Desk:
    """What the documents need of their daemon.

    While ``may_publish`` says no, what is there stays as it is; ``look_around`` asks anew.
    """

    store: Store
    verdicts: Verdicts
    journal: Journal
    progress: Stalls
    wall_clock: WallClock
    may_publish: Callable[[], bool]
    look_around: Callable[[], Awaitable[None]]


class Documents:
    """All documents of ``node``; those of the kinds in ``owned`` have a publisher.

    With ``shadowed`` none has one, and ``shadow`` compares device-info.
    """

    def __init__(
        self, node: str, owned: Collection[str], desk: Desk, *, shadowed: bool = False
    ) -> None:
        self._desk = desk
        self.device_info = DeviceInfoDocument(node, self._state)
        documents: dict[str, Made] = {
            "device-info": self.device_info,
            "node-info": NodeInfoDocument(node, self._state),
        }
        self.publishers = {
            kind: self._publisher(kind, document)
            for kind, document in documents.items()
            if kind in owned and not shadowed
        }
        self.shadow = self._shadow() if shadowed else None
        self._left_alone = [made for kind, made in documents.items() if kind not in self.publishers]
        self._unread = {"device-info"} if shadowed else set(self.publishers)
        self._all_read = asyncio.Event()
        known = self._state()
        self._has_journal = bool(known.chips or known.others)
        self._sources_began = False

    def _state(self) -> State:
        return self._desk.verdicts.state

    def _wanted(self, document: Made) -> Wanted | None:
        return document.wanted() if self._desk.may_publish() else None

    def _publisher(self, kind: str, document: Made) -> Publisher:
        return Publisher(
            self._desk.store,
            document.namespace,
            document.name,
            Edges(
                wanted=partial(self._wanted, document),
                stamp_of=document.stamp_of,
                verify=document.verify,
                before_write=self._until_committed,
                before_repair=self._desk.look_around,
                on_first_read=partial(self._first_read, kind, document),
                on_foreign=partial(self._foreign, document),
                on_acknowledged=partial(self._acknowledged, kind, document),
                on_shown=partial(self._is_shown, document),
                wall_clock=self._desk.wall_clock,
                progress=self._desk.progress.of(f"publisher of {kind}", _PATIENCE_SECONDS),
            ),
        )

    def _shadow(self) -> Shadow:
        made = self.device_info
        return Shadow(
            self._desk.store,
            made.namespace,
            made.name,
            ShadowEdges(
                wanted=made.wanted,
                lingers=self._lingers,
                on_first_read=partial(self._first_read, "device-info", made),
                on_written=self._written,
                on_told=self._told,
                background=Background(
                    is_known=lambda code: code in self._desk.verdicts.tables.chip_levels,
                    is_link_blind=self._is_link_blind,
                ),
                wall_clock=self._desk.wall_clock,
                progress=self._desk.progress.of("shadow", _PATIENCE_SECONDS),
            ),
        )

    @property
    def records(self) -> dict[str, Publication]:
        """How the publishing of each owned document goes, by its kind."""
        return {kind: publisher.record for kind, publisher in self.publishers.items()}

    def statuses(self) -> tuple[PublicationStatus, ...]:
        """The same, for people."""
        return tuple(
            publication_status(kind, publisher.name, self._desk.store.url, publisher.record)
            for kind, publisher in self.publishers.items()
        )

    def wake(self, event_ms: int) -> None:
        """Something that was seen at ``event_ms`` may want a write."""
        for publisher in self.publishers.values():
            publisher.wake(event_ms)
        if self.shadow is not None:
            self.shadow.wake()
        for document in self._left_alone:
            if is_one_off_waiting(self._state(), document.name):
                # Nobody will ever acknowledge it: it is over as if it had been published now.
                # Not within the change that is being told of.
                asyncio.get_running_loop().call_soon(self._take_acknowledged, document)

    async def remembered(self) -> None:
        """Wait until the stored documents have told what they remember, but not for long.

        Without a journal they are the memory of this agent. What is told after its sources have
        begun would be in nobody's beliefs, so it does not count, except for why our own policy
        upgraded a code: that is no source's belief, and its end is the policy's.
        """
        if not self._has_journal and not self._sources_began:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MEMORY_SECONDS):
                    await self._all_read.wait()
            self._sources_began = True

    async def _until_committed(self) -> None:
        journal = self._desk.journal
        await journal.committed(journal.last_sequence, _COMMIT_SECONDS)

    def _first_read(self, kind: str, document: Made, existing: Document | None) -> None:
        now_ms = self._desk.wall_clock()
        reports: tuple[Input, ...] = ()
        if not self._has_journal and not self._sources_began:
            reports = tuple(_by_now(report, now_ms) for report in document.take_over(existing))
        if document is self.device_info:
            isolation = self.device_info.take_over_isolation(
                existing, now_ms, has_journal=self._has_journal
            )
            # Before the faults, whose times may be those of their upgrades.
            reports = (*isolation, *reports)
        if reports:
            self._desk.verdicts.take(reports, now_ms)
        self._unread.discard(kind)
        if not self._unread:
            self._all_read.set()

    def _written(self, foreign: Document, may_be_edited: bool) -> None:
        """Somebody else wrote what we only compare: an operator's release shows in it, too.

        What it names can be released from now on, as if we had written it. A name that the Device
        Plugin itself leaves out was released by nobody (defects K01 to K03).
        """
        made = self.device_info
        if made.stamp_of(foreign) is None:
            return
        if may_be_edited:
            self._foreign(made, foreign)
        now_ms, revision = self._desk.wall_clock(), self._state().revision
        self._desk.verdicts.take([Acknowledged(made.name, revision, now_ms, made.named(foreign))])

    def _lingers(self) -> bool:
        return any(
            fault.once or fault.doubted_at_ms is not None
            for _, known in self._state().subjects()
            for fault in known.faults.values()
        )

    def _is_link_blind(self, device: str) -> bool:
        chip = chip_of(device)
        return chip is not None and LINK_SOURCE in self._state().of(chip_subject(chip)).blind

    def _told(self, told: Told) -> None:
        self._desk.journal.append([(Kind.SHADOW, body_of(told))], self._desk.wall_clock())

    def _foreign(self, document: Made, foreign: Document) -> bool:
        now_ms = self._desk.wall_clock()
        inputs = document.released(foreign, now_ms)
        if inputs:
            self._desk.verdicts.take(inputs, now_ms)
        return bool(inputs)

    def _acknowledged(
        self, kind: str, made: Made, document: Document | None, revision: int
    ) -> None:
        now_ms = self._desk.wall_clock()
        row = {
            "document": made.name,
            "store": self._desk.store.url,
            "revision": revision,
            "update_time": self.publishers[kind].record.acknowledged_stamp,
            "absent": document is None,
        }
        self._desk.journal.append([(Kind.PUBLICATION, body_of(row))], now_ms)
        acknowledged = Acknowledged(made.name, revision, now_ms, made.named(document))
        self._desk.verdicts.take([acknowledged])

    def _is_shown(self, document: Made) -> None:
        """A one-off event of a code that is shown already changes nothing that could be written."""
        if is_one_off_waiting(self._state(), document.name):
            self._take_acknowledged(document)

    def _take_acknowledged(self, document: Made) -> None:
        now_ms = self._desk.wall_clock()
        revision = self._state().revision
        self._desk.verdicts.take([Acknowledged(document.name, revision, now_ms)])


def _by_now(remembered: Input, now_ms: int) -> Input:
    """``remembered`` with no time after now: stamps run ahead, and clocks are set back."""
    match remembered:
        case Observation():
            return replace(remembered, seen_at_ms=min(remembered.seen_at_ms, now_ms))
        case SourceAnswered():
            return replace(remembered, at_ms=min(remembered.at_ms, now_ms))
    return remembered

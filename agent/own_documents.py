"""What is decided about each document of this node: who may write it, and what others may change.

A publisher asks the object of its document (``PublishedDocument``). The documents have most answers
in common. Device-info also has what operators isolate and release, node-info the heartbeat of old
releases. In shadow, the comparison asks the object of device-info instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from agent.journal.rows import RowKind, body_of
from agent.policy.state import LINK_SOURCE, Acknowledged, ChipsRemembered, Forgotten, Released
from agent.policy.step import Input, is_one_off_waiting
from agent.publishing.node_info_heartbeat import NodeInfoHeartbeat
from agent.publishing.ownership import Ownership
from agent.publishing.publisher import DocumentPublisher
from agent.shadow.reasons import Background
from agent.shadow.shadow import is_edit
from contract.documents.separation import chip_of
from contract.observation import Observation, SourceAnswered, chip_subject
from contract.record import Record
from pacing.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from agent.fault_state import FaultState
    from agent.journal.journal import Journal
    from agent.name_claim import NameClaim
    from agent.policy.state import PolicyState
    from agent.publishing.device_info import DeviceInfoDocument
    from agent.publishing.node_info import NodeInfoDocument
    from agent.publishing.ownership import Owned
    from agent.publishing.publisher import DesiredDocument
    from collectors.base import WallClock
    from contract.errors import StoreError
    from contract.pages.agent_status import ReportedDifference
    from service.watchdog import Watchdog
    from stores.base import Document, Store

# A publication waits for its commit, but no longer (decision 2).
_COMMIT_SECONDS = 0.020
# The collectors begin without a store that gives no answer.
_MEMORY_SECONDS = 1.0
_STALL_SECONDS = 30.0


class NodeDocument(Protocol):
    """One document of this node, rendered from the state."""

    namespace: str
    name: str

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish now; ``None`` leaves the stored one as it is."""

    def restore_from(self, existing: Document | None) -> tuple[Input, ...]:
        """Return the faults in the stored document ``existing``, as inputs of an agent without a
        journal.
        """

    def stamp_of(self, document: Document) -> int | None:
        """Return the time of a stored document in seconds; ``None`` when it is not plausible."""

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse ``document``."""


class DocumentsContext(Record, frozen=True):
    """The parts of the agent that its documents use.

    ``on_chips_restored`` is called when a document named chips: collectors of chips must start
    again. ``on_reconnected`` is called when the store is watched again after an interruption.
    """

    store: Store
    fault_state: FaultState
    journal: Journal
    stalls: Watchdog
    claim: NameClaim
    wall_clock: WallClock
    on_chips_restored: Callable[[], None]
    on_reconnected: Callable[[], None] = lambda: None

    @property
    def state(self) -> PolicyState:
        """The state of the policy now."""
        return self.fault_state.state


class StoredMemory:
    """Which of the stored documents of ``kinds`` were read, and what counts of them.

    Without a journal the stored documents are the memory of the agent.
    """

    def __init__(self, context: DocumentsContext, kinds: Collection[str]) -> None:
        state = context.state
        # A journal without any state has less than the stored documents.
        self.has_journal = bool(state.chips or state.others or state.server)
        self._context = context
        self._unread = set(kinds)
        self._all_read = asyncio.Event()
        self._sources_began = False

    def await_also(self, kinds: Collection[str]) -> None:
        """Wait for the documents of ``kinds``, too."""
        self._unread |= set(kinds)

    def record_read(self, kind: str) -> None:
        """Record that the document of ``kind`` was read."""
        self._unread.discard(kind)
        if not self._unread:
            self._all_read.set()

    async def wait_until_read(self) -> None:
        """Wait until the stored documents were read, at most ``_MEMORY_SECONDS``.

        An agent without a journal restores its state from them. What is read after the collectors
        have started is not in their trackers, so it does not count. The exception are the reasons
        why our own policy upgraded a code: no collector tracks these, and only the policy ends
        them.
        """
        if not self.has_journal and not self._sources_began:
            await wait_for_event(self._all_read, _MEMORY_SECONDS)
            self._sources_began = True

    def restored(self, reports: Sequence[Input], now_ms: int) -> tuple[Input, ...]:
        """Return those of ``reports``, made from a stored document, that count."""
        if self.has_journal:
            return ()
        counted = tuple(_not_after_now(report, now_ms) for report in reports)
        return self.of_silent_chips(counted) if self._sources_began else counted

    def of_silent_chips(self, reports: Sequence[Input]) -> tuple[Input, ...]:
        """Return the reports about chips that have not answered yet: no collector tracks a code of
        them.

        A chip that was read already is not restored again.
        """
        chips = self._context.state.chips
        were_read = {number for number, chip in chips.items() if chip.was_read}
        answered = {number for number in were_read if not chips[number].silent}
        return tuple(
            report
            for report in reports
            if isinstance(report, ChipsRemembered | Observation | Forgotten)
            and report.subject.kind == "chip"
            and report.subject.id
            not in (were_read if isinstance(report, ChipsRemembered) else answered)
        )


def _not_after_now(remembered: Input, now_ms: int) -> Input:
    """Return ``remembered`` with no time after now: stamps run ahead, and clocks are set back."""
    match remembered:
        case Observation():
            return replace(remembered, seen_at_ms=min(remembered.seen_at_ms, now_ms))
        case SourceAnswered() | ChipsRemembered():
            return replace(remembered, at_ms=min(remembered.at_ms, now_ms))
    return remembered


class OwnDocument:
    """The document of ``kind`` that ``node_document`` renders; it is a ``PublishedDocument``.

    ``ownership`` is ``None`` where no other program could own it, and in shadow.
    """

    def __init__(
        self,
        kind: str,
        node_document: NodeDocument,
        context: DocumentsContext,
        memory: StoredMemory,
    ) -> None:
        self.kind = kind
        self.node_document = node_document
        self.namespace = node_document.namespace
        self.name = node_document.name
        self.ownership: Ownership | None = None
        self.publisher: DocumentPublisher | None = None
        self._context = context
        self._memory = memory

    def make_publisher(self) -> DocumentPublisher:
        """Return a new publisher of this document."""
        context = self._context
        progress = context.stalls.register(f"publisher of {self.kind}", _STALL_SECONDS)
        self.publisher = DocumentPublisher(context.store, self, context.wall_clock, progress)
        return self.publisher

    def share(self, owned: Owned, on_change: Callable[[], None]) -> Ownership:
        """Leave the document to another program while that writes it; return who owns it.

        ``on_change`` is called when that changes.
        """

        def changed() -> None:
            self._on_owner_changed()
            on_change()

        context = self._context
        self.ownership = Ownership(
            context.store, owned, context.stalls, context.wall_clock, changed, self._on_undecided
        )
        return self.ownership

    @property
    def is_left(self) -> bool:
        """Whether another program writes this document; not known until the store has answered."""
        return self.ownership is not None and self.ownership.other is not None

    @property
    def has_rival(self) -> bool:
        """Whether another agent has the same node name."""
        return self._context.claim.has_rival

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish; ``None`` while it is not this agent's to write."""
        is_ours = self.ownership is None or self.ownership.is_ours
        may_publish = self._context.claim.may_publish and is_ours
        desired = self.node_document.desired() if may_publish else None
        if desired is None:
            return None
        # Changes are journaled in the turn in which they are made, so it shows all of them.
        return replace(desired, through=self._context.journal.last_sequence)

    def stamp_of(self, document: Document) -> int | None:
        """Return the time of a stored document in seconds; ``None`` when it is not plausible."""
        return self.node_document.stamp_of(document)

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse ``document``."""
        self.node_document.verify(document)

    def blocks_updates(self, shown: Document) -> bool:  # noqa: ARG002
        """Return whether ``shown`` must be deleted before the next write: it never has to be."""
        return False

    async def before_write(self) -> None:
        """Wait for the journal, at most for a moment: a slow disk delays no document."""
        journal = self._context.journal
        await journal.committed(journal.last_sequence, _COMMIT_SECONDS)

    async def before_repair(self) -> None:
        """Find out whether another program owns the document, or another agent has our name."""
        if self.ownership is not None:
            await self.ownership.query_after_change()
        # A write of another program shows nothing about agents with our node name.
        if not self.is_left:
            await self._context.claim.check()

    def on_first_read(self, existing: Document | None) -> None:
        """Restore from the document that was stored at the start what counts of it."""
        now_ms = self._context.wall_clock()
        self._observe_stored(existing)
        inputs = self._inputs_of_stored(existing, now_ms)
        if inputs:
            self._context.fault_state.apply_inputs(inputs, now_ms)
            if any(isinstance(item, ChipsRemembered) for item in inputs):
                self._context.on_chips_restored()
        self._observe_owner(existing)
        # Last, because the collectors begin with the state that is restored by then.
        self._memory.record_read(self.kind)

    def on_foreign_write(self, foreign: Document) -> bool:  # noqa: ARG002
        """Return whether ``foreign`` was an operator's right: nothing in most documents is."""
        return False

    def on_write_of_owner(
        self,
        before: Document | None,  # noqa: ARG002
        shown: Document | None,  # noqa: ARG002
    ) -> None:
        """Ask again who owns the document, while it is left to another program."""
        if self.is_left and self.ownership is not None:
            self.ownership.wake()

    def on_acknowledged(self, document: Document | None, revision: int, through: int) -> None:
        """Journal that the store has ``document``, and end what readers have seen."""
        if document is None and not self._context.store.absence_is_deletion:
            # Only the heartbeat shows that it was this agent that deleted it.
            self._context.claim.beat_now()
        if self._is_only_a_beat(document, revision):
            return
        assert self.publisher is not None
        now_ms = self._context.wall_clock()
        row = {
            "document": self.name,
            "store": self._context.store.url,
            "revision": revision,
            "through": through,
            "update_time": self.publisher.record.acknowledged_stamp,
            "absent": document is None,
        }
        self._context.journal.append([(RowKind.PUBLICATION, body_of(row))], now_ms)
        named = self._separated_chips(document)
        self._context.fault_state.apply_inputs([Acknowledged(self.name, revision, now_ms, named)])

    def on_shown(self) -> None:
        """Acknowledge a one-off event that the stored document already shows: it changes no
        document.
        """
        if is_one_off_waiting(self._context.state, self.name):
            self.acknowledge_now()

    def on_reconnected(self) -> None:
        """Note that the store is watched again after an interruption."""
        self._context.on_reconnected()

    def acknowledge_now(self) -> None:
        """Apply that the store has the present state, as if it had been published now."""
        now_ms = self._context.wall_clock()
        revision = self._context.state.revision
        self._context.fault_state.apply_inputs([Acknowledged(self.name, revision, now_ms)])

    def _on_undecided(self, error: StoreError) -> None:
        assert self.publisher is not None
        self.publisher.record_store_failure(error)

    def _on_owner_changed(self) -> None:
        """Take over from another program, or leave the document to it."""

    def _observe_stored(self, existing: Document | None) -> None:
        """Take over what the stored document has beside faults."""

    def _observe_owner(self, existing: Document | None) -> None:
        """Take over what the owner of the document wrote, where that is another program."""

    def _inputs_of_stored(self, existing: Document | None, now_ms: int) -> tuple[Input, ...]:
        """Return the inputs by which the policy restores the document stored at the start."""
        if self._memory.has_journal:
            return ()  # the journal knows more than any document
        return self._memory.restored(self.node_document.restore_from(existing), now_ms)

    def _separated_chips(
        self,
        document: Document | None,  # noqa: ARG002
    ) -> tuple[int, ...] | None:
        """Return the chips that ``document`` names as separated; ``None`` where it never does."""
        return None

    def _is_only_a_beat(
        self,
        document: Document | None,  # noqa: ARG002
        revision: int,  # noqa: ARG002
    ) -> bool:
        """Return whether a write changed only the heartbeat, which the history does not need."""
        return False


class OwnNodeInfo(OwnDocument):
    """Node-info: parts of the server, and the heartbeat of old releases."""

    def __init__(
        self, node_document: NodeInfoDocument, context: DocumentsContext, memory: StoredMemory
    ) -> None:
        super().__init__("node-info", node_document, context, memory)
        self._node_info = node_document
        self._logged_revision: int | None = None

    def blocks_updates(self, shown: Document) -> bool:
        """Return whether readers of old releases would refuse an update of ``shown``."""
        return self._node_info.blocks_updates(shown)

    def _observe_stored(self, existing: Document | None) -> None:
        self._node_info.observe_stored(existing)

    def _is_only_a_beat(self, document: Document | None, revision: int) -> bool:
        if not isinstance(self._node_info, NodeInfoHeartbeat):
            return False
        logged, self._logged_revision = self._logged_revision, revision
        return document is not None and logged == revision


class OwnDeviceInfo(OwnDocument):
    """Device-info: chips, and what operators isolate and release in it."""

    def __init__(
        self, node_document: DeviceInfoDocument, context: DocumentsContext, memory: StoredMemory
    ) -> None:
        super().__init__("device-info", node_document, context, memory)
        self._device_info = node_document
        self._left_document: Document | None = None
        """The last write of the program to which the document is left."""

    def on_foreign_write(self, foreign: Document) -> bool:
        """Apply what an operator may change: the separations. Return whether there was any."""
        now_ms = self._context.wall_clock()
        inputs: tuple[Input, ...] = self._device_info.operator_releases(foreign, now_ms)
        if self._is_edit_of_newest(foreign):
            inputs = (*inputs, *self._device_info.operator_requests(foreign, now_ms))
        if inputs:
            self._context.fault_state.apply_inputs(inputs, now_ms)
        return bool(inputs)

    def on_write_of_owner(self, before: Document | None, shown: Document | None) -> None:
        """Apply a write of the program, or of an operator, to a document that is left to it."""
        super().on_write_of_owner(before, shown)
        if not self.is_left or shown is None:
            return
        now_ms = self._context.wall_clock()
        isolation = self._device_info.restore_isolation(shown, now_ms, has_journal=True)
        # A name that only the plugin leaves out is not a release (decision 16).
        added = [item for item in isolation if not isinstance(item, Released)]
        if added:
            self._context.fault_state.apply_inputs(added, now_ms)
        self.record_owner_write(shown, is_edit(before, shown))

    def record_owner_write(self, foreign: Document, may_be_edited: bool) -> None:
        """Apply the write of another program to a document that we only compare.

        It may hold releases. A chip that it names can be released from now on, as if we had written
        the name. A name that the Device Plugin itself leaves out is not released by an operator
        (defects K01 to K03).
        """
        document = self._device_info
        if document.stamp_of(foreign) is None:
            return
        if self.is_left:
            self._left_document = foreign
        if may_be_edited:
            self.on_foreign_write(foreign)
        now_ms, revision = self._context.wall_clock(), self._context.state.revision
        self._context.fault_state.apply_inputs(
            [Acknowledged(document.name, revision, now_ms, document.separated_chips(foreign))]
        )

    def _is_edit_of_newest(self, foreign: Document) -> bool:
        """Return whether ``foreign`` was made from our last write.

        An old copy must not separate a chip.
        """
        stamp = self._device_info.stamp_of(foreign)
        if self.publisher is None or stamp is None or self.is_left:
            return False
        return stamp >= (self.publisher.record.acknowledged_stamp or 0)

    def _on_owner_changed(self) -> None:
        if self.is_left or self._left_document is None:
            return
        foreign_document, self._left_document = self._left_document, None
        now_ms = self._context.wall_clock()
        differences = self._device_info.differences_to(foreign_document, now_ms)
        inputs = self._memory.of_silent_chips(differences)
        if inputs:
            self._context.fault_state.apply_inputs(inputs, now_ms)
            self._context.on_chips_restored()

    def _observe_stored(self, existing: Document | None) -> None:
        self._device_info.observe_stored(existing)
        if self._device_info.inventory is None and self._context.state.server is None:
            self._context.on_chips_restored()

    def _observe_owner(self, existing: Document | None) -> None:
        if existing is not None and self.is_left:
            self.record_owner_write(existing, may_be_edited=False)

    def _inputs_of_stored(self, existing: Document | None, now_ms: int) -> tuple[Input, ...]:
        reports = super()._inputs_of_stored(existing, now_ms)
        isolation = self._device_info.restore_isolation(
            existing, now_ms, has_journal=self._memory.has_journal
        )
        if self.is_left:
            isolation = tuple(item for item in isolation if not isinstance(item, Released))
        # Before the faults, whose times may be those of their upgrades.
        return (*isolation, *reports)

    def _separated_chips(self, document: Document | None) -> tuple[int, ...] | None:
        return self._device_info.separated_chips(document)


class ShadowedDeviceInfo(OwnDeviceInfo):
    """Device-info in shadow: compared with what a Device Plugin writes, never published."""

    @property
    def background(self) -> Background:
        """What explains differences beside the documents."""
        fault_state = self._context.fault_state
        return Background(
            is_known=lambda code: code in fault_state.tables.chip_levels,
            is_link_blind=self._is_link_blind,
        )

    def desired(self) -> DesiredDocument | None:
        """Return what would be published, whoever has the node name."""
        return self.node_document.desired()

    def lingers(self) -> bool:
        """Return whether something in it may be over for other programs."""
        return any(
            fault.once or fault.unconfirmed_at_ms is not None
            for _, subject_state in self._context.state.subjects()
            for fault in subject_state.faults.values()
        )

    def on_reported(self, difference: ReportedDifference) -> None:
        """Journal a difference."""
        self._context.journal.append(
            [(RowKind.SHADOW, body_of(difference))], self._context.wall_clock()
        )

    def _is_link_blind(self, device: str) -> bool:
        chip = chip_of(device)
        return chip is not None and LINK_SOURCE in self._context.state.of(chip_subject(chip)).blind

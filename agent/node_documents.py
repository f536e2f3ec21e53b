"""The documents of this node: how each is made, and publishers for those that this agent owns.

In shadow nothing is published: device-info is compared with what a Device Plugin writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from agent.journal.rows import RowKind, body_of
from agent.pages.status import publication_status
from agent.policy.state import LINK_SOURCE, Acknowledged, ChipsRemembered, Forgotten, Released
from agent.policy.step import Input, is_one_off_waiting
from agent.publishing.device_info import DeviceInfoDocument
from agent.publishing.node_info import NodeInfoDocument
from agent.publishing.node_info_heartbeat import NodeInfoHeartbeat
from agent.publishing.ownership import Ownership, owned_by
from agent.publishing.public_fault import PublicFaultDocument
from agent.publishing.publisher import DocumentPublisher, PublisherCallbacks
from agent.publishing.unacknowledged_faults import NodePublicFaults
from agent.publishing.vigil_key import VigilKeyText
from agent.shadow.reasons import Background
from agent.shadow.shadow import Shadow, is_edit
from agent.shadow.shadow import ShadowCallbacks as ShadowCallbacks
from contract.codes.storage_faults import RESOURCES
from contract.documents.separation import chip_of
from contract.documents.write_numbers import encode_writes
from contract.errors import StoreError
from contract.observation import Observation, SourceAnswered, chip_subject
from pacing.backoff import Backoff
from pacing.waiting import is_set_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from typing import NoReturn

    from agent.chip_allocation import StoreAllocation
    from agent.fault_state import FaultState
    from agent.journal.journal import Journal
    from agent.journal.rows import JournalRow
    from agent.policy.state import PolicyState
    from agent.publishing.node_info_heartbeat import NodeInfoBeat
    from agent.publishing.publisher import DesiredDocument
    from collectors.base import WallClock
    from contract.pages.agent_status import PublicationStatus, ReportedDifference
    from service.stalls import Stalls
    from stores.base import Document, Store

_COMMIT_SECONDS = 0.020
_MEMORY_SECONDS = 1.0
_LOOK_SECONDS = 2**-7
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


@dataclass(frozen=True)
class DocumentsContext:
    """What the documents need of their daemon.

    While ``may_publish`` returns ``False``, stored documents stay as they are; ``check_now``
    checks again. ``has_rival``: another agent with this node name is alive. ``reconnected`` is
    called when the store is watched again after an interruption.
    """

    store: Store
    fault_state: FaultState
    journal: Journal
    progress: Stalls
    wall_clock: WallClock
    may_publish: Callable[[], bool]
    check_now: Callable[[], Awaitable[None]]
    has_rival: Callable[[], bool]
    on_chips_restored: Callable[[], None]
    """Called when a document named chips: collectors of chips must start again."""
    reconnected: Callable[[], None] = lambda: None
    deleted: Callable[[], None] = lambda: None
    """Called when we deleted a document in a store where only the heartbeat shows that we did it.
    """


class NodeDocuments:
    """All documents of ``node``; those of the kinds in ``owned`` have a publisher.

    With ``shadowed`` none has one, and ``shadow`` compares device-info. The owner of node-info also
    publishes storage faults, ``storage_faults``: in documents of their own, which get a publisher
    with the first fault, or, ``over_grpc``, through another client. ``restored_row`` is the
    journal's row about them. ``beating`` renders the heartbeat in node-info, where it has one.
    ``ownership`` has each owned document by its kind: while another program writes it, ours is not
    published.
    """

    def __init__(
        self,
        node: str,
        owned: Collection[str],
        context: DocumentsContext,
        *,
        shadowed: bool = False,
        over_grpc: bool = False,
        cards_together: bool = False,
        restored_row: JournalRow | None = None,
        beating: NodeInfoBeat | None = None,
        allocation: StoreAllocation | None = None,
    ) -> None:
        self._context = context
        named = VigilKeyText(self._state, context.wall_clock, self._wake_now).named
        self._named_blind = (lambda: None) if shadowed else named
        self.device_info = DeviceInfoDocument(
            node,
            self._state,
            self._named_blind,
            cards_together=cards_together,
            allocation=allocation,
        )
        self._node_info = (
            NodeInfoDocument(node, self._state, self._key_in_node_info)
            if beating is None
            else NodeInfoHeartbeat(node, self._state, beating, self._key_in_node_info)
        )
        documents: dict[str, NodeDocument] = {
            "device-info": self.device_info,
            "node-info": self._node_info,
        }
        self.ownership = {
            one.kind: Ownership(
                context.store,
                one,
                context.wall_clock,
                context.progress.of(f"ownership of {one.kind}", _STALL_SECONDS),
                partial(self._ownership_changed, one.kind),
                partial(self._not_decided, one.kind),
            )
            for one in owned_by(node, () if shadowed else owned)
        }
        self.publishers = {
            kind: self._publisher(kind, document)
            for kind, document in documents.items()
            if kind in owned and not shadowed
        }
        self.records = {kind: publisher.record for kind, publisher in self.publishers.items()}
        """The publication of each owned document, by its kind."""
        self.storage_faults = NodePublicFaults(
            node, self._chips, context.journal, context.wall_clock, queues=over_grpc
        )
        self.storage_faults.restore(restored_row)
        self.owns_storage = "node-info" in owned and not shadowed
        self.storage = {
            f"{client.lower()}-fault": PublicFaultDocument(
                client, self.storage_faults, self._state, self._wake_now
            )
            for client in RESOURCES
            if self.owns_storage and not over_grpc
        }
        self.shadow = self._shadow() if shadowed else None
        self._documents = documents
        self._unpublished = [
            made for kind, made in documents.items() if kind not in self.publishers
        ]
        self._unread = {"device-info"} if shadowed else set(self.publishers)
        self._all_read = asyncio.Event()
        known = self._state()
        self._has_journal = bool(known.chips or known.others or known.server)
        self._sources_began = False
        if not self._has_journal:
            self._unread |= self.storage.keys()
        self._logged_revision: int | None = None
        self._foreign_device_info: Document | None = None
        """The last write of the program to which device-info is left."""

    def _state(self) -> PolicyState:
        return self._context.fault_state.state

    def _chips(self) -> tuple[int, ...] | None:
        inventory = self.device_info.inventory
        return None if inventory is None else tuple(chip.physical_id for chip in inventory.chips)

    def _key_in_node_info(self) -> str | None:
        """Return our own data key for node-info; ``None`` while device-info alone has it.

        A Device Plugin removes data keys that are not its own. So once another program wrote
        device-info, which may do so again at any time, both documents have the key
        (``docs/decisions/014``). A node-info that already has the key shows that this was so.
        """
        device_info = self.ownership.get("device-info")
        is_there = (
            device_info is None or device_info.was_others or self._node_info.was_found_with_own_key
        )
        named = self._named_blind() if is_there else None
        return None if named is None else named.text

    def _desired(self, kind: str, document: NodeDocument) -> DesiredDocument | None:
        may_publish = self._context.may_publish() and not self._is_left(kind)
        return document.desired() if may_publish else None

    def _is_left(self, kind: str) -> bool:
        """Return whether another program writes the document of ``kind``."""
        ownership = self.ownership.get(kind)
        return ownership is not None and not ownership.is_ours

    def _ownership_changed(self, kind: str) -> None:
        if (
            kind == "device-info"
            and not self._is_left(kind)
            and self._foreign_device_info is not None
        ):
            left, self._foreign_device_info = self._foreign_device_info, None
            now_ms = self._context.wall_clock()
            inputs = self._of_silent_chips(self.device_info.differences_to(left, now_ms))
            if inputs:
                self._context.fault_state.apply(inputs, now_ms)
                self._context.on_chips_restored()
        self._wake_now()

    def _not_decided(self, kind: str, error: StoreError) -> None:
        self.publishers[kind].record_store_failure(error)

    async def _before_repair(self, kind: str) -> None:
        ownership = self.ownership.get(kind)
        if ownership is not None:
            await ownership.ask_after_change()
        if not self._is_left(kind):
            await self._context.check_now()

    def _publisher(self, kind: str, document: NodeDocument) -> DocumentPublisher:
        return DocumentPublisher(
            self._context.store,
            document.namespace,
            document.name,
            PublisherCallbacks(
                desired=partial(self._desired, kind, document),
                stamp_of=document.stamp_of,
                verify=document.verify,
                before_write=self._until_committed,
                before_repair=partial(self._before_repair, kind),
                on_others_write=partial(self._others_wrote, kind, document),
                on_first_read=partial(self._first_read, kind, document),
                on_foreign=partial(self._foreign, document),
                on_acknowledged=partial(self._acknowledged, kind, document),
                on_shown=partial(self._is_shown, document),
                wall_clock=self._context.wall_clock,
                progress=self._context.progress.of(f"publisher of {kind}", _STALL_SECONDS),
                blocks_updates=partial(self._blocks_updates, document),
                has_rival=self._context.has_rival,
                on_reconnected=self._context.reconnected,
            ),
        )

    def _blocks_updates(self, document: NodeDocument, shown: Document) -> bool:
        return document is self._node_info and self._node_info.blocks_updates(shown)

    def _shadow(self) -> Shadow:
        made = self.device_info
        return Shadow(
            self._context.store,
            made.namespace,
            made.name,
            ShadowCallbacks(
                desired=made.desired,
                lingers=self._lingers,
                on_first_read=partial(self._first_read, "device-info", made),
                on_written=self._written,
                on_reported=self._on_difference,
                background=Background(
                    is_known=lambda code: code in self._context.fault_state.tables.chip_levels,
                    is_link_blind=self._is_link_blind,
                ),
                wall_clock=self._context.wall_clock,
                progress=self._context.progress.of("shadow", _STALL_SECONDS),
            ),
        )

    def statuses(self) -> tuple[PublicationStatus, ...]:
        """Return the publication of each owned document, for the status page."""
        return tuple(
            publication_status(
                kind,
                publisher.name,
                self._context.store.url,
                publisher.record,
                None if (owned := self.ownership.get(kind)) is None else owned.other,
            )
            for kind, publisher in self.publishers.items()
        )

    def writes(self) -> str:
        """Return the text about our last writes that goes with the heartbeat.

        All documents of the configuration are named, from the start on. One without a write, in a
        conflict or left to another program has the number 0.
        """
        if self.shadow is not None:
            return ""
        numbers = dict.fromkeys((*self.ownership, *self.storage), 0)
        for kind, publisher in self.publishers.items():
            if publisher.number is not None and not self._is_left(kind):
                numbers[kind] = publisher.number
        return encode_writes(numbers, whole=True)

    def wake(self, event_ms: int) -> None:
        """Have each publisher compare again, because of an event seen at ``event_ms``."""
        if self.owns_storage:
            self.storage_faults.update(self._state())
        for publisher in self.publishers.values():
            publisher.wake(event_ms)
        if self.shadow is not None:
            self.shadow.wake()
        left = [made for kind, made in self._documents.items() if self._is_left(kind)]
        for document in (*self._unpublished, *left):
            if is_one_off_waiting(self._state(), document.name):
                # No store will ever acknowledge it: it is over as if it had been published now.
                # Not within the change that is being reported.
                asyncio.get_running_loop().call_soon(self._take_acknowledged, document)

    async def wait_until_settled(self, within_seconds: float) -> None:
        """Wait until the current state is published, at most ``within_seconds``."""
        for _ in range(round(within_seconds / _LOOK_SECONDS)):
            if all(one.is_settled for one in self.publishers.values()):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _wake_now(self) -> None:
        self.wake(self._context.wall_clock())

    async def publish(self, kind: str) -> NoReturn:
        """Publish the document of ``kind`` while no other program writes it."""
        async with asyncio.TaskGroup() as tasks:
            ownership = self.ownership[kind]
            tasks.create_task(ownership.run(), name=f"ownership of {kind}")
            # The owner decides whether a missing name is a release, and which document has our own
            # data key.
            for one in self.ownership.values():
                await one.decided.wait()
            await self.publishers[kind].run()
        raise AssertionError("both go on until they are cancelled")

    async def publish_storage(self, kind: str) -> NoReturn:
        """Publish the storage faults of ``kind``, beginning with the first fault that ever was."""
        document = self.storage[kind]
        if not self._has_journal:
            existing = await self._read_stored(document)
            document.adopt(existing)
            self._first_read(kind, document, existing)
            self._wake_now()
        while not document.is_needed:
            self.storage_faults.changed.clear()
            await self.storage_faults.changed.wait()
        self.publishers[kind] = self._publisher(kind, document)
        self.records[kind] = self.publishers[kind].record
        await self.publishers[kind].run()

    async def _read_stored(self, document: NodeDocument) -> Document | None:
        backoff = Backoff()
        while True:
            with contextlib.suppress(StoreError):
                return await self._context.store.get(document.namespace, document.name)
            await asyncio.sleep(backoff.next_seconds())

    async def wait_until_read(self) -> None:
        """Wait until the stored documents were read, at most ``_MEMORY_SECONDS``.

        An agent without a journal restores its state from them. What is read after the collectors
        have started is not in their trackers, so it does not count. The exception are the reasons
        why our own policy upgraded a code: no collector tracks these, and only the policy ends
        them.
        """
        if not self._has_journal and not self._sources_began:
            await is_set_within(self._all_read, _MEMORY_SECONDS)
            self._sources_began = True

    async def _until_committed(self) -> None:
        journal = self._context.journal
        await journal.committed(journal.last_sequence, _COMMIT_SECONDS)

    def _first_read(self, kind: str, document: NodeDocument, existing: Document | None) -> None:
        now_ms = self._context.wall_clock()
        if document is self._node_info:
            self._node_info.observe_stored(existing)
        if document is self.device_info:
            self.device_info.observe_stored(existing)
            if self.device_info.inventory is None and self._state().server is None:
                self._context.on_chips_restored()
        inputs = self._inputs_of_stored(kind, document, existing, now_ms)
        if inputs:
            self._context.fault_state.apply(inputs, now_ms)
            if any(isinstance(item, ChipsRemembered) for item in inputs):
                self._context.on_chips_restored()
        if document is self.device_info and existing is not None and self._is_left(kind):
            self._written(existing, may_be_edited=False)
        self._unread.discard(kind)
        if not self._unread:
            self._all_read.set()

    def _inputs_of_stored(
        self, kind: str, document: NodeDocument, existing: Document | None, now_ms: int
    ) -> tuple[Input, ...]:
        """Return the inputs by which the policy restores the document stored at the start."""
        reports: tuple[Input, ...] = ()
        if not self._has_journal:
            reports = tuple(
                _not_after_now(report, now_ms) for report in document.restore_from(existing)
            )
            if self._sources_began:
                reports = self._of_silent_chips(reports)
        if document is self.device_info:
            isolation = self.device_info.restore_isolation(
                existing, now_ms, has_journal=self._has_journal
            )
            if self._is_left(kind):
                isolation = tuple(one for one in isolation if not isinstance(one, Released))
            # Before the faults, whose times may be those of their upgrades.
            reports = (*isolation, *reports)
        return reports

    def _of_silent_chips(self, reports: Sequence[Input]) -> tuple[Input, ...]:
        """Return the reports about chips that have not answered yet: no collector tracks a code of
        them.

        A chip that is known already is not restored again.
        """
        chips = self._state().chips
        known = {chip for chip, one in chips.items() if one.was_read}
        answered = {chip for chip in known if not chips[chip].silent}
        return tuple(
            report
            for report in reports
            if isinstance(report, ChipsRemembered | Observation | Forgotten)
            and report.subject.kind == "chip"
            and report.subject.id
            not in (known if isinstance(report, ChipsRemembered) else answered)
        )

    def _others_wrote(
        self, kind: str, made: NodeDocument, before: Document | None, shown: Document | None
    ) -> None:
        """Apply a write of another program or an operator to a document that is left to that
        program.
        """
        if not self._is_left(kind):
            return
        self.ownership[kind].wake()
        if made is self.device_info and shown is not None:
            now_ms = self._context.wall_clock()
            found = self.device_info.restore_isolation(shown, now_ms, has_journal=True)
            added = [one for one in found if not isinstance(one, Released)]
            if added:
                self._context.fault_state.apply(added, now_ms)
            self._written(shown, is_edit(before, shown))

    def _written(self, foreign: Document, may_be_edited: bool) -> None:
        """Apply the write of another program to a document that we only compare.

        It may hold releases.

        A chip that it names can be released from now on, as if we had written the name. A name that
        the Device Plugin itself leaves out is no operator's release (defects K01 to K03).
        """
        made = self.device_info
        if made.stamp_of(foreign) is None:
            return
        if self._is_left("device-info"):
            self._foreign_device_info = foreign
        if may_be_edited:
            self._foreign(made, foreign)
        now_ms, revision = self._context.wall_clock(), self._state().revision
        self._context.fault_state.apply(
            [Acknowledged(made.name, revision, now_ms, made.separated_chips(foreign))]
        )

    def _lingers(self) -> bool:
        return any(
            fault.once or fault.unconfirmed_at_ms is not None
            for _, known in self._state().subjects()
            for fault in known.faults.values()
        )

    def _is_link_blind(self, device: str) -> bool:
        chip = chip_of(device)
        return chip is not None and LINK_SOURCE in self._state().of(chip_subject(chip)).blind

    def _on_difference(self, difference: ReportedDifference) -> None:
        self._context.journal.append(
            [(RowKind.SHADOW, body_of(difference))], self._context.wall_clock()
        )

    def _foreign(self, document: NodeDocument, foreign: Document) -> bool:
        """Apply what an operator may change in a document: the separations in device-info."""
        if document is not self.device_info:
            return False
        now_ms = self._context.wall_clock()
        inputs: tuple[Input, ...] = self.device_info.operator_releases(foreign, now_ms)
        if self._is_edit_of_newest(foreign):
            inputs = (*inputs, *self.device_info.operator_requests(foreign, now_ms))
        if inputs:
            self._context.fault_state.apply(inputs, now_ms)
        return bool(inputs)

    def _is_edit_of_newest(self, foreign: Document) -> bool:
        """Return whether ``foreign`` was made from our last write.

        An old copy must not separate a chip.
        """
        publisher, stamp = self.publishers.get("device-info"), self.device_info.stamp_of(foreign)
        if publisher is None or stamp is None or self._is_left("device-info"):
            return False
        return stamp >= (publisher.record.acknowledged_stamp or 0)

    def _acknowledged(
        self, kind: str, made: NodeDocument, document: Document | None, revision: int
    ) -> None:
        if document is None and not self._context.store.absence_is_deletion:
            self._context.deleted()
        if self._is_only_a_beat(made, document, revision):
            return
        now_ms = self._context.wall_clock()
        row = {
            "document": made.name,
            "store": self._context.store.url,
            "revision": revision,
            "update_time": self.publishers[kind].record.acknowledged_stamp,
            "absent": document is None,
        }
        self._context.journal.append([(RowKind.PUBLICATION, body_of(row))], now_ms)
        named = self.device_info.separated_chips(document) if made is self.device_info else None
        self._context.fault_state.apply([Acknowledged(made.name, revision, now_ms, named)])

    def _is_only_a_beat(self, made: NodeDocument, document: Document | None, revision: int) -> bool:
        """Return whether a write changed only the heartbeat, which the history does not need."""
        if made is not self._node_info or not isinstance(made, NodeInfoHeartbeat):
            return False
        logged, self._logged_revision = self._logged_revision, revision
        return document is not None and logged == revision

    def _is_shown(self, document: NodeDocument) -> None:
        """Acknowledge a one-off event that the stored document already shows: it changes no
        document.
        """
        if is_one_off_waiting(self._state(), document.name):
            self._take_acknowledged(document)

    def _take_acknowledged(self, document: NodeDocument) -> None:
        now_ms = self._context.wall_clock()
        revision = self._state().revision
        self._context.fault_state.apply([Acknowledged(document.name, revision, now_ms)])


def _not_after_now(remembered: Input, now_ms: int) -> Input:
    """Return ``remembered`` with no time after now: stamps run ahead, and clocks are set back."""
    match remembered:
        case Observation():
            return replace(remembered, seen_at_ms=min(remembered.seen_at_ms, now_ms))
        case SourceAnswered() | ChipsRemembered():
            return replace(remembered, at_ms=min(remembered.at_ms, now_ms))
    return remembered

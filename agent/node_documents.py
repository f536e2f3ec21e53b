"""The documents of this node: how each is made, and publishers for those that this agent owns.

In shadow nothing is published: device-info is compared with what a Device Plugin writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from agent.own_documents import (
    OwnDeviceInfo,
    OwnDocument,
    OwnNodeInfo,
    ShadowedDeviceInfo,
    StoredMemory,
)
from agent.pages.status import publication_status
from agent.policy.step import is_one_off_waiting
from agent.publishing.device_info import DeviceInfoDocument
from agent.publishing.node_info import NodeInfoDocument
from agent.publishing.node_info_heartbeat import NodeInfoHeartbeat
from agent.publishing.ownership import owned_by
from agent.publishing.public_fault import PublicFaultDocument
from agent.publishing.unacknowledged_faults import NodePublicFaults
from agent.publishing.vigil_key import VigilKeyText
from agent.shadow.shadow import Shadow
from contract.codes.storage_faults import RESOURCES
from contract.documents.write_numbers import encode_writes
from contract.errors import StoreError
from pacing.backoff import Backoff
from pacing.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import NoReturn

    from agent.chip_allocation import StoreAllocation
    from agent.journal.rows import JournalRow
    from agent.own_documents import DocumentsContext
    from agent.policy.state import PolicyState
    from agent.publishing.node_info_heartbeat import NodeInfoBeat
    from contract.pages.agent_status import PublicationStatus
    from stores.base import Document

_POLL_SECONDS = 2**-7
_STALL_SECONDS = 30.0


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
        own = () if shadowed else owned
        self._memory = StoredMemory(context, {"device-info"} if shadowed else own)
        shadowed_info = ShadowedDeviceInfo(self.device_info, context, self._memory)
        self._documents: dict[str, OwnDocument] = {
            "device-info": shadowed_info
            if shadowed
            else OwnDeviceInfo(self.device_info, context, self._memory),
            "node-info": OwnNodeInfo(self._node_info, context, self._memory),
        }
        self.publishers = {
            kind: document.make_publisher()
            for kind, document in self._documents.items()
            if kind in own
        }
        self.ownership = {
            document.kind: self._documents[document.kind].share(document, self._wake_now)
            for document in owned_by(node, own)
        }
        self.records = {kind: publisher.record for kind, publisher in self.publishers.items()}
        """The publication of each owned document, by its kind."""
        self.storage_faults = NodePublicFaults(
            node, self._chips, context.journal, context.wall_clock, queues=over_grpc
        )
        self.storage_faults.restore_ledger(restored_row)
        self.owns_storage = "node-info" in own
        self.storage = {
            f"{client.lower()}-fault": PublicFaultDocument(
                client, self.storage_faults, self._state, self._wake_now
            )
            for client in RESOURCES
            if self.owns_storage and not over_grpc
        }
        # With a journal, its row has the storage faults, and no document must be awaited.
        if not self._memory.has_journal:
            self._memory.await_also(self.storage.keys())
        self.shadow = None
        if shadowed:
            progress = context.stalls.register("shadow", _STALL_SECONDS)
            self.shadow = Shadow(context.store, shadowed_info, context.wall_clock, progress)
        if allocation is not None:
            allocation.notify(self.wake)
        context.claim.notify(self._wake_now)

    def _state(self) -> PolicyState:
        return self._context.state

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

    def _is_left(self, kind: str) -> bool:
        """Return whether another program writes the document of ``kind``."""
        document = self._documents.get(kind)  # storage faults have no other writer
        return document is not None and document.is_left

    def wake(self, event_ms: int) -> None:
        """Have each publisher compare again, because of an event seen at ``event_ms``."""
        if self.owns_storage:
            self.storage_faults.update(self._state())
        for publisher in self.publishers.values():
            publisher.wake(event_ms)
        if self.shadow is not None:
            self.shadow.wake()
        for document in self._documents.values():
            is_published = document.publisher is not None and not document.is_left
            if not is_published and is_one_off_waiting(self._state(), document.name):
                # No store will ever acknowledge it: it is over as if it had been published now.
                # Not within the change that is being reported.
                asyncio.get_running_loop().call_soon(document.acknowledge_now)

    async def wait_until_device_info(self, within_seconds: float) -> None:
        """Wait until the store has device-info of this agent, at most ``within_seconds``.

        Return at once where this agent does not own it.
        """
        publisher = self.publishers.get("device-info")
        if publisher is not None:
            await wait_for_event(publisher.agreed, within_seconds)

    async def wait_until_settled(self, within_seconds: float) -> None:
        """Wait until the current state is published, at most ``within_seconds``."""
        for _ in range(round(within_seconds / _POLL_SECONDS)):
            if all(publisher.is_settled for publisher in self.publishers.values()):
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _wake_now(self) -> None:
        self.wake(self._context.wall_clock())

    async def publish(self, kind: str) -> NoReturn:
        """Publish the document of ``kind`` while no other program writes it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.ownership[kind].run(), name=f"ownership of {kind}")
            # The owner decides whether a missing name is a release, and which document has our own
            # data key.
            for ownership in self.ownership.values():
                await ownership.decided.wait()
            await self.publishers[kind].run()
        raise AssertionError("both go on until they are cancelled")

    async def publish_storage(self, kind: str) -> NoReturn:
        """Publish the storage faults of ``kind``, beginning with the first fault that ever was."""
        node_document = self.storage[kind]
        document = OwnDocument(kind, node_document, self._context, self._memory)
        if not self._memory.has_journal:
            existing = await self._read_stored(node_document)
            node_document.adopt(existing)
            document.on_first_read(existing)
            self._wake_now()
        while not node_document.is_needed:
            self.storage_faults.changed.clear()
            await self.storage_faults.changed.wait()
        self.publishers[kind] = publisher = document.make_publisher()
        self.records[kind] = publisher.record
        await publisher.run()

    async def _read_stored(self, document: PublicFaultDocument) -> Document | None:
        backoff = Backoff()
        while True:
            with contextlib.suppress(StoreError):
                return await self._context.store.get(document.namespace, document.name)
            await asyncio.sleep(backoff.next_seconds())

    async def wait_until_read(self) -> None:
        """Wait until the stored documents were read; see ``StoredMemory``."""
        await self._memory.wait_until_read()

"""Constructs the parts of the node daemon from its configuration and connects them.

A part is made after those that it uses, and gets them themselves. Where two parts need each other,
one of them only has listeners (``notify``), or there is an object between them that is made first:
``NameClaim`` is between the heartbeat and whatever is written.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from agent.all_chips_blind import AgentBlindness
from agent.chip_allocation import StoreAllocation
from agent.chip_list import ChipList
from agent.chip_removal import ChipRemoval
from agent.collector_setup import Collecting
from agent.fault_configuration.watch import FaultConfiguration, FaultConfigurationCallbacks
from agent.fault_state import FaultState, configured_by, restored_state
from agent.heartbeat.heartbeat import Heartbeat
from agent.heartbeat.old_readers import old_readers
from agent.history_forwarding.forwarder import HistoryForwarder
from agent.journal.journal import Journal
from agent.kubernetes_events.sender import EventSender, reporter_of
from agent.name_claim import NameClaim, this_holder
from agent.node.chip_labels import ChipLabels
from agent.node.device_plugin import DevicePluginAccount, DuoCards
from agent.node.node_object import NodeObjectWriter
from agent.node.own_node_only import OwnNodeOnlyCheck
from agent.node.serial_number import serial_number_of
from agent.node_documents import NodeDocuments
from agent.own_documents import DocumentsContext
from agent.pages.state_changes import StateChanges
from agent.publishing.fault_service import FaultServiceClient
from agent.publishing.fault_service_address import FaultServiceAddress
from agent.state_dir import first_sequence, restore_journal
from collectors.boot import boot_id, machine_digest
from collectors.storage.collector import StorageSection
from contract.codes import catalogue
from contract.operator_rules.fault_configuration import catalogue_of
from contract.record import Record
from service.pages.event_stream import PLACES, Stream
from service.tls.expiry import CertificateFiles
from service.watchdog import Watchdog
from stores.read_only import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from agent.config import AgentConfiguration
    from agent.heartbeat.old_readers import OldReaders
    from agent.journal.file import RestoredJournal
    from agent.node.serial_number import SerialNumber
    from dcmi_shim.driver import Driver
    from dcmi_shim.values import ChipNames
    from stores.base import ClusterObjects, KubernetesEvent, Store

log = logging.getLogger("agent.parts")


class AgentContext(Record, frozen=True):
    """What the daemon was started with, and the clocks of its parts."""

    configuration: AgentConfiguration
    store: Store
    driver: Driver
    wall_clock: Callable[[], int]
    started_at_ms: int
    stalls: Watchdog

    @property
    def node(self) -> str:
        """The name of this node."""
        return self.configuration.node_name

    @property
    def device_info_objects(self) -> ClusterObjects | None:
        """The Kubernetes objects to write besides device-info; ``None`` unless we own that."""
        return self.store.objects if "device-info" in self.configuration.documents else None


class ClusterParts(Record, frozen=True):
    """What this agent writes and reads beside its documents; ``None``: a part is not used."""

    events: EventSender | None
    node_object: NodeObjectWriter | None
    own_node_only: OwnNodeOnlyCheck | None
    device_plugin: DevicePluginAccount | None
    duo_cards: DuoCards | None
    serial_number: SerialNumber | None
    fault_service: FaultServiceClient | None
    forwarder: HistoryForwarder | None
    allocation: StoreAllocation | None

    def root_work(self) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """Yield what starts the root task of each part that is used, with its name."""
        parts = {
            "ClusterD's fault service": self.fault_service,
            "events": self.events,
            "node labels": self.node_object,
            "duo cards": self.duo_cards,
            "account of a device plugin": self.device_plugin,
            "own-node-only": self.own_node_only,
            "episodes": self.forwarder,
            "serial number": self.serial_number,
            "pods": self.allocation,
        }
        for name, part in parts.items():
            if part is not None:
                yield name, part.run


class ChipParts(Record, frozen=True):
    """The list of chips, requests to forget one, and whether all of them are blind.

    ``names`` are those of NPU exporter, by physical id.
    """

    listing: ChipList
    removal: ChipRemoval
    blindness: AgentBlindness
    names: dict[int, ChipNames]


class _NodeWatches(Record, frozen=True):
    """What the store shows about this node beside documents; ``None``: it does not, or unused."""

    own_node_only: OwnNodeOnlyCheck | None
    allocation: StoreAllocation | None

    def wake(self) -> None:
        """Ask again whether writes are limited to this node."""
        if self.own_node_only is not None:
            self.own_node_only.wake()


class _BeatContent(Record, frozen=True):
    """See ``BeatContent``."""

    blindness: AgentBlindness
    documents: NodeDocuments

    def is_blind(self) -> bool:
        return self.blindness.is_blind()

    def writes(self) -> str:
        return self.documents.writes()


class AgentParts:
    """All parts of this agent; nothing runs by itself."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        store: Store,
        driver: Driver,
        wall_clock: Callable[[], int],
    ) -> None:
        self.context = agent = _context(configuration, store, driver, wall_clock)
        self.restored = restored = restore_journal(configuration.state_dir, agent.started_at_ms)
        self.fault_state = _fault_state(agent, restored, self._changed)
        self.journal = Journal(
            configuration.state_dir,
            first_sequence=first_sequence(restored, boot_id()),
            wall_clock=wall_clock,
            on_recovered=self.fault_state.complete_journal,
        )
        self.claim = NameClaim(agent.node, this_holder(configuration.state_dir))
        self.collecting = Collecting(
            configuration, driver, self.fault_state, agent.stalls, wall_clock
        )
        self.old_readers = _old_readers(agent)
        watches = _node_watches(agent, self.journal, restored)
        context = DocumentsContext(
            agent.store,
            self.fault_state,
            self.journal,
            agent.stalls,
            self.claim,
            wall_clock,
            self.collecting.restart_chip_collectors,
            watches.wake,
        )
        self.documents = _documents(agent, context, self.old_readers, restored, watches)
        self.chips = _chip_parts(agent, self.fault_state, self.documents, self.collecting)
        self.heartbeat = _heartbeat(
            agent, self.claim, self.chips.blindness, self.documents, self.old_readers
        )
        self.certificates = certificate_files(configuration)
        self.cluster = _cluster_parts(agent, self.journal, self.claim, self.documents, watches)
        self.fault_configuration = _fault_configuration(agent, self.fault_state, self._post)
        self._state_changes = _state_changes(agent, self.fault_state, self.documents)
        self.stream = self._state_changes.stream

    def _post(self, event: KubernetesEvent) -> None:
        if self.cluster.events is not None:
            self.cluster.events.post(event)

    def _changed(self, event_ms: int) -> None:
        """Pass on that the state changed by an event of ``event_ms``: documents come first."""
        self.documents.wake(event_ms)
        self.chips.blindness.check()
        self._state_changes.wake()


def _context(
    configuration: AgentConfiguration,
    store: Store,
    driver: Driver,
    wall_clock: Callable[[], int],
) -> AgentContext:
    if configuration.shadow:
        log.warning("in shadow: nothing is written, what others write is compared")
        store = ReadOnly(store)
    return AgentContext(configuration, store, driver, wall_clock, wall_clock(), Watchdog())


def _fault_state(
    agent: AgentContext, restored: RestoredJournal, on_change: Callable[[int], None]
) -> FaultState:
    state = restored_state(restored, agent.node, boot_id(), catalogue.shipped(), machine_digest())
    texts = configured_by(restored)
    return FaultState(state, catalogue_of(texts), agent.wall_clock, on_change, texts)


def certificate_files(configuration: AgentConfiguration) -> CertificateFiles:
    """Return the files with certificates that this agent uses, besides those of Kubernetes."""
    is_tls = configuration.store.startswith("mqtts:")
    storage = configuration.settings_of(StorageSection)
    users = (
        *((configuration.mqtt,) if is_tls else ()),
        *((storage,) if storage.clusterd is not None else ()),
    )
    pages = configuration.pages
    return CertificateFiles(
        (*(user.certificate_file for user in users), pages.certificate_file),
        (*(user.ca_file for user in users), pages.client_ca_file),
    )


def _old_readers(agent: AgentContext) -> OldReaders:
    configuration = agent.configuration
    return old_readers(
        # In shadow nothing is written, so old readers get no heartbeat either.
        "lease" if configuration.shadow else configuration.heartbeat.generation,
        configuration.heartbeat.interval_seconds,
        agent.store,
        agent.node,
        agent.stalls.stalled,
    )


def _node_watches(agent: AgentContext, journal: Journal, restored: RestoredJournal) -> _NodeWatches:
    objects = agent.store.objects
    return _NodeWatches(
        None
        if objects is None
        else OwnNodeOnlyCheck(partial(objects.is_own_node_only, agent.node)),
        _allocation(agent, journal, restored),
    )


def _allocation(
    agent: AgentContext, journal: Journal, restored: RestoredJournal
) -> StoreAllocation | None:
    """Return the watch of chip allocations.

    ``None`` where no store has it or no page needs it.
    """
    shown = agent.configuration.metrics
    is_shown = shown.npu_exporter_names or shown.fault_pods
    if "device-info" not in agent.configuration.documents and not is_shown:
        return None
    events = agent.store.usage(agent.node)
    if events is None:
        return None
    allocation = StoreAllocation(agent.node, events, journal, agent.wall_clock)
    allocation.restore_allocation(restored.usage)
    return allocation


def _documents(
    agent: AgentContext,
    context: DocumentsContext,
    old: OldReaders,
    restored: RestoredJournal,
    watches: _NodeWatches,
) -> NodeDocuments:
    configuration = agent.configuration
    return NodeDocuments(
        agent.node,
        configuration.documents,
        context,
        shadowed=configuration.shadow,
        over_grpc=configuration.settings_of(StorageSection).clusterd is not None,
        cards_together=configuration.compatibility.duo_cards == "together",
        restored_row=restored.public_faults,
        beating=old.beating,
        allocation=watches.allocation,
    )


def _chip_parts(
    agent: AgentContext, fault_state: FaultState, documents: NodeDocuments, collecting: Collecting
) -> ChipParts:
    state_dir, driver = agent.configuration.state_dir, agent.driver
    restart, device_info = collecting.restart_chip_collectors, documents.device_info
    listing = ChipList(fault_state, device_info, agent.wall_clock, restart, state_dir)

    def forget(chip: int) -> None:
        driver.forget(chip)
        listing.forget(chip)
        restart()

    removal = ChipRemoval(state_dir, fault_state, device_info, agent.wall_clock, forget)
    blindness = AgentBlindness(fault_state, device_info, driver, agent.wall_clock)
    return ChipParts(listing, removal, blindness, {})


def _heartbeat(
    agent: AgentContext,
    claim: NameClaim,
    blindness: AgentBlindness,
    documents: NodeDocuments,
    old: OldReaders,
) -> Heartbeat:
    return Heartbeat(
        agent.store,
        claim,
        agent.configuration.heartbeat.interval_seconds,
        agent.stalls,
        _BeatContent(blindness, documents),
        agent.wall_clock,
        also=old.annotations,
    )


def _fault_configuration(
    agent: AgentContext, fault_state: FaultState, post: Callable[[KubernetesEvent], None]
) -> FaultConfiguration:
    configuration = agent.configuration
    return FaultConfiguration(
        agent.store,
        configuration.fault_config_dir,
        configuration.state_dir,
        fault_state.texts,
        FaultConfigurationCallbacks(fault_state.configure, post, agent.wall_clock),
    )


def _state_changes(
    agent: AgentContext, fault_state: FaultState, documents: NodeDocuments
) -> StateChanges:
    # Streams never take the places that other pages need.
    places = min(PLACES, agent.configuration.pages.max_connections // 2)
    return StateChanges(
        Stream(f"{agent.started_at_ms:x}", places),
        state=lambda: fault_state.state,
        device_type=lambda: documents.device_info.device_type,
        wall_clock=agent.wall_clock,
    )


def _cluster_parts(
    agent: AgentContext,
    journal: Journal,
    claim: NameClaim,
    documents: NodeDocuments,
    watches: _NodeWatches,
) -> ClusterParts:
    configuration, store = agent.configuration, agent.store
    objects = agent.device_info_objects
    events = device_plugin = duo_cards = forwarder = None
    if objects is not None:
        reporter = reporter_of(agent.node, os.environ)
        events = EventSender(
            objects, reporter, journal, claim, agent.wall_clock, agent.driver.inventory
        )
        if not configuration.shadow:
            device_plugin = DevicePluginAccount(objects, agent.node)
    if configuration.compatibility.duo_cards == "apart":
        duo_cards = DuoCards(agent.driver, store.objects, agent.node)
    if store.channel is not None:
        forwarder = HistoryForwarder(
            store.channel, agent.node, journal, configuration.state_dir, agent.wall_clock
        )
    serial_number = serial_number_of(configuration, os.environ)
    return ClusterParts(
        events,
        _node_object_writer(agent, claim, serial_number),
        watches.own_node_only,
        device_plugin,
        duo_cards,
        serial_number,
        _fault_service(agent, claim, documents),
        forwarder,
        watches.allocation,
    )


def _node_object_writer(
    agent: AgentContext, claim: NameClaim, serial_number: SerialNumber | None
) -> NodeObjectWriter | None:
    """Return the writer of the Node's labels and annotations.

    ``None`` where that is disabled, or where this agent owns no document that they belong to.
    """
    objects, owns_chips = agent.store.objects, agent.device_info_objects is not None
    if objects is None or not agent.configuration.node_labels.enabled:
        return None
    if not owns_chips and serial_number is None:
        return None
    chips = ChipLabels(agent.driver) if owns_chips else None
    return NodeObjectWriter(objects, agent.node, claim, chips, serial_number)


def _fault_service(
    agent: AgentContext, claim: NameClaim, documents: NodeDocuments
) -> FaultServiceClient | None:
    """Return the client that sends storage faults to ClusterD.

    ``None`` where documents carry them.
    """
    storage = agent.configuration.settings_of(StorageSection)
    if storage.clusterd is None or not documents.owns_storage:
        return None
    address = FaultServiceAddress(
        storage.clusterd, storage.ca_file, storage.certificate_file, storage.key_file
    )
    return FaultServiceClient(
        address, documents.storage_faults, claim, agent.stalls, agent.wall_clock
    )

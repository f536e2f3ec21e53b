"""Constructs the parts of the node daemon from its configuration and connects them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.all_chips_blind import AgentBlindness
from agent.chip_allocation import StoreAllocation
from agent.chip_list import ChipList
from agent.chip_removal import ChipRemoval
from agent.collector_setup import SavedStates, options_of
from agent.fault_configuration.watch import FaultConfiguration, FaultConfigurationCallbacks
from agent.fault_state import FaultState, configured_by, restore
from agent.heartbeat import heartbeat
from agent.heartbeat.holder import this_holder
from agent.heartbeat.old_readers import old_readers
from agent.history_forwarding.forwarder import HistoryForwarder
from agent.journal.journal import Journal
from agent.kubernetes_events.sender import EventSender, reporter_of
from agent.node.chip_labels import ChipLabels
from agent.node.device_plugin import DevicePluginAccount, DuoCards
from agent.node.node_object import NodeObjectWriter
from agent.node.own_node_only import OwnNodeOnly
from agent.node.serial_number import serial_number_of
from agent.node_documents import DocumentsContext, NodeDocuments
from agent.pages.state_changes import StateChanges
from agent.policy.state import tracked
from agent.publishing.fault_service import FaultServiceCallbacks as FaultServiceCallbacks
from agent.publishing.fault_service import FaultServiceClient
from agent.publishing.fault_service_address import FaultServiceAddress
from agent.state_dir import first_sequence, restore_journal
from collectors.base import CollectorContext
from collectors.boot import boot_id, machine_digest
from collectors.storage.collector import StorageSection
from contract.codes import catalogue
from contract.observation import Gap
from contract.operator_rules.fault_configuration import catalogue_of
from dcmi_shim.library.discovery import VendorPaths
from service.pages.event_stream import PLACES, Stream
from service.stalls import Stalls
from stores.read_only import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.config import AgentConfiguration
    from collectors.base import Collector, Sink
    from contract.observation import Report, Subject
    from dcmi_shim.driver import Driver
    from dcmi_shim.values import ChipNames
    from stores.base import ClusterObjects, KubernetesEvent, Store

log = logging.getLogger("agent.parts")

_STALL_SECONDS = 30.0
_KEPT_EVENTS = 1_000
"""No client that reconnects has missed more events of one node; they are in memory."""


class AgentParts:
    """All parts of this agent.

    A part that is not configured is ``None``; nothing runs by itself.
    """

    def __init__(
        self,
        configuration: AgentConfiguration,
        store: Store,
        driver: Driver,
        wall_clock: Callable[[], int],
    ) -> None:
        if configuration.shadow:
            log.warning("in shadow: nothing is written, what others write is compared")
            store = ReadOnly(store)
        self.configuration = configuration
        self.store = store
        self.driver = driver
        self.wall_clock = wall_clock
        self.started_at_ms = wall_clock()
        self.progress = Stalls()
        self.saved_states = SavedStates(configuration.state_dir)
        self.readings: dict[tuple[Subject, str], float] = {}
        self.names: dict[int, ChipNames] = {}
        self.listeners: dict[str, Sink] = {}
        """By collector: one that starts again takes the place of its run before."""
        self.gap = asyncio.Event()
        self.other_chips = asyncio.Event()
        """Set, and replaced by a new event, when chips have other physical ids."""
        self.gaps: Counter[str] = Counter()
        node, state_dir = configuration.node_name, configuration.state_dir
        restored = restore_journal(state_dir, self.started_at_ms)
        self.restored = restored
        state = restore(restored, node, boot_id(), catalogue.shipped(), machine_digest())
        texts = configured_by(restored)
        self.fault_state = FaultState(state, catalogue_of(texts), wall_clock, self._changed, texts)
        self.fault_configuration = FaultConfiguration(
            store,
            configuration.fault_config_dir,
            state_dir,
            texts,
            FaultConfigurationCallbacks(self.fault_state.configure, self._post, wall_clock),
        )
        self.journal = Journal(
            state_dir,
            first_sequence=first_sequence(restored, boot_id()),
            wall_clock=wall_clock,
            on_recovered=self.fault_state.complete_journal,
            on_changes=self._changes_committed,
        )
        self.old_readers = old_readers(
            "lease" if configuration.shadow else configuration.heartbeat.generation,
            configuration.heartbeat.interval_seconds,
            store,
            node,
            self.progress.stalled,
        )
        self.heartbeat = heartbeat.Heartbeat(
            store,
            node,
            this_holder(state_dir),
            configuration.heartbeat.interval_seconds,
            heartbeat.HeartbeatCallbacks(
                stalled=self.progress.stalled,
                on_permitted=lambda: self.documents.wake(wall_clock()),
                progress=self.progress.of("heartbeat", _STALL_SECONDS)
                if not configuration.shadow
                else lambda: None,  # it does not run
                blind=lambda: self.blindness.check() is not None,
                wall_clock=wall_clock,
                writes=lambda: self.documents.writes(),
            ),
            also=self.old_readers.annotations,
        )
        self.own_node_only = self.device_plugin = None
        if store.objects is not None:
            self.own_node_only = OwnNodeOnly(partial(store.objects.is_own_node_only, node))
        if self._device_info_objects is not None and not configuration.shadow:
            self.device_plugin = DevicePluginAccount(self._device_info_objects, node)
        self.allocation = self._allocation_of()
        self.documents = NodeDocuments(
            node,
            configuration.documents,
            DocumentsContext(
                store,
                self.fault_state,
                self.journal,
                self.progress,
                wall_clock,
                may_publish=lambda: self.heartbeat.may_publish,
                check_now=self.heartbeat.check_now,
                has_rival=lambda: self.heartbeat.has_rival,
                on_chips_restored=self.restart_chip_collectors,
                reconnected=self._look_at_rights,
                deleted=self.heartbeat.beat_now,
            ),
            shadowed=configuration.shadow,
            over_grpc=configuration.settings_of(StorageSection).clusterd is not None,
            cards_together=configuration.compatibility.duo_cards == "together",
            restored_row=restored.public_faults,
            beating=self.old_readers.beating,
            allocation=self.allocation,
        )
        self.duo_cards = None
        if configuration.compatibility.duo_cards == "apart":
            self.duo_cards = DuoCards(driver, store.objects, node)
        self.fault_service = self._fault_service_of(configuration.settings_of(StorageSection))
        self.device_info = self.documents.device_info
        self.stream = Stream(
            f"{self.started_at_ms:x}",
            # Streams never take the places that other pages need.
            min(PLACES, configuration.pages.max_connections // 2),
            _KEPT_EVENTS,
        )
        self.state_changes = StateChanges(
            self.stream,
            state=lambda: self.fault_state.state,
            device_type=lambda: self.device_info.device_type,
            wall_clock=wall_clock,
        )
        self.chip_list = ChipList(
            self.fault_state, self.device_info, wall_clock, self.restart_chip_collectors, state_dir
        )
        self.chip_removal = ChipRemoval(
            state_dir, self.fault_state, self.device_info, wall_clock, self._forgotten
        )
        self.blindness = AgentBlindness(
            state=lambda: self.fault_state.state,
            inventory=lambda: self.device_info.inventory,
            trouble=lambda: driver.trouble,
            wall_clock=wall_clock,
        )
        self.events = self._event_sender()
        self.serial_number = serial_number_of(configuration, os.environ, self._look_at_node)
        self.node_object = self._node_object_writer()
        self.forwarder = None
        if store.channel is not None:
            self.forwarder = HistoryForwarder(
                store.channel, node, self.journal, state_dir, wall_clock
            )

    def _forgotten(self, chip: int) -> None:
        self.driver.forget(chip)
        self.chip_list.forget(chip)
        self.restart_chip_collectors()

    def restart_chip_collectors(self) -> None:
        """Restart the collectors of chips with the present state."""
        before, self.other_chips = self.other_chips, asyncio.Event()
        before.set()
        self.gap.set()

    def report(self, reports: Sequence[Report]) -> None:
        """Apply the reports of a collector."""
        gaps = [report.source for report in reports if isinstance(report, Gap)]
        if gaps:
            self.gaps.update(gaps)
            self.gap.set()
        self.fault_state.apply(reports)
        for listener in self.listeners.values():
            listener(reports)

    def new_collector(self, kind: type[Collector[Any]]) -> Collector[Any]:
        """Return a collector of ``kind`` for one run, with the present state."""
        section = self.configuration.settings_of(kind.settings)
        context = CollectorContext(
            report=self.report,
            wall_clock=self.wall_clock,
            tracked=tracked(self.fault_state.state, kind.name),
            chips=frozenset(
                chip for chip, known in self.fault_state.state.chips.items() if known.was_read
            ),
            driver=self.driver,
            paths=VendorPaths(
                self.configuration.driver_root, self.configuration.trust_driver, os.environ
            ),
            show=self._show,
            saved_state=self.saved_states.of(kind.name),
            listen=partial(self.listeners.__setitem__, kind.name),
            progress=self.progress.of(kind.name, 3 * sum(kind.times_of(section))),
            options=options_of(self.configuration),
        )
        return kind(section, context)

    def _look_at_node(self) -> None:
        if self.node_object is not None:
            self.node_object.wake()

    def _look_at_rights(self) -> None:
        if self.own_node_only is not None:
            self.own_node_only.wake()

    @property
    def _device_info_objects(self) -> ClusterObjects | None:
        """The Kubernetes objects to write besides device-info; ``None`` unless we own that."""
        return self.store.objects if "device-info" in self.configuration.documents else None

    def _event_sender(self) -> EventSender | None:
        """Return the sender of Kubernetes Events; ``None`` unless this agent owns device-info."""
        if self._device_info_objects is None:
            return None
        return EventSender(
            self._device_info_objects,
            reporter_of(self.configuration.node_name, os.environ),
            self.journal,
            self.wall_clock,
            may_write=lambda: self.heartbeat.may_publish,
            inventory=self.driver.inventory,
        )

    def _node_object_writer(self) -> NodeObjectWriter | None:
        """Return the writer of the Node's labels and annotations.

        ``None`` where that is disabled, or where this agent owns no document that they belong to.
        """
        objects, owns_chips = self.store.objects, self._device_info_objects is not None
        if objects is None or not self.configuration.node_labels.enabled:
            return None
        if not owns_chips and self.serial_number is None:
            return None
        return NodeObjectWriter(
            objects,
            self.configuration.node_name,
            lambda: self.heartbeat.may_publish,
            ChipLabels(self.driver) if owns_chips else None,
            self.serial_number,
        )

    def _fault_service_of(self, storage: StorageSection) -> FaultServiceClient | None:
        """Return the client that sends storage faults to ClusterD.

        ``None`` where documents carry them.
        """
        if storage.clusterd is None or not self.documents.owns_storage:
            return None
        callbacks = FaultServiceCallbacks(
            may_send=lambda: self.heartbeat.may_publish,
            wall_clock=self.wall_clock,
            progress=self.progress.of("ClusterD's fault service", _STALL_SECONDS),
        )
        address = FaultServiceAddress(
            storage.clusterd, storage.ca_file, storage.certificate_file, storage.key_file
        )
        return FaultServiceClient(address, self.documents.storage_faults, callbacks)

    def _changes_committed(self, rows: int) -> None:
        if self.forwarder is not None:
            self.forwarder.count(rows)

    def _post(self, event: KubernetesEvent) -> None:
        if self.events is not None:
            self.events.post(event)

    def _allocation_of(self) -> StoreAllocation | None:
        """Return the watch of chip allocations.

        ``None`` where no store has it or no page needs it.
        """
        shows_cards = self.configuration.metrics.npu_exporter_names
        if "device-info" not in self.configuration.documents and not shows_cards:
            return None
        node = self.configuration.node_name
        events = self.store.usage(node)
        if events is None:
            return None
        usage = StoreAllocation(
            node, events, self.journal, self.wall_clock, lambda now_ms: self.documents.wake(now_ms)
        )
        usage.restore(self.restored.usage)
        return usage

    def _show(self, subject: Subject, name: str, value: float | None) -> None:
        if value is None:
            self.readings.pop((subject, name), None)
        else:
            self.readings[subject, name] = value

    def _changed(self, event_ms: int) -> None:
        self.documents.wake(event_ms)
        self.blindness.check()
        self.state_changes.wake()

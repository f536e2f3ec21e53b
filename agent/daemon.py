"""The life of the node daemon: start, root tasks, end.

One loop, one task group, every task named. The first root task that ends ends the daemon with its
reason; the journal loses nothing, and whoever supervises the daemon starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from importlib import metadata
from typing import TYPE_CHECKING, NoReturn

from agent.events.events import Events, reporter_of
from agent.fault_configuration import Edges, FaultConfiguration
from agent.heartbeat import heartbeat
from agent.heartbeat.holder import boot_id, this_holder
from agent.journal.file import Kind, body_of
from agent.journal.journal import Journal
from agent.leaving import Leaving
from agent.node.node_object import NodeObjectKeeper
from agent.pages import status
from agent.pages.http import SOCKET_NAME, application
from agent.pages.npu_exporter import Cards, keep_names
from agent.policy.state import believed
from agent.publishing.device_info import PATIENCE_SECONDS
from agent.publishing.documents import Desk, Documents
from agent.publishing.ownership import owned_by, refuse_beside_others
from agent.state_dir import claimed, remember
from agent.usage import Usage
from agent.verdicts import Verdicts, configured_by, restore
from collectors.base import Places, Surroundings
from collectors.bmc import Bmc
from collectors.chip_faults import ChipFaults
from collectors.hang import Hang
from collectors.links import Links
from collectors.network_health import NetworkHealth
from collectors.switch import Switches
from collectors.table import COLLECTORS
from contract import catalogue
from contract.errors import StoreError, VigilError
from contract.fault_configuration import catalogue_of
from contract.observation import NODE, Gap, SourceBlind
from dcmi_shim.discovery import DEFAULT_DRIVER_ROOT, find_library
from dcmi_shim.driver import Driver
from dcmi_shim.keeper import DriverSettings
from service.log import set_up_logging
from service.notify import keep_told
from service.pages import serving
from service.stalls import Stalls
from service.tasks import leaves, on_stop
from stores.address import open_store
from stores.read_only import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from agent.config import AgentConfiguration
    from agent.journal.file import Remembered
    from agent.publishing.publisher import Publisher
    from collectors.base import Collector, Sink
    from contract.observation import Report, Subject
    from dcmi_shim.types import ChipNames
    from stores.base import ClusterObjects, Event, Store

log = logging.getLogger("agent.daemon")

_LAST_BEAT_SECONDS = 1.0
_HEARTBEAT_PATIENCE_SECONDS = 30.0
# Timers may fire early by the resolution of their clock.
_TIMER_SECONDS = 0.01


class Stopped(Exception):
    """A signal asked for the end."""


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _version() -> str:
    try:
        return metadata.version("npu-vigil")
    except metadata.PackageNotFoundError:
        return "unpackaged"


def run(configuration: AgentConfiguration) -> int:
    """Run the agent until a signal ends it; the exit status.

    Raises ``ConfigurationError`` or ``DriverError`` when it cannot start.
    """
    set_up_logging()
    with claimed(configuration.state_dir):
        leaving = Leaving()
        try:
            return asyncio.run(_run(configuration, leaving))
        except VigilError:
            raise
        except Exception as error:
            log.critical("ends: %r", error, exc_info=error)
            return 1
        finally:
            leaving.cancel()


async def _run(configuration: AgentConfiguration, leaving: Leaving) -> int:
    library = find_library(
        configuration.driver_root,
        trust_driver=configuration.trust_driver,
        environment=os.environ,
    )
    for warning in library.warnings:
        log.warning("driver: %s", warning)
    store = open_store(configuration.store, configuration.kubeconfig)
    settings = DriverSettings(
        call_seconds=configuration.driver.call_deadline_seconds,
        probe_seconds=configuration.driver.probe_period_seconds,
    )
    agent = Agent(configuration, store, Driver(library, _wall_clock, settings), leaving)
    return await agent.run()


class Agent:
    """All parts of the daemon and the wires between them."""

    def __init__(
        self, configuration: AgentConfiguration, store: Store, driver: Driver, leaving: Leaving
    ) -> None:
        if configuration.shadow:
            log.warning("in shadow: nothing is written, what others write is compared")
            store = ReadOnly(store)
        self._configuration = configuration
        self._store = store
        self._driver = driver
        self._leaving = leaving
        self._started_at_ms = _wall_clock()
        self._last_words = "could not start"
        self._was_stopped = False
        self._progress = Stalls()
        exporter = configuration.metrics.npu_exporter_names
        self._settings = {
            ChipFaults.name: configuration.chip_faults.model_dump(),
            Bmc.name: configuration.bmc.model_dump(),
            NetworkHealth.name: {"enabled": exporter},
            Switches.name: configuration.switch.model_dump(),
            Links.name: configuration.links.model_dump()
            | {"telemetry": exporter, "error": configuration.compatibility.hccn_error},
            Hang.name: configuration.hang.model_dump(exclude={"enabled"})
            | {"detect": configuration.hang.enabled},
        }
        self._readings: dict[tuple[Subject, str], float] = {}
        self._names: dict[int, ChipNames] = {}
        self._listeners: list[Sink] = []
        self._gap = asyncio.Event()
        self._gaps = 0
        remembered = remember(configuration.state_dir, self._started_at_ms)
        self._remembered = remembered
        state = restore(remembered, configuration.node_name, boot_id(), catalogue.shipped())
        texts = configured_by(remembered)
        self._verdicts = Verdicts(state, catalogue_of(texts), _wall_clock, self._changed, texts)
        self._fault_configuration = FaultConfiguration(
            store,
            configuration.fault_config_dir,
            configuration.state_dir,
            texts,
            Edges(
                configure=self._verdicts.configure,
                post=self._post,
                wall_clock=_wall_clock,
            ),
        )
        self._journal = Journal(
            configuration.state_dir,
            first_sequence=remembered.last_sequence + 1,
            wall_clock=_wall_clock,
            on_recovered=self._verdicts.recovered,
        )
        self._heartbeat = heartbeat.Heartbeat(
            store,
            configuration.node_name,
            this_holder(configuration.state_dir),
            configuration.heartbeat.interval_seconds,
            heartbeat.Edges(
                stalled=self._progress.stalled,
                on_permitted=lambda: self._documents.wake(_wall_clock()),
                progress=self._heartbeat_progress(),
                wall_clock=_wall_clock,
            ),
            annotates=configuration.heartbeat.annotations,
        )
        self._documents = Documents(
            configuration.node_name,
            configuration.documents,
            Desk(
                store,
                self._verdicts,
                self._journal,
                self._progress,
                _wall_clock,
                may_publish=lambda: self._heartbeat.may_publish,
                look_around=self._heartbeat.look_around,
            ),
            shadowed=configuration.shadow,
        )
        self._device_info = self._documents.device_info
        self._usage = self._usage_of_chips()
        self._events = self._events_of(store)
        self._node_object = self._node_object_of(store)

    def _objects_of(self, store: Store) -> ClusterObjects | None:
        """What of the cluster is ours to write beside the documents."""
        owns = "device-info" in self._configuration.documents
        return store.objects if owns else None

    def _events_of(self, store: Store) -> Events | None:
        """Who tells Kubernetes of faults: whoever owns the document about them."""
        objects = self._objects_of(store)
        if objects is None:
            return None
        return Events(
            objects,
            reporter_of(self._configuration.node_name, os.environ),
            self._journal,
            _wall_clock,
            may_write=lambda: self._heartbeat.may_publish,
            inventory=self._driver.inventory,
        )

    def _node_object_of(self, store: Store) -> NodeObjectKeeper | None:
        """Who keeps the Node's labels: whoever owns the document about its chips."""
        objects = self._objects_of(store)
        if objects is None or not self._configuration.node_labels.enabled:
            return None
        return NodeObjectKeeper(
            objects,
            self._configuration.node_name,
            self._driver,
            lambda: self._heartbeat.may_publish,
        )

    def _post(self, event: Event) -> None:
        if self._events is not None:
            self._events.post(event)

    async def run(self) -> int:
        """Run until a signal or until a root task ends; the exit status."""
        stop = asyncio.Event()
        on_stop(stop.set)
        self._journal_start(self._remembered)
        if self._events is not None:
            self._events.begin(self._remembered, self._verdicts.state, self._verdicts.tables)
            self._verdicts.listen(self._events.take)
        self._verdicts.begin(self._journal)
        self._fault_configuration.begin()
        shows_cards = self._configuration.metrics.npu_exporter_names
        cards = self._cards if shows_cards else None
        pages = application(self._picture, self._documents.records, cards)
        try:
            async with serving(
                pages,
                self._configuration.listen,
                self._configuration.state_dir,
                socket_name=SOCKET_NAME,
            ):
                return await self._root_tasks(stop)
        finally:
            await self._end()

    async def _root_tasks(self, stop: asyncio.Event) -> int:
        try:
            async with asyncio.TaskGroup() as tasks:

                def root(name: str, work: Awaitable[object]) -> None:
                    tasks.create_task(_root(name, work), name=name)

                tasks.create_task(self._until_stopped(stop), name="signals")
                tasks.create_task(self._identify(), name="identity")
                root("driver", self._driver.run())
                root("fault configuration", self._fault_configuration.run())
                for kind, publisher in self._documents.publishers.items():
                    root(f"publisher of {kind}", self._publish(publisher))
                if self._documents.shadow is None:
                    root("heartbeat", self._beat())
                else:
                    root("shadow", self._documents.shadow.run())
                if self._events is not None:
                    root("events", self._events.run())
                if self._node_object is not None:
                    root("node labels", self._node_object.run())
                root(
                    "service manager",
                    keep_told(
                        self._progress.stalled, lambda: self._picture().not_ready, os.environ
                    ),
                )
                if self._usage is not None:
                    root("pods", self._usage.run())
                if self._configuration.metrics.npu_exporter_names:
                    root("card names", keep_names(self._driver, self._names))
                for name, make in COLLECTORS.items():
                    settings = self._settings.get(name, {})
                    if settings.pop("enabled", True):
                        root(name, self._collect(make(**settings)))
                    elif believed(self._verdicts.state, name):
                        why = "it is not to be asked; what it said last stays"
                        self._report([SourceBlind(name, NODE, self._started_at_ms, why)])
        except BaseExceptionGroup as group:
            causes = list(leaves(group))
            stopped = next((cause for cause in causes if isinstance(cause, Stopped)), None)
            cause = stopped or causes[0]
            self._last_words = f"{type(cause).__name__}: {cause}"
            if stopped is not None:
                self._was_stopped = True
                log.info("ends: %s", stopped)
                return 0
            raise cause from None
        raise AssertionError("root tasks end with an exception")

    async def _beat(self) -> NoReturn:
        owned = owned_by(self._configuration.node_name, self._configuration.documents)
        await refuse_beside_others(self._store, owned, _wall_clock, self._heartbeat_progress())
        await self._heartbeat.run()

    def _heartbeat_progress(self) -> Callable[[], None]:
        if self._configuration.shadow:
            return lambda: None  # it does not run
        return self._progress.of("heartbeat", _HEARTBEAT_PATIENCE_SECONDS)

    async def _identify(self) -> NoReturn:
        """Follow what the driver says this node has; after a gap it may be something else."""
        while True:
            self._gap.clear()
            inventory = await self._driver.inventory()
            if inventory != self._device_info.inventory:
                if inventory.virtual:
                    log.error(
                        "device-info is not written: %s", status.unsupported(inventory.virtual)
                    )
                self._device_info.identify(inventory)
                now_ms = _wall_clock()
                self._documents.wake(now_ms)
                # Who is silent for longer is not waited for; nobody else would say so.
                seconds = PATIENCE_SECONDS + _TIMER_SECONDS
                asyncio.get_running_loop().call_later(seconds, self._documents.wake, now_ms)
            await self._gap.wait()

    def _usage_of_chips(self) -> Usage | None:
        """What tells which chips pods use, if anything does and somebody wants to know."""
        shows_cards = self._configuration.metrics.npu_exporter_names
        if "device-info" not in self._configuration.documents and not shows_cards:
            return None
        node = self._configuration.node_name
        events = self._store.usage(node)
        if events is None:
            return None
        usage = Usage(node, events, self._journal, _wall_clock, self._occupied)
        usage.remember(self._remembered.usage)
        self._device_info.in_use = usage.chips
        self._device_info.awaits_usage = True
        return usage

    def _occupied(self, now_ms: int) -> None:
        assert self._usage is not None
        self._device_info.in_use = self._usage.chips
        self._device_info.awaits_usage = False
        self._documents.wake(now_ms)

    def _report(self, reports: Sequence[Report]) -> None:
        gaps = sum(isinstance(report, Gap) for report in reports)
        if gaps:
            self._gaps += gaps
            self._gap.set()
        self._verdicts.take(reports)
        for listener in self._listeners:
            listener(reports)

    def _show(self, subject: Subject, name: str, value: float | None) -> None:
        if value is None:
            self._readings.pop((subject, name), None)
        else:
            self._readings[subject, name] = value

    async def _publish(self, publisher: Publisher) -> NoReturn:
        # What the stored document remembers is to be judged by the tables of this node.
        await self._fault_configuration.known()
        await publisher.run()

    async def _collect(self, collector: Collector) -> NoReturn:
        await asyncio.gather(self._documents.remembered(), self._fault_configuration.known())
        await collector.run(self._surroundings(collector))

    def _surroundings(self, collector: Collector) -> Surroundings:
        return Surroundings(
            report=self._report,
            wall_clock=_wall_clock,
            believed=believed(self._verdicts.state, collector.name),
            driver=self._driver,
            places=Places(
                self._configuration.driver_root, self._configuration.trust_driver, os.environ
            ),
            show=self._show,
            listen=self._listeners.append,
            progress=self._progress.of(
                collector.name, 3 * (collector.period_seconds + collector.deadline_seconds)
            ),
        )

    def _changed(self, event_ms: int) -> None:
        self._documents.wake(event_ms)

    def _journal_start(self, remembered: Remembered) -> None:
        configuration = self._configuration.model_dump_json()
        digest = hashlib.sha256(configuration.encode()).hexdigest()
        rows = []
        if remembered.configuration is None or remembered.configuration.body != configuration:
            rows.append((Kind.CONFIGURATION, configuration))
        start = {
            "version": _version(),
            "node": self._configuration.node_name,
            "boot_id": boot_id(),
            "configuration_sha256": digest,
        }
        rows.append((Kind.START, body_of(start)))
        self._journal.append(rows, self._started_at_ms)

    async def _until_stopped(self, stop: asyncio.Event) -> NoReturn:
        await stop.wait()
        self._leaving.begin()
        raise Stopped("a signal asked for it")

    async def _end(self) -> None:
        """Journal the end and give everything back, without waiting for the driver."""
        self._leaving.begin()
        self._driver.close()
        if self._was_stopped:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_LAST_BEAT_SECONDS):
                    await self._heartbeat.leave(self._configuration.heartbeat.absence_seconds)
        self._verdicts.end()
        self._journal.append([(Kind.STOP, body_of({"reason": self._last_words}))], _wall_clock())
        if not await self._journal.close():
            log.error("not everything is in the journal: %s", self._journal.status().trouble)
        if self._was_stopped:
            self._leaving.status = 0
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(1):
                await self._store.close()

    def _cards(self) -> Cards:
        device_info = self._device_info
        faults = status.fault_statuses(self._verdicts.state, device_info.device_type)
        pods = () if self._usage is None else self._usage.pods
        return Cards(device_info.inventory, self._names, faults, self._readings, pods)

    def _picture(self) -> status.Status:
        root = self._configuration.driver_root or DEFAULT_DRIVER_ROOT
        state = self._verdicts.state
        driver = status.driver_status(
            str(root),
            self._device_info.inventory,
            self._driver.trouble,
            self._driver.polling_reason,
            self._gaps,
            self._driver.stuck_calls(),
        )
        publications = self._documents.statuses()
        shadow = None if self._documents.shadow is None else self._documents.shadow.status()
        chips = status.chip_statuses(state, self._device_info.device_type, self._readings)
        node, usage = state.of(NODE), self._usage
        unseen = () if usage is None or usage.blind is None else (usage.blind,)
        return status.Status(
            node=self._configuration.node_name,
            version=_version(),
            at_ms=_wall_clock(),
            started_at_ms=self._started_at_ms,
            revision=state.revision,
            not_ready=status.not_ready(
                publications, chips, driver, self._heartbeat.conflict, shadow
            ),
            stalled=self._progress.stalled(),
            chips=chips,
            faults=status.fault_statuses(state, self._device_info.device_type),
            answered=node.answered,
            blind=(*status.blind_sources(node), *unseen),
            driver=driver,
            publications=publications,
            fault_configuration=status.fault_configuration_status(
                self._fault_configuration.judged, self._fault_configuration.trouble
            ),
            heartbeat=status.heartbeat_status(self._heartbeat),
            journal=self._journal.status(),
            usage=None if usage is None else usage.status,
            events=None if self._events is None else self._events.status(),
            node_object=None if self._node_object is None else self._node_object.status(),
            shadow=shadow,
        )


async def _root(name: str, work: Awaitable[object]) -> None:
    await work
    raise VigilError(f"the task {name!r} ended; it never should")

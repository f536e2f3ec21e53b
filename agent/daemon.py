"""The life of the node daemon: start, root tasks, end.

One loop, one task group, every task named. The first root task that ends ends the daemon with its
reason. The journal loses nothing, and systemd or the kubelet starts the daemon again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import sqlite3
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from agent.collect_status import cards, collect_status, pods_with_chips, version
from agent.collector_setup import collectors_of, reports_when_disabled
from agent.exit_deadline import ExitDeadline
from agent.fault_state import restored_state
from agent.journal.file import FILE_NAME, read_restored
from agent.journal.rows import RowKind, body_of
from agent.name_claim import this_holder
from agent.pages import status
from agent.pages.history import JournalHistory
from agent.pages.npu_exporter import keep_names
from agent.pages.routes import application
from agent.policy.state import tracked
from agent.publishing.device_info import FIRST_DOCUMENT_SECONDS
from agent.state_dir import SOCKET_NAME, claimed
from agent.wiring import AgentParts
from collectors.boot import boot_id, machine_digest
from contract.codes import catalogue
from contract.errors import DriverMissing, DriverNotFound, JournalError, StoreError, VigilError
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import (
    DEFAULT_DRIVER_ROOT,
    IN_ROOT,
    FoundLibrary,
    VendorPaths,
    find_library,
)
from dcmi_shim.library.vendor import DCMI
from dcmi_shim.worker.supervisor import DriverSettings
from service.http.connections import ListenerLimits
from service.log.setup import flush_log, set_up_logging
from service.open_file_limit import raise_soft_limit
from service.pages.daemon_pages import serving
from service.pages.settings import pages_tls, pages_users
from service.systemd import notify_manager
from service.tasks import leaves, on_stop
from stores.address import open_store
from stores.base import Beat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from agent.config import AgentConfiguration
    from agent.journal.file import RestoredJournal
    from collectors.base import Collector
    from contract.pages.agent_status import AgentStatus
    from dcmi_shim.worker.process import StartedProcess
    from stores.base import Store

log = logging.getLogger("agent.daemon")

_FIRST_WRITE_SECONDS = 1.0
"""After so long the rest of an agent starts, whether there is a first device-info or not."""
_LATER_WORK = frozenset({"node labels", "own-node-only", "serial number"})
"""Root tasks that no document needs."""
_LAST_WRITE_SECONDS = 0.5
_LAST_BEAT_SECONDS = 1.0
# Timers may fire early by the resolution of their clock.
_TIMER_SECONDS = 0.01


class Stopped(Exception):
    """A signal requested the end."""


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def run(configuration: AgentConfiguration, first: StartedProcess | None = None) -> int:
    """Run the agent until a signal ends it; return the exit status.

    ``first`` is a process for the driver's library that was started before this module was loaded.

    Raises ``ConfigurationError`` or ``DriverError`` when it cannot start.
    """
    set_up_logging(configuration.log_format, configuration.node_name)
    raise_soft_limit()
    with claimed(configuration.state_dir):
        leaving = ExitDeadline()
        try:
            return asyncio.run(_run(configuration, leaving, first))
        except VigilError:
            raise
        except Exception as error:
            log.critical("ends: %r", error, exc_info=error)
            return 1
        finally:
            leaving.cancel()
            flush_log()


async def _run(
    configuration: AgentConfiguration, leaving: ExitDeadline, first: StartedProcess | None
) -> int:
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    find = partial(find_library, paths)
    must_wait = False
    try:
        library = find()
    except DriverNotFound as error:
        # A node may be set up in any order. A library that must not be loaded is a mistake, but
        # where chips are known an agent that ends would take its node with it.
        must_wait = isinstance(error, DriverMissing) or has_known_chips(configuration)
        if not must_wait:
            raise
        log.error("%s; it is searched every %g s", error, DriverSettings().retry_last_seconds)
        root = configuration.driver_root or DEFAULT_DRIVER_ROOT
        library = FoundLibrary(root / IN_ROOT / DCMI.file_name, (), ())
    for warning in library.warnings:
        log.warning("driver: %s", warning)
    store = open_store(
        configuration.store,
        configuration.kubeconfig,
        mqtt=configuration.mqtt,
        node=configuration.node_name,
        to_be=None if configuration.shadow else _beat_to_be(configuration),
        others_may_write=configuration.directory.others_may_write,
    )
    settings = DriverSettings(
        call_seconds=configuration.driver.call_deadline_seconds,
        probe_seconds=configuration.driver.probe_period_seconds,
    )
    driver = Driver(library, _wall_clock, settings, find, first)
    if must_wait:
        driver.wait_for_library()
    return await Agent(configuration, store, driver, leaving).run()


def has_known_chips(configuration: AgentConfiguration) -> bool:
    """Return whether the journal for ``configuration`` has chips of this node and machine."""
    try:
        restored = read_restored(configuration.state_dir / FILE_NAME)
    except (sqlite3.Error, OSError, JournalError):
        return False  # the start of the agent decides what becomes of this file
    node = configuration.node_name
    state = restored_state(restored, node, boot_id(), catalogue.shipped(), machine_digest())
    return bool(state.chips)


def _beat_to_be(configuration: AgentConfiguration) -> Beat:
    holder = this_holder(configuration.state_dir)
    return Beat(configuration.node_name, holder, configuration.heartbeat.interval_seconds, 0)


class Agent:
    """Runs all parts of the agent together."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        store: Store,
        driver: Driver,
        leaving: ExitDeadline,
        wall_clock: Callable[[], int] = _wall_clock,
    ) -> None:
        self._parts = AgentParts(configuration, store, driver, wall_clock)
        self._leaving = leaving
        self._end_reason = "could not start"
        self._was_stopped = False

    def status(self) -> AgentStatus:
        """Return the status for the pages."""
        return collect_status(self._parts)

    async def run(self) -> int:
        """Run until a signal or until a root task ends; return the exit status."""
        parts, context = self._parts, self._parts.context
        # With known chips the agent stays, whatever is wrong with the library (decision 18).
        if parts.fault_state.state.chips:
            context.driver.wait_for_library()
        stop = asyncio.Event()
        on_stop(stop.set)
        self._journal_start(parts.restored)
        if parts.cluster.events is not None:
            parts.cluster.events.resume_from_journal(
                parts.restored, parts.fault_state.state, parts.fault_state.tables
            )
            # Before ``fault_state.start_journaling``, whose inputs may already change faults.
            parts.fault_state.listen(parts.cluster.events.record_changes)
        parts.fault_state.start_journaling(parts.journal)
        parts.fault_configuration.put_cached_in_force()
        metrics = context.configuration.metrics
        shown = (lambda: cards(parts)) if metrics.npu_exporter_names else None
        pods = (lambda: pods_with_chips(parts)) if metrics.fault_pods else None
        history = JournalHistory(
            context.configuration.state_dir / FILE_NAME,
            context.configuration.node_name,
        )
        pages = application(
            self.status,
            parts.documents.records,
            history,
            parts.stream,
            lambda: parts.fault_configuration.judged,
            parts.fault_state.episodes,
            shown,
            pods,
        )
        try:
            async with serving(
                pages,
                context.configuration.listen,
                context.configuration.state_dir,
                socket_name=SOCKET_NAME,
                limits=ListenerLimits(context.configuration.pages.max_connections),
                host_names=context.configuration.pages.host_names,
                tls=pages_tls(context.configuration.pages),
                users=pages_users(context.configuration.pages),
            ):
                return await self._root_tasks(stop)
        finally:
            await self._end()

    async def _root_tasks(self, stop: asyncio.Event) -> int:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._until_stopped(stop), name="signals")
                tasks.create_task(self._identify(), name="identity")
                for name, work in self._root_work():
                    tasks.create_task(self._root(name, work), name=name)
                for name, kind in collectors_of(self._parts.context.configuration):
                    if kind is not None:
                        work = self._root(name, self._collect(kind))
                        tasks.create_task(work, name=name)
                    else:
                        tasks.create_task(self._leave_out(name), name=f"without {name}")
        except BaseExceptionGroup as group:
            causes = list(leaves(group))
            # Other tasks may fail while they are cancelled; the end is a stop all the same.
            stopped = next((cause for cause in causes if isinstance(cause, Stopped)), None)
            cause = stopped or causes[0]
            self._end_reason = f"{type(cause).__name__}: {cause}"
            if stopped is not None:
                self._was_stopped = True
                log.info("ends: %s", stopped)
                return 0
            raise cause from None
        raise AssertionError("root tasks end with an exception")

    async def _root(self, name: str, work: Awaitable[object]) -> NoReturn:
        try:
            await work
        except Exception as error:
            # Here and not behind the group: where memory is short, another task may never end.
            if not self._leaving.has_begun:
                self._leaving.start_timer()
                log.error("the agent ends, because the task %r failed: %r", name, error)
            raise
        raise VigilError(f"the task {name!r} ended; it never should")

    def _root_work(self) -> Iterator[tuple[str, Awaitable[object]]]:
        """Yield the root tasks besides collectors, each with its name."""
        parts, context = self._parts, self._parts.context
        yield "driver", context.driver.run()
        yield "clock of the host", parts.fault_state.follow_clock()
        yield "saved states of collectors", parts.collecting.saved_states.run()
        yield "requests to forget", parts.chips.removal.run()
        yield "fault configuration", parts.fault_configuration.run()
        for kind in parts.documents.publishers:
            yield f"publisher of {kind}", self._publish(kind)
        for kind in parts.documents.storage:
            yield f"publisher of {kind}", parts.documents.publish_storage(kind)
        if parts.documents.shadow is None:
            yield "heartbeat", parts.heartbeat.run()
            if parts.old_readers.label is not None:
                yield "label of old readers", parts.old_readers.label.run()
        else:
            yield "shadow", parts.documents.shadow.run()
        for name, run in parts.cluster.root_work():
            yield name, self._run_later(run) if name in _LATER_WORK else run()
        yield "certificates", parts.certificates.run()
        yield (
            "service manager",
            notify_manager(context.stalls.stalled, lambda: self.status().not_ready, os.environ),
        )
        yield "standstills", context.stalls.watch(parts.claim.beat_now)
        if context.configuration.metrics.npu_exporter_names:
            yield "card names", keep_names(context.driver, parts.chips.names)

    async def _identify(self) -> NoReturn:
        """Follow the driver's list of chips; after a gap it may have changed."""
        parts, context = self._parts, self._parts.context
        while True:
            parts.collecting.gap.clear()
            chips, before = (
                await context.driver.listed(),
                parts.documents.device_info.inventory,
            )
            identified = context.driver.found
            is_missing = parts.chips.listing.apply_listing(
                chips, identified, context.driver.library
            )
            context.driver.list_again(is_missing)
            if parts.documents.device_info.inventory not in (None, before):
                if identified is not None and identified.virtual:
                    log.error(
                        "device-info is not written: %s", status.unsupported(identified.virtual)
                    )
                now_ms = context.wall_clock()
                parts.documents.wake(now_ms)
                # A chip that is silent for longer is not waited for; no event marks that time.
                seconds = FIRST_DOCUMENT_SECONDS + _TIMER_SECONDS
                asyncio.get_running_loop().call_later(seconds, parts.documents.wake, now_ms)
            await parts.collecting.gap.wait()

    async def _publish(self, kind: str) -> NoReturn:
        # What the stored document remembers is to be judged by the tables of this node.
        await self._parts.fault_configuration.known()
        await self._parts.documents.publish(kind)

    async def _collect(self, kind: type[Collector[Any]]) -> NoReturn:
        parts = self._parts
        # A collector tracks what the state has at its start, so documents and rules come before it.
        await asyncio.gather(parts.documents.wait_until_read(), parts.fault_configuration.known())
        if not kind.starts_first:
            await self._first_document()
        collecting = parts.collecting
        while kind.about_chips:
            # Taken before the collector is made, so that no change in between is missed.
            other_chips = collecting.other_chips
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(
                    collecting.new_collector(kind).run(), name=f"run of {kind.name}"
                )
                await other_chips.wait()
                running.cancel()
        await collecting.new_collector(kind).run()

    async def _first_document(self) -> None:
        """Wait until the node can be judged: whatever else starts would delay that."""
        documents = self._parts.documents
        await documents.wait_until_device_info(_FIRST_WRITE_SECONDS)

    async def _run_later(self, run: Callable[[], Awaitable[object]]) -> None:
        await self._first_document()
        await run()

    async def _leave_out(self, source: str) -> None:
        parts, context = self._parts, self._parts.context
        await parts.documents.wait_until_read()
        reports = reports_when_disabled(
            source, tracked(parts.fault_state.state, source), context.started_at_ms
        )
        if reports:
            parts.collecting.report(reports)

    def _journal_start(self, restored: RestoredJournal) -> None:
        parts, context = self._parts, self._parts.context
        configuration = msgspec.json.encode(context.configuration, enc_hook=str).decode()
        digest = hashlib.sha256(configuration.encode()).hexdigest()
        rows = []
        if restored.gap is not None:
            rows.append((RowKind.GAP, body_of(restored.gap)))
        if restored.configuration is None or restored.configuration.body != configuration:
            rows.append((RowKind.CONFIGURATION, configuration))
        start = {
            "version": version(),
            "node": context.configuration.node_name,
            "boot_id": boot_id(),
            "configuration_sha256": digest,
        }
        rows.append((RowKind.START, body_of(start)))
        parts.journal.append(rows, context.started_at_ms)

    async def _until_stopped(self, stop: asyncio.Event) -> NoReturn:
        await stop.wait()
        self._leaving.start_timer()
        await self._parts.documents.wait_until_settled(_LAST_WRITE_SECONDS)
        raise Stopped("a signal requested it")

    async def _end(self) -> None:
        """Journal the end and release everything, without waiting for the driver."""
        parts, context = self._parts, self._parts.context
        # The deadline begins with the signal, or here for an end without one.
        self._leaving.start_timer()
        context.driver.close()
        if self._was_stopped:
            # Only for a planned stop: an agent that fails is started again at once.
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_LAST_BEAT_SECONDS):
                    await parts.heartbeat.leave(context.configuration.heartbeat.absence_seconds)
        parts.fault_state.end()
        parts.collecting.saved_states.write_pending()
        parts.journal.append(
            [(RowKind.STOP, body_of({"reason": self._end_reason}))], context.wall_clock()
        )
        if not await parts.journal.close():
            log.error("not everything is in the journal: %s", parts.journal.status().trouble)
        if self._was_stopped:
            # All data is written: only the connection of the store may still take too long.
            self._leaving.note_complete()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(1):
                await context.store.close()

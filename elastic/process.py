"""The process of ``vigil elastic run``: made from its configuration, until it is to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from contract.documents.elastic_job import LEASE
from elastic.aggregator_client import Aggregators
from elastic.controller import ElasticController
from elastic.job_events import JobEvents
from elastic.metrics import ElasticMetrics
from service.clock import system_clock
from service.election.identity import Identity
from service.election.leadership import LeaseElection
from service.log.setup import flush_log, set_up_logging
from service.pages.daemon_pages import application, serving
from service.tasks import until_stopped
from service.watchdog import Watchdog
from stores.address import kubeconfig_files
from stores.kubernetes_api.vcjobs import VcJobs

if TYPE_CHECKING:
    from elastic.config import ElasticConfiguration

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2.0


def run(configuration: ElasticConfiguration) -> None:
    """Run the daemon until SIGTERM or SIGINT. Raises ``VigilError``."""
    set_up_logging(configuration.log_format)
    try:
        asyncio.run(_run(configuration))
    finally:
        flush_log()


async def _run(configuration: ElasticConfiguration) -> None:
    clock = system_clock
    api = VcJobs(kubeconfig_files(configuration.kubeconfig))
    identity = Identity(configuration.state_dir)
    leadership = LeaseElection(
        api.leader_lease(LEASE), "kubernetes:", identity.name, configuration.lease_seconds, clock
    )
    events = JobEvents(api.objects, clock, records=configuration.act)
    controller = ElasticController(
        api,
        Aggregators(configuration.aggregator, configuration.login),
        leadership,
        events,
        clock,
        acts=configuration.act,
        ends_on_network_faults=configuration.network_faults,
        deletes_on_dead_nodes=configuration.dead_nodes,
    )
    stalls = Watchdog(lambda: clock().steady_ms / 1000)
    pages = application(
        stalls.stalled,
        lambda: controller.cache.unread,
        lambda encode: encode(ElasticMetrics(controller)),
        {"/api/v1/elastic": controller.status},
        lambda: controller.blocked_reasons,
    )
    _log.info("acts" if configuration.act else "dry run: nothing but the Lease is written")
    if configuration.dead_nodes:
        _log.warning(
            "pods on nodes that are silent and NotReady are deleted by force. Such a node may "
            "still run them and write the checkpoint while the job starts elsewhere"
        )
    try:
        async with serving(pages, configuration.listen, configuration.state_dir):
            await until_stopped(_all(controller, leadership, events, stalls))
            _log.info("asked to stop")
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                # Otherwise the next process waits until the Lease expires.
                await leadership.release()
                await api.close()
        identity.close()


async def _all(
    controller: ElasticController, leadership: LeaseElection, events: JobEvents, stalls: Watchdog
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leadership.run(controller.begin_round), name="leadership")
        tasks.create_task(controller.run(), name="controller")
        tasks.create_task(events.run(), name="Events")
        tasks.create_task(stalls.watch(controller.begin_round), name="stalls")

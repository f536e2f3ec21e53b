"""Makes the parts of an aggregator, each function those of one subject.

The subjects are: inputs, heartbeats, missed writes, jobs, clients, advice, conditions and taints.
``Aggregator`` connects what the functions return.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aggregator.absence.lasting_stores import LastingStores
from aggregator.dpu_faults.plugin import DpuFaults
from aggregator.grpc.endpoint import endpoint_of
from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.known_nodes import KnownNodes
from aggregator.jobs.job_view import JobView
from aggregator.liveness.legacy_watch import LegacyHeartbeatWatch
from aggregator.liveness.monitor import HeartbeatMonitor
from aggregator.liveness.persisted import PersistedHeartbeats
from aggregator.missed_writes.reader import MissedWrites, documents_of
from aggregator.notify.notifier import Notifier
from aggregator.notify.pod_labels import PodLabelWriter
from aggregator.public_faults.validation import INVALID
from aggregator.rank_tables.plugin import RankTables
from aggregator.scheduler_signals.removal import RuleRemoval, SignalRemoval
from aggregator.scheduler_signals.signal_memory import RuleMemory, SignalMemory
from contract.errors import StoreUnavailable
from contract.record import Record
from service.pages.event_stream import PLACES, Stream
from service.tls.expiry import CertificateFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aggregator.advising.advice import AdviceService
    from aggregator.advising.status import AdviceChange
    from aggregator.config import AggregatorConfiguration
    from aggregator.failover.persistent_state import PersistentState
    from aggregator.grpc.interfaces import Send
    from aggregator.grpc.server import GrpcServer
    from aggregator.inputs.node_documents import DocumentSource, DocumentWatch
    from aggregator.merge.pipeline import Pipeline
    from aggregator.notify.history import ClusterHistory
    from aggregator.plugin import Plugin
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.public_faults.validation import ValidationReply
    from aggregator.scheduler_signals.service import SchedulerSignals
    from contract.documents.node_info import NodeRecord
    from contract.documents.public_fault import PublicFault
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.watchdog import Watchdog
    from stores.base import Beat, Document, Store

# Half a second less than the 5 s of the sender, for the way back.
_ANSWER_TIMEOUT_MS = 4500
_MIN_STORE_TIMEOUT_MS = 500
"""A sender of public faults waits 5 s for the answer; at least so much of it is left for the store.
"""


# Inputs.


class Inputs(Record, frozen=True, kw_only=True):
    """What is read of all stores: pods and Nodes, documents of nodes, and which nodes there are.

    ``lasting`` judges what a store no longer has; ``sources`` are in the order of the stores.
    """

    cluster_state: ClusterState
    lasting: LastingStores
    sources: tuple[DocumentSource, ...]
    known_nodes: KnownNodes


def inputs(
    stores: Mapping[str, Store],
    configuration: AggregatorConfiguration,
    clock: Clock,
    *,
    has_beaten: Callable[[str, str], bool],
    wake: Callable[[], None],
) -> Inputs:
    """Return what is read of ``stores``, which are by URL.

    ``has_beaten`` returns whether a node had a heartbeat in a store; ``wake`` starts a step.
    """
    cluster_state = ClusterState([store.cluster is not None for store in stores.values()])
    lasting = LastingStores(stores, configuration.state_dir, clock, wake, configuration.max_nodes)
    sources = tuple(lasting.source(url, partial(has_beaten, url)) for url in stores)
    return Inputs(
        cluster_state=cluster_state,
        lasting=lasting,
        sources=sources,
        known_nodes=KnownNodes(sources, cluster_state),
    )


# Heartbeats.


def heartbeats(
    stores: Mapping[str, Store],
    sources: Iterable[DocumentSource],
    lasting: LastingStores,
    clock: Clock,
    stalls: Watchdog,
    *,
    on_lost: Callable[[frozenset[str]], None],
    on_listing: Callable[[str, tuple[Beat, ...]], None],
    wake: Callable[[], None],
) -> tuple[HeartbeatMonitor, PersistedHeartbeats]:
    """Return what lists the heartbeats of all stores, and their persistent state.

    ``on_lost`` receives the nodes that are lost, ``on_listing`` the heartbeats of each listing;
    ``wake`` is called when there is state to store.
    """
    # Only an API server has Nodes, on which releases of 2021 wrote their heartbeats (decision 8).
    old = {
        source.url: LegacyHeartbeatWatch(
            source.url,
            objects,
            partial(_node_record, source),
            partial(_why_unread, source.nodes),
            clock,
        )
        for source in sources
        if (objects := stores[source.url].objects) is not None
    }
    memory = PersistedHeartbeats(old.values(), clock, wake)
    monitor = HeartbeatMonitor(
        stores,
        on_lost,
        clock,
        stalls,
        old,
        memory,
        on_listing=on_listing,
        lasting=lasting.urls,
        on_new_beat=lasting.last_known.record_beat,
    )
    return monitor, memory


def _node_record(source: DocumentSource, node: str) -> NodeRecord | None:
    """Return the last good node-info of a node in a store."""
    report = source.node.reports.get(node)
    return None if report is None else report.record


def _why_unread(watch: DocumentWatch) -> str | None:
    """Return why the documents of a watch are not known as they are now; ``None`` if they are."""
    return watch.interrupted if watch.listed else watch.interrupted or "it was not listed yet"


# Writes that no watch has shown.


def missed_writes(
    stores: Mapping[str, Store],
    sources: Sequence[DocumentSource],
    faults: PublicFaultsPlugin,
    apply: Callable[[int, str, Mapping[str, Document | None]], None],
    clock: Clock,
    wake: Callable[[], None],
) -> dict[str, MissedWrites]:
    """Return what reads missed writes, by URL of the store.

    ``apply`` receives the number of a store, a kind and its documents by node.
    """
    return {
        source.url: MissedWrites(
            stores[source.url],
            documents_of(source, number, faults),
            partial(apply, number),
            clock,
            wake,
        )
        for number, source in enumerate(sources)
    }


# Jobs.


class JobParts(Record, frozen=True, kw_only=True):
    """What has to do with jobs: which are hit, their rank tables, faults of RDMA NICs, labels."""

    view: JobView
    rank_tables: RankTables
    dpu_faults: DpuFaults
    labels: PodLabelWriter


def job_parts(
    configuration: AggregatorConfiguration,
    stores: Mapping[str, Store],
    cluster_state: ClusterState,
    pipeline: Pipeline,
    faults: PublicFaultsPlugin,
    nodes: KnownNodes,
    lead: Leadership,
) -> JobParts:
    """Return what has to do with jobs; ``stores`` are those that are read."""

    # A function: sources are listed later than this is made.
    def is_read() -> bool:
        return all(source.listed for source in pipeline.sources)

    clusters = {url: store.cluster for url, store in stores.items() if store.cluster is not None}
    view = JobView(cluster_state, pipeline.published, is_read=is_read)
    return JobParts(
        view=view,
        rank_tables=RankTables(len(stores), configuration.rank_tables.namespaces),
        dpu_faults=DpuFaults(
            clusters,
            faults,
            nodes,
            publishes=configuration.dpu_faults.publish,
            chips=configuration.dpu_faults.chips,
        ),
        labels=PodLabelWriter(clusters.values(), view.labels, lead),
    )


# Clients.


def notifier_of(
    configuration: AggregatorConfiguration,
    pipeline: Pipeline,
    cluster_state: ClusterState,
    jobs: JobParts,
    history: ClusterHistory,
    clock: Clock,
    *,
    send: Send,
    on_client: Callable[[object], None],
) -> Notifier:
    """Return what passes changes to clients and to the history, with the servers of the clients.

    ``send`` receives public faults that come over gRPC; ``on_client`` is called when a client
    subscribes or leaves.
    """
    return Notifier(
        pipeline,
        cluster_state,
        jobs.view,
        jobs.rank_tables,
        _event_stream(configuration, clock),
        history,
        jobs.labels,
        jobs.dpu_faults,
        _grpc_server(configuration, jobs, send, clock, on_client),
    )


def _event_stream(configuration: AggregatorConfiguration, clock: Clock) -> Stream:
    """Return the stream of server-sent events. It never takes the places that other pages need."""
    # At most half of the connections: streams stay open, and scrapes and probes must still be
    # served.
    places = min(PLACES, configuration.pages.max_connections // 2)
    # The start time is the prefix of the ids, so an id of an earlier run is recognised as too old.
    return Stream(f"{clock().wall_ms:x}", places)


def certificate_files(configuration: AggregatorConfiguration) -> CertificateFiles:
    """Return the files with certificates that brokers, gRPC and the pages need."""
    own = [configuration.pages.certificate_file]
    authorities = [configuration.pages.client_ca_file]
    urls = (*configuration.read_urls, *configuration.publish_urls)
    if any(url.startswith("mqtts:") for url in urls):
        own.append(configuration.mqtt.certificate_file)
        authorities.append(configuration.mqtt.ca_file)
    if configuration.grpc.listen is not None:
        own.append(configuration.grpc.certificate_file)
        authorities.append(configuration.grpc.client_ca_file)
    return CertificateFiles(own, authorities)


def _grpc_server(
    configuration: AggregatorConfiguration,
    jobs: JobParts,
    send: Send,
    clock: Clock,
    on_client: Callable[[object], None],
) -> GrpcServer | None:
    """Return the server for clients of ClusterD, ``None`` where none is configured.

    Without it gRPC is not imported.
    """
    endpoint = endpoint_of(configuration.grpc)
    if endpoint is None:
        return None
    from aggregator.grpc.server import GrpcServer

    return GrpcServer(endpoint, jobs.view, jobs.rank_tables, send, clock, on_client)


async def durable_answer(
    faults: PublicFaultsPlugin,
    message: PublicFault,
    persistent_state: PersistentState,
    judge: Callable[[frozenset[str]], None],
    clock: Clock,
) -> ValidationReply:
    """Apply a message over gRPC; return the answer when the faults in it are in the store.

    ``judge`` receives the nodes that are to be judged again before that. Raises ``StoreError``
    where the faults are not stored in time: the sender may repeat the message, which changes
    nothing twice.
    """
    # Counted from the arrival, because the sender's 5 s began before.
    end_ms = clock().steady_ms + _ANSWER_TIMEOUT_MS
    try:
        answer = await faults.apply_when_ready(message, clock)
    finally:
        # Also if the sender went away: until the next message no other call pops these nodes.
        judge(faults.pop_changed_nodes())
    # Nothing was applied, so there is nothing to be stored first.
    if answer.code == INVALID:
        return answer
    left_ms = max(_MIN_STORE_TIMEOUT_MS, end_ms - clock().steady_ms)
    try:
        async with asyncio.timeout(left_ms / 1000):
            await persistent_state.wait_until_stored(faults.name)
    except TimeoutError:
        raise StoreUnavailable("it could not be stored in time: send it again") from None
    return answer


# Advice.


def advising(
    configuration: AggregatorConfiguration,
    stores: Mapping[str, Store],
    history: ClusterHistory,
    notifier: Notifier,
    clock: Clock,
    wake: Callable[[], None],
) -> AdviceService | None:
    """Return the advisor; ``None``, and not loaded, without its option or a store with pods."""
    clusters = [store.cluster for store in stores.values() if store.cluster is not None]
    if not configuration.advice.enabled or not clusters:
        return None
    from aggregator.advising.advice import AdviceService
    from aggregator.advising.job_pods import PublishedPast

    def send(changes: Iterable[AdviceChange]) -> None:
        for change in changes:
            notifier.stream.send("advice", change, {change.node})

    return AdviceService(clusters[0], clock, send, wake, PublishedPast(history, notifier.levels_of))


# Conditions and taints.


class SignalParts(Record, frozen=True, kw_only=True):
    """What writes conditions and taints, remembers them, and removes those of options that are off.

    ``service`` is ``None``, and not loaded, without an option.
    """

    memory: SignalMemory
    rule_memory: RuleMemory
    removal: SignalRemoval
    rule_removal: RuleRemoval
    service: SchedulerSignals | None

    def plugins(self) -> tuple[Plugin, ...]:
        """Return the parts that are plugins: what remembers comes before what reads that."""
        parts = (self.memory, self.rule_memory, self.removal, self.rule_removal)
        return parts if self.service is None else (*parts, self.service)

    def problems(self) -> tuple[str, ...]:
        """Return for people what cannot be written or removed now."""
        written = () if self.service is None else self.service.problems()
        return (*self.removal.problems(), *self.rule_removal.problems(), *written)


def signal_parts(
    configuration: AggregatorConfiguration,
    stores: Mapping[str, Store],
    pipeline: Pipeline,
    monitor: HeartbeatMonitor,
    lead: Leadership,
    clock: Clock,
    wake: Callable[[], None],
) -> SignalParts:
    """Return what has to do with conditions and taints; ``wake`` when there is state to store."""
    memory, rule_memory = SignalMemory(wake), RuleMemory(wake)
    # The configuration refuses the options without a store that has Nodes.
    clusters = (store for store in stores.values() if store.cluster is not None)
    first = next(clusters, None)
    device_taints = filter(None, (store.device_taints for store in stores.values()))
    service = None
    options = (
        configuration.node_conditions,
        configuration.node_taints,
        configuration.device_taints,
    )
    if first is not None and first.cluster is not None and any(it.enabled for it in options):
        from aggregator.scheduler_signals.service import SchedulerSignals

        service = SchedulerSignals(
            configuration,
            first.cluster,
            first.device_taints,
            pipeline,
            monitor,
            lead,
            clock,
            memory,
            rule_memory,
        )
    return SignalParts(
        memory=memory,
        rule_memory=rule_memory,
        removal=SignalRemoval(configuration, None if first is None else first.cluster, memory),
        rule_removal=RuleRemoval(
            None if configuration.device_taints.enabled else next(device_taints, None),
            rule_memory,
        ),
        service=service,
    )

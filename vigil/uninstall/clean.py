"""Cleans stores of what agents and aggregators wrote into them (``docs/installation.md``).

A document is deleted only where NPU Vigil wrote it last. Readers of cluster-info first see each
node without faults: an entry that is only left out stays in their memory (``consumers#7.1``).
What a Device Plugin of the vendor's is registered for stays as it is. The annotations of elastic
training go (``docs/elastic-training.md``); ``distributed`` is MindCluster's and stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.workloads.elastic_conditions import original_of
from aggregator.cluster_documents.kinds import DEVICE, SWITCH, kind_of
from aggregator.processors import separation_documents
from aggregator.public_faults.published_faults import STATISTIC_NAME, STATISTIC_NAMESPACE
from contract.documents.cluster_device import render_device_entry
from contract.documents.cluster_info import entry_texts, member, value_of
from contract.documents.elastic_job import CAUSE, KEPT, LEASE, RESTORE
from contract.documents.elastic_job import SWITCH as ELASTIC_SWITCH
from contract.documents.forget_record import FORGET_LABEL, FORGET_NAMESPACE
from contract.documents.switch_info import render_switch_entry
from contract.errors import (
    DocumentError,
    StoreConflict,
    StoreForbidden,
    StoreNotFound,
    StoreRefused,
    StoreUnavailable,
)
from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    PUBLIC_FAULT_LABEL,
    PUBLIC_FAULT_NAMESPACE,
    PUBLIC_FAULT_PREFIXES,
    REPORT_LABEL,
    STATE_LABEL,
    STATE_NAMESPACE,
)
from contract.sentences import counted, joined, message, sentence
from contract.validation_texts import decode_text
from elastic.job import read_job
from stores.base import Document, Selection
from stores.kubernetes_api.writers import OURS
from vigil.aggregator_stores import beating, open_stores
from vigil.elastic.jobs import open_vcjobs, size_text
from vigil.exit_status import ExitStatus, print_done, print_refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from advisor.snapshot import VcJob
    from aggregator.cluster_documents.kinds import DocumentKind
    from aggregator.config import AggregatorConfiguration
    from contract.documents.device_taints import TaintRule
    from contract.node_signals import NodeSignals
    from stores.base import LeaderLease, Store
    from stores.device_taints import DeviceTaints
    from stores.kubernetes_api.uninstall import UninstallRequests
    from vigil.aggregator_stores import Stores

_SELECTIONS = (
    Selection(DEVICE_INFO_NAMESPACE, label=REPORT_LABEL),
    Selection(NODE_INFO_NAMESPACE, label=REPORT_LABEL),
    Selection(PUBLIC_FAULT_NAMESPACE, label=PUBLIC_FAULT_LABEL),
    Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL),
    Selection(STATE_NAMESPACE, has_label=STATE_LABEL),
    Selection(FORGET_NAMESPACE, label=FORGET_LABEL),
    Selection(separation_documents.NAMESPACE, name=separation_documents.CHIPS_NAME),
    Selection(STATISTIC_NAMESPACE, name=STATISTIC_NAME),
)
_OF_NODES = (DEVICE_INFO_PREFIX, NODE_INFO_PREFIX, *PUBLIC_FAULT_PREFIXES.values())
_MAX_CONCURRENT = 20
_LEADER_SECONDS = 2.0
_NAME = "vigil uninstall"
_REMARKS = (
    sentence("labels and annotations of Nodes stay: the vendor's programs write the same ones"),
    sentence("the state directories of agents on their nodes stay (/var/lib/npu-vigil)"),
    sentence("namespaces stay: others use them"),
)
_OURS = (ELASTIC_SWITCH, RESTORE, KEPT, CAUSE)


@dataclass
class Plan:
    """What of one store is cleaned."""

    store: Store
    heal: list[Document] = field(default_factory=list)
    """Documents of the cluster without faults, for a touch period."""
    delete: list[Document] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    """Whose heartbeats go."""
    left: list[str] = field(default_factory=list)
    jobs: list[VcJob] = field(default_factory=list)
    """Jobs of Volcano that have annotations of ours."""
    rules: list[TaintRule] = field(default_factory=list)
    """DeviceTaintRules of ours, of the version in ``rules_version``."""
    rules_version: str = ""
    signals: dict[str, NodeSignals] = field(default_factory=dict)
    """Nodes with conditions or a taint of ours."""


async def uninstall_all(configuration: AggregatorConfiguration, *, is_meant: bool) -> ExitStatus:
    """Clean all stores of an aggregator, or only show how; return the exit status.

    Raises ``StoreError``.
    """
    async with open_stores(configuration) as stores:
        if running := await _running(stores, configuration):
            text = sentence(
                "{daemon} still runs: stop all of NPU Vigil first; nothing was changed",
                daemon=running,
            )
            return print_refusal(text)
        plans = [await _plan(store, configuration) for store in stores.all]
        if not is_meant:
            for plan in plans:
                _show(plan)
            return print_done(sentence("nothing was changed: add --yes"))
        # Healed first, and left for a touch period: readers keep entries that only disappear.
        for plan in plans:
            for document in plan.heal:
                await plan.store.put(document, expected=document.version)
        if any(plan.heal for plan in plans):
            seconds = configuration.touch_period_seconds
            text = sentence(
                "cluster-info has no faults any more; its readers get {seconds} s",
                seconds=f"{seconds:g}",
            )
            print_done(text)
            await asyncio.sleep(seconds)
        for plan in plans:
            await _delete(plan, configuration)
        for line in (*(line for plan in plans for line in plan.left), *_REMARKS):
            print_done(line)
        return ExitStatus.OK


async def _running(stores: Stores, configuration: AggregatorConfiguration) -> str:
    """Return the name of what is still at work; empty for nothing."""
    beats = [(store, beat) for store in stores.read for beat in await store.beats()]
    for store in stores.all:
        if store.leader_lease is not None and (holder := await _renewing(store.leader_lease)):
            return sentence("the aggregator {name}", name=holder)
        if _is_kubernetes(store):
            async with elastic_lease(configuration.kubeconfig) as lease:
                if holder := await _renewing(lease):
                    return sentence("vigil elastic {name}", name=holder)
        lock = store.leader_lock
        if lock is not None and (holder := lock.holder()):
            # The name of one that was killed stays; the lock does not.
            if not lock.take(_NAME):
                return sentence("the aggregator {name}", name=holder)
            lock.release()
    alive = await beating(beats)
    if not alive:
        return ""
    return sentence("the agent of {nodes}", nodes=joined("{before}, {part}", alive[:3]))


async def _renewing(lease: LeaderLease) -> str:
    """Return the holder that renews the Lease, empty for none. Wait until it would run out."""
    before = await lease.read()
    if not before.holder:
        return ""
    # A Lease in use is renewed several times meanwhile; one that was left is not.
    await asyncio.sleep(before.duration_seconds + _LEADER_SECONDS)
    return before.holder if (await lease.read()).version != before.version else ""


def _is_kubernetes(store: Store) -> bool:
    return store.url.startswith("kubernetes:")


async def _plan(store: Store, configuration: AggregatorConfiguration) -> Plan:
    plan = Plan(store)
    documents = {
        (item.namespace, item.name): item
        for selection in _SELECTIONS
        for item in await store.list(selection)
    }
    gate = asyncio.Semaphore(_MAX_CONCURRENT)

    async def other_writer(document: Document) -> str | None:
        async with gate:
            writer = await store.writer(document.namespace, document.name)
        return None if writer is None or writer.name in OURS else writer.name

    # One request for each document, twenty at a time.
    others = await asyncio.gather(*map(other_writer, documents.values()))
    with_plugin = await _nodes_with_plugin(store, configuration)
    for document, other in zip(documents.values(), others, strict=True):
        text = _place(document)
        kind = kind_of(document.name)
        if other is not None:
            line = sentence(
                "{document} stays: {program} wrote it last", document=text, program=other
            )
            plan.left.append(line)
        elif document.name.removeprefix(DEVICE_INFO_PREFIX) in with_plugin:
            line = sentence(
                "{document} stays: a Device Plugin is registered there and takes it over",
                document=text,
            )
            plan.left.append(line)
        elif kind is not None or document.name.startswith(_OF_NODES) or _is_of_aggregator(document):
            plan.delete.append(document)
            if kind is not None:
                plan.heal += _healed(document, kind, with_plugin)
    plan.nodes = sorted({beat.node for beat in await store.beats()})
    if _is_kubernetes(store):
        plan.jobs, smaller = await plan_jobs(configuration.kubeconfig)
        plan.left += smaller
    if store.device_taints is not None:
        await _plan_rules(plan, store.device_taints)
        async with _remains(configuration) as remains:
            plan.signals = await remains.nodes_with_signals()
    return plan


async def _plan_rules(plan: Plan, taints: DeviceTaints) -> None:
    served = await taints.served()
    if served.rules is None:
        return
    try:
        plan.rules = list(await taints.list_rules(served.rules))
    except StoreForbidden as error:
        # Errors of a store are English, and so is the line with this one.
        plan.left.append(f"DeviceTaintRules of device_taints stay, if there are any: {error}")
    plan.rules_version = served.rules


def _is_of_aggregator(document: Document) -> bool:
    is_record = document.namespace == FORGET_NAMESPACE or STATE_LABEL in document.labels
    return is_record or document.name in (separation_documents.CHIPS_NAME, STATISTIC_NAME)


async def _nodes_with_plugin(
    store: Store, configuration: AggregatorConfiguration
) -> frozenset[str]:
    if not _is_kubernetes(store):
        return frozenset()
    async with _remains(configuration) as remains:
        return await remains.nodes_with_plugin()


@asynccontextmanager
async def _remains(configuration: AggregatorConfiguration) -> AsyncIterator[UninstallRequests]:
    from stores.address import kubeconfig_files
    from stores.kubernetes_api.uninstall import UninstallRequests

    remains = UninstallRequests(kubeconfig_files(configuration.kubeconfig))
    try:
        yield remains
    finally:
        await remains.close()


def _healed(
    document: Document, kind: DocumentKind[Any], with_plugin: frozenset[str]
) -> list[Document]:
    """Return the document of the cluster without faults, where that changes it.

    Entries of nodes with a Device Plugin stay: what it has of them is still true.
    """
    value = document.data.get(document.name, "")
    members = []
    try:
        for key, text in entry_texts(value, document.name).items():
            node, entry = kind.take_over(key, text, document.name)
            if node in with_plugin:
                members.append(member(key, text))
            elif kind is DEVICE:
                record = DEVICE.heal(entry.record)
                assert record is not None
                # Later than the published stamp, or readers would drop the healthy entry.
                stamp = max(int(time.time()), entry.stamp + 1)
                members.append(member(key, render_device_entry(node, record, stamp)))
            elif kind is SWITCH:
                switches = SWITCH.heal(entry.record)
                assert switches is not None
                members.append(member(key, render_switch_entry(node, switches)))
    except DocumentError:
        return []  # its readers refuse it, too
    # Hosts have no entry here: readers replace that document as a whole, so absence is healthy.
    data = {document.name: value_of(members)}
    if data == document.data:
        return []
    return [msgspec.structs.replace(document, data=data)]


async def _delete(plan: Plan, configuration: AggregatorConfiguration) -> None:
    for document in plan.delete:
        await plan.store.delete(document.namespace, document.name)
        if document.finalizers:
            line = sentence(
                "{document} is deleted, and finalizers of others hold it: {finalizers}; its "
                "readers have it until these are removed",
                document=_place(document),
                finalizers=joined("{before}, {part}", document.finalizers),
            )
            plan.left.append(line)
    for node in plan.nodes:
        await plan.store.forget_beat(node)
    for rule in plan.rules:
        assert plan.store.device_taints is not None, "the rules are from there"
        await plan.store.device_taints.delete_rule(plan.rules_version, rule)
    if _is_kubernetes(plan.store):
        async with _remains(configuration) as remains:
            await remains.delete_leader_leases()
            for node, seen in sorted(plan.signals.items()):
                try:
                    await remains.remove_signals(node, seen)
                except StoreConflict:
                    # The kubelet has written the Node since; once more is enough for most.
                    line = sentence("node {node} has changed: run this once more", node=node)
                    plan.left.append(line)
        plan.left += await clear_jobs(configuration.kubeconfig, plan.jobs)
    text = sentence(
        "{store}: deleted {documents} and {heartbeats}",
        store=plan.store.url,
        documents=counted(len(plan.delete), "{count} document", "{count} documents"),
        heartbeats=counted(len(plan.nodes), "{count} heartbeat", "{count} heartbeats"),
    )
    print_done(text)


def _show(plan: Plan) -> None:
    for text, names in (
        (message("{name} would lose its faults first"), map(_place, plan.heal)),
        (message("{name} would be deleted"), map(_place, plan.delete)),
        (message("DeviceTaintRule {name} would be deleted"), (rule.name for rule in plan.rules)),
        (message("the heartbeat of {name} would be deleted"), plan.nodes),
        (
            message("node {name} would lose its conditions and its taint of npu-vigil"),
            sorted(plan.signals),
        ),
        (
            message("vcjob {name} would lose its annotations of npu-vigil/elastic"),
            (job.key for job in plan.jobs),
        ),
    ):
        for name in names:
            print_done(sentence(text, name=name))
    for line in plan.left:
        print_done(line)


def _place(document: Document) -> str:
    return f"{document.namespace}/{document.name}"


@contextlib.asynccontextmanager
async def elastic_lease(kubeconfig: Path | None) -> AsyncIterator[LeaderLease]:
    """Give the Lease of the process that starts elastic vcjobs."""
    async with open_vcjobs(kubeconfig) as api:
        yield api.leader_lease(LEASE)


async def plan_jobs(kubeconfig: Path | None) -> tuple[list[VcJob], list[str]]:
    """Return the vcjobs with annotations of ours, and a line for each of another size.

    Raises ``StoreError``.
    """
    jobs: list[VcJob] = []
    async with open_vcjobs(kubeconfig) as api:
        # A cluster without Volcano has no such kind.
        with contextlib.suppress(StoreNotFound):
            jobs = _read_jobs(await api.jobs())
    jobs = [job for job in jobs if any(key in job.annotations for key in _OURS)]
    lines = (_other_size(job) for job in jobs)
    return jobs, [line for line in lines if line]


async def clear_jobs(kubeconfig: Path | None, jobs: Sequence[VcJob]) -> list[str]:
    """Take our annotations off; returns a line for each job that was refused."""
    refused: list[str] = []
    async with open_vcjobs(kubeconfig) as api:
        for job in jobs:
            try:
                await api.annotate(job.namespace, job.name, dict.fromkeys(_OURS))
            except StoreNotFound:
                continue  # It was deleted meanwhile.
            except StoreRefused as error:
                refused.append(f"annotations of vcjob {job.key} stay: {error}")
    return refused


def _read_jobs(raw_jobs: list[msgspec.Raw]) -> list[VcJob]:
    try:
        return [read_job(raw) for raw in raw_jobs]
    except ValueError as error:
        raise StoreUnavailable(
            f"the list of Jobs of Volcano makes no sense: {decode_text(error)}"
        ) from error


def _other_size(job: VcJob) -> str:
    """Return what a job loses with our annotation: its original size is nowhere else."""
    original, size = original_of(job), job.size
    if original is None or size is None:
        return ""
    before, now = size_text(original), size_text(size)
    if before == now:
        return ""
    return sentence(
        "vcjob {job} has {size}, its original size is {original}",
        job=job.key,
        size=now,
        original=before,
    )

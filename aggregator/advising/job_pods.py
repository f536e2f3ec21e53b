"""The pods of the present run of each elastic vcjob, and the faults under them when it ended.

Pods go with the end of a job, and the scheduler's record goes a second later (consumers#1.14), so
they are kept for as long as the job is there. The faults are those that were published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from advisor.checks.ended_vcjobs import NETWORK, FaultUnder
from advisor.jobs import used_cards
from advisor.workloads.elastic_conditions import kept_of, run_of
from contract import scheduling
from contract.codes.chip_codes import NETWORK_FAULT_CODES
from contract.codes.levels import takes_out
from contract.pages.changes import STATUS
from contract.plural import plural
from stores.cluster import Snapshot, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from advisor.snapshot import SchedulerNode, SchedulerPod, VcJob
    from contract.pages.changes import FaultChange

BEFORE_MS = 10_000
"""A fault that had passed for longer when the pods began to end did not end them."""
AFTER_MS = 60_000
"""A fault that is seen up to so long after the end of a job may have ended it."""
_UNHEALTHY = "UnHealthy"


class PodOfRun(msgspec.Struct):
    """A bound pod: ``asked_ms`` is when it was seen to end, ``gone_ms`` when it was gone, and
    ``not_ready_ms`` when its Node became NotReady under it (wall); 0 for not yet.
    """

    node: str
    cards: tuple[str, ...]
    grace_ms: int = 0
    asked_ms: int = 0
    gone_ms: int = 0
    not_ready_ms: int = 0


class RunPods(msgspec.Struct):
    """The pods of a run by uid; ``run`` is which one, ``None`` while the job was not seen."""

    run: tuple[int, int] | None = None
    pods: dict[str, PodOfRun] = {}


class JobPods:
    """Runs by the uid of the job. ``changed`` are those to be stored."""

    def __init__(self) -> None:
        self.runs: dict[str, RunPods] = {}
        self.changed: set[str] = set()
        self._present: dict[str, tuple[int, int]] = {}
        """The present run of each elastic job, by uid."""

    def restore_runs(self, runs: Mapping[str, str]) -> None:
        """Restore what an earlier process has kept, by uid; what cannot be read is left out."""
        for uid, text in runs.items():
            try:
                run = msgspec.json.decode(text, type=RunPods)
            except msgspec.DecodeError:
                continue
            here = self.runs.get(uid, RunPods())
            self.runs[uid] = RunPods(run.run, run.pods | here.pods)
            self._begin_run(uid)

    def take_changed(self) -> dict[str, str | None]:
        """Return the runs that have changed as texts, ``None`` for those of jobs that are gone."""
        changed, self.changed = self.changed, set()
        return {
            uid: msgspec.json.encode(self.runs[uid]).decode() if uid in self.runs else None
            for uid in changed
        }

    def observe_pods(self, name: str, event: object, now_ms: int) -> None:
        """Observe an event of a kind of objects; ``now_ms`` is the wall clock."""
        match name:
            case "pods":
                self._observe_pods(event, now_ms)
            case "vcjobs":
                self._observe_jobs(event)
            case "nodes":
                self._observe_nodes(event, now_ms)

    def _observe_pods(self, event: object, now_ms: int) -> None:
        match event:
            case Snapshot(items=items, unreadable=unreadable):
                for uid, run in self.runs.items():
                    for gone in run.pods.keys() - items.keys() - unreadable:
                        self._is_gone(uid, gone, now_ms)
                for key, pod in items.items():
                    self._pod(key, pod, now_ms)
            case Update(key=key, value=None):
                for uid in [uid for uid, run in self.runs.items() if key in run.pods]:
                    self._is_gone(uid, key, now_ms)
            case Update(key=key, value=pod) if pod is not None:
                self._pod(key, pod, now_ms)

    def _observe_jobs(self, event: object) -> None:
        match event:
            case Snapshot(items=items, unreadable=unreadable):
                here = {*self.runs, *self._present}
                for uid in here - items.keys() - unreadable:
                    self._forget(uid)
                for uid, job in items.items():
                    self._job(uid, job)
            case Update(key=key, value=None):
                self._forget(key)
            case Update(key=key, value=job) if job is not None:
                self._job(key, job)

    def _observe_nodes(self, event: object, now_ms: int) -> None:
        match event:
            case Snapshot(items=items):
                self._nodes({node.name: node for node in items.values()}, now_ms)
            case Update(value=node) if node is not None:
                self._nodes({node.name: node}, now_ms)

    def _pod(self, key: str, pod: SchedulerPod, now_ms: int) -> None:
        owner = pod.owner
        if owner is None or owner.kind != "Job" or not pod.group or not pod.node:
            return
        run = self.runs.setdefault(owner.uid, RunPods(self._present.get(owner.uid)))
        before = run.pods.get(key)
        grace_seconds = pod.deletion_grace_seconds or pod.termination_grace_seconds
        current = PodOfRun(pod.node, used_cards(pod), grace_seconds * 1000)
        if before is not None:
            current.asked_ms, current.not_ready_ms = before.asked_ms, before.not_ready_ms
            current.cards = current.cards or before.cards
        if (pod.is_terminating or not pod.is_live) and not current.asked_ms:
            current.asked_ms = now_ms
        if current != before:
            run.pods[key] = current
            self.changed.add(owner.uid)

    def _is_gone(self, uid: str, pod: str, now_ms: int) -> None:
        stored = self.runs[uid].pods[pod]
        if not stored.gone_ms:
            stored.asked_ms, stored.gone_ms = stored.asked_ms or now_ms, now_ms
            self.changed.add(uid)

    def _job(self, uid: str, job: VcJob) -> None:
        if job.labels.get(scheduling.ELASTIC_SCHEDULING) != "on":
            self._forget(uid)
            return
        self._present[uid] = run_of(job)
        self._begin_run(uid)

    def _begin_run(self, uid: str) -> None:
        """Begin the present run: a job is started again only when all its pods have ended."""
        stored, run = self.runs.get(uid), self._present.get(uid)
        if stored is None or run is None or stored.run == run:
            return
        if stored.run is not None:
            stored.pods = {key: pod for key, pod in stored.pods.items() if not pod.asked_ms}
        stored.run = run
        self.changed.add(uid)

    def _forget(self, uid: str) -> None:
        self._present.pop(uid, None)
        if self.runs.pop(uid, None) is not None:
            self.changed.add(uid)

    def _nodes(self, nodes: Mapping[str, SchedulerNode], now_ms: int) -> None:
        # All pods once for all Nodes of a list: there may be 10,000 Nodes.
        for uid, run in self.runs.items():
            for pod in run.pods.values():
                node = nodes.get(pod.node)
                if node is None or pod.asked_ms:
                    continue
                at_ms = 0 if node.is_ready else (pod.not_ready_ms or now_ms)
                if at_ms != pod.not_ready_ms:
                    pod.not_ready_ms = at_ms
                    self.changed.add(uid)


class History(Protocol):
    """The part of ``ClusterHistory`` that is needed here. All raise ``StoreError``."""

    async def changes(self, nodes: Collection[str], since_ms: int) -> list[FaultChange]:
        """Return how the published state of nodes changed, the oldest first."""

    async def has_all(self, since_ms: int, until_ms: int) -> bool:
        """Return whether everything between two times was recorded."""

    async def runs(self) -> dict[str, str]:
        """Return the stored runs of jobs by uid."""

    def keep_runs(self, runs: Mapping[str, str | None]) -> None:
        """Store the runs of jobs, by uid; ``None`` deletes that of a job."""


class PublishedPast(NamedTuple):
    """What was published, and the levels that are published of a node now."""

    history: History
    levels_of: Callable[[str], Mapping[tuple[str, str], str]]


async def judge(
    job: VcJob, run: RunPods | None, past: PublishedPast
) -> tuple[tuple[FaultUnder, ...], str]:
    """Return the faults under the pods with which ``job`` ended, and why there may be others.

    Raises ``StoreError``.
    """
    run = run or RunPods()
    window = window_of(job, run.pods.values())
    nodes = {pod.node for pod in run.pods.values()}
    faults: tuple[FaultUnder, ...] = ()
    if nodes:
        levels = {node: dict(past.levels_of(node)) for node in nodes}
        changes = await past.history.changes(nodes, window[0])
        faults = faults_within(run, window, changes, levels)
    if not await past.history.has_all(*window):
        return faults, "the aggregator was away when the job ended, or its history begins later"
    if len(run.pods) < job.replicas and not await past.history.has_all(began_ms(job), window[0]):
        count = plural(len(run.pods), "pod")
        return faults, f"the aggregator has seen {count} of {job.replicas} of the job"
    return faults, ""


def window_of(job: VcJob, pods: Iterable[PodOfRun]) -> tuple[int, int]:
    """Return from when to when a fault under ``pods`` may have ended the job (wall).

    The scheduler deletes pods with their grace, and the phase of the job follows the first one that
    is gone; a pod that was deleted before is none of the end.
    """
    ended_ms = job.ended_at_ms
    began_ms = job.ending_since_ms or ended_ms
    requested_at_ms = [
        pod.asked_ms for pod in pods if pod.asked_ms >= began_ms - pod.grace_ms - BEFORE_MS
    ]
    return min((*requested_at_ms, began_ms)) - BEFORE_MS, ended_ms + AFTER_MS


def faults_within(
    run: RunPods,
    window: tuple[int, int],
    changes: Iterable[FaultChange],
    levels: Mapping[str, Mapping[tuple[str, str], str]],
) -> tuple[FaultUnder, ...]:
    """Return the faults under the pods of a run within ``window``, the oldest first.

    ``changes`` are those of their nodes since the window begins, in their order, and ``levels`` is
    what is published of these nodes now.
    """
    steps_of: dict[tuple[str, str, str], list[tuple[int, str | None]]] = {}
    for change in changes:
        # What it was before the first change since then, it was when the window began.
        steps = steps_of.setdefault(
            (change.node, change.subject, change.code), [(window[0], change.was)]
        )
        steps.append((change.at_ms, change.level))
    for node, standing in levels.items():
        for (subject, code), now in standing.items():
            steps_of.setdefault((node, subject, code), [(window[0], now)])
    faults = set(_not_ready(run, window))
    for (node, subject, code), steps in steps_of.items():
        for at_ms, level in steps:
            if at_ms <= window[1]:
                faults.update(_under(run, FaultUnder("", node, at_ms, subject, code, True), level))
    return tuple(
        sorted(faults, key=lambda fault: (fault.since_ms, fault.node, fault.chip, fault.code))
    )


def _under(run: RunPods, fault: FaultUnder, level: str | None) -> Iterator[FaultUnder]:
    pods = [pod for pod in run.pods.values() if pod.node == fault.node]
    is_network = fault.code in NETWORK_FAULT_CODES
    if pods and fault.code == STATUS and level == _UNHEALTHY:
        yield msgspec.structs.replace(fault, kind="HEARTBEAT", chip="", code="")
    elif any(fault.chip in pod.cards for pod in pods) and takes_out(level, is_network=is_network):
        yield msgspec.structs.replace(fault, kind=NETWORK if is_network else "DEVICE")


def _not_ready(run: RunPods, window: tuple[int, int]) -> Iterator[FaultUnder]:
    for pod in run.pods.values():
        if 0 < pod.not_ready_ms <= window[1]:
            yield FaultUnder("HEARTBEAT", pod.node, pod.not_ready_ms, is_past=True)


def began_ms(job: VcJob) -> int:
    """Return when the present run of a job began (wall)."""
    persisted = kept_of(job)
    return max(job.created_at_ms if persisted is None else persisted.at_ms, job.resumed_ms)

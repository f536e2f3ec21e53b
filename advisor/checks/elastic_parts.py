"""What the two optional parts of ``vigil elastic`` will do, where they are on.

Volcano ends no job for a network fault (``docs/spec/consumers.md#E24``), and pods on a dead node
never end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.checks.ended_vcjobs import ended_jobs
from advisor.report import Finding
from advisor.scheduler_view.nodes import UNHEALTHY_WORD
from advisor.workloads.elastic_conditions import elastic_start
from contract.documents.elastic_job import ENDED
from contract.sentences import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from advisor.checks.ended_vcjobs import FaultUnder
    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.nodes import NodeView
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import ClusterSnapshot, VcJob

LINK_DOWN_MS = 20_000
"""So long a link has to be down."""


def elastic_part_findings(
    snapshot: ClusterSnapshot,
    views: Mapping[str, NodeView],
    state: SchedulerState,
    options: AdvisorOptions,
    leaving: Collection[str],
) -> Iterator[Finding]:
    """Return the Commands and forced deletions that follow; ``leaving`` are uids of pods.

    These pods are deleted in this session.
    """
    if options.ends_on_network_faults or options.deletes_on_dead_nodes:
        jobs = {(job.namespace, job.name): job for job in snapshot.vcjobs if elastic_start(job)}
        if options.ends_on_network_faults:
            yield from _commands(snapshot, state, options, jobs)
        if options.deletes_on_dead_nodes:
            yield from _forced_deletions(snapshot, views, options, jobs, leaving)


def _commands(
    snapshot: ClusterSnapshot,
    state: SchedulerState,
    options: AdvisorOptions,
    jobs: Mapping[tuple[str, str], VcJob],
) -> Iterator[Finding]:
    # Jobs that wait for capacity get theirs before another one is ended (decision 36).
    waiting = {key for key, job in jobs.items() if job.phase in ENDED}
    ended = ended_jobs(snapshot, state, options, sized=waiting, judged=(), running=True)
    before = ""
    for ended_job in ended.running:
        stood = _stood(ended_job.faults, snapshot.now_ms)
        size = None if ended_job.advice is None else ended_job.advice.replicas
        if (ended_job.namespace, ended_job.name) not in jobs or not stood or size is None:
            continue
        nodes = joined("{before}, {part}", sorted({fault.node for fault in ended_job.faults}))
        # One at a time: a bad switch would end all jobs for the same capacity (decision 36).
        text = sentence(
            "a link on {nodes} is down, {since}: vigil elastic ends the job by a Command; there "
            "is room for {count} pods",
            nodes=nodes,
            since=stood,
            count=size,
        )
        if before:
            text = sentence(
                "a link on {nodes} is down, {since}: vigil elastic ends the job by a Command once "
                "{job} runs again; there is room for {count} pods",
                nodes=nodes,
                since=stood,
                job=before,
                count=size,
            )
        before = before or f"{ended_job.namespace}/{ended_job.name}"
        yield Finding.warning(
            "ELASTIC_COMMAND",
            f"Job {ended_job.namespace}/{ended_job.name}",
            text,
        )


def _stood(faults: Sequence[FaultUnder], now_ms: int) -> str:
    """Return for how long a link is down; empty where that is too short."""
    if any(not fault.since_ms for fault in faults):
        return sentence("since when is not known")
    longest_ms = now_ms - min(fault.since_ms for fault in faults)
    if longest_ms < LINK_DOWN_MS:
        return ""
    return sentence("for {seconds} s", seconds=longest_ms // 1000)


def _forced_deletions(
    snapshot: ClusterSnapshot,
    views: Mapping[str, NodeView],
    options: AdvisorOptions,
    jobs: Mapping[tuple[str, str], VcJob],
    leaving: Collection[str],
) -> Iterator[Finding]:
    owners = {job.uid for job in jobs.values()}
    not_ready = {node.name for node in snapshot.nodes if not node.is_ready}
    for pod in snapshot.pods:
        view = views.get(pod.node)
        is_dead = view is not None and view.host_status == UNHEALTHY_WORD and pod.node in not_ready
        is_ours = pod.owner is not None and pod.owner.uid in owners
        if is_dead and is_ours and (pod.is_terminating or pod.uid in leaving):
            yield Finding.warning(
                "ELASTIC_FORCED_DELETION",
                f"Pod {pod.namespace}/{pod.name}",
                sentence(
                    "{node} is unhealthy and NotReady. Once it is silent and NotReady for more "
                    "than {seconds} s, vigil elastic deletes the pod by force. The pod may still "
                    "run there",
                    node=pod.node,
                    seconds=options.grace_over_time,
                ),
            )

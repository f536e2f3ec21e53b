"""One session of rescheduling, in the scheduler's order (``consumers#2.3`` and 2.7).

Cached jobs come first: they are released, widened, or ended by force. Then suspect jobs are judged,
and those at fault are cached. Last, each cached job that was not acted on passes its gate and loses
the selected pods. A decision that left the memory of its job as it was is kept for later sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.jobs import known_rank
from advisor.options import Profile
from advisor.report import (
    Action,
    Deletion,
    FaultPod,
    Finding,
    JobDecision,
    Retry,
    Scope,
    WorkloadKind,
)
from advisor.rescheduling import cached_jobs
from advisor.rescheduling.fault_pods import (
    FaultPods,
    JudgedPod,
    StaleNodes,
    has_ended_badly,
    judged_key,
)
from advisor.rescheduling.fault_scheduling import (
    Gate,
    gate,
    has_platform_marker,
)
from advisor.rescheduling.selection import PodSelection, select
from advisor.scheduler_view.state import FaultType
from advisor.workloads.failed_processes import after_failure, has_failed_process
from advisor.workloads.pod_recreation import FollowUp, all_of, follow_up, workload_of
from contract import scheduling
from contract.sentences import counted, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from advisor.jobs import SchedulerJob
    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.nodes import NodeView
    from advisor.scheduler_view.state import CachedJob, SchedulerState
    from advisor.snapshot import ClusterSnapshot, SchedulerPod
    from advisor.snapshot_index import SnapshotIndex

_RUNNING = ("Running", "Unknown")
"""Phases of a PodGroup whose job is evaluated (consumers#2.3, item 5)."""
_NO_MASTER = (
    WorkloadKind.AIBRIX,
    WorkloadKind.OME_DEPLOYMENT,
    WorkloadKind.OME_LWS,
    WorkloadKind.MINDIE_CONTROL,
)
"""Workloads without a training master (R31)."""


class KeptDecisions:
    """Decisions of earlier sessions of one profile that still hold.

    A decision is kept when its session has left the memory of the job as it was. It holds as long
    as the job, the nodes of its pods and their stale documents stay, and no deadline passes. Any
    other job is open.
    """

    def __init__(self) -> None:
        self.suspects: set[str] = set()
        """Jobs with a pod that something may be wrong with."""
        self.uncounted: set[str] = set()
        """Jobs that run and are evaluated, but for those whose retries are counted already."""
        self.gone: set[str] = set()
        """Jobs that are not there, of which retries may still be counted."""
        self.decisions: dict[str, JobDecision] = {}
        self.findings: dict[str, tuple[Finding, ...]] = {}
        self._open: set[str] = set()
        """Jobs without a kept decision, if anything is to be decided about them at all."""
        self._until: dict[str, int] = {}
        """Until which second a decision holds, by cached job."""

    def discard(self, keys: Iterable[str], now: int) -> None:
        """Discard the decisions about ``keys``, and those whose time is over."""
        # The deadline itself still belongs to the decision.
        due = [key for key, until in self._until.items() if now > until]
        for key in (*keys, *due):
            self._open.add(key)
            self._until.pop(key, None)
            self.decisions.pop(key, None)
            self.findings.pop(key, None)

    def open_jobs(self, cached: AbstractSet[str]) -> set[str]:
        """Return the open jobs that are cached or suspect."""
        # A job that is neither becomes one of them only by a change, which opens it.
        self._open = {key for key in self._open if key in self.suspects or key in cached}
        return set(self._open)

    def keep(
        self, key: str, decision: JobDecision | None, findings: Iterable[Finding], until: int | None
    ) -> None:
        """Keep the decision about a job ``until`` a time in Unix seconds, ``None`` for no limit."""
        self._open.discard(key)
        if decision is not None:
            self.decisions[key] = decision
        if listed := tuple(findings):
            self.findings[key] = listed
        if until is not None:
            self._until[key] = until

    def sort(self) -> None:
        """Sort the decisions by job; a nearly sorted list takes little time."""
        self.decisions = {key: self.decisions[key] for key in sorted(self.decisions)}


class Rescheduling:
    """Decides about all jobs of one session."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        index: SnapshotIndex,
        views: Mapping[str, NodeView],
        state: SchedulerState,
        options: AdvisorOptions,
        stale: StaleNodes,
        decisions: KeptDecisions,
        judged: Mapping[str, int],
    ) -> None:
        """``judged`` is what ``state`` has of pods that are still there."""
        self._jobs = index.jobs
        self._views = views
        self._options = options
        self._before = state
        self._kept = decisions
        self._now = snapshot.now_ms // 1000
        self._corrected = options.profile is Profile.CORRECTED
        self._index = index
        self._judge = FaultPods(
            views,
            first_session=snapshot.first_session,
            corrected=self._corrected,
            judged=judged,
            stale=stale,
        )
        self.cached: dict[str, CachedJob] = dict(state.jobs)
        self.retries: dict[str, int] = state.retries
        self.judged: dict[str, int] = dict(judged)
        self.link_down: set[str] = set()
        self.decisions: dict[str, JobDecision] = {}
        self.findings: list[Finding] = []
        """Decisions that differ from those of the real programs (section 8)."""
        self._findings: dict[str, list[Finding]] = {}
        self._deleted = 0

    def update(self, keys: Iterable[str]) -> None:
        """Update what is known of the jobs ``keys``, which may have changed."""
        decisions = self._kept
        decisions.discard(keys, self._now)
        for key in keys:
            job = self._jobs.get(key)
            is_suspect = job is not None and any(self._judge.is_suspect(pod) for pod in job.pods)
            is_eligible = job is not None and job.group.phase in _RUNNING and not self._is_off(job)
            for book, is_in in (
                (decisions.suspects, is_suspect),
                (decisions.uncounted, is_eligible),
                (decisions.gone, job is None),
            ):
                if is_in:
                    book.add(key)
                else:
                    book.discard(key)
        # Only where retries are still counted is there something to remove.
        decisions.gone &= self._before.retries.keys()
        if decisions.gone:
            self.retries = {
                k: retries for k, retries in self.retries.items() if k not in decisions.gone
            }

    def run(self) -> None:
        """Decide about all jobs: cached ones first, then those that run, then act.

        Source: docs/spec/consumers.md#2.3.
        """
        open_jobs = self._kept.open_jobs(self.cached.keys())
        # Sorted, so that equal inputs give equal decisions.
        for key in sorted(self.cached.keys() & open_jobs):
            self._sync(key)
        # Before new faults, as the plugin: a forced deletion of this session is not acted on twice.
        forced = {key for key in sorted(self.cached.keys() & open_jobs) if self._force(key)}
        self._count_retries()
        verdicts: dict[str, tuple[JudgedPod, ...]] = {}
        for key in sorted(self._kept.suspects & open_jobs):
            judged_pods = self._evaluate(self._jobs[key])
            if judged_pods is not None:
                verdicts[key] = judged_pods
        for key in sorted(self.cached.keys() & open_jobs):
            cached = self.cached[key]
            if not cached.is_executed and key not in forced:
                judged = verdicts.get(key) or cached_jobs.judged_again(cached, self._jobs[key])
                self._act(key, judged)
            elif key not in self.decisions:
                self._wait(key)
        for section, name, text in sorted(self._judge.divergences):
            self._diverges(section, self._jobs[name], text)
        for key in open_jobs:
            self._keep(key)
        self._kept.sort()
        self.decisions = self._kept.decisions | self.decisions
        for findings in (*self._kept.findings.values(), *self._findings.values()):
            self.findings += findings

    def _count_retries(self) -> None:
        """Begin to count the retries of jobs that are new (consumers#2.5)."""
        decisions = self._kept
        # Those that were counted in the state after this one are counted in the next, too.
        decisions.uncounted = {
            key for key in decisions.uncounted if key not in self._before.retries
        }
        if new := sorted(decisions.uncounted - self.cached.keys()):
            self.retries = self.retries | {key: self._jobs[key].retry_times for key in new}

    def _keep(self, key: str) -> None:
        """Keep the decision about a job of which the session has changed nothing."""
        cached = self.cached.get(key)
        # By identity: a memory that the session changed makes another session possible.
        if cached is not self._before.jobs.get(key):
            return
        if self.retries.get(key) != self._before.retries.get(key):
            return
        until = None
        if cached is not None:
            # With a limit of deletions the result depends on how many pods of other jobs go.
            if self._options.max_delete_per_tick is not None and not cached.is_executed:
                return
            limits = cached_jobs.deadlines(cached, self._options.grace_over_time)
            until = min((limit for limit in limits if limit >= self._now), default=None)
        decision, findings = self.decisions.pop(key, None), self._findings.pop(key, ())
        self._kept.keep(key, decision, findings, until)

    def _value(self, job: SchedulerJob) -> str:
        """Return the ``fault-scheduling`` that counts (R10, R23)."""
        return job.common_fault_scheduling if self._corrected else job.fault_scheduling

    def _is_off(self, job: SchedulerJob) -> bool:
        return self._value(job) in ("", scheduling.FAULT_SCHEDULING_OFF)

    def _sync(self, key: str) -> None:
        """Update a cached job: it may be expired, gone, completed or widened.

        Source: docs/spec/consumers.md#2.8.
        """
        cached, job = self.cached[key], self._jobs.get(key)
        # First, as in the plugin: an expired job is released whatever else holds.
        if cached_jobs.is_expired(cached, self._now, self._options.grace_over_time):
            reason = sentence("it has been cached for longer than the scheduler keeps a job")
            self._release(key, job, reason)
            return
        # A job of the same name with another owner is another job.
        if job is None or job.uid != cached.uid:
            del self.cached[key]
            return
        if cached_jobs.is_completed(cached, job, corrected=self._corrected):
            if cached_jobs.is_allocated(job):
                self._release(key, job, sentence("enough pods of the job are placed again"))
                return
            if job.is_pod_rescheduling or job.is_process_recovering:
                failed = [pod for pod in job.pods if self._has_failed_since(job, pod)]
                cached = cached_jobs.with_failed_pods(cached, job, failed)
            cached = cached_jobs.widened(cached, job)
        self.cached[key] = cached

    def _has_failed_since(self, job: SchedulerJob, pod: SchedulerPod) -> bool:
        """Return whether a pod of a cached job has failed by itself (consumers#2.8).

        The real programs do not ask for ``fault-retry-times`` then.
        """
        if not self._corrected or not has_ended_badly(pod):
            return has_ended_badly(pod)
        if self._judge.has_failed(job, pod):
            return True
        if not job.retry_times:
            text = sentence("without fault-retry-times no pod is deleted for its programs")
            self._diverges(7, job, text)
        return False

    def _release(self, key: str, job: SchedulerJob | None, reason: str) -> None:
        del self.cached[key]
        if job is not None:
            self._decide(job, Action.RELEASED, "D3", ("R40",), reason)

    def _force(self, key: str) -> bool:
        """Delete by force what is left of a ``grace`` job after its time; return whether it did.

        The real programs do not ask whether they have evicted a pod of it before.

        Source: docs/spec/consumers.md#2.7, R34.
        """
        cached, job = self.cached[key], self._jobs[key]
        if not self._ends_by_force(cached):
            return False
        # Strictly more than ``grace-over-time`` (R34).
        if self._now - cached.first_seen <= self._options.grace_over_time:
            return False
        if cached_jobs.is_completed(cached, job, corrected=self._corrected):
            return False
        if self._corrected and not cached.is_executed:
            if not cached.is_evicted:
                text = sentence("a job that was not acted on is not ended by force")
                self._diverges(37, job, text)
            return False
        row, remaining = cached.row, tuple(pod for pod in job.pods if pod.uid in cached.deleted)
        if not cached.is_executed:
            selection = select(job, cached_jobs.judged_again(cached, job), cached.pending)
            row, remaining = selection.row, tuple(pod for pod in selection.pods if pod.uid)
        if not remaining:
            return False
        gone = dict.fromkeys((*cached.deleted, *(pod.uid for pod in remaining)))
        self.cached[key] = msgspec.structs.replace(
            # Once only: what is left after a forced deletion is Kubernetes' to end.
            cached,
            is_forced=True,
            deleted=tuple(gone),
            row=row,
        )
        deletions = tuple(self._deletion(pod, is_evicted=False) for pod in remaining)
        self._decide(
            job,
            Action.FORCE_DELETE,
            row,
            ("R34",),
            sentence(
                "pods are left {seconds} s after the fault was seen",
                seconds=self._options.grace_over_time,
            ),
            pods=deletions,
            scope=Scope.JOB if len(remaining) == len(job.pods) else Scope.POD,
        )
        return True

    def _ends_by_force(self, cached: CachedJob) -> bool:
        """Return whether pods that are left are deleted by force once their time has passed."""
        if cached.value != scheduling.FAULT_SCHEDULING_GRACE or cached.is_forced:
            return False
        return cached.is_evicted or not cached.is_executed

    def _deadline_ms(self, cached: CachedJob) -> int | None:
        """Return when pods that are left are deleted by force, in Unix milliseconds (R34)."""
        if not self._ends_by_force(cached) or (self._corrected and not cached.is_executed):
            return None
        # One second more, as whole seconds are compared with "more than".
        return (cached.first_seen + self._options.grace_over_time + 1) * 1000

    def _wait(self, key: str) -> None:
        """Report a job that was acted on and is cached until its pods are back (D3)."""
        cached, job = self.cached[key], self._jobs[key]
        reason = sentence("it was acted on and waits until its pods are gone, made anew and placed")
        if cached.pending:
            pending = sentence("{count} pending sessions", count=cached.pending)
            reason = joined("{before}; {part}", (reason, pending))
        judged = cached_jobs.judged_again(cached, job)
        self._decide(
            job,
            Action.WAIT_COMPLETION,
            "D3",
            ("R40",),
            reason,
            judged=judged,
            deadline_ms=self._deadline_ms(cached),
        )

    def _evaluate(self, job: SchedulerJob) -> tuple[JudgedPod, ...] | None:
        """Judge a suspect job that is not cached; return the verdicts of one that is cached now."""
        if job.key in self.cached:
            return self._evaluate_again(job) if self._corrected else None
        is_running = job.group.phase in _RUNNING
        judged = self._judge.job(job)
        has_fault = any(judged_pod.type is not None for judged_pod in judged)
        if not has_fault and not has_platform_marker(judged):
            self._leave_to_others(job, is_running=is_running)
            return None
        if self._is_off(job):
            if not job.is_off:
                text = sentence("an unsupported or joined fault-scheduling counts as off")
                self._diverges(10, job, text)
            if has_fault:
                reason = _off()
                self._decide(job, Action.NONE, "D2", ("R20",), reason, judged=judged)
            return None
        if not is_running:
            if has_fault:
                reason = _not_running(job)
                self._decide(job, Action.NONE, "D1", ("R21",), reason, judged=judged)
            return None
        if not has_fault:
            self._gate(job, judged)
            return None
        self.cached[job.key] = cached_jobs.remembered(job, self._value(job), judged, self._now)
        for judged_pod in judged:
            # The link of such a pod's node is remembered (consumers#1.9).
            if judged_pod.type is FaultType.SEPARATE:
                self.link_down.add(judged_pod.pod.node)
        return judged

    def _leave_to_others(self, job: SchedulerJob, *, is_running: bool) -> None:
        """Report processes that failed and that Volcano does nothing about (consumers#2.9)."""
        failed = [pod for pod in job.pods if has_failed_process(pod)]
        if not failed:
            return
        if self._is_off(job):
            row, rules = "D2", ("R20",)
            reason = _off()
        elif not is_running:
            row, rules = "D1", ("R21",)
            reason = _not_running(job)
        elif not job.retry_times:
            row, rules = "D8", ("R27",)
            reason = sentence(
                "fault-retry-times is absent or not above 0: Volcano leaves failed processes alone"
            )
        else:
            row, rules = "D8", ("R22",)
            reason = sentence(
                "Volcano does nothing: the pod has not failed, or its restart was judged before"
            )
        self._decide(job, Action.NONE, row, rules, reason, failed=failed)

    def _evaluate_again(self, job: SchedulerJob) -> tuple[JudgedPod, ...] | None:
        """Judge a cached job anew: pods that became faulty since join it (R42)."""
        cached = self.cached[job.key]
        types = {pod.uid: pod.type for pod in cached.pods if pod.type}
        gone = set(cached.deleted)
        fresh = {
            judged_pod.pod.uid: judged_pod
            for judged_pod in self._judge.job(job)
            if judged_pod.type is not None and judged_pod.pod.uid not in gone
        }
        if all(types.get(uid) == judged_pod.type for uid, judged_pod in fresh.items()):
            return None
        before = {
            judged_pod.pod.uid: judged_pod for judged_pod in cached_jobs.judged_again(cached, job)
        }
        merged = tuple({**before, **fresh}.values())
        text = sentence("a fault that follows is acted on while the job is cached")
        self._diverges(6, job, text)
        self.cached[job.key] = msgspec.structs.replace(
            cached,
            pods=cached_jobs.cached_pods(merged),
            value=self._value(job),
            strategy=job.strategy,
            retry_times=job.retry_times,
            is_executed=False,
        )
        return merged

    def _act(self, key: str, judged: tuple[JudgedPod, ...]) -> None:
        """Act on a cached job that was not acted on (consumers#2.3, item 7)."""
        job, cached = self._jobs[key], self.cached[key]
        opened = self._gate(job, judged)
        if opened is None or opened.reason is None:
            return
        kind = workload_of(job)
        master_rule = not (self._corrected and kind in _NO_MASTER)
        selection = select(job, judged, cached.pending, master_rule=master_rule)
        if not master_rule and select(job, judged, cached.pending).pods != selection.pods:
            text = sentence("an inference job has no master: its rank 0 is a pod as others")
            self._diverges(8, job, text)
        if self._value(job) != job.fault_scheduling:
            text = sentence("the joined fault-scheduling counts as {value}", value=self._value(job))
            self._diverges(10, job, text)
        if not selection.pods:
            self._decide(job, Action.NONE, selection.row, ("R30",), selection.why, judged=judged)
            return
        # A pod that is not made anew yet has no uid, and none is deleted twice.
        pods = tuple(pod for pod in selection.pods if pod.uid and pod.uid not in cached.deleted)
        limit = self._options.max_delete_per_tick
        if limit is not None and self._deleted + len(pods) > limit:
            reason = counted(
                limit,
                "at most {count} pod can be deleted at a time",
                "at most {count} pods can be deleted at a time",
            )
            self._decide(job, Action.NONE, selection.row, ("R30",), reason, judged=judged)
            return
        self._deleted += len(pods)
        guess = _guess(job) if master_rule else ""
        self._execute(key, judged, opened, selection, pods, guess)

    def _execute(
        self,
        key: str,
        judged: tuple[JudgedPod, ...],
        opened: Gate,
        selection: PodSelection,
        pods: tuple[SchedulerPod, ...],
        guess: str,
    ) -> None:
        job, cached = self._jobs[key], self.cached[key]
        is_evicted = _is_graceful(cached, judged)
        deletions = tuple(self._deletion(pod, is_evicted=is_evicted) for pod in pods)
        before = self.retries.get(key, 0)
        after = before - 1 if opened.reason is FaultType.POD_FAILED else before
        # A new dictionary: the state before has the old one, and may be used again (decision 31).
        if after != self.retries.get(key):
            self.retries = {**self.retries, key: after}
        self._remember_restarts(judged)
        action = Action.EVICT if is_evicted else Action.FORCE_DELETE
        if cached.pending:
            action = Action.ESCALATE
        patch = _graceful_exit(job, cached, judged)
        self.cached[key] = msgspec.structs.replace(
            cached,
            pods=cached_jobs.cached_pods(judged),
            deleted=tuple(dict.fromkeys((*cached.deleted, *(pod.uid for pod in pods)))),
            is_executed=True,
            is_evicted=is_evicted,
            is_forced=False,
            row=selection.row,
        )
        rules = (*opened.rules, "R30", "R32", *(("R33",) if patch else ()))
        rules += ("R43",) if after != before else ()
        self._decide(
            job,
            action,
            selection.row,
            rules,
            joined(
                "{before}; {part}",
                (
                    sentence("{fault}: {reason}", fault=opened.reason, reason=selection.why),
                    *filter(None, (guess,)),
                ),
            ),
            judged=judged,
            gap=guess,
            scope=selection.scope,
            pods=deletions,
            deadline_ms=self._deadline_ms(self.cached[key]),
            retry=Retry(before, after) if job.retry_times else None,
            patch=patch,
        )

    def _gate(self, job: SchedulerJob, judged: tuple[JudgedPod, ...]) -> Gate | None:
        """Return the open gate of a job; a closed one is decided here (consumers#2.5)."""
        cached = self.cached.get(job.key)
        value = cached.value if cached else self._value(job)
        decided = gate(
            job,
            value,
            judged,
            retry_times=cached.retry_times if cached else job.retry_times,
            retries_left=self.retries.get(job.key, 0),
            corrected=self._corrected,
        )
        if decided.action is None:
            return decided
        patch = None
        if decided.action is Action.ANNOTATE:
            patch = (scheduling.POD_STATUS, f"Unhealthy-{decided.reason}")
            if cached is not None:
                self.cached[job.key] = msgspec.structs.replace(cached, is_executed=True)
        self._decide(
            job,
            decided.action,
            decided.row,
            decided.rules,
            decided.why,
            judged=judged,
            deadline_ms=None if cached is None else self._deadline_ms(cached),
            patch=patch,
        )
        return None

    def _deletion(self, pod: SchedulerPod, *, is_evicted: bool) -> Deletion:
        """Return the deletion of a pod; a pod that is over or whose Node is missing has no grace.

        A node of the session does not have it then (R32, consumers#2.7).
        """
        has_grace = is_evicted and pod.is_live and pod.node in self._views
        grace_seconds = pod.termination_grace_seconds if has_grace else 0
        return Deletion(pod.namespace, pod.name, pod.uid, grace_seconds)

    def _remember_restarts(self, judged: Iterable[JudgedPod]) -> None:
        """Note the restarts of containers for which retries were used (R22)."""
        if not self._corrected:
            return
        for judged_pod in judged:
            if judged_pod.type is FaultType.POD_FAILED:
                for container in judged_pod.pod.containers:
                    self.judged[judged_key(judged_pod.pod, container.name)] = container.restarts

    def _diverges(self, section: int, job: SchedulerJob, text: str) -> None:
        self._findings.setdefault(job.key, []).append(
            Finding.divergence(f"PodGroup {job.key}", text, section)
        )

    def _decide(
        self,
        job: SchedulerJob,
        action: Action,
        row: str,
        rules: tuple[str, ...],
        reason: str,
        *,
        judged: Sequence[JudgedPod] = (),
        scope: Scope | None = None,
        pods: tuple[Deletion, ...] = (),
        deadline_ms: int | None = None,
        retry: Retry | None = None,
        patch: tuple[str, str] | None = None,
        failed: Sequence[SchedulerPod] = (),
        gap: str = "",
    ) -> None:
        """``failed`` are pods that are not at fault for Volcano, and whose processes failed."""
        kind = workload_of(job)
        faults = [judged_pod.report() for judged_pod in judged if judged_pod.type is not None]
        faults += [_as_fault(pod) for pod in failed]
        follows = FollowUp("")
        if pods:
            is_fault = any(fault.type != FaultType.POD_FAILED for fault in faults)
            follows = follow_up(kind, job, pods, self._index, is_fault=is_fault)
        elif action is Action.NONE:
            ended = failed or [
                judged_pod.pod for judged_pod in judged if judged_pod.type is FaultType.POD_FAILED
            ]
            follows = after_failure(ended, job.pods, self._index)
        self.decisions[job.key] = JobDecision(
            namespace=job.group.namespace,
            job=job.key,
            workload=kind,
            action=action,
            row=row,
            rules=rules,
            why=reason,
            scope=scope,
            pods=pods,
            deadline_ms=deadline_ms,
            fault_pods=tuple(faults),
            retry=retry,
            follow_up=follows.text,
            also_deleted=follows.deleted,
            gap=all_of((gap, follows.gap)),
            patch=patch,
        )


def _off() -> str:
    return sentence("fault-scheduling is absent or off: the job is not evaluated")


def _not_running(job: SchedulerJob) -> str:
    if not job.group.phase:
        return sentence("its PodGroup is new, not Running or Unknown")
    return sentence("its PodGroup is {phase}, not Running or Unknown", phase=job.group.phase)


def _as_fault(pod: SchedulerPod) -> FaultPod:
    return FaultPod(pod.namespace, pod.name, pod.uid, FaultType.POD_FAILED.value, pod.node)


def _guess(job: SchedulerJob) -> str:
    """Return what is a guess where the plugin hands out ranks (consumers#2.1, 8-8).

    A fault of rank 0 takes all pods, where others take less.
    """
    is_narrow = job.is_pod_rescheduling or job.is_process_recovering
    if not is_narrow or job.is_pod_limited or all(known_rank(pod) for pod in job.pods):
        return ""
    return sentence(
        "ranks are a guess: the scheduler hands them out in no order, and rank 0 takes all pods"
    )


def _is_graceful(cached: CachedJob, judged: Sequence[JudgedPod]) -> bool:
    """Whether the pods are evicted; sub-health alone goes by its strategy (consumers#1.11, 2.7)."""
    if _is_sub_health_only(judged):
        return cached.strategy == scheduling.SUB_HEALTH_GRACE_EXIT
    return cached.value == scheduling.FAULT_SCHEDULING_GRACE


def _graceful_exit(
    job: SchedulerJob, cached: CachedJob, judged: Sequence[JudgedPod]
) -> tuple[str, str] | None:
    """Return what is written into the reset ConfigMap before the pods go (consumers#1.11, R33)."""
    if (
        _is_sub_health_only(judged)
        and cached.strategy == scheduling.SUB_HEALTH_GRACE_EXIT
        and not job.is_process_recovering
    ):
        return ("GracefulExit", "1")
    return None


def _is_sub_health_only(judged: Iterable[JudgedPod]) -> bool:
    types = {judged_pod.type for judged_pod in judged if judged_pod.type is not None}
    return types == {FaultType.SUB_HEALTH}

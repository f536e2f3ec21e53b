"""Which pods of a job are at fault, and why (``docs/spec/consumers.md#1.11``, 1.12 and 2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from advisor.jobs import used_cards
from advisor.report import FaultPod, WorkloadKind
from advisor.scheduler_view.document_entries import CardFault
from advisor.scheduler_view.nodes import SUB_HEALTH_HANDLING, SUB_HEALTHY_WORD, NodeHealthState
from advisor.scheduler_view.state import FaultType
from advisor.snapshot import SchedulerPod
from advisor.workloads.pod_recreation import workload_of
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.jobs import SchedulerJob
    from advisor.scheduler_view.nodes import NodeView

NOT_HANDLE = "NotHandleFault"
PRE_SEPARATE = "PreSeparateNPU"


class StaleNodes(NamedTuple):
    """Nodes of which a document is too old, by what it is about (R4)."""

    device: frozenset[str] = frozenset()
    switch: frozenset[str] = frozenset()
    host: frozenset[str] = frozenset()


class JudgedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with its verdict. ``type`` is ``None`` for a healthy one.

    ``cards`` are the cards that make it faulty, ``reasons`` the elements of ``-Fault`` about the
    cards that it uses and that are to be handled (consumers#1.12).
    """

    pod: SchedulerPod
    type: FaultType | None
    rank: str
    cards: tuple[str, ...] = ()
    reasons: tuple[CardFault, ...] = ()

    def report(self) -> FaultPod:
        """Return what is reported of it."""
        return FaultPod(
            self.pod.namespace,
            self.pod.name,
            self.pod.uid,
            self.type.value if self.type else "",
            self.pod.node,
            self.cards,
            tuple(dict.fromkeys(reason.fault_code for reason in self.reasons if reason.fault_code)),
            tuple(
                dict.fromkeys(reason.fault_level for reason in self.reasons if reason.fault_level)
            ),
        )


class FaultPods:
    """Judges the pods of one session."""

    def __init__(
        self,
        views: Mapping[str, NodeView],
        *,
        first_session: bool,
        corrected: bool,
        judged: Mapping[str, int],
        stale: StaleNodes,
    ) -> None:
        self._views = views
        self._first = first_session
        self._corrected = corrected
        self._judged = judged
        # The real programs do not compare the age of documents with deletions (R4).
        self._stale = stale if corrected else StaleNodes()
        self.divergences: set[tuple[int, str, str]] = set()
        """Numbers of consumers#8, jobs, and what is done otherwise."""

    def job(self, job: SchedulerJob) -> tuple[JudgedPod, ...]:
        """Return the verdicts about all pods of a job."""
        return tuple(self.pod(job, pod) for pod in job.pods)

    def is_suspect(self, pod: SchedulerPod) -> bool:
        """Whether anything at all may be wrong with a pod, whatever its job asks for."""
        if pod.phase == "Failed" or scheduling.FAULT_TYPE in pod.labels:
            return True
        if any(container.last_exit_code or container.exit_code for container in pod.containers):
            return True
        if not pod.node:
            return False
        view = self._views.get(pod.node)
        return (
            view is None
            or not view.is_in_map
            or view.is_fault_node
            or view.switch_status == SUB_HEALTHY_WORD
            or bool(view.faults)
        )

    def pod(self, job: SchedulerJob, pod: SchedulerPod) -> JudgedPod:
        """Return the verdict about a pod; the first test that matches wins (consumers#2.4)."""
        rank = job.ranks[pod.uid]
        # The quick test first: nearly all pods are on healthy nodes.
        if not pod.node or not self.is_suspect(pod):
            return JudgedPod(pod, None, rank)
        view = self._views.get(pod.node)
        used = used_cards(pod)
        reasons: tuple[CardFault, ...] = ()
        has_table = view is not None and (view.is_in_table or not view.is_in_map)
        if view is not None and has_table and view.faults:
            reasons = tuple(
                fault
                # Only faults of cards that the pod uses, and that are to be handled
                # (consumers#1.12).
                for fault in view.faults
                if fault.npu_name in used and fault.fault_handling != NOT_HANDLE
            )
        cards: tuple[str, ...] = ()
        if view is not None and has_table:
            cards = tuple(name for name in used if name in view.unhealthy)
        fault_type = self._type(job, pod, view, cards, reasons)
        # An old document still isolates the card, so only the deletion is held back.
        if view is not None and view.is_in_map and self._is_stale(fault_type, view):
            self._diverges(
                4, job, sentence("a document that is too old isolates, and deletes nothing")
            )
            fault_type = None
        return JudgedPod(pod, fault_type, rank, cards, reasons)

    def _is_stale(self, fault_type: FaultType | None, view: NodeView) -> bool:
        """Whether the document that shows a fault is too old to delete pods for it (R4)."""
        match fault_type:
            case FaultType.NODE:
                by_switch = view.source == "switch"
                return view.name in (self._stale.switch if by_switch else self._stale.host)
            case FaultType.CARD:
                return view.name in self._stale.device
            case FaultType.SUB_HEALTH:
                by_switch = view.switch_sub_health
                return view.name in (self._stale.switch if by_switch else self._stale.device)
        return False

    def _type(
        self,
        job: SchedulerJob,
        pod: SchedulerPod,
        view: NodeView | None,
        cards: tuple[str, ...],
        reasons: tuple[CardFault, ...],
    ) -> FaultType | None:
        is_in_map = view is not None and view.is_in_map
        if is_in_map and view is not None and view.state == NodeHealthState.NODE:
            return FaultType.NODE
        # A card at fault comes before a node that is away: the order of consumers#2.4.
        if cards:
            return FaultType.CARD
        # In its first session the scheduler may not have seen all nodes yet.
        if not is_in_map and not self._first:
            return FaultType.NODE
        if self.has_failed(job, pod):
            return FaultType.POD_FAILED
        if pod.labels.get(scheduling.FAULT_TYPE) == scheduling.FAULT_TYPE_SEPARATE:
            return FaultType.SEPARATE
        if self._is_sub_health_fault(job, pod, view, reasons):
            return FaultType.SUB_HEALTH
        return None

    def _diverges(self, section: int, job: SchedulerJob, text: str) -> None:
        self.divergences.add((section, job.key, text))

    def has_failed(self, job: SchedulerJob, pod: SchedulerPod) -> bool:
        """Whether a pod has failed by itself; the last state of a container counts.

        Without ``fault-retry-times`` none has. ``corrected`` judges a restart of a container once,
        leaves one that the kubelet has made for OME alone, and sees a container that ended in a pod
        that does not restart it (R22).

        Source: docs/spec/consumers.md#2.4, row 4.
        """
        # R27: without ``fault-retry-times`` failed pods are left alone.
        if job.retry_times == 0:
            return False
        if pod.phase == "Failed" or not self._corrected:
            return has_ended_badly(pod)
        failed = [container for container in pod.containers if container.last_exit_code]
        if pod.restart_policy == "Never" and any(
            container.exit_code for container in pod.containers
        ):
            self._diverges(
                7, job, sentence("a container has failed, though others of its pod still run")
            )
            return True
        if not failed:
            return False
        if workload_of(job) in (WorkloadKind.OME_DEPLOYMENT, WorkloadKind.OME_LWS):
            self._diverges(7, job, sentence("the container was restarted already: its pod stays"))
            return False
        fresh = [
            container
            for container in failed
            # A container keeps its last exit code, so each restart is counted once by its number.
            if self._judged.get(judged_key(pod, container.name), 0) < max(container.restarts, 1)
        ]
        if not fresh:
            self._diverges(7, job, sentence("this restart of the container was judged before"))
        return bool(fresh)

    def _is_sub_health_fault(
        self,
        job: SchedulerJob,
        pod: SchedulerPod,
        view: NodeView | None,
        reasons: tuple[CardFault, ...],
    ) -> bool:
        strategy = job.strategy
        if strategy == scheduling.SUB_HEALTH_IGNORE:
            return False
        has = (
            (view is not None and view.switch_sub_health)
            or pod.labels.get(scheduling.FAULT_TYPE) == scheduling.FAULT_TYPE_SUB_HEALTH
            or any(reason.fault_handling == SUB_HEALTH_HANDLING for reason in reasons)
        )
        if strategy == scheduling.SUB_HEALTH_HOT_SWITCH:
            wanted = pod.annotations.get(scheduling.NEED_VOLCANO_OPE)
            return has and wanted == scheduling.NEED_VOLCANO_DELETE
        return has


def has_ended_badly(pod: SchedulerPod) -> bool:
    """Return whether a pod has failed, or a container of it has ended badly before it last began.

    Source: docs/spec/consumers.md#2.4, row 4.
    """
    return pod.phase == "Failed" or any(container.last_exit_code for container in pod.containers)


def judged_key(pod: SchedulerPod, container: str) -> str:
    """Return the key of ``State.judged`` for a container of a pod."""
    return f"{pod.uid}/{container}"


def pod_of(judged_key: str) -> str:
    """Return the uid of the pod in a key of ``State.judged``."""
    return judged_key.rpartition("/")[0]


def reason_of(judged: Iterable[JudgedPod]) -> FaultType | None:
    """Return the reason of a job: the first hardware type, else ``pod-failed``.

    Source: docs/spec/consumers.md#2.5, R27.
    """
    types = [judged_pod.type for judged_pod in judged if judged_pod.type is not None]
    hardware = (FaultType.NODE, FaultType.CARD, FaultType.SUB_HEALTH, FaultType.SEPARATE)
    for fault_type in types:
        if fault_type in hardware:
            return fault_type
    return FaultType.POD_FAILED if types else None

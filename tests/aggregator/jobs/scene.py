"""A cluster of plain values around a job view: nodes, pods, jobs and what is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from aggregator.cluster_documents.published_node import PublishedNode
from aggregator.inputs.node_context import JobState, NodeState, PodState
from aggregator.jobs.job_view import JobView
from aggregator.jobs.relations import SHIPPED
from contract.documents.cluster_device import CodeFault, DeviceRecord
from contract.documents.node_info import FaultDevice, NodeRecord
from contract.documents.switch_info import SwitchEvent, SwitchRecord
from service.clock import Instant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.jobs.relations import RelationTables
    from aggregator.jobs.status import JobStatus

T0_MS = 1_760_000_000_000
LINK_DOWN = "81078603"
PORT_DOWN = "[0x08520003,na,L2,na]"
SEPARATES = "8C1F860B"
MAKES_SUB_HEALTHY = "8C1F8609"
CQE = "8C1F8608"


@dataclass
class Lookup:
    """The ``ClusterStateLookup`` of a test."""

    pods_known: bool = True
    nodes_known: bool = True
    pods: dict[str, dict[str, PodState]] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    all_jobs: dict[str, JobState] = field(default_factory=dict)

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        return tuple(self.pods.get(node, {}).values())

    def node(self, name: str) -> NodeState | None:
        return self.nodes.get(name)

    def jobs(self) -> Mapping[str, JobState]:
        return self.all_jobs


class Scene:
    """A job view and its surroundings; time passes only when a test moves it."""

    def __init__(self, nodes: int = 0, tables: RelationTables = SHIPPED) -> None:
        self.lookup = Lookup()
        self.published: dict[str, PublishedNode] = {}
        self.tables = tables
        self.now_ms = 0
        self.is_read = True
        self.job_view = self.fresh()
        for number in range(nodes):
            self.node(f"n{number}")

    def fresh(self) -> JobView:
        """Make an empty job view."""
        return JobView(self.lookup, self.published.get, self.tables, lambda: self.is_read)

    def status(self) -> tuple[JobStatus, ...]:
        """Return which jobs are hit, by what, on which nodes, since when."""
        jobs = (self.job_view.job(hit.job) for hit in self.job_view.hit())
        return tuple(job for job in jobs if job is not None)

    def instant(self) -> Instant:
        return Instant(T0_MS + self.now_ms, self.now_ms)

    def node(self, name: str, *, ready: bool = True) -> None:
        number = int(name.lstrip("n") or "0") if name.lstrip("n").isdecimal() else 0
        self.lookup.nodes[name] = NodeState(name, f"192.168.0.{number}", f"SN-{name}", ready)
        self.published.setdefault(name, PublishedNode(device=healthy()))
        self.look(name)

    def pod(
        self,
        name: str,
        node: str,
        job: str,
        chips: str = "",
        *,
        rank: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        """Start a pod; ``chips`` are numbers with blanks between them."""
        names = tuple(f"Ascend910-{number}" for number in chips.split())
        annotations = {} if rank is None else {"hccl/rankIndex": str(rank)}
        pod = PodState(name, node, "default", name, job, names, annotations, labels or {})
        self.lookup.pods.setdefault(node, {})[name] = pod
        self.lookup.all_jobs.setdefault(job, JobState(job, "default", job))
        self.look(node)

    def end(self, name: str, node: str) -> None:
        del self.lookup.pods[node][name]
        self.look(node)

    def publish(self, node: str, /, **what: object) -> None:
        """Publish something else of a node."""
        self.published[node] = msgspec.structs.replace(
            self.published.get(node, PublishedNode()), **what
        )
        self.look(node)

    def chips(self, node: str, *faults: CodeFault, super_pod: int = -2) -> None:
        """Set the faults of chips; each is received when it is new."""
        before = self.published[node]
        received: dict[str, dict[str, int]] = {}
        for one in faults:
            known = before.received_ms.get(one.chip, {})
            since_ms = known.get(one.code, T0_MS + self.now_ms)
            received.setdefault(one.chip, {})[one.code] = since_ms
        self.publish(node, device=healthy(*faults, super_pod=super_pod), received_ms=received)

    def look(self, *nodes: str) -> None:
        self.job_view.changed(nodes, self.instant())

    def wait(self, ms: int) -> None:
        """Let time pass, with everything that is due in between."""
        end_ms = self.now_ms + ms
        while (due_ms := self.job_view.next_due_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.job_view.step(self.instant())
            after = self.job_view.next_due_ms()
            assert after is None or after > self.now_ms, "it would be asked again at once"
        self.now_ms = end_ms

    def labels(self) -> dict[str, str]:
        return {label.name: label.value for label in self.job_view.labels()}


def healthy(*faults: CodeFault, super_pod: int = -2) -> DeviceRecord:
    """Return sixteen chips with these faults; serious ones make their chips unhealthy."""
    mild = ("NotHandleFault", "SubHealthFault", "FreeRestartNPU")
    unhealthy = {fault.chip for fault in faults if fault.level not in mild}
    every = (f"Ascend910-{number}" for number in range(16))
    available = tuple(sorted(chip for chip in every if chip not in unhealthy))
    ordered = tuple(sorted(faults))
    lists = (available, tuple(sorted(unhealthy)), (), ())
    return DeviceRecord("Ascend910", *lists, ordered, 1_760_000_000, super_pod, 0, 0)


def fault(chip: int, level: str, code: str, time_ms: int = T0_MS) -> CodeFault:
    name = f"Ascend910-{chip}"
    return CodeFault("CardUnhealthy", name, level, code, time_ms, level)


def part(kind: str, number: int, level: str, *codes: str) -> FaultDevice:
    return FaultDevice(kind, number, list(codes), level)


def parts(status: str, *devices: FaultDevice, at_ms: int = T0_MS) -> NodeRecord:
    return NodeRecord(devices, status, at_ms)


def switch(status: str, level: str, *ports: tuple[str, int, int]) -> SwitchRecord:
    """Return a switch; ``ports`` are code, chip and port of each event."""
    events = tuple(
        SwitchEvent(
            assembled_fault_code=code,
            switch_chip_id=chip,
            switch_port_id=port,
            alarm_raised_time=1_760_000_000,
        )
        for code, chip, port in ports
    )
    times = tuple((f"{code}_{chip}_{port}", 1_760_000_000, level) for code, chip, port in ports)
    return SwitchRecord(events, level, 1_760_000_000, status, times)

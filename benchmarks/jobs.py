"""What the job view costs: ``python -m benchmarks.jobs``.

In one process, without I/O: so many nodes, two pods on each, ten nodes to a job. Prints the CPU
time that one node costs that changed, by what happened to it, and that a look at all nodes costs.
"""

from __future__ import annotations

import argparse
import resource
import sys
from statistics import quantiles
from time import thread_time_ns
from typing import TYPE_CHECKING

import msgspec

from aggregator.cluster_documents.published_node import PublishedNode
from aggregator.inputs.node_context import JobState, NodeState, PodState
from aggregator.jobs.job_view import JobView
from contract.documents.cluster_device import CodeFault, DeviceRecord
from service.clock import Instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHIPS = 16
NODES_OF_A_JOB = 10
T0_MS = 1_760_000_000_000
LINK_DOWN, TRIGGER = "81078603", "8C1F860B"


class Lookup:
    """Nodes, pods and jobs that never change."""

    pods_known = nodes_known = True

    def __init__(self, nodes: int) -> None:
        self.names = [f"node-{number:05}" for number in range(nodes)]
        self._nodes = {
            name: NodeState(name, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", name)
            for number, name in enumerate(self.names)
        }
        self._pods: dict[str, tuple[PodState, ...]] = {}
        self._jobs: dict[str, JobState] = {}
        for number, name in enumerate(self.names):
            one, other = (f"job-{number // NODES_OF_A_JOB:05}-{half}" for half in "ab")
            rank = {"hccl/rankIndex": str(number % NODES_OF_A_JOB)}
            self._pods[name] = tuple(
                PodState(f"{job}-{number}", name, "default", f"{job}-{number}", job, chips, rank)
                for job, chips in ((one, _chips(0, 8)), (other, _chips(8, 16)))
            )
            self._jobs |= {job: JobState(job, "default", job) for job in (one, other)}

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        """Return two pods for each node."""
        return self._pods[node]

    def node(self, name: str) -> NodeState | None:
        """Return a Node that is ready."""
        return self._nodes.get(name)

    def jobs(self) -> Mapping[str, JobState]:
        """Return two jobs for every ten nodes."""
        return self._jobs


def _chips(first: int, end: int) -> tuple[str, ...]:
    return tuple(f"Ascend910-{number}" for number in range(first, end))


def main() -> int:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, default=10_000)
    nodes = arguments.parse_args().nodes
    lookup = Lookup(nodes)
    device = DeviceRecord("Ascend910", _chips(0, CHIPS), (), (), (), (), 1_760_000_000, 0, 0, 0)
    published = dict.fromkeys(lookup.names, PublishedNode(device=device))
    before_mb = _peak_mb()
    job_view = JobView(lookup, published.get)
    now = Instant(T0_MS, 0)
    print(f"{nodes} nodes of {CHIPS} chips, {2 * nodes} pods, {len(lookup.jobs())} jobs")
    first_ms = _ms(lambda: job_view.changed(lookup.names, now))
    print(f"{'all nodes, the first time':44} {first_ms:9.1f} ms")
    print(f"{'all nodes again':44} {_ms(lambda: job_view.changed(lookup.names, now)):9.1f} ms")
    print(f"{'memory of it':44} {_peak_mb() - before_mb:9.1f} MB")
    assert not job_view.pop_changed_jobs()

    def becomes(*faults: CodeFault) -> Callable[[str], None]:
        changed = PublishedNode(device=msgspec.structs.replace(device, faults=faults))

        def happen(name: str) -> None:
            published[name] = changed
            job_view.changed((name,), now)

        return happen

    each = lookup.names[:: max(1, nodes // 1000)]
    _print("a healthy node, nothing new", each, becomes())
    _print("a chip is faulty", each, becomes(_fault(0, "80E18402")))
    _print("a chip of each job is faulty", each, becomes(_fault(0, "1"), _fault(9, "1")))
    _print("it recovers", each, becomes())
    _print("a link is down", each, becomes(_fault(0, LINK_DOWN)))
    _print("and its trigger comes", each, becomes(_fault(0, LINK_DOWN), _fault(1, TRIGGER)))
    print(f"{'the message of the cluster':44} {_ms(job_view.cluster):9.1f} ms")
    print(f"{'labels that pods are to have':44} {_ms(job_view.labels):9.1f} ms")
    print(
        f"{'what is kept':44} {_ms(lambda: [*map(job_view.text, job_view.pop_changed())]):9.1f} ms"
    )
    _print("all is well again", each, becomes())
    return 0


def _fault(chip: int, code: str) -> CodeFault:
    level = "NotHandleFault" if code in (LINK_DOWN, TRIGGER) else "RestartNPU"
    return CodeFault("CardUnhealthy", f"Ascend910-{chip}", level, code, T0_MS, level)


def _print(what: str, names: list[str], happen: Callable[[str], None]) -> None:
    times = []
    for name in names:
        began = thread_time_ns()
        happen(name)
        times.append((thread_time_ns() - began) / 1000)
    cut = quantiles(times, n=100)
    print(f"{what:44} {cut[49]:9.1f} µs p50 {cut[98]:9.1f} µs p99")


def _ms(call: Callable[[], object]) -> float:
    began = thread_time_ns()
    call()
    return (thread_time_ns() - began) / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())

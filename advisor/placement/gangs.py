"""Whether the waiting pods of a PodGroup fit together (``docs/spec/consumers.md#2.1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from advisor.jobs import npu_request
from contract import scheduling
from contract.sentences import counted, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.placement.placement import PlacementResult
    from advisor.scheduler_view.nodes import NodeView
    from advisor.snapshot import SchedulerPod

Demands: TypeAlias = "Sequence[tuple[PlacementResult, tuple[SchedulerPod, ...], tuple[str, ...]]]"
"""Answers, the waiting pods that get them, and what nodes lack that refuse these."""


class Need(NamedTuple):
    """How many pods of a job are to be placed at once, and what it lacks wherever they go."""

    pods: int
    lacks: str = ""


def need_of(job: SchedulerJob) -> Need:
    """Return what a job with waiting pods needs."""
    if job.has_bad_min_available:
        text = sentence(
            "its annotation {name} is not an integer: the job is invalid",
            name="huawei.com/schedule_minAvailable",
        )
        return Need(0, text)
    leaving = next((pod.name for pod in job.pods if pod.is_terminating), "")
    if leaving:
        text = sentence("{pod} has not ended: no pod of the job is placed before that", pod=leaving)
        return Need(0, text)
    live = [pod for pod in job.pods if pod.is_live]
    if len(live) < job.min_available:
        text = sentence("{count} of {wanted} pods exist", count=len(live), wanted=job.min_available)
        return Need(0, text)
    placed = sum(1 for pod in live if pod.node)
    # Once enough pods are placed, each further one is placed by itself.
    return Need(max(job.min_available - placed, 1))


def not_predicted_of(job: SchedulerJob) -> str:
    """Return by what else the scheduler places a job; empty where chips alone decide."""
    if job.is_multilevel:
        return sentence("the tree of blocks ({key})", key=scheduling.AFFINITY_CONFIG)
    if job.is_super_pod:
        return sentence("the topology of super pods ({key})", key=scheduling.SUPER_POD_BLOCK)
    tor = job.group.labels.get(scheduling.TOR_AFFINITY, "null")
    if tor == "null":
        return ""
    return sentence("the affinity to switches ({key})", key=scheduling.TOR_AFFINITY)


def short_of(need: Need, demands: Demands, views: Mapping[str, NodeView]) -> str:
    """Return what a gang lacks; empty where enough of its waiting pods fit at once."""
    if need.lacks:
        return need.lacks
    needed = need.pods
    if len(demands) == 1:
        ((result, pods, lacking),) = demands
        return "" if result.capacity >= needed else _text(needed, pods[0], result, lacking)
    taken = _greedy(demands, views)
    if taken >= needed:
        return ""
    result, pods, lacking = min(demands, key=lambda demand: demand[0].capacity)
    fits = sentence("{count} of {wanted} pods fit", count=taken, wanted=needed)
    return joined("{before}; {part}", (fits, _text(len(pods), pods[0], result, lacking)))


def _greedy(demands: Demands, views: Mapping[str, NodeView]) -> int:
    """Return how many pods fit when those with most cards are placed first."""
    remaining: dict[str, dict[str, int]] = {}
    taken = 0
    for result, pods, _ in sorted(demands, key=lambda demand: -npu_request(demand[1][0])):
        requests = {key: value for key, value in pods[0].requests.items() if value > 0}
        waiting = len(pods)
        for name in result.accepts:
            idle = remaining.setdefault(name, dict(views[name].idle))
            fits = (idle.get(key, 0) // value for key, value in requests.items())
            times = min(waiting, result.accepts[name], min(fits, default=waiting))
            for key, value in requests.items():
                idle[key] -= value * times
            waiting -= times
            if not waiting:
                break
        taken += len(pods) - waiting
    return taken


def _text(needed: int, pod: SchedulerPod, result: PlacementResult, lacking: Iterable[str]) -> str:
    cards = npu_request(pod)
    size = sentence("a pod without chips")
    if cards:
        size = counted(cards, "{count} card", "{count} cards")
    text = counted(
        len(result.accepts),
        "needs {pods} × {size}, {count} node takes {capacity}",
        "needs {pods} × {size}, {count} nodes take {capacity}",
        pods=needed,
        size=size,
        capacity=result.capacity,
    )
    return joined("{before}; {part}", (text, *lacking))

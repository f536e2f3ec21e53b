"""Whether the waiting pods of a PodGroup fit together (``docs/spec/consumers.md#2.1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.jobs import npu_request
from advisor.placement import is_waiting
from advisor.report import Gang

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.jobs import Job
    from advisor.node_view import NodeView
    from advisor.placement import Placer, Result
    from advisor.snapshot import Pod

_NAMED_NODES = 3


def gangs(
    jobs: Mapping[str, Job], placer: Placer, views: Mapping[str, NodeView]
) -> tuple[Gang, ...]:
    """Return for each PodGroup with waiting pods whether enough of them fit at once."""
    found = []
    for job in jobs.values():
        waiting = [pod for pod in job.pods if is_waiting(pod)]
        if waiting:
            short = _short(job, waiting, placer, views)
            found.append(Gang(job.group.namespace, job.group.name, not short, short))
    return tuple(found)


def _short(job: Job, waiting: Sequence[Pod], placer: Placer, views: Mapping[str, NodeView]) -> str:
    """Return what a gang lacks; empty where it fits."""
    if job.has_bad_min_available:
        return "its annotation huawei.com/schedule_minAvailable is no integer: the job is invalid"
    live = [pod for pod in job.pods if pod.is_live and not pod.is_terminating]
    if len(live) < job.min_available:
        return f"{len(live)} of {job.min_available} pods exist"
    placed = sum(1 for pod in live if pod.node)
    needed = max(job.min_available - placed, 1)
    demands: dict[int, tuple[Result, list[Pod]]] = {}
    for pod in waiting:
        result = placer.result(job, pod)
        demands.setdefault(id(result), (result, []))[1].append(pod)
    if len(demands) == 1:
        ((result, pods),) = demands.values()
        room = sum(result.accepts.values())
        return "" if room >= needed else _text(needed, pods[0], result, views)
    taken = _greedy(demands.values(), views)
    if taken >= needed:
        return ""
    result, pods = min(demands.values(), key=lambda one: sum(one[0].accepts.values()))
    return f"{taken} of {needed} pods fit; " + _text(len(pods), pods[0], result, views)


def _greedy(demands: Iterable[tuple[Result, list[Pod]]], views: Mapping[str, NodeView]) -> int:
    """Return how many pods fit when those with most cards are placed first."""
    left: dict[str, dict[str, int]] = {}
    taken = 0
    for result, pods in sorted(demands, key=lambda one: -npu_request(one[1][0])):
        requests = {key: value for key, value in pods[0].requests.items() if value > 0}
        waiting = len(pods)
        for name in result.accepts:
            idle = left.setdefault(name, dict(views[name].idle))
            rooms = (idle.get(key, 0) // value for key, value in requests.items())
            times = min(waiting, min(rooms, default=waiting))
            for key, value in requests.items():
                idle[key] -= value * times
            waiting -= times
            if not waiting:
                break
        taken += len(pods) - waiting
    return taken


def _text(needed: int, pod: Pod, result: Result, views: Mapping[str, NodeView]) -> str:
    room = sum(result.accepts.values())
    cards = npu_request(pod)
    what = f"{needed} × {cards} cards" if cards else f"{needed} × a pod without chips"
    nodes = len(result.accepts)
    takes = f"{nodes} node{'s' if nodes != 1 else ''} take{'s' if nodes == 1 else ''} {room}"
    lacking = [
        f"{name} lacks {', '.join(views[name].unhealthy)}"
        for name in result.refuses
        if views[name].unhealthy
    ][:_NAMED_NODES]
    return "; ".join([f"needs {what}, {takes}", *lacking])

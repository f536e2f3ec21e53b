"""Kubelets and a scheduler beside Volcano's real job controller; both are stood in for.

The scheduler does what ``GET /api/v1/advice`` of the aggregator foretells, in the form of the
recordings (``tests/vectors/volcano``): it evicts, writes its record, takes it back when the job has
left its cache, binds with chips. The real one with the Ascend plugin is not built here: that plugin
is not a Go module of its own.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.parts.volcano import CHIPS, GROUPS, PODS, Volcano

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.parts.controlplane import ControlPlane

_NODES = "/api/v1/nodes"
_CARDS = [f"Ascend910-{number}" for number in range(8)]
_SESSION_SECONDS = 1.0
_EVICT, _FORCE, _WAIT = "EVICT", "FORCE_DELETE", "WAIT_COMPLETION"


class Surroundings(Volcano):
    """Runs in a thread; the job controller is a process of its own.

    ``holds``: pods that never end. ``graces``: pods that are evicted with another grace than their
    own, in seconds, and take all of it; others end at once.
    """

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.graces: dict[str, int] = {}
        self.decisions: Callable[[], list[dict[str, Any]]] = list
        """What is advised now."""
        self.accepts: Callable[[str], dict[str, set[str]] | None] = lambda _: None
        """By uid of a pod of a PodGroup the nodes that take it; without advice all do."""
        self.evictions: list[dict[str, Any]] = []
        """Decisions that were carried out."""
        self.free: Callable[[str], list[str]] = lambda _: list(_CARDS)
        """The chips of a node that may be given out, as its readers find them."""
        self._next_session = 0.0

    def _step(self) -> None:
        pods = self.plane.request("GET", PODS)["items"]
        groups = self.plane.request("GET", GROUPS)["items"]
        self._end(pods)
        self._run_bound(pods)
        self._drop_records({one["metadata"]["name"] for one in groups})
        if time.monotonic() >= self._next_session:
            self._next_session = time.monotonic() + _SESSION_SECONDS
            self._schedule(pods, groups)
        for group in groups:
            self._let_in(group, pods)

    def _end(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            metadata = pod["metadata"]
            if "deletionTimestamp" not in metadata or metadata["name"] in self.holds:
                continue
            ends = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
            if metadata["name"] not in self.graces or time.time() >= ends:
                self.plane.ask("DELETE", f"{PODS}/{metadata['name']}?gracePeriodSeconds=0")

    def _run_bound(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            is_new = pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"
            if is_new and "deletionTimestamp" not in pod["metadata"]:
                path = f"{PODS}/{pod['metadata']['name']}/status"
                self.plane.ask("PATCH", path, {"status": {"phase": "Running"}})

    def _let_in(self, group: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        name = group["metadata"]["name"]
        status = group.get("status", {})
        running = sum(
            1 for pod in pods if _group(pod) == name and pod["status"]["phase"] == "Running"
        )
        phase = status.get("phase", "Pending")
        if phase == "Pending":
            phase = "Inqueue"
        if running and running >= _least(group):
            phase = "Running"
        if (phase, running) != (status.get("phase"), status.get("running", 0)):
            change = {"status": {"phase": phase, "running": running}}
            self.plane.ask("PATCH", f"{GROUPS}/{name}", change)

    def _schedule(self, pods: list[dict[str, Any]], groups: list[dict[str, Any]]) -> None:
        for decision in self.decisions():
            self._carry_out(decision, pods)
        for group in groups:
            self._bind(group, pods)

    def _carry_out(self, decision: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        """Evict or delete, and record it, in the order of the recordings."""
        there = {one["metadata"]["uid"]: one["metadata"] for one in pods}
        if decision["action"] == _WAIT and self._is_missed(decision, there):
            group = decision["job"].partition("/")[2]
            mine = [one["metadata"] for one in pods if _group(one) == group]
            named = [{"name": one["name"], "uid": one["uid"]} for one in mine]
            decision = decision | {"action": _EVICT, "pods": named}
        if decision["action"] not in (_EVICT, _FORCE):
            return
        named = [there[pod["uid"]] for pod in decision["pods"] if pod["uid"] in there]
        mine = [one for one in named if "deletionTimestamp" not in one]
        if not mine:
            return
        for one in mine:
            grace = 0 if decision["action"] == _FORCE else self.graces.get(one["name"])
            asked = "" if grace is None else f"?gracePeriodSeconds={grace}"
            self.plane.ask("DELETE", f"{PODS}/{one['name']}{asked}")
        fault = decision["fault_pods"][0]
        self._record(decision["job"], fault["type"], fault["name"], fault["node"])
        self.evictions.append(decision)

    def _is_missed(self, decision: dict[str, Any], there: dict[str, dict[str, Any]]) -> bool:
        """Whether a job waits for an eviction that was not made.

        It is advised in one session of the aggregator only, which a busy machine may let pass by.
        Each has a deadline of its own, as pods that are made anew take the place of faulty ones.
        """
        deadline = decision.get("deadline_ms")
        done = {(one["job"], one.get("deadline_ms")) for one in self.evictions}
        if deadline is None or (decision["job"], deadline) in done:
            return False
        faulty = [there[one["uid"]] for one in decision["fault_pods"] if one["uid"] in there]
        return any("deletionTimestamp" not in one for one in faulty)

    def _bind(self, group: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        """Bind the waiting pods of a PodGroup, all together or none."""
        name = group["metadata"]["name"]
        if group.get("status", {}).get("phase", "Pending") == "Pending":
            return
        mine = [pod for pod in pods if _group(pod) == name]
        waiting = [pod for pod in mine if not pod["spec"].get("nodeName")]
        if not waiting or len(mine) < _least(group):
            return
        nodes = [one["metadata"]["name"] for one in self.plane.request("GET", _NODES)["items"]]
        accepts = self.accepts(name)
        free = {node: self._left(node, pods) for node in nodes}
        bound: list[tuple[str, str, list[str]]] = []
        for pod in sorted(waiting, key=lambda one: str(one["metadata"]["name"])):
            allowed = nodes if accepts is None else accepts.get(pod["metadata"]["uid"], set())
            count = _chips(pod)
            node = next((one for one in nodes if one in allowed and len(free[one]) >= count), None)
            if node is None:
                return
            bound.append((pod["metadata"]["name"], node, free[node][:count]))
            free[node] = free[node][count:]
        for pod_name, node, cards in bound:
            # The device plugin writes the second one.
            text = ",".join(cards)
            annotations = {CHIPS: text, "huawei.com/AscendReal": text}
            body = {
                "metadata": {"name": pod_name, "annotations": annotations},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            self.plane.ask("POST", f"{PODS}/{pod_name}/binding", body)

    def _left(self, node: str, pods: list[dict[str, Any]]) -> list[str]:
        used: set[str] = set()
        for pod in pods:
            lives = pod["status"]["phase"] in ("Pending", "Running")
            if lives and pod["spec"].get("nodeName") == node:
                used.update(pod["metadata"].get("annotations", {}).get(CHIPS, "").split(","))
        return [card for card in self.free(node) if card not in used]


def _group(pod: dict[str, Any]) -> str:
    found: str = pod["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name", "")
    return found


def _least(group: dict[str, Any]) -> int:
    """Return ``minMember``, which is left out where it is 0."""
    found: int = group["spec"].get("minMember", 0)
    return found


def _chips(pod: dict[str, Any]) -> int:
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    return int(limits.get(CHIPS, "0"))

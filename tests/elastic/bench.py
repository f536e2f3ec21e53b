"""A cluster in memory in which everything goes wrong, by a seed: for many rounds of decisions.

Time is virtual, and one step after the other is made. After each write it is checked what must
always hold; what is wrong is an ``AssertionError`` with the seed.
"""

from __future__ import annotations

import contextlib
import copy
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from contract.documents.elastic_job import CauseSource, read_cause, read_kept
from contract.errors import StoreConflict, StoreNotFound
from tests.elastic.jobs import OPEN, vcjob
from tests.elastic.simulated_nodes import SimulatedNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BEGAN_MS = 1_795_428_000_000
STEP_MS = 1000
_ACTIVE = ("", "Pending", "Running")
_CAUSE_PATH = "/metadata/annotations/npu-vigil~1elastic-cause"
_AFTER_MS = 60_000
_BEFORE_MS = 10_000
"""A fault that had passed for longer when a job began to end is not its cause."""
_ENDED = ("Failed", "Terminated", "Aborted")


class Bench:
    """Jobs, pods, Commands and nodes, and who changes them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = _BEGAN_MS
        self.version = 1
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.commands: dict[str, str] = {}
        """Commands that the controller has not obeyed yet: job by uid."""
        self.groups: set[str] = set()
        """Jobs with a PodGroup, by uid."""
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.nodes = SimulatedNodes(self.chance)
        self.ending: set[str] = set()
        """Jobs by uid that we ended, until they run again."""
        self.evicted: set[str] = set()
        """Jobs by uid that were evicted since their last start."""
        self._gone_groups: list[str] = []
        """Jobs by uid that left the scheduler's cache since its last session."""
        self.used: dict[str, set[str]] = {}
        """Nodes of the pods of the present run, by the uid of the job."""
        self._left_ms: dict[str, int] = {}
        """When the phase of a job was Running last, by uid."""
        self._asked_ms: dict[str, int] = {}
        """When a job was evicted last, by uid: its pods may have a long grace."""
        self.deleted: set[str] = set()
        self.originals: dict[str, int] = {}
        self.is_calm = False
        self.is_away = False
        """Whether the API server gives no answer, though nothing else goes wrong."""
        self.has_history = True
        """Whether the aggregator has all that was published."""
        self.grace: int | None = None
        """How long each pod takes to end, in steps; by chance where it is not set."""
        self.queues = OPEN
        self._often = self.chance.choice((1.0, 0.2))
        """How often there is trouble that ends a job: one over a network fault has to run long."""
        self._is_reset = self.chance.random() < 0.3
        """Whether a program writes the manifests of ended jobs again, as Argo CD does."""
        self.controller_works = True
        self.late: list[tuple[int, Callable[[], object]]] = []
        """Writes that arrive when no caller waits for their answer any more, and when they do."""
        self.writes = 0
        self.starts = 0
        self.ends = 0
        self.forced = 0
        for index in range(self.chance.randint(1, 3)):
            self.create(f"j{index}", self.chance.randint(2, 4))

    def create(self, name: str, replicas: int) -> None:
        """Create a job as its owner."""
        action = self.chance.choice(("TerminateJob", "RestartJob", "AbortJob"))
        least = str(self.chance.randint(1, replicas))
        item = vcjob(name, replicas, least=least, action=action, phase="")
        uid = f"u-{name}-{self.version}"
        item["metadata"] |= {"uid": uid, "creationTimestamp": text_of(self.now_ms)}
        item["status"] = {"state": {"phase": ""}, "conditions": []}
        self.jobs[name] = item
        self.originals[name] = replicas
        self._changed(item)

    def _changed(self, item: dict[str, Any]) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)

    def mine(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a job."""
        uid = uid_of(self.jobs[name])
        return [pod for pod in self.pods.values() if pod["owner"] == uid]

    def free(self) -> list[str]:
        """Return the nodes that take a pod."""
        return self.nodes.free({pod["node"] for pod in self.pods.values()})

    def step(self) -> None:
        """Let a second pass: faults, pods, the controller, owners."""
        self.now_ms += STEP_MS
        self._deliver()
        self._drop_records()
        if not self.is_calm:
            self._trouble()
        self._run_pods()
        if self.controller_works:
            for command, uid in sorted(self.commands.items()):
                self._obey(command, uid)
            for name, job in list(self.jobs.items()):
                self._control(name, job)

    def calm_down(self) -> None:
        """End all trouble but dead nodes."""
        if not self.is_calm:
            self.is_calm = self.controller_works = True
            self.nodes.settle(self.now_ms)

    def _drop_records(self) -> None:
        """Take back the records of jobs that left the cache before this session.

        Seen 0.9 s after that (docs/spec/consumers.md#1.14).
        """
        for uid in self._gone_groups:
            for key in [one for one in self.records if one.endswith(uid)]:
                del self.records[key]
        self._gone_groups = []

    def _drop_group(self, uid: str) -> None:
        if uid in self.groups:
            self.groups.discard(uid)
            self._gone_groups.append(uid)

    def faults_at_end(self, name: str) -> list[tuple[str, str, int]]:
        """Return the faults under the pods with which a job has ended: kind, node, since when."""
        job = self.jobs[name]
        uid, phase = uid_of(job), job["status"]["state"]["phase"]
        left_ms = self._left_ms.get(uid, self.now_ms)
        asked_ms = self._asked_ms.get(uid, 0)
        since_ms = asked_ms if left_ms - asked_ms < _AFTER_MS else left_ms
        until_ms = left_ms + _AFTER_MS if phase in _ENDED else self.now_ms
        found = self.nodes.between(min(since_ms, left_ms) - _BEFORE_MS, until_ms)
        return [one for one in found if one[1] in self.used.get(uid, ())]

    def _deliver(self) -> None:
        due = [write for at_ms, write in self.late if at_ms <= self.now_ms]
        self.late = [one for one in self.late if one[0] > self.now_ms]
        for write in due:
            with contextlib.suppress(StoreConflict, StoreNotFound):
                write()

    def _trouble(self) -> None:
        chance = self.chance
        if chance.random() < 0.03:
            self.controller_works = not self.controller_works
        used = [pod["node"] for pod in self.pods.values() if pod["node"]]
        for node in self.nodes.trouble(used, self.now_ms, self._often):
            self.evict(node)
        if chance.random() < 0.01 and self.jobs:
            self._delete_job(chance.choice(sorted(self.jobs)))
        if chance.random() < 0.02 * self._often and self.jobs:
            name = chance.choice(sorted(self.jobs))
            replicas = chance.randint(1, 4)
            kept = read_kept(self.jobs[name]["metadata"]["annotations"])
            # The size that was written last looks like ours, whoever writes it again.
            is_ours = kept is not None and kept.size.replicas == replicas
            original = kept.original.replicas if kept is not None and is_ours else replicas
            self._size(self.jobs[name], replicas)
            self.originals[name] = original
        for name, job in self.jobs.items():
            is_ended = job["status"]["state"]["phase"] in _ENDED
            if self._is_reset and is_ended and chance.random() < 0.3:
                self._size(job, self.originals[name])
        if chance.random() < 0.01 and self.jobs:
            job = self.jobs[chance.choice(sorted(self.jobs))]
            job["metadata"]["annotations"]["minReplicas"] = str(chance.randint(1, 3))
            self._changed(job)
        if chance.random() < 0.02 * self._often and self.pods:
            pod = chance.choice(list(self.pods.values()))
            pod["phase"] = "Failed" if pod["phase"] == "Running" else pod["phase"]
        for pod in self.pods.values():
            if pod["deleted_at_ms"] and chance.random() < 0.05:
                pod["left"] += chance.randint(1, 10)

    def _delete_job(self, name: str) -> None:
        """Delete a job as its owner, and sometimes create another one of its name at once."""
        job = self.jobs.pop(name)
        uid = uid_of(job)
        self.deleted.add(uid)
        self.ending.discard(uid)
        self.commands = {name: one for name, one in self.commands.items() if one != uid}
        self._drop_group(uid)
        for pod in list(self.pods.values()):
            if pod["owner"] == uid:
                self._delete(pod)
        if self.chance.random() < 0.5:
            self.create(name, self.chance.randint(2, 4))

    def evict(self, node: str) -> None:
        """Evict the jobs with pods on a node as the scheduler, and record that."""
        owners = {pod["owner"] for pod in self.pods.values() if pod["node"] == node}
        for name, job in self.jobs.items():
            uid = uid_of(job)
            if uid not in owners or job["status"]["state"]["phase"] != "Running":
                continue
            reason = {"RescheduleReason": "CardUnhealthy", "NodeName": node, "PodName": "p"}
            record = {"RescheduleTimeStamp": self.now_ms // 1000, "ReasonOfTask": [reason]}
            self.records.setdefault(f"default/{name}-{uid}", []).append(record)
            self.evicted.add(uid)
            self._asked_ms[uid] = self.now_ms
            for pod in self.mine(name):
                self._delete(pod)

    def _delete(self, pod: dict[str, Any]) -> None:
        if not pod["deleted_at_ms"]:
            grace = self.chance.randint(0, 5) if self.grace is None else self.grace
            pod["grace"] = pod["left"] = grace
            pod["deleted_at_ms"] = self.now_ms + pod["grace"] * 1000

    def _run_pods(self) -> None:
        for pod in list(self.pods.values()):
            if pod["node"] in self.nodes.not_ready:
                continue
            if pod["deleted_at_ms"]:
                pod["left"] -= 1
                if pod["left"] < 0:
                    del self.pods[pod["name"]]
            elif not pod["node"]:
                free = self.free()
                pod["node"] = free[0] if free else ""
                if free:
                    self.used.setdefault(pod["owner"], set()).add(free[0])
            elif pod["phase"] == "Pending":
                pod["phase"] = "Running"

    def _obey(self, command: str, uid: str) -> None:
        """Delete a Command, and end its job; one that does not run stays as it is."""
        del self.commands[command]
        job = next((one for one in self.jobs.values() if uid_of(one) == uid), None)
        if job is not None and job["status"]["state"]["phase"] in _ACTIVE:
            self._phase(job, "Terminating")
        elif job is not None and job["status"]["state"]["phase"] != "Terminating":
            self.ending.discard(uid)

    def _control(self, name: str, job: dict[str, Any]) -> None:
        phase, pods = job["status"]["state"]["phase"], self.mine(name)
        replicas = job["spec"]["tasks"][0]["replicas"]
        if phase in ("Terminating", "Aborting"):
            self._kill(name)
            if all(pod["phase"] == "Failed" and not pod["deleted_at_ms"] for pod in pods):
                self._phase(job, "Terminated" if phase == "Terminating" else "Aborted")
        elif phase in _ENDED:
            self._kill(name)
        elif phase == "Running" and len(pods) < job["seen"] <= replicas:
            action = job["spec"]["policies"][0]["action"]
            ending = {"TerminateJob": "Terminating", "AbortJob": "Aborting", "RestartJob": "Failed"}
            self._phase(job, ending[action])
        elif phase in _ACTIVE:
            self.groups.add(uid_of(job))
            names = [f"{name}-w-{index}" for index in range(replicas)]
            for one in names:
                if one not in self.pods:
                    self.version += 1
                    self.pods[one] = _pod(one, job, self.version)
            for pod in pods:
                if pod["name"] not in names:
                    self._delete(pod)
            self._settle(job, [pod for pod in self.mine(name) if pod["name"] in names], replicas)

    def _settle(self, job: dict[str, Any], pods: list[dict[str, Any]], replicas: int) -> None:
        phase = job["status"]["state"]["phase"]
        ready = sum(1 for pod in pods if pod["phase"] in ("Running", "Failed"))
        if phase == "Running" and any(pod["phase"] == "Failed" for pod in pods):
            self._phase(job, "Failed")
        elif ready == replicas and (phase != "Running" or job.get("seen") != ready):
            job["seen"] = replicas
            self._phase(job, "Running")
        elif phase == "":
            self._phase(job, "Pending")

    def _kill(self, name: str) -> None:
        for pod in self.mine(name):
            if pod["phase"] != "Failed":
                self._delete(pod)
        self._drop_group(uid_of(self.jobs[name]))

    def _phase(self, job: dict[str, Any], phase: str) -> None:
        if phase == "Running" and not _is_commanded(job):
            self.ending.discard(uid_of(job))
        before = job["status"]["state"]["phase"]
        if before == "Running" != phase:
            self._left_ms[uid_of(job)] = self.now_ms
        job["status"]["state"]["phase"] = phase
        condition = {"status": phase, "lastTransitionTime": text_of(self.now_ms)}
        job["status"]["conditions"].append(condition)
        self._changed(job)

    def _size(self, job: dict[str, Any], replicas: int) -> None:
        task = job["spec"]["tasks"][0]
        task["replicas"] = task["minAvailable"] = job["spec"]["minAvailable"] = replicas
        self._changed(job)

    def write(self, name: str, version: str, status: Mapping[str, Any] | None, patch: Any) -> str:
        """Take a write of ours, and check that it is right."""
        job = self.jobs.get(name)
        if job is None:
            raise StoreNotFound(f"{name} is not there")
        if job["metadata"]["resourceVersion"] != version:
            raise StoreConflict(f"{name} has another version")
        if patch is not None and [one["path"] for one in patch[1:]] == [_CAUSE_PATH]:
            self.writes += 1
            _apply(job, patch[1])
            self._changed(job)
            return str(self.version)
        living = [
            p["name"] for p in self.mine(name) if p["deleted_at_ms"] or p["phase"] != "Failed"
        ]
        assert not living, f"seed {self.seed}: {name} is written while {living} live"
        self.writes += 1
        phase, before = job["status"]["state"]["phase"], job["spec"]["tasks"][0]["replicas"]
        assert phase in _ENDED or before == 0, f"seed {self.seed}: {name} is {phase}"
        if status is not None:
            job["status"]["state"] |= status["state"]
            uid = uid_of(job)
            is_due = uid in self.evicted or uid in self.ending or self.faults_at_end(name)
            assert is_due, f"seed {self.seed}: {name} is started, and no fault has ended it"
            self.evicted.discard(uid)
            self.used.pop(uid, None)
            self._asked_ms.pop(uid, None)
            self.starts += 1
        else:
            for one in patch:
                _apply(job, one)
            size = job["spec"]["tasks"][0]["replicas"]
            least, most = least_of(job), self.originals[name]
            assert size == 0 or least <= size <= most, (
                f"seed {self.seed}: {name} gets {size}, which is not from {least} to {most}"
            )
            kept = read_kept(job["metadata"]["annotations"])
            assert kept is not None
            assert kept.original.replicas == most, f"seed {self.seed}: the original of {name}"
        assert uid_of(job) not in self.deleted, f"seed {self.seed}: {name} was deleted"
        self._changed(job)
        return str(self.version)

    def terminate(self, name: str, uid: str) -> None:
        """Take a Command of ours; it waits until the controller obeys it."""
        command = command_name(name, uid)
        job = self.jobs.get(name)
        if command in self.commands or job is None or uid_of(job) != uid:
            return  # The owner of a Command is gone, and so is the Command.
        self.writes += 1
        assert _is_commanded(job), f"seed {self.seed}: {name} lost why"
        others = self.ending - {uid}
        assert not others, f"seed {self.seed}: {name} is ended beside {others}"
        self.commands[command] = uid
        self.ending.add(uid)
        self.ends += 1

    def delete_pod(self, name: str, uid: str) -> None:
        """Delete a pod by force, where it has this uid."""
        pod = self.pods.get(name)
        if pod is None:
            raise StoreNotFound(f"{name} is not there")
        if pod["uid"] != uid:
            raise StoreConflict(f"{name} has another uid")
        assert pod["deleted_at_ms"], f"seed {self.seed}: {name} was not deleted before"
        self.writes += 1
        self.forced += 1
        del self.pods[name]

    def raw_pods(self) -> dict[str, bytes]:
        """Return all pods as the API has them, by uid."""
        return {pod["uid"]: raw_pod(pod) for pod in self.pods.values()}


def _is_commanded(job: dict[str, Any]) -> bool:
    """Whether our Command is kept on a job as the cause of its end."""
    cause = read_cause(job["metadata"]["annotations"])
    return cause is not None and cause.source is CauseSource.COMMAND


def least_of(job: dict[str, Any]) -> int:
    """Return ``minReplicas`` of a job."""
    return int(job["metadata"]["annotations"]["minReplicas"])


def uid_of(job: dict[str, Any]) -> str:
    """Return the uid of a job."""
    uid: str = job["metadata"]["uid"]
    return uid


def command_name(job: str, uid: str) -> str:
    """Return the name of the Command that ends a job."""
    return f"{job}-terminatejob-{uid}"


def _pod(name: str, job: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "name": name,
        "uid": f"p-{name}-{number}",
        "job": job["metadata"]["name"],
        "owner": uid_of(job),
        "node": "",
        "phase": "Pending",
        "deleted_at_ms": 0,
        "grace": 0,
        "left": 0,
    }


def raw_of(item: dict[str, Any]) -> bytes:
    """Return an object as the API has it."""
    return msgspec.json.encode(item)


def raw_pod(pod: dict[str, Any]) -> bytes:
    """Return a pod as the API has it."""
    owner = {"kind": "Job", "name": pod["job"], "uid": pod["owner"], "controller": True}
    metadata: dict[str, Any] = {
        "name": pod["name"],
        "namespace": "default",
        "uid": pod["uid"],
        "ownerReferences": [owner],
    }
    if pod["deleted_at_ms"]:
        metadata["deletionTimestamp"] = text_of(pod["deleted_at_ms"])
        metadata["deletionGracePeriodSeconds"] = pod["grace"]
    content = {"spec": {"nodeName": pod["node"]}, "status": {"phase": pod["phase"]}}
    return raw_of({"metadata": metadata} | content)


def raw_group(uid: str) -> bytes:
    """Return the PodGroup of a job as the API has it."""
    owner = {"kind": "Job", "name": uid, "uid": uid}
    return raw_of({"metadata": {"name": uid, "ownerReferences": [owner]}})


def _apply(job: dict[str, Any], operation: dict[str, Any]) -> None:
    parts = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
    if parts == ["metadata", "resourceVersion"]:
        return
    place: Any = job
    for part in parts[:-1]:
        place = place[int(part) if isinstance(place, list) else part]
    if operation["op"] == "remove":
        del place[parts[-1]]
    else:
        place[parts[-1]] = copy.deepcopy(operation["value"])


def text_of(at_ms: int) -> str:
    """Return a time as the API has it."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")

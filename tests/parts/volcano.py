"""A stand-in for Volcano's controller, scheduler and kubelets, on a real API server.

It does what was observed of the real ones (``docs/spec/consumers.md#2.9``), no more. Each step
looks at everything there is, so it can be stopped and started at any moment.
"""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
PODS = "/api/v1/namespaces/default/pods"
REASONS = "/api/v1/namespaces/mindx-dl/configmaps"
CHIPS = "huawei.com/Ascend910"
CHIPS_OF_A_NODE = 8
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
_KINDS = (
    ("jobs", "Job", "batch.volcano.sh", "v1alpha1"),
    ("podgroups", "PodGroup", "scheduling.volcano.sh", "v1beta1"),
    ("queues", "Queue", "scheduling.volcano.sh", "v1beta1"),
    ("commands", "Command", "bus.volcano.sh", "v1alpha1"),
)
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_STEP_SECONDS = 0.05
_IDLE_STEP_SECONDS = 0.2
"""A step asks the API server five times, so there are fewer of them while nothing changes."""
_RECORD_SECONDS = 0.9
"""A record is there for so long after its job left the scheduler's cache: the real one takes 0.4
to 1.3 s (consumers#1.14)."""
_ENDED = ("Failed", "Terminated", "Aborted", "Completed")
_ENDING = {"TerminateJob": ("Terminating", "Terminated"), "AbortJob": ("Aborting", "Aborted")}


def _is_served(plane: ControlPlane, path: str) -> bool:
    return plane.ask("GET", path)[0] == 200


def _is_gone(plane: ControlPlane, path: str) -> bool:
    return plane.ask("GET", path)[0] == 404


def install(plane: ControlPlane) -> None:
    """Make the API server take Volcano's kinds, and open the default queue."""
    for plural, kind, group, version in _KINDS:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        one = {
            "name": version,
            "served": True,
            "storage": True,
            "subresources": {"status": {}} if kind != "Command" else {},
            "schema": {"openAPIV3Schema": schema},
        }
        names = {"plural": plural, "kind": kind, "listKind": f"{kind}List"}
        plane.request(
            "POST",
            _DEFINITIONS,
            {
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Cluster" if kind == "Queue" else "Namespaced",
                    "names": names | {"singular": kind.lower()},
                    "versions": [one],
                },
            },
        )
    for plural, _, group, version in _KINDS:
        path = f"/apis/{group}/{version}/{plural}"
        wait_until(partial(_is_served, plane, path), f"{plural} are served")
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    plane.request("POST", QUEUES, queue | {"metadata": {"name": "default"}})
    set_queue(plane, "Open")


def uninstall(plane: ControlPlane) -> None:
    """Remove Volcano's kinds, and with them all their objects."""
    for plural, _, group, _ in _KINDS:
        plane.ask("DELETE", f"{_DEFINITIONS}/{plural}.{group}")
    for plural, _, group, version in _KINDS:
        path = f"/apis/{group}/{version}/{plural}"
        wait_until(partial(_is_gone, plane, path), f"{plural} are removed")


def set_queue(plane: ControlPlane, state: str) -> None:
    """Set the state of the default queue, as Volcano's queue controller does."""
    plane.request("PATCH", f"{QUEUES}/default/status", {"status": {"state": state}})


class Volcano:
    """Runs in a thread for the length of the block."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.holds: set[str] = set()
        """Pods that do not end, whatever their grace."""
        self.fails: set[str] = set()
        """Jobs of which a pod fails by itself as soon as it runs."""
        self.works = threading.Event()
        """Whether the controller works; kubelets and the scheduler always do."""
        self.works.set()
        self._seen: object = None
        """Jobs, pods and PodGroups at the last step."""
        self._records: dict[str, dict[str, Any]] = {}
        self._left_at: dict[str, float] = {}
        """Since when a job with a record has no PodGroup."""
        self._recording = threading.Lock()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="volcano")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def job(self, name: str) -> dict[str, Any]:
        """Return a job."""
        found: dict[str, Any] = self.plane.request("GET", f"{JOBS}/{name}")
        return found

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a job, by name."""
        items = self.plane.request("GET", PODS)["items"]
        mine = (pod for pod in items if pod["metadata"]["name"].startswith(f"{name}-w-"))
        return sorted(mine, key=lambda pod: str(pod["metadata"]["name"]))

    def phase(self, name: str) -> str:
        """Return the phase of a job."""
        return _phase(self.job(name))

    def until(self, name: str, phase: str, seconds: float = 20) -> None:
        """Wait until the job has this phase."""
        wait_until(
            lambda: self.phase(name) == phase,
            lambda: f"{name} is {self.job(name)['status']}, not {phase}",
            seconds,
        )

    def evict(self, name: str, reason: str = "CardUnhealthy", node: str = "n0") -> None:
        """Do as the scheduler does about a fault: record it, and delete all pods with grace."""
        job = self.job(name)
        self._record(f"default/{_group(job)}", reason, "p", node)
        for pod in self.pods(name):
            self.plane.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")

    def has_record(self, name: str) -> bool:
        """Return whether a record of the job is there."""
        with self._recording:
            return any(one.startswith(f"default/{name}-") for one in self._records)

    def _record(self, job: str, reason: str, pod: str, node: str) -> None:
        """Record an eviction in the form of the recordings (``tests/vectors/volcano``)."""
        cause = {"RescheduleReason": reason, "PodName": pod, "NodeName": node, "NodeRankIndex": "0"}
        at = int(time.time())
        record = {
            "LogFileFormatTime": time.strftime("I%m%d %H:%M:%S", time.localtime(at)),
            "RescheduleTimeStamp": at,
            "ReasonOfTask": [cause],
        }
        entry = {"JobID": job, "TotalRescheduleTimes": 1, "RescheduleRecords": [record]}
        with self._recording:
            self._records[job] = entry
            self._left_at.pop(job, None)
            self._write_records()

    def _drop_records(self, groups: set[str]) -> None:
        """Take back the records of jobs that have left the cache, as their PodGroups are gone."""
        with self._recording:
            now = time.monotonic()
            for job in self._records:
                if job.partition("/")[2] in groups:
                    self._left_at.pop(job, None)
                else:
                    self._left_at.setdefault(job, now)
            gone = [job for job, at in self._left_at.items() if now - at >= _RECORD_SECONDS]
            for job in gone:
                del self._records[job], self._left_at[job]
            if gone:
                self._write_records()

    def _write_records(self) -> None:
        text = json.dumps(self._records) if self._records else ""
        data = {"recent-reschedule-records": text}
        content = {"metadata": {"name": "job-reschedule-reason"}, "data": data}
        if self.plane.ask("POST", REASONS, content)[0] == 409:
            self.plane.request("PUT", f"{REASONS}/job-reschedule-reason", content)

    def _run(self) -> None:
        pause = _STEP_SECONDS
        while not self._ended.wait(pause):
            before = self._seen
            try:
                self._step()
            except (OSError, KeyError, AssertionError) as error:
                if self._ended.is_set():
                    return
                self._failure = error
                return
            pause = _STEP_SECONDS if self._seen != before else _IDLE_STEP_SECONDS

    def _step(self) -> None:
        """Look at everything, and do what follows."""
        jobs = self.plane.request("GET", JOBS)["items"]
        pods = self.plane.request("GET", PODS)["items"]
        groups = {one["metadata"]["name"] for one in self.plane.request("GET", GROUPS)["items"]}
        self._seen = jobs, pods, groups
        self._run_pods(pods)
        self._drop_records(groups)
        if not self.works.is_set():
            return
        for command in self.plane.request("GET", COMMANDS)["items"]:
            self._obey(command)
        for job in jobs:
            uid = job["metadata"]["uid"]
            mine = {
                pod["metadata"]["name"]: pod
                for pod in pods
                if any(one["uid"] == uid for one in pod["metadata"].get("ownerReferences", ()))
            }
            self._control(job, mine, groups)

    def _run_pods(self, pods: list[dict[str, Any]]) -> None:
        """Bind what is not bound, run what is bound, and end what is deleted."""
        used: dict[str, int] = {}
        for pod in pods:
            if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running"):
                node = pod["spec"]["nodeName"]
                used[node] = used.get(node, 0) + _chips(pod)
        nodes = [
            one["metadata"]["name"] for one in self.plane.request("GET", "/api/v1/nodes")["items"]
        ]
        for pod in pods:
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            path = f"{PODS}/{name}"
            if "deletionTimestamp" in pod["metadata"]:
                if name not in self.holds:
                    self.plane.ask("DELETE", f"{path}?gracePeriodSeconds=0")
            elif not node:
                for one in nodes:
                    if used.get(one, 0) + _chips(pod) <= CHIPS_OF_A_NODE:
                        used[one] = used.get(one, 0) + _chips(pod)
                        target = {"apiVersion": "v1", "kind": "Node", "name": one}
                        self.plane.ask(
                            "POST",
                            f"{path}/binding",
                            {"metadata": {"name": name}, "target": target},
                        )
                        break
            elif pod["status"]["phase"] == "Pending":
                job = name.rpartition("-w-")[0]
                phase = "Failed" if job in self.fails and name.endswith("-0") else "Running"
                self.plane.ask("PATCH", f"{path}/status", {"status": {"phase": phase}})

    def _obey(self, command: dict[str, Any]) -> None:
        name = command["metadata"]["name"]
        self.plane.ask("DELETE", f"{COMMANDS}/{name}")
        job = self.job(command["target"]["name"])
        if _phase(job) in ("Pending", "Running"):
            self._status(job, _ENDING[command["action"]][0])

    def _control(
        self, job: dict[str, Any], pods: dict[str, dict[str, Any]], groups: set[str]
    ) -> None:
        phase = _phase(job)
        if phase in ("Terminating", "Aborting"):
            self._kill(job, pods)
            if not any(_lives(pod) for pod in pods.values()):
                self._status(job, "Terminated" if phase == "Terminating" else "Aborted")
        elif phase == "Restarting":
            self._kill(job, pods)
            is_last = job["spec"].get("maxRetry", 3) == 0
            self._status(job, "Failed" if is_last else "Pending")
        elif phase in _ENDED:
            self._kill(job, pods)
        else:
            self._sync(job, pods, groups)

    def _kill(self, job: dict[str, Any], pods: dict[str, dict[str, Any]]) -> None:
        """Delete pods that have not ended by themselves, and the PodGroup."""
        for name, pod in pods.items():
            if _lives(pod) and "deletionTimestamp" not in pod["metadata"]:
                self.plane.ask("DELETE", f"{PODS}/{name}")
        self.plane.ask("DELETE", f"{GROUPS}/{_group(job)}")

    def _sync(self, job: dict[str, Any], pods: dict[str, dict[str, Any]], groups: set[str]) -> None:
        spec, task = job["spec"], job["spec"]["tasks"][0]
        names = [f"{job['metadata']['name']}-w-{index}" for index in range(task["replicas"])]
        phase = _phase(job)
        seen = job["status"].get("taskStatusCount", {}).get("w", 0)
        if phase == "Running" and len(pods) < seen <= task["replicas"]:
            action = next(
                (p["action"] for p in spec.get("policies", ()) if p["event"] == "PodEvicted"), ""
            )
            if action == "RestartJob":
                self._status(job, "Restarting")
                return
            if action in _ENDING:
                self._status(job, _ENDING[action][0])
                return
        if _group(job) not in groups:
            owner = _owner(job)
            body = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": _group(job), "ownerReferences": [owner]},
                "spec": {"minMember": spec["minAvailable"]},
            }
            self.plane.ask("POST", GROUPS, body)
        for name in names:
            if name not in pods:
                self._make(job, name)
        for name, pod in pods.items():
            if name not in names and "deletionTimestamp" not in pod["metadata"]:
                self.plane.ask("DELETE", f"{PODS}/{name}")
        ready = sum(1 for pod in pods.values() if pod["status"]["phase"] in ("Running", "Failed"))
        failed = sum(1 for pod in pods.values() if pod["status"]["phase"] == "Failed")
        if names and failed and phase == "Running":
            self._status(job, "Failed")
        elif (
            phase in ("", "Pending") and ready >= spec["minAvailable"] and ready == len(names)
        ) or (phase == "Running" and names and ready == len(names) != seen):
            self._status(job, "Running", len(names))
        elif phase == "":
            self._status(job, "Pending")

    def _make(self, job: dict[str, Any], name: str) -> None:
        template = job["spec"]["tasks"][0]["template"]
        metadata = {
            "name": name,
            "labels": {"volcano.sh/job-name": job["metadata"]["name"]},
            "ownerReferences": [_owner(job)],
            "annotations": {"scheduling.k8s.io/group-name": _group(job)},
        }
        self.plane.ask("POST", PODS, {"metadata": metadata, "spec": template["spec"]})

    def _status(self, job: dict[str, Any], phase: str, running: int | None = None) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [
            *job["status"].get("conditions", ()),
            {"status": phase, "lastTransitionTime": at},
        ]
        status: dict[str, Any] = {"state": {"phase": phase}, "conditions": conditions}
        if running is not None:
            status["taskStatusCount"] = {"w": running}
        version = {"resourceVersion": job["metadata"]["resourceVersion"]}
        name = job["metadata"]["name"]
        self.plane.ask("PATCH", f"{JOBS}/{name}/status", {"metadata": version, "status": status})


def _phase(job: dict[str, Any]) -> str:
    job.setdefault("status", {})
    found: str = job["status"].get("state", {}).get("phase", "")
    return found


def _lives(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] not in ("Failed", "Succeeded")


def _group(job: dict[str, Any]) -> str:
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def _owner(job: dict[str, Any]) -> dict[str, Any]:
    names = {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "controller": True, **names}


def _chips(pod: dict[str, Any]) -> int:
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    return int(limits.get(CHIPS, "0"))

"""Plays a recording of Volcano: the objects at each session of its scheduler, as raw JSON.

What the scheduler wrote moves the objects, since its bindings and deletions are facts of the
cluster; decisions are made before they are applied. Sessions are found in the times of its writes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.inputs import kubernetes_objects as objects
from advisor.options import AdvisorOptions, with_init_params
from advisor.snapshot import ClusterSnapshot
from tests.parts.examples import mostly_slow
from tests.parts.kubernetes_object import made_of
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDINGS = sorted(path.stem for path in (VECTORS / "volcano").glob("*.json"))
PLAYED_AGAIN = mostly_slow(RECORDINGS, 6)
"""All recordings, for tests that play them once more: a sixth of these are unit tests."""

PERIOD_MS = 1040
"""From the start of one session to the start of the next; 1,000 to 1,100 were seen."""
SAME_SESSION_MS = 700
FIRST_AFTER_MS = (300, 600)
_OVER = ("Restarting", "Failed", "Terminating", "Terminated", "Aborting", "Aborted", "Completed")
"""Phases of a vcjob in which its controller has deleted the PodGroup (``killPods``)."""


@dataclass
class Session:
    """One session of the scheduler: when, the objects that it finds, what was recorded of it."""

    at_ms: int
    first: bool
    objects: dict[str, list[Any]]
    configmaps: list[dict[str, Any]]
    """All versions written since the session before, and those that did not change."""
    observed: list[dict[str, Any]] = field(default_factory=list)
    last_input_ms: int = -(10**9)


@cache
def recorded(name: str) -> dict[str, Any]:
    """Return the recording called ``name``."""
    return read(VECTORS / f"volcano/{name}.json")


def read(file: Path) -> dict[str, Any]:
    """Return the recording in ``file``, which may be as small as ours or as it was recorded."""
    return compact(json.loads(file.read_text()))


def compact(recording: dict[str, Any]) -> dict[str, Any]:
    """Return what is needed of a recording as it was made, with the wall time of its first step.

    Decoded copies, notes and texts of events other than ``FailedScheduling`` are left out.
    """
    if "unix_ms_at_0" in recording:
        return recording
    found = {
        key: recording[key]
        for key in ("name", "about", "source", "mode", "init_params", "ended_at_ms")
    }
    found["unix_ms_at_0"] = _unix_ms_at_0(recording["steps"])
    found["steps"] = [_step(step) for step in recording["steps"] if step["do"] != "note"]
    found["observed"] = [_row(row) for row in recording["observed"]]
    return found


_NOT_NEEDED = frozenset(
    {"decoded", "note", "identical_rewrites", "rewrites_that_change_only_UpdateTime", "repeated"}
)
_NOT_NEEDED_ANNOTATIONS = frozenset(
    {"ascend.kubectl.kubernetes.io/ascend-910-configuration", "huawei.com/kltDev"}
)
_ONLY_TIMES = ("at_ms", "kind", "by", "last_at_ms", "last_rewrite_at_ms")


def _step(step: dict[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in step.items() if key not in _NOT_NEEDED}
    if "annotations" in small:
        small["annotations"] = _annotations(small["annotations"])
    return small


def _row(row: dict[str, Any]) -> dict[str, Any]:
    if row["kind"] in ("configmap", "pod-condition") or row.get("reason", "") not in (
        "",
        "FailedScheduling",
    ):
        return {key: row[key] for key in _ONLY_TIMES if key in row}
    small = {key: value for key, value in row.items() if key not in _NOT_NEEDED}
    if "annotations" in small:
        small["annotations"] = _annotations(small["annotations"])
    small.pop("conditions", None)
    return small


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _NOT_NEEDED_ANNOTATIONS}


_FAULT_TIME = re.compile(r"fault_time\W+(\d{13})")
_UPDATE_TIME = re.compile(r"UpdateTime\W+(\d{10})")


def _unix_ms_at_0(steps: list[dict[str, Any]]) -> int:
    """Return the wall time of the first step, as near as the stamps in the steps allow.

    The first stamp of a document is the second in which it was written; fault times have
    milliseconds, and some are of another moment.
    """
    puts = [(step["at_ms"], " ".join(step["data"].values())) for step in steps if "data" in step]
    low: int = next(
        int(found[1]) * 1000 - at for at, text in puts if (found := _UPDATE_TIME.search(text))
    )
    exact = [
        int(found) - at
        for at, text in puts
        for found in _FAULT_TIME.findall(text)
        if low <= int(found) - at < low + 1000
    ]
    return min(exact, default=low + 500)


def _lives(recording: dict[str, Any]) -> list[tuple[int, int]]:
    """Return from when to when the scheduler ran."""
    lives = []
    started: int | None = None
    for step in recording["steps"]:
        if step["do"] in ("stop-scheduler", "restart-scheduler") and started is not None:
            lives.append((started, step["at_ms"]))
            started = None
        if step["do"] in ("start-scheduler", "restart-scheduler"):
            if started is not None:
                lives.append((started, step["at_ms"]))
            started = step["at_ms"]
    if started is not None:
        ended = [row["at_ms"] for row in recording["observed"] if row["kind"] == "scheduler-exited"]
        lives.append((started, ended[0] if ended else recording["ended_at_ms"]))
    return lives


def session_times(recording: dict[str, Any]) -> list[tuple[int, bool]]:
    """Return when each session began by its first write, and whether it is the first of a life.

    A session that wrote nothing is put where the period expects it.
    """
    writes = set()
    for row in recording["observed"]:
        if row["by"] == "scheduler" and row["kind"] != "scheduler-exited":
            writes.add(row["at_ms"])
            for key in ("last_at_ms", "last_rewrite_at_ms"):
                if key in row:
                    writes.add(row[key])
    found: list[tuple[int, bool]] = []
    for start, end in _lives(recording):
        starts: list[int] = []
        for at in sorted(at for at in writes if start <= at <= end):
            if not starts or at - starts[-1] >= SAME_SESSION_MS:
                starts.append(at)
        if not starts or starts[0] > start + 2 * FIRST_AFTER_MS[1]:
            starts.insert(0, start + sum(FIRST_AFTER_MS) // 2)
        while starts[-1] + PERIOD_MS < end:
            starts.append(starts[-1] + PERIOD_MS)
        whole = [starts[0]]
        for before, after in pairwise(starts):
            missing = round((after - before) / PERIOD_MS) - 1
            whole += [before + (after - before) * n // (missing + 1) for n in range(1, missing + 1)]
            whole.append(after)
        found += [(at, number == 0) for number, at in enumerate(whole)]
    return found


class _Cluster:
    """The API server's objects, moved by steps and by what was observed."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.pods: dict[str, Any] = {}
        self.podgroups: dict[str, Any] = {}
        self.vcjobs: dict[str, Any] = {}
        self.replica_sets: dict[str, Any] = {}
        self.configmaps: dict[str, Any] = {}
        self.written: list[Any] = []
        self._made = 0

    def apply(self, event: dict[str, Any]) -> None:
        name = event.get("do") or event["kind"]
        act = getattr(self, f"_{name.replace('-', '_')}", None)
        if act is not None and "http_status" not in event:
            act(event)

    def _uid(self) -> str:
        self._made += 1
        return f"00000000-0000-0000-0000-{self._made:012d}"

    def _put_node(self, event: dict[str, Any]) -> None:
        self.nodes[event["object"]["metadata"]["name"]] = event["object"]

    def _delete_node(self, event: dict[str, Any]) -> None:
        self.nodes.pop(event["name"], None)

    def _put(self, kind: dict[str, Any], event: dict[str, Any]) -> None:
        made = _copied(event["object"])
        made["metadata"].setdefault("uid", self._uid())
        kind[_key(made)] = made

    def _put_pod(self, event: dict[str, Any]) -> None:
        self._put(self.pods, event)

    def _put_podgroup(self, event: dict[str, Any]) -> None:
        self._put(self.podgroups, event)

    def _put_vcjob(self, event: dict[str, Any]) -> None:
        self._put(self.vcjobs, event)

    def _put_replicaset(self, event: dict[str, Any]) -> None:
        self._put(self.replica_sets, event)

    def _put_configmap(self, event: dict[str, Any]) -> None:
        made = {
            "metadata": {
                "namespace": event["namespace"],
                "name": event["name"],
                "labels": event["labels"],
            },
            "data": event["data"],
        }
        self.configmaps.pop(_key(made), None)
        self.configmaps[_key(made)] = made
        self.written.append(made)

    def _delete_configmap(self, event: dict[str, Any]) -> None:
        key = f"{event['namespace']}/{event['name']}"
        self.configmaps.pop(key, None)
        self.written = [one for one in self.written if _key(one) != key]

    def _patch_pod(self, event: dict[str, Any]) -> None:
        pod = self.pods[f"{event['namespace']}/{event['name']}"]
        for member, values in event["patch"]["metadata"].items():
            pod["metadata"].setdefault(member, {}).update(values)

    def _pod_patch(self, event: dict[str, Any]) -> None:
        pod = self.pods.get(event["pod"])
        if pod is not None and "annotations" in event:
            pod["metadata"].setdefault("annotations", {}).update(event["annotations"])

    def _pod_status(self, event: dict[str, Any]) -> None:
        pod = self.pods.get(f"{event['namespace']}/{event['pod']}")
        if pod is None:
            return
        pod["status"] = event["status"]
        pod["metadata"].setdefault("annotations", {}).update(event.get("annotations", {}))

    def _pod_bound(self, event: dict[str, Any]) -> None:
        pod = self.pods.get(event["pod"])
        if pod is not None:
            pod["spec"]["nodeName"] = event["node"]
            pod["metadata"].setdefault("annotations", {}).update(event["annotations"])

    def _pod_created(self, event: dict[str, Any]) -> None:
        namespace, name = event["pod"].split("/")
        job = self.vcjobs[f"{namespace}/{event['labels']['volcano.sh/job-name']}"]
        task = next(
            task
            for task in job["spec"]["tasks"]
            if task["name"] == event["labels"]["volcano.sh/task-spec"]
        )
        spec = _copied(task["template"]["spec"])
        for container in spec["containers"]:
            container["env"] = [{"name": "VC_TASK_INDEX", "value": event["env_task_index"]}]
        self.pods[event["pod"]] = {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": self._uid(),
                "labels": dict(event["labels"]),
                "annotations": dict(event["annotations"]),
                "ownerReferences": [_owner("Job", job)],
            },
            "spec": spec,
        }

    def _podgroup_created(self, event: dict[str, Any]) -> None:
        namespace, name = event["podgroup"].split("/")
        made: dict[str, Any] = {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": self._uid(),
                "labels": event.get("labels", {}),
                "annotations": event.get("annotations", {}),
            },
            "spec": {"minMember": event["minMember"], "minResources": event["minResources"]},
            "status": {"phase": event.get("phase", "")},
        }
        for kind, owners in (("Job", self.vcjobs), ("ReplicaSet", self.replica_sets)):
            for owner in owners.values():
                metadata = owner["metadata"]
                if metadata["namespace"] == namespace and (
                    name.startswith(f"{metadata['name']}-") and kind == "Job"
                ):
                    made["metadata"]["ownerReferences"] = [_owner(kind, owner)]
        self.podgroups[event["podgroup"]] = made

    def _podgroup_status(self, event: dict[str, Any]) -> None:
        group = self.podgroups.get(event["podgroup"])
        if group is not None:
            group["status"] = {"phase": event["phase"]}
            group["metadata"].setdefault("annotations", {}).update(event.get("annotations", {}))

    def _vcjob_status(self, event: dict[str, Any]) -> None:
        job = self.vcjobs.get(event["job"])
        if job is None:
            return
        job["status"] = {
            "state": {"phase": event["phase"]},
            "retryCount": event.get("retryCount", 0),
        }
        if event["phase"] in _OVER:
            for key, group in list(self.podgroups.items()):
                owners = group["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == job["metadata"]["uid"] for owner in owners):
                    del self.podgroups[key]

    def _pod_delete(self, event: dict[str, Any]) -> None:
        self._delete(event["pod"], event.get("effective_grace_seconds", 0))

    def _delete_pod(self, event: dict[str, Any]) -> None:
        self._delete(f"{event['namespace']}/{event['pod']}", event["grace_seconds"])

    def _delete(self, key: str, grace_seconds: int) -> None:
        pod = self.pods.get(key)
        if pod is None:
            return
        if grace_seconds == 0:
            del self.pods[key]
        else:
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"


def _copied(made: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of JSON values, more quickly as ``deepcopy``."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return copied


def _key(made: dict[str, Any]) -> str:
    return f"{made['metadata']['namespace']}/{made['metadata']['name']}"


def _owner(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    metadata = made["metadata"]
    return {"kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


def play(recording: dict[str, Any]) -> Iterator[Session]:
    """Return the sessions in order.

    A session finds what was written before its first write, and no write of its own: those are
    applied after it.
    """
    events = sorted(
        [*recording["steps"], *recording["observed"]],
        key=lambda event: (event["at_ms"], "kind" in event),
    )
    times = session_times(recording)
    cluster = _Cluster()
    position = 0
    last_input = -(10**9)
    for number, (at, first) in enumerate(times):
        while position < len(events) and events[position]["at_ms"] < at:
            event = events[position]
            cluster.apply(event)
            if event.get("by") != "scheduler":
                last_input = event["at_ms"]
            position += 1
        until = times[number + 1][0] if number + 1 < len(times) else recording["ended_at_ms"] + 1
        versions = {id(one) for one in cluster.written}
        older = [one for one in cluster.configmaps.values() if id(one) not in versions]
        if first:
            older, written = list(cluster.configmaps.values()), []
        else:
            written = cluster.written
        cluster.written = []
        yield Session(
            at_ms=at,
            first=first,
            objects=_copied(
                {
                    "nodes": list(cluster.nodes.values()),
                    "pods": list(cluster.pods.values()),
                    "podgroups": list(cluster.podgroups.values()),
                    "vcjobs": list(cluster.vcjobs.values()),
                    "replica_sets": list(cluster.replica_sets.values()),
                }
            ),
            configmaps=older + written,
            observed=[
                row
                for row in recording["observed"]
                if at <= row["at_ms"] < until and row["by"] == "scheduler"
            ],
            last_input_ms=last_input,
        )


def snapshot_of(session: Session, recording: dict[str, Any]) -> ClusterSnapshot:
    """Return what the advisor reads of a session."""
    found = session.objects
    return ClusterSnapshot(
        now_ms=recording["unix_ms_at_0"] + session.at_ms,
        first_session=session.first,
        nodes=tuple(objects.node(made_of(one)) for one in found["nodes"]),
        pods=tuple(objects.pod(made_of(one)) for one in found["pods"]),
        podgroups=tuple(objects.pod_group(made_of(one)) for one in found["podgroups"]),
        vcjobs=tuple(objects.vcjob(made_of(one)) for one in found["vcjobs"]),
        replica_sets=tuple(objects.replica_set(made_of(one)) for one in found["replica_sets"]),
        configmaps=tuple(objects.configmap(made_of(one)) for one in session.configmaps),
    )


def options_of(recording: dict[str, Any]) -> AdvisorOptions:
    """Return the switches with which the scheduler was started."""
    return with_init_params(AdvisorOptions(), recording["init_params"])

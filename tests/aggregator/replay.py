"""Plays a recording of the real aggregator through ours, in virtual time and without I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aggregator.moment import Moment
from aggregator.pipeline import Pipeline
from contract.names import CLUSTER_NAMESPACE, CLUSTER_NODE_NAME, REPORT_LABEL
from stores.base import Changed, Deleted, Document, Listed, PodUsage, UsageEnded, UsageListed
from tests.compatibility import Difference, different
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLED_MS = 2000
"""The real aggregator needs up to two seconds; states before that are not compared."""

AT_LAST_MS = 120_000

_Key = tuple[str, str]


@dataclass
class Cluster:
    """Our aggregator and what is stored around it."""

    unix_ms_at_0: int
    inputs: dict[_Key, Document] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    pods: dict[str, PodUsage] = field(default_factory=dict)
    pipeline: Pipeline | None = None

    def step(self, step: dict[str, Any]) -> None:
        """Do what a step of the recording does."""
        thing = step.get("object", {})
        key = (thing.get("namespace", ""), thing.get("name", ""))
        match step["do"]:
            case "put-configmap":
                document = Document(*key, thing["data"], thing.get("labels", {}))
                self._input(key, document, step["at_ms"])
            case "delete-configmap":
                self._input(key, None, step["at_ms"])
            case "stop-aggregator":
                self.pipeline = None
            case "restart-aggregator":
                self._start(step["at_ms"])
            case "put-pod":
                self._pod(thing["name"], _usage(thing), step["at_ms"])
            case "delete-pod":
                self._pod(thing["name"], None, step["at_ms"])
            case (
                "put-node" | "delete-node" | "put-podgroup" | "subscribe-fault-stream" | "get-fault"
            ):
                pass  # nothing here depends on them: tests/jobs plays them
            case other:
                raise AssertionError(f"the replay cannot {other}")

    def _input(self, key: _Key, document: Document | None, at_ms: int) -> None:
        before = self.inputs.get(key)
        if document is None:
            self.inputs.pop(key, None)
        else:
            self.inputs[key] = document
        if self.pipeline is None:
            return
        for feed in self.pipeline.sources[0].feeds:
            if key[0] != feed.selection.namespace:
                continue
            if document is not None and _selected(document):
                self.pipeline.observe(feed, Changed(document), self._moment(at_ms))
            elif before is not None and _selected(before):
                self.pipeline.observe(feed, Deleted(*key), self._moment(at_ms))
        self.pass_time(at_ms, at_ms)

    def _pod(self, uid: str, usage: PodUsage | None, at_ms: int) -> None:
        self.pods.pop(uid, None)
        if usage is not None:
            self.pods[uid] = usage
        if self.pipeline is not None:
            self.pipeline.observe_usage(0, usage or UsageEnded(uid))
            self.pass_time(at_ms, at_ms)

    def _start(self, at_ms: int) -> None:
        self.pipeline = Pipeline(["recording"], touch_period_seconds=45)
        self.pipeline.restore(
            Document(CLUSTER_NAMESPACE, name, {name: text}) for name, text in self.outputs.items()
        )
        for feed in self.pipeline.sources[0].feeds:
            namespace = feed.selection.namespace
            listed = (d for d in self.inputs.values() if d.namespace == namespace and _selected(d))
            self.pipeline.observe(feed, Listed(tuple(listed)), self._moment(at_ms))
        self.pipeline.observe_usage(0, UsageListed(tuple(self.pods.values())))
        self.pass_time(at_ms, at_ms)

    def _moment(self, at_ms: int) -> Moment:
        return Moment(self.unix_ms_at_0 + at_ms, at_ms)

    def pass_time(self, from_ms: int, to_ms: int) -> None:
        """Let everything happen that is due in between; every write succeeds at once."""
        if self.pipeline is None:
            return
        self._step(from_ms)
        while (due_ms := self.pipeline.next_due_ms()) is not None and due_ms <= to_ms:
            self._step(max(due_ms, from_ms))

    def _step(self, at_ms: int) -> None:
        assert self.pipeline is not None
        self.pipeline.step(self._moment(at_ms))
        for _ in range(2):  # a move of a node is two writes
            for name in self.pipeline.documents:
                value = self.pipeline.value(name)
                self.outputs[name] = value.text
                self.pipeline.acknowledged(name, value.revision)
        self.pipeline.step(self._moment(at_ms))


def _selected(document: Document) -> bool:
    label, value = REPORT_LABEL
    return document.labels.get(label) == value


def _usage(pod: dict[str, Any]) -> PodUsage | None:
    """What a pod of a recording uses; ``None`` when it is done."""
    metadata = pod.get("metadata", pod)
    real = metadata.get("annotations", {}).get("huawei.com/AscendReal", "")
    node = pod["spec"].get("nodeName", "")
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or not real or not node:
        return None
    return PodUsage(pod["name"], node, tuple(real.split(",")))


def play(name: str) -> Iterator[tuple[str, list[Difference]]]:
    """The differences between each settled state of the recording and ours, by step."""
    recording = json.loads((VECTORS / f"clusterd/{name}.json").read_text())
    cluster = Cluster(recording["unix_ms_at_0"])
    steps = recording["steps"]
    for number, step in enumerate(steps):
        cluster.step(step)
        begin_ms = step["at_ms"]
        last = number + 1 == len(steps)
        end_ms = begin_ms + AT_LAST_MS if last else steps[number + 1]["at_ms"]
        cluster.pass_time(begin_ms, end_ms - 1)
        if end_ms - begin_ms >= SETTLED_MS:
            upstream = {
                state["name"]: state["data"][state["name"]]
                for state in recording["observed"]
                if state["at_ms"] < end_ms and state.get("name", "").startswith("cluster-info-")
            }
            # Upstream makes this document late where it is empty.
            upstream.setdefault(CLUSTER_NODE_NAME, "")
            found = list(different(_parsed(upstream), _parsed(cluster.outputs)))
            same = upstream == cluster.outputs
            assert found or same, "equal in content, different in bytes"
            yield f"clusterd/{name}@{begin_ms}", found


def _parsed(outputs: dict[str, str]) -> dict[str, Any]:
    trees = {name: json.loads(text) if text else {} for name, text in sorted(outputs.items())}
    for tree in trees.values():
        for entry in tree.values():
            devices = entry.get("DeviceList", {})
            for key in devices:
                if key.endswith("-Fault"):
                    devices[key] = json.loads(devices[key])
    return trees

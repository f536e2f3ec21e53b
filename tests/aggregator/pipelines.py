"""The merge pipeline without a daemon: documents go in, values come out, at times of a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aggregator.inputs.cluster_state import ClusterState as Known
from aggregator.inputs.node_context import JobState, NodeContext, PodState
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from aggregator.processors import separation_documents
from aggregator.processors.separation_documents import NAMESPACE, POLICY_KEY
from contract.documents.cluster_info import cluster_device_index
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from stores.base import Changed, Deleted, Document, DocumentsListed, WatchEvent
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.nodes import instant, published, report, unhealthy
from tests.aggregator.processors.cases import chip, policy_text

if TYPE_CHECKING:
    from service.clock import Instant

DEVICES, SWITCHES = "cluster-info-device-0", "cluster-info-switch-0"
ONCE = policy_text(threshold=1)


class WrittenPipeline:
    """A pipeline of one store that was listed; every write succeeds at once."""

    def __init__(self, *documents: Document, outputs: dict[str, Document] | None = None) -> None:
        self.known = Known([True])
        self.pipeline = Pipeline(
            [DocumentSource("store:")], 45, node_context=self.known.node_context
        )
        self.outputs = dict(outputs or {})
        self.pipeline.restore_documents(self.outputs.values())
        self.devices, self.nodes = self.pipeline.sources[0].watches
        for watch in (self.devices, self.nodes):
            mine = tuple(d for d in documents if d.namespace == watch.selection.namespace)
            self.pipeline.observe_event(watch, DocumentsListed(mine), instant(0))
        self.step(0)

    def put(self, document: Document, at: float = 0) -> frozenset[str]:
        mine = self.devices.selection.namespace == document.namespace
        self.pipeline.observe_event(
            self.devices if mine else self.nodes, Changed(document), instant(at)
        )
        return self.step(at)

    def delete(self, document: Document, at: float = 0) -> frozenset[str]:
        mine = self.devices.selection.namespace == document.namespace
        event = Deleted(document.namespace, document.name)
        self.pipeline.observe_event(self.devices if mine else self.nodes, event, instant(at))
        return self.step(at)

    def lose(self, *nodes: str) -> frozenset[str]:
        self.pipeline.set_lost(frozenset(nodes))
        return self.step(0)

    def step(self, at: float) -> frozenset[str]:
        changed = self.pipeline.step(instant(at))
        for name in self.pipeline.documents:
            value = self.pipeline.value(name)
            self.outputs[name] = Document(
                CLUSTER_NAMESPACE,
                name,
                {name: value.text},
                dict([CLUSTER_LABEL]),
                value.annotations,
            )
            self.pipeline.acknowledged(name, value.revision)
        self.pipeline.step(instant(at))
        return changed

    def switches(self) -> dict[str, Any]:
        return _entries(self.outputs[SWITCHES], "mindx-dl-switchinfo-")

    def servers(self) -> dict[str, Any]:
        return _entries(self.outputs[CLUSTER_NODE_NAME], "mindx-dl-nodeinfo-")

    def statuses(self) -> dict[str, str]:
        return {node: entry["NodeStatus"] for node, entry in self.servers().items()}


def _entries(document: Document, prefix: str) -> dict[str, Any]:
    text = document.data[document.name]
    entries = json.loads(text) if text else {}
    return {key.removeprefix(prefix): entry for key, entry in entries.items()}


class PendingPipeline:
    """A pipeline whose writes arrive when a test acknowledges them."""

    def __init__(self, stores: int = 1, outputs: dict[str, str] | None = None) -> None:
        self.pipeline = Pipeline((DocumentSource(f"store-{n}:") for n in range(stores)), 45)
        self.outputs = dict(outputs or {})
        self.restore(self.outputs)

    def restore(self, outputs: dict[str, str]) -> None:
        """Take over the documents of an earlier run, or of another leader."""
        self.pipeline.restore_documents(
            Document(CLUSTER_NAMESPACE, name, {name: text}, dict([CLUSTER_LABEL]))
            for name, text in outputs.items()
        )

    def observe(self, now: Instant, *events: WatchEvent, store: int = 0) -> frozenset[str]:
        """Observe events that arrive together; nothing is written."""
        for event in events:
            watch = self.pipeline.sources[store].devices
            self.pipeline.observe_event(watch, event, now)
        return self.pipeline.step(now)

    def write(self, now: Instant) -> None:
        """Write and acknowledge everything."""
        for name in self.pipeline.documents:
            value = self.pipeline.value(name)
            if cluster_device_index(name) is not None:
                self.outputs[name] = value.text
            self.pipeline.acknowledged(name, value.revision)
        self.pipeline.step(now)

    def shown(self) -> dict[str, Any]:
        """Return the entry of each node in all documents."""
        return {k: v for text in self.outputs.values() for k, v in published(text).items()}


def listed(**nodes: dict[str, str]) -> DocumentsListed:
    return DocumentsListed(tuple(report(node, data) for node, data in nodes.items()))


def gone(node: str) -> Deleted:
    return Deleted("kube-system", f"mindx-dl-deviceinfo-{node}")


class LeaderAndFollower:
    """Two pipelines that read the same; the leader's documents are what is stored."""

    def __init__(self) -> None:
        self.leader, self.follower = PendingPipeline(), PendingPipeline()

    def observe(self, at: float, *events: object) -> None:
        self.leader.observe(instant(at), *events)  # type: ignore[arg-type]
        self.follower.observe(instant(at), *events)  # type: ignore[arg-type]

    def publish(self, at: float) -> None:
        self.leader.write(instant(at))
        for one in self.stored():
            self.follower.pipeline.follow(one, instant(at))

    def stored(self) -> tuple[Document, ...]:
        return tuple(
            Document(CLUSTER_NAMESPACE, name, {name: text}, dict([CLUSTER_LABEL]))
            for name, text in self.leader.outputs.items()
        )

    def take_over(self, at: float) -> set[str]:
        """Make the follower the leader; return the names of the documents that it then changes."""
        before = dict(self.leader.outputs)
        self.follower.pipeline.restore_documents(self.stored())
        self.follower.pipeline.step(instant(at))
        self.follower.write(instant(at))
        after = self.follower.outputs
        return {
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        }


class ProcessingPipeline:
    """A pipeline of one store whose pods and jobs a test sets."""

    def __init__(self, kept: dict[str, str] | None = None, at: float = 0, **more: Any) -> None:
        self.pods: dict[str, tuple[PodState, ...]] = {}
        self.jobs: dict[str, JobState] = {}
        self.asked: list[str] = []
        self.kept = dict(kept or {})
        self.pipeline = Pipeline(
            [DocumentSource("s:")], 45, node_context=self._node_context, **more
        )
        self.processing = self.pipeline.processing
        self.problems = list(self.processing.restore(self.kept, instant(at)))
        self.devices, self.nodes = self.pipeline.sources[0].watches

    def _node_context(self, node: str) -> NodeContext:
        self.asked.append(node)
        pods = self.pods.get(node, ())
        used = frozenset(name for pod in pods for name in pod.chips)
        return NodeContext(used=used, pods=pods, jobs={p.job: self.jobs[p.job] for p in pods})

    def use(self, node: str, *numbers: int, job: str = "job", **annotations: str) -> None:
        full = {f"huawei.com/schedule.filter.fault{k}": v for k, v in annotations.items()}
        self.jobs[job] = JobState(job, annotations=full)
        pod = PodState(f"{node}-{job}", node, job=job, chips=tuple(map(chip, numbers)))
        self.pods[node] = (*self.pods.get(node, ()), pod)
        self.pipeline.judge_again([node])

    def start(self, at: float = 0, /, **nodes: dict[str, str]) -> None:
        documents = tuple(report(node, data) for node, data in nodes.items())
        self.pipeline.observe_event(self.devices, DocumentsListed(documents), instant(at))
        self.pipeline.observe_event(self.nodes, DocumentsListed(()), instant(at))
        self.step(at)

    def put(self, at: float, node: str, data: dict[str, str]) -> frozenset[str]:
        self.pipeline.observe_event(self.devices, Changed(report(node, data)), instant(at))
        return self.step(at)

    def apply(self, at: float, name: str, data: dict[str, str] | None) -> frozenset[str]:
        """Apply a document of operators."""
        selection = next(one for one in self.processing.inputs if one.name == name)
        event = DocumentsListed((Document(NAMESPACE, name, data),) if data is not None else ())
        self.pipeline.judge_again(self.processing.observe(0, selection, event, instant(at)))
        return self.step(at)

    def separating(self, at: float = 0, how: str = ONCE) -> None:
        self.apply(at, separation_documents.POLICY_NAME, {POLICY_KEY: how})
        self.apply(at, separation_documents.CHIPS_NAME, None)

    def step(self, at: float) -> frozenset[str]:
        changed = self.pipeline.step(instant(at))
        self.changed = self.pipeline.changed
        self.kept = kept_texts(self.processing, self.kept)
        return changed

    def due(self) -> float | None:
        due_ms = self.pipeline.next_due_ms()
        return None if due_ms is None else due_ms / 1000

    def run(self, from_at: float, to: float) -> float:
        """Run all steps that are due until ``to``; return the time of the last."""
        at = from_at
        while (due := self.due()) is not None and due <= to:
            at = max(due, from_at)
            self.step(at)
        return at

    def entry(self, node: str) -> dict[str, Any]:
        entry: dict[str, Any] = published(self.pipeline.value(DEVICES).text)[node]
        return entry

    def unhealthy(self, node: str) -> str:
        return unhealthy(self.entry(node))

    def view(self) -> dict[str, str] | None:
        (view,) = self.processing.views()
        return view.data

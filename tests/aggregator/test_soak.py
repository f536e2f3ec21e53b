"""Nodes come and go for simulated weeks: nothing of those that are gone for good is kept.

The whole aggregator but for its tasks: its steps are done here, at times of this test's choosing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from aggregator.config import AggregatorConfiguration, PaceSection
from aggregator.daemon import Aggregator
from aggregator.inputs.node_context import JobState, NodeState, PodState
from aggregator.processors import separation_documents
from aggregator.public_faults.plugin import MESSAGES, STATISTIC
from service.clock import Instant
from service.election.leadership import AlwaysLeader
from stores.base import Changed, Deleted, DocumentsListed
from stores.cluster import Snapshot, Update
from tests.aggregator.nodes import T0, node_report, report
from tests.aggregator.processors.cases import policy_text
from tests.aggregator.public_faults.messages import document, fault_message, one
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR, DAY = 3600, 24 * 3600
NODES = 6
BOUNDED = (
    "._past",
    "._nodes._buckets",
    "._nodes._buckets{}",
    ".refused",
    "._stream._kept",
    ".left_out",
)
"""Stamps of nodes that were dropped (a node that returns must not fall behind its ghost), how much
may be sent of nodes, the latest refusals and changes, counts of buckets. Each has its own end.
"""


class Soak:
    """An aggregator of one API server, and its time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        store = SimpleNamespace(
            url="kubernetes:",
            absence_is_deletion=True,
            mark=None,
            cluster=object(),
            device_taints=None,
            objects=None,
            leader_lease=None,
            leader_lock=None,
        )
        stores = cast("Any", {"kubernetes:": store})
        history = cast("Any", SimpleNamespace(note=lambda _: None))
        configuration = AggregatorConfiguration(pace=PaceSection(writes_per_second=20))
        self.aggregator = Aggregator(
            configuration, stores, history, AlwaysLeader(""), clock=self.now
        )
        pipeline, faults = self.aggregator.pipeline, self.aggregator.public_faults
        self.devices, self.servers = pipeline.sources[0].watches
        pipeline.observe_event(self.devices, DocumentsListed(()), self.now())
        pipeline.observe_event(self.servers, DocumentsListed(()), self.now())
        for name, data in (
            (
                separation_documents.POLICY_NAME,
                {separation_documents.POLICY_KEY: policy_text(threshold=2)},
            ),
            (separation_documents.CHIPS_NAME, {}),
        ):
            found = document(name, fault_message(), "cluster-system")
            selection = next(one for one in pipeline.processing.inputs if one.name == name)
            listed = DocumentsListed(
                (found.__class__(found.namespace, name, data),) if data else ()
            )
            pipeline.processing.observe(0, selection, listed, self.now())
        for plugin in self.aggregator.plugins.persistent:
            list(plugin.restore({}, self.now()))
        faults.observe(0, STATISTIC, DocumentsListed(()), self.now())
        cluster_state = self.aggregator.cluster_state
        cluster_state.observe_pods(0, Snapshot({}))
        cluster_state.observe_nodes(0, Snapshot({}))
        cluster_state.observe_jobs(0, Snapshot({}))
        self.step()

    def now(self) -> Instant:
        return Instant(int((T0 + self.seconds) * 1000), int(self.seconds * 1000))

    def step(self, seconds: float = 0.0) -> None:
        """Let time pass; acknowledge, keep and show everything."""
        self.seconds += seconds
        aggregator, pipeline = self.aggregator, self.aggregator.pipeline
        for _ in range(3):
            aggregator._step()
            for name in pipeline.documents:
                pipeline.acknowledged(name, pipeline.revision(name))
        for plugin in aggregator.plugins.persistent:
            for bucket in plugin.pop_changed():
                plugin.text(bucket)
        aggregator.plugins.views()

    def device(self, node: str, data: dict[str, str]) -> None:
        self.aggregator.pipeline.observe_event(
            self.devices, Changed(report(node, data)), self.now()
        )

    def come(self, node: str) -> None:
        """Add a node with every kind of object that can refer to a node."""
        cluster_state, listed_nodes = self.aggregator.cluster_state, self.aggregator._listed_nodes
        job = f"job-of-{node}"
        pod = PodState(f"pod-{node}", node, "default", f"p-{node}", job, ("Ascend910-3",))
        listed_nodes(
            cluster_state.observe_nodes(
                0, Update(node, NodeState(node, serial_number=f"SN-{node}"))
            )
        )
        listed_nodes(
            cluster_state.observe_jobs(0, Update(f"group-{node}", JobState(job, "default", job)))
        )
        listed_nodes(cluster_state.observe_pods(0, Update(pod.uid, pod)))
        self.device(node, config())
        for name, message in (
            ("gone", fault_message(one(node=f"never-{node}"))),
            ("stays", fault_message(one(node=node, devices=(1,)), resource="fd-online")),
        ):
            event = Changed(document(f"{name}-{node}", message))
            self.aggregator.public_faults.observe(0, MESSAGES, event, self.now())
        self.aggregator.public_faults.send(
            fault_message(one(node=node, assertion="once")), self.now()
        )

    def fall_ill(self, node: str, code: str) -> None:
        switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
        bad = [fault(3, "RestartNPU", code), fault(2, "RestartNPU", "80CB8009")]
        when = T0 + int(self.seconds)
        self.device(node, config(bad, unhealthy=(2, 3), update_time=when) | switch)
        server = node_report(node, [], "UnHealthy")
        self.aggregator.pipeline.observe_event(self.servers, Changed(server), self.now())

    def go(self, node: str) -> None:
        cluster_state, listed_nodes = self.aggregator.cluster_state, self.aggregator._listed_nodes
        pipeline = self.aggregator.pipeline
        for watch, gone in (
            (self.devices, report(node, {})),
            (self.servers, node_report(node, [], "")),
        ):
            pipeline.observe_event(watch, Deleted(gone.namespace, gone.name), self.now())
        listed_nodes(cluster_state.observe_pods(0, Update(f"pod-{node}", None)))
        listed_nodes(cluster_state.observe_jobs(0, Update(f"group-{node}", None)))
        listed_nodes(cluster_state.observe_nodes(0, Update(node, None)))
        for name in (f"gone-{node}", f"stays-{node}"):
            event = Deleted("default", name)
            self.aggregator.public_faults.observe(0, MESSAGES, event, self.now())

    def cycle(self, number: int) -> None:
        """Add some nodes, let them fall ill, and delete them."""
        nodes = [f"node-{number}-{index}" for index in range(NODES)]
        for node in nodes:
            self.come(node)
        self.step(1)
        for _ in range(2):
            for node in nodes:
                self.fall_ill(node, "80C98000")
            self.step(1)
            self.step(40)
            for node in nodes:
                self.device(node, config(update_time=T0 + int(self.seconds)))
            self.step(40)
        for node in nodes:
            self.fall_ill(node, "80E01801")
        self.step(1)
        for node in nodes:
            self.go(node)
        for _ in range(3):
            self.step(50)

    def rest(self, days: int) -> None:
        for _ in range(days * 4):
            self.step(DAY / 4)


def sizes(root: object) -> dict[str, int]:
    """Return the size of each collection that is reachable from ``root``, by its path."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    left: list[tuple[str, object]] = [("", root)]
    while left:
        path, value = left.pop()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type, asyncio.Event)):
            continue
        seen.add(id(value))
        if isinstance(value, (dict, list, set, deque, tuple, frozenset)):
            found[path] = found.get(path, 0) + len(value)
        left += [(path + name, member) for name, member in members(value)]
    return found


def members(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from (("{}", member) for member in value.values())
    elif isinstance(value, (list, tuple)) and type(value).__module__ == "builtins":
        whole = len(value) < 5
        yield from ((f"[{n}]" if whole else "[]", member) for n, member in enumerate(value))
    elif type(value).__module__.startswith("aggregator"):
        names = set(getattr(value, "__dict__", ()))
        for kind in type(value).__mro__:
            names |= {*getattr(kind, "__slots__", ())}
        for name in sorted(names):
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)


@pytest.mark.slow
async def test_of_nodes_that_are_gone_nothing_is_left() -> None:
    soak = Soak()
    soak.cycle(0)
    during = sizes(soak.aggregator)
    assert sum(during.values()) > 100
    soak.rest(31)
    first = sizes(soak.aggregator)
    for number in range(1, 5):
        soak.cycle(number)
    soak.rest(31)
    grown = {
        path: (first.get(path, 0), size)
        for path, size in sizes(soak.aggregator).items()
        if size > first.get(path, 0) and not path.endswith(BOUNDED)
    }
    assert grown == {}


async def test_a_step_before_the_last_one_has_informed_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soak = Soak()
    soak.come("a")
    soak.come("b")
    soak.step(1)
    notifier, informed = soak.aggregator.notifier, list[frozenset[str]]()
    monkeypatch.setattr(
        notifier, "inform", lambda *_, **__: informed.append(soak.aggregator.pipeline.changed)
    )
    soak.fall_ill("a", "80C98000")
    assert soak.aggregator._update(), "a document changed"
    soak.fall_ill("b", "80C98000")
    soak.aggregator._step()
    assert informed == [{"a"}, {"b"}]

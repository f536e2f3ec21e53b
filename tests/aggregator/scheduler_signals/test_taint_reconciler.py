"""The taint of Nodes: the brake, the cap, tolerations, removals by others, and the next leader."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.config import NodeTaintsSection
from aggregator.scheduler_signals.driver_pods import DriverPod, DriverPods
from aggregator.scheduler_signals.node_evidence import NodeEvidence, NodeFault
from aggregator.scheduler_signals.observed_nodes import ObservedNodes
from aggregator.scheduler_signals.signal_memory import SignalMemory
from aggregator.scheduler_signals.taint_budget import TaintBudget
from aggregator.scheduler_signals.taint_reconciler import NodeTaints
from contract.node_signals import TAINT_KEY, NodeSignals, NodeTaint
from service.clock import Instant
from stores.cluster import Snapshot, Update

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.scheduler_signals.reconciler import SignalPlan

NOW = Instant(wall_ms=1_767_225_600_000, steady_ms=1000)
OUT = NodeFault("chip", "Ascend910-0", "80E01801", "SeparateNPU")
WORSE = NodeFault("chip", "Ascend910-0", "80E01802", "ManuallySeparateNPU")
EVICTING = {"no_execute_levels": ("SeparateNPU",)}
OTHERS = NodeTaint("other", "NoSchedule")


def evidence(*faults: NodeFault, silent: bool = False) -> NodeEvidence:
    return NodeEvidence(faults, frozenset({"Ascend910-0"}), is_silent=silent)


class Cluster:
    """Nodes that are written, each with a version."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeSignals] = {}
        self.writes = 0
        self.manager: str | None = "kubectl-taint"

    def add(self, name: str, uid: str = "u1", taints: Iterable[NodeTaint] = (OTHERS,)) -> None:
        self.nodes[name] = NodeSignals(uid, str(self._next()), taints=tuple(taints))

    def _next(self) -> int:
        return max((int(node.version) for node in self.nodes.values()), default=0) + 1

    async def set_taints(
        self, node: str, seen: NodeSignals, taints: Iterable[NodeTaint]
    ) -> NodeSignals:
        assert self.nodes[node] == seen, "the API server would refuse it"
        self.writes += 1
        self.add(node, seen.uid, taints)
        return self.nodes[node]

    async def last_taint_manager(self, node: str) -> str | None:
        return self.manager

    def effects(self, node: str) -> list[tuple[str, str]]:
        return [(taint.value, taint.effect) for taint in self.nodes[node].fault_taints]


class Bench:
    """An aggregator's taints. ``memory`` is that of the leader before."""

    def __init__(
        self, cluster: Cluster | None = None, memory: SignalMemory | None = None, **options: Any
    ) -> None:
        self.cluster = cluster or Cluster()
        self.known: dict[str, NodeEvidence | None] = {}
        self.nodes = ObservedNodes()
        self.pods = DriverPods(lambda nodes: None)
        self.pods.apply_pod_event(Snapshot({}))
        self.memory = SignalMemory(lambda: None)
        if memory is not None:
            buckets = memory.pop_changed()
            texts = {bucket: memory.text(bucket) for bucket in buckets}
            kept = {bucket: text for bucket, text in texts.items() if text is not None}
            assert self.memory.restore(kept, NOW) == []
        self.held: str | None = None
        self.taints = NodeTaints(
            self.cluster,  # type: ignore[arg-type]
            self.nodes,
            self.pods,
            self.memory,
            self.known.get,
            lambda: len(self.known),
            NodeTaintsSection(**options),
            TaintBudget(),
            lambda: NOW,
        )

    def show(self) -> None:
        """Show all Nodes as the watch would."""
        self.nodes.apply_node_event(Snapshot(dict(self.cluster.nodes)))

    def lead(self) -> None:
        self.show()
        self.taints.judge(self.taints.begin_leading(), NOW)

    def know(self, **nodes: NodeEvidence | None) -> None:
        self.known |= nodes
        self.taints.judge(nodes, NOW)

    def plan(self, node: str = "n1") -> SignalPlan:
        return self.taints.plan(node, NOW, self.held)

    def reason(self, node: str = "n1") -> str | None:
        waiting = self.plan(node).waiting
        return None if waiting is None else waiting.reason

    async def write(self, node: str = "n1") -> None:
        """Write until nothing differs."""
        for _ in range(5):
            write = self.plan(node).write
            if write is None:
                return
            await write.send()
            self.taints.judge((node,), NOW)
        raise AssertionError("it never ends")


async def led(**options: Any) -> Bench:
    bench = Bench(**options)
    bench.cluster.add("n1")
    bench.lead()
    return bench


async def test_a_taint_comes_with_the_fault_and_goes_with_it_and_others_stay() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]
    assert OTHERS in bench.cluster.nodes["n1"].taints
    bench.know(n1=evidence(WORSE))
    await bench.write()
    assert bench.cluster.effects("n1") == [("ManuallySeparateNPU", "NoSchedule")]
    bench.know(n1=evidence())
    await bench.write()
    assert bench.cluster.nodes["n1"].taints == (OTHERS,)
    assert bench.cluster.writes == 3
    assert bench.memory.items() == []


async def test_an_eviction_comes_in_two_writes() -> None:
    bench = await led(**EVICTING)
    bench.know(n1=evidence(OUT))
    first = bench.plan().write
    assert first is not None
    await first.send()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]
    await bench.write()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoExecute")]
    assert bench.cluster.writes == 2


async def test_nothing_gets_stricter_while_heartbeats_are_not_read() -> None:
    bench = await led(**EVICTING)
    bench.held = "heartbeats cannot be read"
    bench.know(n1=evidence(OUT))
    await bench.write()
    assert (bench.cluster.writes, bench.reason()) == (0, "brake")
    bench.held = None
    await bench.write()
    bench.held = "heartbeats cannot be read"
    bench.know(n1=evidence())
    await bench.write()
    assert bench.cluster.effects("n1") == [], "what gets milder is written"


async def test_a_lost_node_is_left_to_kubernetes() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    bench.know(n1=evidence(silent=True))
    await bench.write()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]
    bench.know(n1=None)
    await bench.write()
    assert bench.cluster.writes == 1, "what no report confirms changes nothing"


async def test_the_cap_holds_and_a_release_makes_room() -> None:
    bench = Bench(max_nodes_percent=20)
    names = [f"n{number}" for number in range(10)]
    for name in names:
        bench.cluster.add(name)
    bench.lead()
    bench.know(**{name: evidence(OUT) for name in names[:5]})
    bench.know(**{name: evidence() for name in names[5:]})
    for name in names:
        await bench.write(name)
    assert [name for name in names if bench.cluster.effects(name)] == ["n0", "n1"]
    assert [bench.reason(name) for name in names[:5]] == [None, None, "cap", "cap", "cap"]
    bench.know(n4=evidence(WORSE))
    await bench.write("n4")
    assert bench.cluster.effects("n4") == [], "a taint that stands is never displaced"
    bench.know(n1=evidence())
    await bench.write("n1")
    assert bench.reason("n4") is None
    await bench.write("n4")
    assert bench.cluster.effects("n4") == [("ManuallySeparateNPU", "NoSchedule")]


async def test_an_effect_waits_for_tolerations_of_pods_with_drivers() -> None:
    bench = await led(**EVICTING)
    exists = {"key": TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
    pod = msgspec.convert(
        {"node": "n1", "daemon_set": "kube-system/plugin", "tolerations": [exists]}, DriverPod
    )
    bench.pods.apply_pod_event(Snapshot({"1": msgspec.structs.replace(pod, tolerations=())}))
    bench.know(n1=evidence(OUT))
    await bench.write()
    assert (bench.cluster.writes, bench.reason()) == (0, "toleration")
    (problem,) = bench.taints.problems()
    assert "kubectl -n kube-system patch daemonset plugin" in problem
    bench.pods.apply_pod_event(Update("1", pod))
    await bench.write()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]
    assert bench.reason() == "toleration", "it would be evicted"
    bench.pods.apply_pod_event(Update("1", None))
    await bench.write()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoExecute")]


async def test_who_removes_a_taint_is_obeyed_while_that_fault_lasts() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    bench.cluster.add("n1")
    bench.show()
    await asyncio.sleep(0)
    await bench.write()
    assert (bench.cluster.writes, bench.reason()) == (1, "removed")
    waiting = bench.plan().waiting
    assert waiting is not None
    assert "'kubectl-taint' removed the taint" in waiting.text
    bench.know(n1=evidence(WORSE, OUT))
    await bench.write()
    assert bench.cluster.effects("n1") == [("ManuallySeparateNPU", "NoSchedule")], "another fault"


async def test_a_removal_is_over_with_the_fault() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    bench.cluster.add("n1")
    bench.show()
    bench.know(n1=evidence())
    assert bench.memory.items() == []
    bench.know(n1=evidence(OUT))
    await bench.write()
    assert bench.cluster.writes == 2


async def test_a_changed_taint_counts_as_removed() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    bench.cluster.add("n1", taints=[NodeTaint(TAINT_KEY, "PreferNoSchedule", "mine")])
    bench.show()
    await bench.write()
    assert bench.cluster.effects("n1") == [("mine", "PreferNoSchedule")]
    bench.know(n1=evidence())
    await bench.write()
    assert bench.cluster.effects("n1") == []


async def test_the_next_leader_obeys_a_removal_that_it_has_seen_and_one_that_it_has_not() -> None:
    for is_seen in (True, False):
        first = await led()
        first.know(n1=evidence(OUT))
        await first.write()
        first.cluster.add("n1")
        if is_seen:
            first.show()
            await asyncio.sleep(0)
        second = Bench(first.cluster, first.memory)
        second.know(n1=evidence(OUT))
        second.lead()
        await asyncio.sleep(0)
        await second.write()
        assert second.reason() == "removed"
        assert second.cluster.effects("n1") == []


async def test_nodes_may_be_listed_after_a_leader_has_begun() -> None:
    first = await led()
    first.know(n1=evidence(OUT))
    await first.write()
    first.cluster.add("n1")
    second = Bench(first.cluster, first.memory)
    second.taints.begin_leading()
    second.know(n1=evidence(OUT))
    second.show()
    await asyncio.sleep(0)
    await second.write()
    assert second.reason() == "removed"


async def test_a_node_that_is_made_anew_is_no_removal() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    bench.cluster.add("n1", uid="u2")
    bench.show()
    await bench.write()
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]
    bench.cluster.add("n1", uid="u3")
    second = Bench(bench.cluster, bench.memory)
    second.know(n1=evidence(OUT))
    second.lead()
    await second.write()
    assert second.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]


async def test_a_new_leader_writes_each_taint_once_more() -> None:
    """So that late writes of the leader before are for a version that is over."""
    first = await led()
    first.know(n1=evidence(OUT))
    await first.write()
    second = Bench(first.cluster, first.memory)
    second.know(n1=evidence(OUT))
    second.lead()
    version = first.cluster.nodes["n1"].version
    await second.write()
    assert second.cluster.nodes["n1"].version != version
    assert second.cluster.writes == 2


async def test_the_watch_may_show_our_write_before_its_answer() -> None:
    bench = await led()
    bench.know(n1=evidence(OUT))
    await bench.write()
    bench.know(n1=evidence())
    write = bench.plan().write
    assert write is not None
    answer = bench.cluster.set_taints

    async def shown_first(*arguments: Any) -> NodeSignals:
        written = await answer(*arguments)
        bench.know(n1=evidence(OUT))
        bench.show()
        return written

    bench.cluster.set_taints = shown_first  # type: ignore[method-assign,assignment]
    await write.send()
    bench.cluster.set_taints = answer  # type: ignore[method-assign]
    bench.taints.judge(("n1",), NOW)
    await bench.write()
    assert bench.reason() is None
    assert bench.cluster.effects("n1") == [("SeparateNPU", "NoSchedule")]


async def test_a_dry_run_remembers_nothing() -> None:
    bench = await led(dry_run=True)
    bench.know(n1=evidence(OUT))
    write = bench.plan().write
    assert write is not None
    assert write.text == "n1: npu-vigil/fault=SeparateNPU:NoSchedule"
    assert bench.memory.items() == []


def test_a_document_of_state_that_makes_no_sense_is_named() -> None:
    memory = SignalMemory(lambda: None)
    problems = list(memory.restore({"00": "[1]", "01": '{"a/b":{"uid":"u","faults":[]}}'}, NOW))
    assert len(problems) == 1
    assert problems[0].startswith("00: ")
    assert memory.items() == []

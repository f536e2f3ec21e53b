"""The conditions of Nodes: what is written when, and what another program does to them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aggregator.config import AggregatorConfiguration, NodeTaintsSection, load_aggregator
from aggregator.scheduler_signals.condition_reconciler import NodeConditions
from aggregator.scheduler_signals.node_evidence import NodeEvidence, NodeFault
from aggregator.scheduler_signals.observed_nodes import ObservedNodes
from aggregator.scheduler_signals.reconciler import MAX_TAINT_RANK
from aggregator.scheduler_signals.signal_memory import SignalMemory
from contract.codes.levels import ENDING_LEVELS
from contract.errors import ConfigurationError
from contract.node_signals import NodeCondition, NodeSignals
from service.clock import Instant
from stores.cluster import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.scheduler_signals.reconciler import SignalPlan

BEGAN = Instant(wall_ms=1_767_225_600_000, steady_ms=1000)
GOOD = NodeEvidence(chips=frozenset({"Ascend910-0"}), is_watched=True, blind=())
OUT = NodeFault("chip", "Ascend910-0", "80E01801", "SeparateNPU")
BAD = msgspec.structs.replace(GOOD, faults=(OUT,))
SILENT = msgspec.structs.replace(GOOD, is_silent=True)


class Bench:
    """A Node, an aggregator and a clock."""

    def __init__(self, *, dry_run: bool = False) -> None:
        self.now = BEGAN
        self.evidence: NodeEvidence | None = GOOD
        self.stored = NodeSignals("u1", "1")
        self.writes = 0
        self.nodes = ObservedNodes()
        self.memory = SignalMemory(lambda: None)
        self.conditions = NodeConditions(
            self,  # type: ignore[arg-type]
            self.nodes,
            self.memory,
            lambda node: self.evidence,
            ENDING_LEVELS,
            lambda: self.now,
            dry_run=dry_run,
        )
        self.show()
        self.conditions.begin_leading()

    async def set_conditions(
        self, node: str, seen: NodeSignals, changed: Iterable[NodeCondition], removed: Iterable[str]
    ) -> NodeSignals:
        assert seen == self.stored
        self.writes += 1
        stored = {condition.type: condition for condition in seen.conditions}
        stored |= {condition.type: condition for condition in changed}
        for type_ in removed:
            del stored[type_]
        return self.store(*stored.values())

    def store(self, *conditions: NodeCondition) -> NodeSignals:
        version = str(int(self.stored.version) + 1)
        self.stored = NodeSignals(self.stored.uid, version, conditions)
        return self.stored

    def show(self) -> None:
        self.nodes.apply_node_event(Snapshot({"n1": self.stored}))

    def plan(self, held: str | None = None) -> SignalPlan:
        return self.conditions.plan("n1", self.now, held)

    async def write(self, held: str | None = None) -> None:
        write = self.plan(held).write
        assert write is not None
        await write.send()

    def status(self) -> dict[str, str]:
        return {condition.type: condition.status for condition in self.stored.conditions}

    def change(self, type_: str = "NPUHealthy") -> None:
        """Change a condition as another program does."""
        changed = [
            msgspec.structs.replace(c, reason="Other", message="x") if c.type == type_ else c
            for c in self.stored.conditions
        ]
        self.store(*changed)
        self.show()


async def test_four_conditions_are_one_write_and_a_change_is_another() -> None:
    bench = Bench()
    await bench.write()
    assert set(bench.status().values()) == {"True"}
    assert len(bench.stored.conditions) == 4
    assert bench.plan().write is None
    bench.evidence = BAD
    await bench.write()
    assert bench.status()["NPUHealthy"] == "False"
    assert (bench.writes, bench.memory.has_conditions) == (2, True)


async def test_conditions_come_after_taints_and_the_first_of_healthy_nodes_last() -> None:
    bench = Bench()
    first = bench.plan().write
    assert first is not None
    worst = msgspec.structs.replace(OUT, level="ManuallySeparateNPU")
    bench.evidence = msgspec.structs.replace(GOOD, faults=(worst,))
    write = bench.plan().write
    assert write is not None
    assert write.rank > MAX_TAINT_RANK
    await bench.write()
    bench.evidence = GOOD
    recovered = bench.plan().write
    assert recovered is not None
    # All Nodes of a large cluster may wait for their first conditions.
    assert write.rank < recovered.rank < first.rank
    bench.evidence = NodeEvidence(is_gone=True)
    last = bench.plan().write
    assert last is not None
    assert last.rank > first.rank


async def test_what_no_report_confirms_changes_nothing_and_what_is_gone_is_removed() -> None:
    bench = Bench()
    await bench.write()
    bench.evidence = None
    assert bench.plan().write is None
    bench.evidence = NodeEvidence(is_gone=True)
    await bench.write()
    assert bench.stored.conditions == ()
    assert bench.plan().write is None


async def test_no_condition_turns_unknown_while_heartbeats_are_not_read() -> None:
    bench = Bench()
    await bench.write()
    bench.evidence = SILENT
    held = bench.plan("heartbeats cannot be read")
    assert held.write is None
    assert held.waiting is not None
    assert held.waiting.reason == "brake"
    # What is broken is shown all the same.
    bench.evidence = msgspec.structs.replace(SILENT, faults=(OUT,))
    await bench.write("heartbeats cannot be read")
    assert bench.status() == {
        "NPUHealthy": "False",
        "NPULinksHealthy": "True",
        "NodeHardwareHealthy": "True",
        "NPUWatched": "True",
    }
    await bench.write()
    assert bench.status()["NPUWatched"] == "Unknown"


async def test_another_writer_is_reported_and_not_fought(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bench = Bench()
    await bench.write()
    for _ in range(3):
        bench.change()
        await bench.write()
    bench.change()
    plan = bench.plan()
    assert plan.write is not None
    assert plan.write.not_before_ms >= bench.now.steady_ms + 60_000
    assert plan.waiting is not None
    assert plan.waiting.reason == "conflict"
    (problem,) = bench.conditions.problems()
    assert problem == "conflict: another program writes conditions of node n1"
    assert any("conflict" in record.getMessage() for record in caplog.records)
    assert bench.writes == 4
    bench.now = Instant(BEGAN.wall_ms + 30_000, BEGAN.steady_ms + 30_000)
    bench.change("NPULinksHealthy")
    bench.now = Instant(BEGAN.wall_ms + 61_000, BEGAN.steady_ms + 61_000)
    plan = bench.plan()
    assert plan.waiting is not None, "the other one still writes"
    bench.now = Instant(BEGAN.wall_ms + 91_000, BEGAN.steady_ms + 91_000)
    await bench.write()
    assert bench.stored.condition("NPUHealthy") is not None
    assert list(bench.conditions.problems()) == []


async def test_a_node_that_is_made_anew_is_no_other_writer() -> None:
    bench = Bench()
    for number in range(6):
        await bench.write()
        bench.stored = NodeSignals(f"u-{number}", str(100 * (number + 1)))
        bench.show()
    assert list(bench.conditions.problems()) == []
    await bench.write()


@pytest.mark.parametrize("percent", [0, 101])
def test_a_cap_outside_1_to_100_is_wrong_configuration(percent: int) -> None:
    environment = {"VIGIL_NODE_TAINTS_MAX_NODES_PERCENT": str(percent)}
    with pytest.raises(ConfigurationError, match="VIGIL_NODE_TAINTS_MAX_NODES_PERCENT"):
        load_aggregator(None, environment, {})


def test_a_level_that_there_is_not_is_wrong_configuration() -> None:
    environment = {"VIGIL_NODE_TAINTS_NO_EXECUTE_LEVELS": "SeparateNPU,Separated"}
    with pytest.raises(ConfigurationError, match="use one of ManuallySeparateNPU"):
        load_aggregator(None, environment, {})


@pytest.mark.parametrize("option", ["node_conditions", "node_taints"])
def test_a_store_without_nodes_is_wrong_configuration(option: str) -> None:
    given: dict[str, Any] = {"store": ["directory:/tmp/x"]}
    environment = {f"VIGIL_{option.upper()}_ENABLED": "true"}
    with pytest.raises(ConfigurationError, match=f"{option}: only the store kubernetes: has Nodes"):
        load_aggregator(None, environment, given)
    both = {"store": ["directory:/tmp/x", "kubernetes:"]}
    assert isinstance(load_aggregator(None, environment, both), AggregatorConfiguration)


def test_the_defaults_never_evict() -> None:
    assert NodeTaintsSection().no_execute_levels == ()
    assert not AggregatorConfiguration().node_taints.enabled
    assert not AggregatorConfiguration().node_conditions.enabled

"""What an option has written goes when it is off, and what it did not write is not looked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from aggregator.config import AggregatorConfiguration, NodeConditionsSection, NodeTaintsSection
from aggregator.scheduler_signals.removal import SignalRemoval
from aggregator.scheduler_signals.signal_memory import SignalMemory, TaintRow
from contract.errors import StoreConflict, StoreForbidden, StoreNotFound
from contract.node_signals import TAINT_KEY, NodeCondition, NodeSignals, NodeTaint
from service.clock import Instant
from stores.cluster import Snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from contract.errors import StoreError

pytestmark = pytest.mark.looptime

OTHERS, OURS = NodeTaint("other", "NoSchedule"), NodeTaint(TAINT_KEY, "NoSchedule", "SeparateNPU")
CONDITION = NodeCondition("NPUHealthy", "False")
OFF = AggregatorConfiguration()
ON = AggregatorConfiguration(
    node_conditions=NodeConditionsSection(enabled=True), node_taints=NodeTaintsSection(enabled=True)
)


class Cluster:
    """Nodes with conditions and taints; ``errors`` are raised by the next writes."""

    def __init__(self) -> None:
        self.nodes = {
            name: NodeSignals(f"u-{name}", "1", (CONDITION,), (OTHERS, OURS)) for name in ("a", "b")
        }
        self.errors: list[StoreError] = []
        self.asked = 0

    async def objects(self, kind: object) -> AsyncIterator[object]:
        self.asked += 1
        yield Snapshot(dict(self.nodes))
        raise AssertionError("nobody reads on")

    async def node_signals(self, node: str) -> NodeSignals:
        self.asked += 1
        if node not in self.nodes:
            raise StoreNotFound(node)
        return self.nodes[node]

    async def set_conditions(self, node: str, seen: NodeSignals, *changes: Any) -> None:
        self._write(node, NodeSignals(seen.uid, "2", (), seen.taints))
        assert changes == ((), ["NPUHealthy"])

    async def set_taints(self, node: str, seen: NodeSignals, taints: Iterable[NodeTaint]) -> None:
        self._write(node, NodeSignals(seen.uid, "2", seen.conditions, tuple(taints)))

    def _write(self, node: str, written: NodeSignals) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.nodes[node] = written


def memory() -> SignalMemory:
    """Return what a leader stored that wrote conditions and two taints."""
    first = SignalMemory(lambda: None)
    first.note_conditions(are_there=True)
    for name in ("a", "b", "gone"):
        first.put(name, TaintRow(f"u-{name}", ("fault",)))
    texts = {bucket: first.text(bucket) for bucket in first.pop_changed()}
    second = SignalMemory(lambda: None)
    kept = {bucket: text for bucket, text in texts.items() if text is not None}
    assert list(second.restore(kept, Instant(0, 0))) == []
    return second


@contextlib.asynccontextmanager
async def leading(
    cluster: Cluster, kept: SignalMemory, configuration: AggregatorConfiguration = OFF
) -> AsyncIterator[SignalRemoval]:
    removal = SignalRemoval(configuration, cluster, kept)  # type: ignore[arg-type]
    await removal.set_leading(True)
    yield removal
    await removal.set_leading(False)


async def test_what_is_left_is_removed_and_then_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster, kept = Cluster(), memory()
    async with leading(cluster, kept) as removal:
        await asyncio.sleep(1)
        assert list(removal.problems()) == []
    assert [node.taints for node in cluster.nodes.values()] == [(OTHERS,), (OTHERS,)]
    assert [node.conditions for node in cluster.nodes.values()] == [(), ()]
    assert [record.getMessage() for record in caplog.records] == [
        "node_conditions is off: no Node has its conditions any more",
        "node_taints is off: no Node has its taint any more",
    ]
    assert not kept.has_conditions
    assert all(kept.text(bucket) is None for bucket in kept.pop_changed())


@pytest.mark.parametrize("configuration", [OFF, ON])
async def test_where_nothing_is_left_nothing_is_read(
    configuration: AggregatorConfiguration,
) -> None:
    cluster = Cluster()
    kept = memory() if configuration is ON else SignalMemory(lambda: None)
    async with leading(cluster, kept, configuration):
        await asyncio.sleep(100)
    assert cluster.asked == 0


async def test_a_conflict_is_tried_again() -> None:
    cluster, kept = Cluster(), memory()
    cluster.errors = [StoreConflict("later"), StoreConflict("later"), StoreConflict("later")]
    async with leading(cluster, kept):
        await asyncio.sleep(5)
    assert all(not node.conditions and not node.fault_taints for node in cluster.nodes.values())


async def test_rights_that_went_first_are_named() -> None:
    cluster, kept = Cluster(), memory()
    cluster.errors = [StoreForbidden("cannot patch nodes")]
    async with leading(cluster, kept) as removal:
        await asyncio.sleep(1)
        (problem,) = removal.problems()
        assert problem == (
            "conditions and taints of Nodes are left of an option that is off: cannot patch nodes"
        )
        await asyncio.sleep(60)
        assert list(removal.problems()) == []
    assert all(not node.fault_taints for node in cluster.nodes.values())


def test_options_that_cannot_be_read_count_as_used() -> None:
    kept = SignalMemory(lambda: None)
    problems = list(kept.restore({"options": "[]"}, Instant(0, 0)))
    assert len(problems) == 1
    assert kept.has_conditions

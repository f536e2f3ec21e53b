"""The option ``device_taints`` with the writer of all options, on an API server of values.

The real API server is in ``test_device_taints_for_real.py``; here are times and orders that it
does not show.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aggregator.config import DeviceTaintsSection, load_aggregator
from aggregator.scheduler_signals.device_taint_reconciler import (
    DISCOVERY_SECONDS,
    DeviceTaintReconciler,
)
from aggregator.scheduler_signals.node_evidence import CHIP, NodeEvidence, NodeFault
from aggregator.scheduler_signals.removal import RuleRemoval
from aggregator.scheduler_signals.signal_memory import RuleMemory
from aggregator.scheduler_signals.taint_budget import TaintBudget
from aggregator.scheduler_signals.writer import SignalWriter
from contract.documents.device_taints import (
    DeviceEffect,
    DeviceUse,
    Eviction,
    TaintRule,
)
from contract.errors import (
    ConfigurationError,
    StoreConflict,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
)
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.device_taints import DeviceTaints, ServedVersions
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.scheduler_signals.device_objects import a_slice, device, name
from tests.aggregator.scheduler_signals.leading import Lead, clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from contract.documents.device_taints import Device
    from contract.errors import StoreError
    from stores.device_taints import DevicesEvent, RulesEvent

pytestmark = pytest.mark.looptime

V1 = ServedVersions("v1", "v1", has_group=True)


class ApiServer(DeviceTaints):
    """Keeps rules, and shows changes a little later, as a watch does."""

    def __init__(self) -> None:
        self.versions: ServedVersions | StoreError = V1
        self.asked = 0
        self.stored: dict[str, TaintRule] = {}
        self.writes: list[tuple[str, str]] = []
        self.use_or_error: DeviceUse | StoreError = DeviceUse(set(), {})
        self.counts = 0
        self.answers = True
        """Whether the controller manager acts on rules."""
        self.pods = 0
        chips = [(f"npu-{chip}", chip) for chip in range(8)]
        self.slices = {"s": a_slice(*chips)}
        self.answer_seconds = 0.0
        self.list_errors: list[StoreError] = []
        self.delete_errors: list[StoreError] = []
        self._version = 0
        self._events: asyncio.Queue[RulesEvent] = asyncio.Queue()

    async def served(self) -> ServedVersions:
        self.asked += 1
        if isinstance(self.versions, ServedVersions):
            return self.versions
        raise self.versions

    async def devices(
        self, version: str, attributes: Mapping[str, str]
    ) -> AsyncIterator[DevicesEvent]:
        yield Snapshot(self.slices)
        await asyncio.Event().wait()

    async def rules(self, version: str) -> AsyncIterator[RulesEvent]:
        self._events = asyncio.Queue()
        yield Snapshot(dict(self.stored))
        while True:
            yield await self._events.get()

    async def use(
        self, version: str, drivers: frozenset[str], devices: Iterable[Device]
    ) -> DeviceUse:
        self.counts += 1
        if isinstance(self.use_or_error, DeviceUse):
            return self.use_or_error
        raise self.use_or_error

    async def list_rules(self, version: str) -> tuple[TaintRule, ...]:
        if self.list_errors:
            raise self.list_errors.pop(0)
        return tuple(self.stored.values())

    async def read_rule(self, version: str, name: str) -> TaintRule | None:
        return self.stored.get(name)

    async def make_rule(self, version: str, rule: TaintRule) -> TaintRule:
        if rule.name in self.stored:
            raise StoreConflict("it is there")
        self.writes.append(("make", rule.effect))
        return self.put(rule)

    async def change_rule(self, version: str, rule: TaintRule) -> TaintRule:
        self._check(rule)
        self.writes.append(("change", rule.effect))
        stored = self.put(rule)
        await asyncio.sleep(self.answer_seconds)
        return stored

    async def delete_rule(self, version: str, rule: TaintRule) -> None:
        if self.delete_errors:
            raise self.delete_errors.pop(0)
        self._check(rule)
        self.writes.append(("delete", rule.effect))
        self.drop(rule.name)

    def _check(self, rule: TaintRule) -> None:
        stored = self.stored.get(rule.name)
        if stored is None:
            raise StoreNotFound("there is none")
        if (stored.uid, stored.version) != (rule.uid, rule.version):
            raise StoreConflict("it has changed")

    def put(self, rule: TaintRule) -> TaintRule:
        """Store a rule, by us or by another program, and show it."""
        self._version += 1
        before = self.stored.get(rule.name)
        stored = msgspec.structs.replace(
            rule,
            uid=f"u{self._version}" if before is None else before.uid,
            version=str(self._version),
            generation=1 if before is None else before.generation + 1,
            eviction=None if before is None else before.eviction,
        )
        self._show(stored)
        if self.answers:
            self._version += 1
            pods = self.pods if rule.effect is DeviceEffect.NONE else None
            answered = msgspec.structs.replace(
                stored,
                version=str(self._version),
                eviction=Eviction(stored.generation, "", pods),
            )
            self._show(answered)
        return stored

    def _show(self, rule: TaintRule) -> None:
        self.stored[rule.name] = rule
        self._events.put_nowait(Update(rule.name, rule))

    def drop(self, name: str) -> None:
        """Delete a rule, by us or by another program."""
        del self.stored[name]
        self._events.put_nowait(Update(name, None))

    def show(self, event: RulesEvent) -> None:
        self._events.put_nowait(event)


class Bench:
    def __init__(
        self, server: ApiServer, memory: RuleMemory | None = None, **settings: Any
    ) -> None:
        self.lead = Lead()
        self.held: str | None = None
        self.known = True
        self.memory = memory or RuleMemory(lambda: None)
        self.faults: dict[str, tuple[NodeFault, ...]] = {}
        self.option = DeviceTaintReconciler(
            server,
            DeviceTaintsSection(enabled=True, **settings),
            self._facts,
            lambda: tuple(self.faults),
            clock,
            self.memory,
            TaintBudget(),
            plan_again=lambda names: self.writer.plan_again(self.option, names),
        )
        self.writer = SignalWriter([self.option], self.lead, clock, lambda _: self.held)  # type: ignore[arg-type]

    def _facts(self, node: str) -> NodeEvidence | None:
        return NodeEvidence(self.faults.get(node, ())) if self.known else None

    def set_fault(self, level: str | None, chip: int = 3) -> None:
        fault = NodeFault(CHIP, f"Ascend910-{chip}", "80C98008", level or "")
        self.faults["n1"] = () if level is None else (fault,)
        self.writer.judge(("n1",))

    @property
    def problems(self) -> str:
        return "\n".join(self.option.problems())

    @property
    def waiting(self) -> list[str]:
        (status,) = self.writer.statuses()
        return [waiting.reason for waiting in status.waiting]


@contextlib.asynccontextmanager
async def running(
    server: ApiServer,
    *,
    leads: bool = True,
    memory: RuleMemory | None = None,
    level: str | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """Run an aggregator; ``level`` is that of the fault when it begins to lead."""
    bench = Bench(server, memory, **settings)
    bench.set_fault(level)
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(bench.option.run()), tasks.create_task(bench.writer.run())]
        await asyncio.sleep(0.1)
        await bench.writer.set_leading(leads)
        yield bench
        for task in work:
            task.cancel()


async def test_a_rule_is_made_once_and_deleted_once() -> None:
    server = ApiServer()
    async with running(server) as bench:
        for _ in range(3):
            bench.set_fault("PreSeparateNPU")
            await asyncio.sleep(2)
        assert server.writes == [("make", "NoSchedule")]
        bench.set_fault(None)
        await asyncio.sleep(2)
    assert server.writes == [("make", "NoSchedule"), ("delete", "NoSchedule")]
    assert server.stored == {}


async def test_a_fault_that_returns_waits_since_its_return() -> None:
    server = ApiServer()
    async with running(server) as bench:
        since_ms = []
        for level in ("PreSeparateNPU", None, "PreSeparateNPU"):
            began_ms = clock().steady_ms
            bench.held = "heartbeats cannot be read"
            bench.set_fault(level)
            await asyncio.sleep(1)
            write = bench.option.plan(name(), clock(), None).write
            since_ms.append(None if write is None else write.since_ms - began_ms)
            bench.held = None
            await asyncio.sleep(5)
        assert since_ms == [1000, None, 1000]


async def test_pods_are_evicted_after_the_answer_and_the_count() -> None:
    server = ApiServer()
    server.pods = 2
    server.use_or_error = DeviceUse(set(map(str, range(100))), {})
    async with running(server) as bench:
        bench.set_fault("SeparateNPU")
        await asyncio.sleep(5)
        assert server.writes == [("make", "None"), ("change", "NoExecute")]
        assert server.stored[name()].evicted_pods == 2
        assert server.counts == 1
        assert bench.waiting == []


async def test_a_dry_run_shows_how_many_pods_would_be_evicted() -> None:
    server = ApiServer()
    server.use_or_error = DeviceUse({"a", "b", "c"}, {device(): {"a", "b"}})
    async with running(server, dry_run=True) as bench:
        bench.set_fault("SeparateNPU")
        await asyncio.sleep(5)
        (status,) = bench.writer.statuses()
        (text,) = status.would_write
        assert "npu.huawei.com/n1/npu-3: SeparateNPU:None" in text
        assert "2 pods would be evicted" in text
    assert server.writes == []


async def test_nothing_gets_stricter_while_that_is_held() -> None:
    server = ApiServer()
    async with running(server) as bench:
        bench.held = "heartbeats cannot be read"
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(60)
        assert server.writes == []
        assert bench.waiting == ["brake"]
        bench.held = None
        await asyncio.sleep(2)
        assert server.writes == [("make", "NoSchedule")]
        bench.held = "heartbeats cannot be read"
        bench.set_fault("SubHealthFault")
        await asyncio.sleep(2)
        assert server.writes[1:] == [("change", "None")]


async def test_a_new_leader_takes_over_the_rules_and_no_fault_is_assumed_to_have_ended() -> None:
    server = ApiServer()
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
    async with running(server) as bench:
        bench.known = False
        bench.writer.judge(("n1",))
        await asyncio.sleep(60)
        assert len(server.writes) == 1
        bench.known = True
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(5)
        assert len(server.writes) == 1
        bench.set_fault(None)
        await asyncio.sleep(5)
    assert server.writes[1:] == [("delete", "NoSchedule")]


async def test_a_follower_writes_nothing_and_takes_deletions_of_the_leader_for_none() -> None:
    server = ApiServer()
    async with running(server) as first:
        first.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
    async with running(server, leads=False) as second:
        second.lead.leads = False
        second.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        server.drop(name())
        await asyncio.sleep(1)
        assert len(server.writes) == 1
        second.lead.leads = True
        await second.writer.set_leading(True)
        await asyncio.sleep(1)
    assert server.writes[1:] == [("make", "NoSchedule")]


async def test_a_deletion_that_is_refused_is_tried_again() -> None:
    server = ApiServer()
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        server.delete_errors = [StoreConflict("it has changed")]
        bench.set_fault(None)
        await asyncio.sleep(5)
        assert server.stored == {}
        server.delete_errors = [StoreForbidden("rules may not be deleted")]
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        bench.set_fault(None)
        await asyncio.sleep(5)
        assert "rules may not be deleted" in "\n".join(bench.writer.problems())
        await asyncio.sleep(60)
        assert server.stored == {}
        assert bench.writer.problems() == ()


async def test_who_deletes_a_rule_is_obeyed_during_the_fault() -> None:
    server = ApiServer()
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        server.drop(name())
        await asyncio.sleep(60)
        assert server.stored == {}
        assert bench.waiting == ["removed"]
        bench.set_fault(None)
        await asyncio.sleep(1)
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        assert server.stored.keys() == {name()}


def handed_over(memory: RuleMemory) -> RuleMemory:
    """Return what the next leader restores."""
    restored = RuleMemory(lambda: None)
    assert list(restored.restore(kept_texts(memory), clock())) == []
    return restored


async def test_the_next_leader_obeys_a_deletion_too_also_one_that_none_has_seen() -> None:
    server = ApiServer()
    async with running(server) as first:
        first.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        memory = first.memory
    server.drop(name())
    for _ in range(2):
        memory = handed_over(memory)
        async with running(server, memory=memory, level="PreSeparateNPU") as next_leader:
            await asyncio.sleep(5)
            assert server.stored == {}
            assert next_leader.waiting == ["removed"]
            # All buckets are to be handed over again.
            rows = tuple(memory.items())
            for rule, row in rows:
                memory.put(rule, None)
                memory.put(rule, row)
    memory = handed_over(memory)
    async with running(server, memory=memory, level="PreSeparateNPU") as last:
        last.set_fault(None)
        await asyncio.sleep(1)
        assert tuple(last.memory.items()) == ()
        last.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
    assert server.stored.keys() == {name()}


async def test_a_rule_that_the_last_leader_deleted_is_forgotten() -> None:
    server = ApiServer()
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        assert len(tuple(bench.memory.items())) == 1
        bench.set_fault(None)
        await asyncio.sleep(1)
        assert tuple(bench.memory.items()) == ()


async def test_a_kept_row_that_makes_no_sense_is_reported() -> None:
    memory = RuleMemory(lambda: None)
    (problem,) = memory.restore({"00": "[]", "01": '{"x":{"node":"n","chip":1}}'}, clock())
    assert problem.startswith("00: ")
    assert tuple(memory.items()) == ()


async def test_what_others_change_is_put_right_until_that_is_a_conflict() -> None:
    server = ApiServer()
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
        for _ in range(10):
            server.put(msgspec.structs.replace(server.stored[name()], value="x"))
            await asyncio.sleep(0.5)
        assert len(server.writes) < 6
        assert bench.waiting == ["conflict"]
        await asyncio.sleep(120)
        assert server.stored[name()].value == "PreSeparateNPU"
        assert bench.waiting == []


async def test_our_own_changes_are_no_foreign_ones_however_late_their_answers_are() -> None:
    server = ApiServer()
    server.answer_seconds = 0.5
    async with running(server) as bench:
        for _ in range(5):
            for level in ("PreSeparateNPU", "SubHealthFault"):
                bench.set_fault(level)
                await asyncio.sleep(2)
        assert len(server.writes) == 10
        assert bench.waiting == []


async def test_devices_that_are_no_chips_are_named() -> None:
    server = ApiServer()
    async with running(server) as bench:
        assert bench.problems == ""
    server.slices = {}
    async with running(server) as bench:
        assert "no ResourceSlice of ascend.project-hami.io, npu.huawei.com" in bench.problems


async def test_a_rule_that_no_program_acts_on_is_warned_of() -> None:
    server = ApiServer()
    server.answers = False
    async with running(server) as bench:
        bench.set_fault("SeparateNPU")
        await asyncio.sleep(59)
        assert bench.problems == ""
        await asyncio.sleep(3)
        assert server.writes == [("make", "None"), ("change", "NoSchedule")]
        await asyncio.sleep(60)
        assert "no program acts on 1 rule" in bench.problems
        assert "DRADeviceTaintRules=true" in bench.problems


async def test_pods_that_cannot_be_counted_are_not_evicted() -> None:
    server = ApiServer()
    server.pods = 1
    server.use_or_error = StoreForbidden("resourceclaims cannot be listed")
    async with running(server) as bench:
        bench.set_fault("SeparateNPU")
        await asyncio.sleep(5)
        assert server.writes == [("make", "None"), ("change", "NoSchedule")]
        assert "resourceclaims cannot be listed" in bench.problems
        assert bench.waiting == ["eviction"]
        server.use_or_error = DeviceUse({"a"}, {device(): {"a"}})
        await asyncio.sleep(120)
        bench.set_fault("SeparateNPU")
        await asyncio.sleep(60)
        assert server.writes[2:] == [("change", "NoExecute")]
        assert bench.problems == ""


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        (ServedVersions(), "needs Kubernetes 1.34 or later"),
        (ServedVersions(None, "v1", has_group=True), "--runtime-config=resource.k8s.io/v1beta2"),
        (ServedVersions("v1beta2", None, has_group=True), "serves no ResourceSlices"),
    ],
)
async def test_an_api_server_without_rules_is_named_and_asked_again(
    versions: ServedVersions, text: str
) -> None:
    server = ApiServer()
    server.versions = versions
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(10)
        assert text in bench.problems
        assert (server.asked, server.writes, bench.waiting) == (1, [], [])
        server.versions = V1
        await asyncio.sleep(DISCOVERY_SECONDS)
        assert server.writes == [("make", "NoSchedule")]
        assert bench.problems == ""
        server.versions = ServedVersions("v1beta2", "v1", has_group=True)
        await asyncio.sleep(DISCOVERY_SECONDS)
        assert len(server.writes) == 1


async def test_an_api_server_that_does_not_answer_is_asked_again_soon() -> None:
    server = ApiServer()
    server.versions = StoreUnavailable("no answer")
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(5)
        server.versions = V1
        await asyncio.sleep(40)
        assert server.writes == [("make", "NoSchedule")]


async def test_rules_that_cannot_be_followed_are_named() -> None:
    server = ApiServer()
    async with running(server) as bench:
        server.show(KindUnavailable("the server has no such kind"))
        await asyncio.sleep(1)
        assert "rules cannot be followed: the server has no such kind" in bench.problems
        server.show(Snapshot({}))
        await asyncio.sleep(1)
        assert bench.problems == ""


async def left_by_an_aggregator(server: ApiServer) -> RuleRemoval:
    """Make a rule; return what deletes it once the option is off."""
    async with running(server) as bench:
        bench.set_fault("PreSeparateNPU")
        await asyncio.sleep(1)
    assert len(server.stored) == 1
    return RuleRemoval(server, handed_over(bench.memory))


async def test_the_leader_deletes_the_rules_of_an_option_that_is_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    server = ApiServer()
    removal = await left_by_an_aggregator(server)
    await removal.set_leading(False)
    await asyncio.sleep(5)
    assert len(server.stored) == 1
    server.list_errors = [StoreUnavailable("no answer")]
    server.delete_errors = [StoreConflict("it has changed")]
    await removal.set_leading(True)
    await asyncio.sleep(60)
    assert server.stored == {}
    assert "device_taints is off: none of its rules is left" in caplog.text
    asked = server.asked
    await removal.set_leading(True)
    await asyncio.sleep(60)
    assert server.asked == asked


async def test_rules_that_may_not_be_deleted_are_named() -> None:
    server = ApiServer()
    removal = await left_by_an_aggregator(server)
    server.list_errors = [StoreForbidden("rules may not be listed")] * 3
    await removal.set_leading(True)
    await asyncio.sleep(1)
    assert list(removal.problems()) == [
        "rules of device_taints are left of an option that is off: rules may not be listed"
    ]
    await asyncio.sleep(120)
    assert (server.stored, list(removal.problems())) == ({}, [])


async def test_where_the_option_was_never_on_nothing_is_asked() -> None:
    server = ApiServer()
    await RuleRemoval(server, RuleMemory(lambda: None)).set_leading(True)
    await RuleRemoval(None, RuleMemory(lambda: None)).set_leading(True)
    await asyncio.sleep(1)
    assert server.asked == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MAX_CHIPS_PERCENT", "0"),
        ("MAX_CHIPS_PERCENT", "101"),
        ("MAX_PODS_PERCENT", "0"),
        ("MAX_PODS_PERCENT", "101"),
        ("EFFECTS", "SeparateNPU=Evict"),
        ("EFFECTS", "Separate=None"),
        ("DRIVERS", "npu.example.com"),
    ],
)
def test_a_wrong_setting_is_refused(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"VIGIL_DEVICE_TAINTS_{variable}"):
        load_aggregator(None, {f"VIGIL_DEVICE_TAINTS_{variable}": value}, {})


def test_a_store_that_is_no_api_server_has_no_device_taints() -> None:
    environment = {"VIGIL_DEVICE_TAINTS_ENABLED": "true", "VIGIL_STORE": "directory:/x"}
    with pytest.raises(ConfigurationError, match="device_taints"):
        load_aggregator(None, environment, {})

"""Which rules devices of chips with faults get, and when a rule evicts pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.scheduler_signals.device_pools import NodeChip
from aggregator.scheduler_signals.device_rules import (
    COUNT_VALID_MS,
    NO_ANSWER_MS,
    ChipFault,
    DeviceRules,
    Limits,
    RuleStep,
    Step,
    chip_faults,
)
from aggregator.scheduler_signals.node_evidence import CHIP, LINK, PART, NodeFault
from aggregator.scheduler_signals.taint_budget import TaintBudget, TaintDemand
from contract.codes.levels import ChipLevel
from contract.documents.device_taints import (
    DEFAULT_EFFECTS,
    Device,
    DeviceEffect,
    DeviceUse,
    Eviction,
    TaintRule,
)
from tests.aggregator.scheduler_signals.device_objects import HAMI, a_slice, device, name
from tests.parts.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NONE, NO_SCHEDULE, NO_EXECUTE = (
    DeviceEffect.NONE,
    DeviceEffect.NO_SCHEDULE,
    DeviceEffect.NO_EXECUTE,
)
SEPARATE = ChipFault(1, 1000, "SeparateNPU", NO_EXECUTE)
PRE_SEPARATE = ChipFault(2, 1000, "PreSeparateNPU", NO_SCHEDULE)
SUB_HEALTH = ChipFault(7, 1000, "SubHealthFault", NONE)


def fault(level: str, chip: int = 3, time_ms: int = 5, of: str = CHIP) -> NodeFault:
    return NodeFault(of, f"Ascend910-{chip}", "80C98008", level, time_ms)


def test_each_level_has_the_effect_of_the_table() -> None:
    found = {level: chip_faults([fault(level)], DEFAULT_EFFECTS).get(3) for level in ChipLevel}
    demanded = {level: each for level, each in found.items() if each is not None}
    assert {level: each.effect for level, each in demanded.items()} == DEFAULT_EFFECTS
    assert all(each.level == level for level, each in demanded.items())


def test_pods_are_evicted_at_the_levels_at_which_volcano_ends_jobs() -> None:
    evicting = {level for level, effect in DEFAULT_EFFECTS.items() if effect is NO_EXECUTE}
    assert evicting == {
        "ManuallySeparateNPU",
        "SeparateNPU",
        "RestartNPU",
        "RestartBusiness",
        "RestartRequest",
    }


def test_the_strictest_effect_of_a_chip_counts_then_the_worst_level_then_the_oldest() -> None:
    faults = [
        fault("PreSeparateNPU", time_ms=1),
        fault("RestartNPU", time_ms=9),
        fault("RestartNPU", time_ms=4),
        fault("SubHealthFault", chip=5),
        fault("Unknown", chip=6),
    ]
    assert chip_faults(faults, DEFAULT_EFFECTS) == {
        3: ChipFault(3, 4, "RestartNPU", NO_EXECUTE),
        5: ChipFault(7, 5, "SubHealthFault", NONE),
    }


def test_a_fault_of_the_network_evicts_no_pod() -> None:
    demanded = chip_faults([fault("SeparateNPU", of=LINK)], DEFAULT_EFFECTS)
    assert demanded[3].effect is NO_SCHEDULE


@pytest.mark.parametrize(
    ("of", "subject", "level"),
    [
        (LINK, "switch 1/2", "SeparateNPU"),
        (PART, "CPU-1", "SeparateNPU"),
        (CHIP, "Ascend910-x", "SeparateNPU"),
        (CHIP, "Ascend910-3", "SeparateFault"),
    ],
)
def test_faults_of_other_parts_are_of_no_chip(of: str, subject: str, level: str) -> None:
    assert chip_faults([NodeFault(of, subject, "1", level)], DEFAULT_EFFECTS) == {}


@pytest.mark.parametrize(
    ("limits", "total", "chips", "pods"),
    [
        (Limits(), 0, 1, 1),
        (Limits(), 19, 1, 1),
        (Limits(), 1000, 100, 50),
        (Limits(100, 100), 16, 16, 16),
    ],
)
def test_a_limit_allows_one_at_least(limits: Limits, total: int, chips: int, pods: int) -> None:
    assert TaintDemand({}, (), total, limits.chips).limit == chips
    assert limits.allowed_pods(total) == pods


class Bench:
    """Rules of a cluster with nodes of eight chips, and a store that takes each step."""

    def __init__(self, nodes: int = 1, limits: Limits = Limits(100, 100)) -> None:  # noqa: B008
        self.rules = DeviceRules(limits, TaintBudget())
        self.now_ms = 0
        self._version = 0
        for number in range(1, nodes + 1):
            chips = [(f"npu-{chip}", chip) for chip in range(8)]
            self.rules.pools.update(f"s{number}", a_slice(*chips, node=f"n{number}"))

    def faults(self, *chips: tuple[int, ChipFault], node: str = "n1") -> set[str]:
        return self.rules.set_faults(node, dict(chips))

    def step(self, chip: int = 3, node: str = "n1") -> RuleStep | None:
        return self.rules.step(name(chip, node), self.now_ms)

    def apply(self, step: RuleStep | None, *, pods: int | None = None) -> TaintRule | None:
        """Store a step as an API server does; ``pods``: the controller manager answers it."""
        assert step is not None
        if step.step is Step.DELETE:
            self.rules.update_rule(step.rule.name, None, self.now_ms)
            return None
        assert step.step in (Step.MAKE, Step.CHANGE), step
        self._version += 1
        before = self.rules.stored.get(step.rule.name)
        rule = msgspec.structs.replace(
            step.rule,
            uid=step.rule.uid or f"u{self._version}",
            version=str(self._version),
            generation=1 if before is None else before.generation + 1,
        )
        self.store(rule)
        if pods is not None:
            self.answer(pods, rule.chip, rule.node)
        return rule

    def store(self, rule: TaintRule) -> set[str]:
        return self.rules.update_rule(rule.name, rule, self.now_ms)

    def answer(self, pods: int | None, chip: int = 3, node: str = "n1") -> None:
        rule = self.rules.stored.get(name(chip, node))
        assert rule is not None
        number = pods if rule.effect is NONE else None
        self.store(msgspec.structs.replace(rule, eviction=Eviction(rule.generation, "", number)))

    def count(self, pods: int, evictable: Mapping[Device, int] | None = None) -> set[str]:
        by_device = {
            device: {str(number) for number in range((evictable or {}).get(device, 0))}
            for device in self.rules.devices_to_count
        }
        use = DeviceUse({f"p{number}" for number in range(pods)}, by_device)
        return self.rules.set_use(use, self.now_ms)

    def stored(self, chip: int = 3, node: str = "n1") -> TaintRule:
        rule = self.rules.stored.get(name(chip, node))
        assert rule is not None
        return rule


def summary(step: RuleStep | None) -> tuple[Step, DeviceEffect]:
    assert step is not None
    return step.step, step.rule.effect


def test_a_chip_without_a_fault_has_no_rule() -> None:
    bench = Bench()
    assert bench.faults() == set()
    assert bench.step() is None


@pytest.mark.parametrize(("demanded", "effect"), [(PRE_SEPARATE, NO_SCHEDULE), (SUB_HEALTH, NONE)])
def test_an_effect_that_evicts_no_pod_comes_at_once(
    demanded: ChipFault, effect: DeviceEffect
) -> None:
    bench = Bench()
    assert bench.faults((3, demanded)) == {name()}
    rule = bench.apply(bench.step())
    assert rule is not None
    assert (rule.effect, rule.value, rule.node, rule.chip) == (effect, demanded.level, "n1", 3)
    assert bench.step() is None


def test_each_device_of_a_chip_has_a_rule() -> None:
    bench = Bench()
    parts = a_slice(("vnpu-3-0", 3), ("vnpu-3-1", 3), node="n2")
    bench.rules.pools.update("v", parts)
    assert len(bench.faults((3, PRE_SEPARATE), node="n2")) == 2


def test_pods_are_evicted_in_two_steps() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    assert summary(bench.step()) == (Step.MAKE, NONE)
    bench.apply(bench.step())
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NONE)
    bench.answer(2)
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NONE)
    assert bench.rules.uncounted
    assert bench.count(40) == {name()}
    step = bench.step()
    assert summary(step) == (Step.CHANGE, NO_EXECUTE)
    assert step is not None
    assert "2 pods" in step.reason
    rule = bench.apply(step)
    assert rule is not None
    assert rule.evicted_pods == 2
    bench.answer(None)
    assert bench.step() is None


def test_a_rule_that_evicts_no_pod_needs_no_count() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step(), pods=0)
    assert summary(bench.step()) == (Step.CHANGE, NO_EXECUTE)


def test_an_answer_to_an_earlier_generation_does_not_count() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step(), pods=0)
    rule = bench.stored()
    bench.store(msgspec.structs.replace(rule, generation=rule.generation + 1))
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NONE)


def test_too_many_pods_keep_the_rule_at_no_schedule() -> None:
    bench = Bench(limits=Limits(100, 5))
    bench.faults((3, SEPARATE), (4, SEPARATE))
    for chip in (3, 4):
        bench.apply(bench.step(chip), pods=3)
    bench.count(100)
    bench.apply(bench.step(3))
    assert bench.stored(3).effect is NO_EXECUTE
    step = bench.step(4)
    assert summary(step) == (Step.CHANGE, NO_SCHEDULE)
    assert step is not None
    assert step.reason == "3 pods would be evicted, beside 3 of other rules; at most 5 may be"
    bench.apply(step)
    bench.answer(None, 4)
    bench.count(100, {device(4): 3})
    assert summary(bench.step(4)) == (Step.WAIT_FOR_COUNT, NO_SCHEDULE)
    # The first fault ends: the pods of its rule do not count any more.
    assert bench.faults((4, SEPARATE)) >= {name(3), name(4)}
    bench.apply(bench.step(3))
    assert summary(bench.step(4)) == (Step.CHANGE, NO_EXECUTE)


def test_changes_under_way_count_as_evicted() -> None:
    bench = Bench(limits=Limits(100, 5))
    bench.faults((3, SEPARATE), (4, SEPARATE))
    for chip in (3, 4):
        bench.apply(bench.step(chip), pods=3)
    bench.count(100)
    assert summary(bench.step(3)) == summary(bench.step(4)) == (Step.CHANGE, NO_EXECUTE)
    assert bench.rules.begin_eviction(name(3), 3)
    assert not bench.rules.begin_eviction(name(4), 3)
    assert summary(bench.step(4)) == (Step.CHANGE, NO_SCHEDULE)
    bench.rules.end_eviction(name(3))
    assert bench.rules.begin_eviction(name(4), 3)


def test_an_old_count_does_not_hold() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step(), pods=1)
    bench.count(40)
    bench.now_ms = COUNT_VALID_MS
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NONE)


def test_pods_that_cannot_be_counted_are_not_evicted_but_kept_off() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step(), pods=1)
    bench.step()
    assert bench.rules.set_use(None, 0) == {name()}
    bench.apply(bench.step())
    assert bench.stored().effect is NO_SCHEDULE
    bench.answer(None)
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NO_SCHEDULE)


def test_a_rule_that_no_program_acts_on_keeps_pods_off() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step())
    assert bench.rules.next_answer_ms(0) == NO_ANSWER_MS
    bench.now_ms = NO_ANSWER_MS - 1
    assert bench.rules.unanswered(bench.now_ms) == []
    bench.now_ms = NO_ANSWER_MS
    assert bench.rules.next_answer_ms(bench.now_ms) is None
    assert bench.rules.unanswered(bench.now_ms) == [name()]
    assert summary(bench.step()) == (Step.CHANGE, NO_SCHEDULE)
    bench.apply(bench.step())
    bench.now_ms += NO_ANSWER_MS
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NO_SCHEDULE)


def test_a_level_that_rises_evicts_by_our_own_count() -> None:
    bench = Bench()
    bench.faults((3, PRE_SEPARATE))
    bench.apply(bench.step())
    bench.answer(None)
    bench.faults((3, SEPARATE))
    # The value of the taint changes first, and the controller manager answers that.
    bench.apply(bench.step())
    assert (bench.stored().effect, bench.stored().value) == (NO_SCHEDULE, "SeparateNPU")
    bench.answer(None)
    assert summary(bench.step()) == (Step.WAIT_FOR_COUNT, NO_SCHEDULE)
    bench.count(10, {device(): 2})
    step = bench.step()
    assert summary(step) == (Step.CHANGE, NO_EXECUTE)
    assert step is not None
    assert step.rule.evicted_pods == 2


def test_a_level_that_falls_eases_the_effect() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step(), pods=0)
    bench.apply(bench.step())
    for demanded in (PRE_SEPARATE, SUB_HEALTH):
        assert name() in bench.faults((3, demanded))
        bench.apply(bench.step())
        assert bench.stored().effect is demanded.effect
        assert bench.stored().evicted_pods == 0
    assert bench.faults() == {name()}
    assert summary(bench.step())[0] is Step.DELETE
    bench.apply(bench.step())
    assert bench.step() is None


def test_a_rule_stays_while_the_faults_of_its_node_are_not_known() -> None:
    """A new leader has a rule of an earlier one, and the node was not read yet."""
    bench = Bench()
    bench.faults((3, PRE_SEPARATE))
    rule = bench.apply(bench.step())
    assert rule is not None
    later = DeviceRules(Limits(), TaintBudget())
    later.set_faults("n1", None)
    later.update_rule(rule.name, rule, 0)
    assert later.stored == {rule.name: rule}
    assert later.step(rule.name, 0) is None
    assert later.set_faults("n1", {}) == {rule.name}
    assert summary(later.step(rule.name, 0))[0] is Step.DELETE


def test_a_rule_of_a_node_that_was_never_seen_stays() -> None:
    bench = Bench()
    bench.faults((3, PRE_SEPARATE))
    rule = bench.apply(bench.step())
    assert rule is not None
    later = DeviceRules(Limits(), TaintBudget())
    later.update_rule(rule.name, rule, 0)
    assert later.step(rule.name, 0) is None
    assert later.obey(rule.name, NodeChip("n1", 3))


def test_a_device_that_its_driver_hides_keeps_its_rule() -> None:
    bench = Bench()
    bench.faults((3, SEPARATE))
    bench.apply(bench.step(), pods=0)
    for slices in (1, 2):
        changed = bench.rules.pools.update("s1", a_slice(("npu-0", 0), slices=slices))
        bench.rules.replace_devices(changed)
        assert bench.step() is None
    assert bench.faults() == {name()}
    assert summary(bench.step())[0] is Step.DELETE


def test_a_device_that_is_another_chip_now_loses_its_rule() -> None:
    bench = Bench()
    bench.faults((3, PRE_SEPARATE))
    bench.apply(bench.step())
    changed = bench.rules.pools.update("s1", a_slice(("npu-3", 5), ("npu-5", 3), generation=2))
    assert bench.rules.replace_devices(changed) == {name(3), name(5)}
    assert summary(bench.step(3))[0] is Step.DELETE
    assert summary(bench.step(5)) == (Step.MAKE, NO_SCHEDULE)


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_a_device_that_is_of_another_node_now_has_its_rule_there(nodes: tuple[str, str]) -> None:
    bench = Bench()
    for node in ("n1", "n2"):
        bench.faults((3, PRE_SEPARATE), node=node)
    bench.apply(bench.step())
    bench.rules.pools.update("s1", a_slice(("npu-3", 3), node="n2", pool="n1", generation=2))
    changed = {name for node in nodes for name in bench.rules.replace_devices([node])}
    assert changed == {name()}
    step = bench.step()
    assert summary(step) == (Step.CHANGE, NO_SCHEDULE)
    assert step is not None
    assert step.rule.node == "n2"


def test_no_pod_is_evicted_while_two_pools_claim_a_chip() -> None:
    bench = Bench()
    bench.rules.pools.update("h", a_slice(("npu-3", 3), driver=HAMI))
    assert len(bench.faults((3, SEPARATE))) == 2
    assert summary(bench.step()) == (Step.MAKE, NO_SCHEDULE)
    assert list(bench.rules.contradictions()) == [
        "chip 3 of n1 is claimed by the pools ascend.project-hami.io/n1 and npu.huawei.com/n1"
    ]


def waiting(bench: Bench, chips: Iterable[int]) -> list[int]:
    return [
        chip
        for chip in chips
        if (step := bench.step(chip)) is not None and step.step is Step.WAIT_FOR_ROOM
    ]


def test_the_worst_then_the_oldest_get_the_room_under_the_limit() -> None:
    bench = Bench(limits=Limits(chips=25))
    old = PRE_SEPARATE._replace(since_ms=1)
    bench.faults((1, PRE_SEPARATE), (2, old), (3, SEPARATE), (4, SUB_HEALTH))
    assert waiting(bench, range(8)) == [1]
    step = bench.step(1)
    assert step is not None
    assert step.reason == "25 % of 8 chips have an effect already"
    assert summary(bench.step(4)) == (Step.MAKE, NONE)


def test_a_taint_that_stands_is_not_displaced() -> None:
    bench = Bench(limits=Limits(chips=12))
    bench.faults((1, PRE_SEPARATE))
    bench.apply(bench.step(1))
    bench.faults((1, PRE_SEPARATE), (2, SEPARATE))
    assert bench.step(1) is None
    assert waiting(bench, range(8)) == [2]
    changed = bench.faults((2, SEPARATE))
    assert name(1) in changed
    assert name(2) in bench.store(msgspec.structs.replace(bench.stored(1), effect=NONE))
    bench.apply(bench.step(1))
    assert summary(bench.step(2)) == (Step.MAKE, NONE)


def test_the_end_of_a_fault_without_a_rule_makes_room() -> None:
    bench = Bench(limits=Limits(chips=12))
    bench.faults((1, SEPARATE), (2, PRE_SEPARATE))
    assert waiting(bench, range(8)) == [2]
    assert bench.faults((2, PRE_SEPARATE)) == {name(1), name(2)}
    assert summary(bench.step(2)) == (Step.MAKE, NO_SCHEDULE)


def test_what_others_change_is_put_right() -> None:
    bench = Bench()
    bench.faults((3, PRE_SEPARATE))
    rule = bench.apply(bench.step())
    assert rule is not None
    for changes in (
        {"key": "x"},
        {"value": ""},
        {"effect": NO_EXECUTE},
        {"node": "", "chip": -1},
        {"device": Device("", "", "")},
    ):
        assert name() in bench.store(msgspec.structs.replace(rule, **changes))
        step = bench.step()
        assert summary(step) == (Step.CHANGE, NO_SCHEDULE), changes
        assert step is not None
        assert step.rule.content == rule.content


def test_a_person_who_deletes_a_rule_is_obeyed_during_the_fault() -> None:
    bench = Bench()
    bench.faults((3, PRE_SEPARATE))
    bench.apply(bench.step())
    assert bench.rules.obey(name(), NodeChip("n1", 3))
    assert not bench.rules.obey(name(4), NodeChip("n1", 4))
    bench.rules.update_rule(name(), None, 0)
    assert bench.rules.is_obeyed(name())
    assert bench.step() is None
    bench.faults((3, SEPARATE))
    assert bench.step() is None
    bench.faults()
    assert not bench.rules.is_obeyed(name())
    bench.faults((3, PRE_SEPARATE))
    assert summary(bench.step()) == (Step.MAKE, NO_SCHEDULE)


FAULTS = st.dictionaries(
    st.integers(0, 7), st.sampled_from([SEPARATE, PRE_SEPARATE, SUB_HEALTH]), max_size=8
)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(["n1", "n2"]), FAULTS), max_size=6), st.data())
def test_steps_lead_to_the_rules_that_the_faults_demand(
    changes: list[tuple[str, dict[int, ChipFault]]], data: st.DataObject
) -> None:
    """Whatever happens between, what is planned again is enough, and limits hold all the time."""
    limits = Limits(chips=50, evicted_pods=50)
    bench = Bench(nodes=2, limits=limits)
    pending: set[str] = set()
    bench.count(8)
    for node, faults in [*changes, ("n1", {}), ("n2", {})]:
        pending |= bench.rules.set_faults(node, faults)
        for _ in range(data.draw(st.integers(0, 10))):
            advance(bench, pending)
            holds(bench, limits)
    while pending:
        advance(bench, pending)
        holds(bench, limits)
    assert bench.rules.names == set()


def advance(bench: Bench, pending: set[str]) -> None:
    """Take a step of a rule, and let the controller manager answer it: one pod would be evicted."""
    if not pending:
        return
    target = min(pending)
    pending.discard(target)
    step = bench.rules.step(target, bench.now_ms)
    if step is None or step.step not in (Step.MAKE, Step.CHANGE, Step.DELETE):
        return
    before = set(bench.rules.stored)
    eased = step.step is Step.DELETE
    rule = bench.apply(step)
    if rule is not None:
        bench.answer(1, rule.chip, rule.node)
    pending.add(target)
    if eased:
        assert target in before


def holds(bench: Bench, limits: Limits) -> None:
    stored = bench.rules.stored.values()
    effective = [rule for rule in stored if rule.effect is not NONE]
    assert len(effective) <= TaintDemand({}, (), 16, limits.chips).limit
    assert sum(rule.evicted_pods for rule in stored) <= limits.allowed_pods(8)

"""Which rule a device of a chip with a fault is to have, and what is written to it next. Pure.

One rule taints one device. A rule that is to evict pods begins without an effect: the controller
manager answers in its status how many pods would be evicted. The effect changes only while all
rules together evict few pods. A rule whose pods are too many keeps new pods off its device instead.
All of that is computed from the rules as they are stored, so the next leader goes on from there.
"""

from __future__ import annotations

import heapq
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aggregator.scheduler_signals.device_pools import DevicePools, NodeChip
from aggregator.scheduler_signals.node_evidence import LINK, PART
from aggregator.scheduler_signals.reconciler import MAX_TAINT_RANK
from aggregator.scheduler_signals.taint_budget import TaintDemand, TaintTurn
from contract.codes.levels import ChipLevel
from contract.documents.device_taints import (
    DeviceEffect,
    TaintRule,
    is_stricter,
    rule_name,
    weaker,
)
from contract.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.scheduler_signals.node_evidence import NodeFault
    from aggregator.scheduler_signals.taint_budget import TaintBudget
    from contract.documents.device_taints import Device, DeviceUse

NO_ANSWER_MS = 60_000
"""The controller manager answers within seconds: after this no program acts on the rule."""

COUNT_VALID_MS = 60_000
"""How long a count of pods holds."""

_MAX_REPLANNED = 64
"""Rules that are planned again when there may be room: each end of a fault gives room to few."""

_LEVELS = frozenset(ChipLevel)


class ChipFault(NamedTuple):
    """What the faults of a chip demand: the rank and name of the level that demands the effect.

    ``since_ms`` is wall time, 0 where none is stated.
    """

    rank: int
    since_ms: int
    level: str
    effect: DeviceEffect


def chip_faults(
    faults: Iterable[NodeFault], effects: Mapping[ChipLevel, DeviceEffect]
) -> dict[int, ChipFault]:
    """Return by physical id what the published faults of a node demand of ``effects``.

    A fault of the network evicts no pod: Volcano ends no job for it
    (``docs/spec/consumers.md#1.10``).
    """
    demanded: dict[int, ChipFault] = {}
    for fault in faults:
        _, dash, number = fault.subject.rpartition("-")
        effect = effects.get(ChipLevel(fault.level)) if fault.level in _LEVELS else None
        # Faults of switches and of other parts of the server are of no chip.
        if effect is None or fault.of == PART or not dash or not number.isdecimal():
            continue
        if fault.of == LINK:
            effect = weaker(effect, DeviceEffect.NO_SCHEDULE)
        new = ChipFault(fault.rank, fault.began_ms, fault.level, effect)
        old = demanded.get(int(number))
        if old is None or _outranks(new, old):
            demanded[int(number)] = new
    return demanded


def _outranks(new: ChipFault, old: ChipFault) -> bool:
    return is_stricter(new.effect, old.effect) or (new.effect == old.effect and new < old)


class Limits(NamedTuple):
    """Percentages of all chips with devices, and of all pods that use such devices.

    Each allows one at least, so that small clusters are not excluded.
    """

    chips: int = 10
    evicted_pods: int = 5

    def allowed_pods(self, pods: int) -> int:
        """Return how many of ``pods`` all rules together may evict."""
        return max(1, pods * self.evicted_pods // 100)


class Step(StrEnum):
    """What is done with a rule, or what it waits for."""

    MAKE = "make"
    CHANGE = "change"
    DELETE = "delete"
    WAIT_FOR_ROOM = "wait for room"
    WAIT_FOR_COUNT = "wait for a count"
    STAY = "stay"


class RuleStep(NamedTuple):
    """The next step of a rule: ``rule`` is as it is to be, ``reason`` is for people.

    ``rank`` and ``since_ms`` (wall) are its turn. ``pods`` is how many pods ``NoExecute`` would
    evict, ``None`` where that is not known or not asked for.
    """

    step: Step
    rule: TaintRule
    reason: str
    rank: int
    since_ms: int
    pods: int | None = None


class _Goal(NamedTuple):
    """What a device is to have. ``is_listed``: a complete pool has it."""

    device: Device
    chip: NodeChip
    fault: ChipFault
    effect: DeviceEffect
    is_listed: bool


class DeviceRules:
    """Faults, devices and rules as they are known now, and what follows for each rule."""

    def __init__(self, limits: Limits, budget: TaintBudget) -> None:
        self.pools = DevicePools()
        self.uncounted: set[str] = set()
        """Names of rules that need a count of pods."""
        self._limits = limits
        self._budget = budget
        budget.chips = self._demand
        self._faults: dict[str, dict[int, ChipFault]] = {}
        self._reported: set[str] = set()
        """The nodes whose faults are known."""
        self._rules: dict[str, TaintRule] = {}
        self._unanswered: dict[str, int] = {}
        """By name of a rule since when its generation is there without an answer (steady), the
        oldest first.
        """
        self._places: dict[str, tuple[Device, NodeChip]] = {}
        """By name of the rule the device of each chip with a fault."""
        self._names: dict[str, set[str]] = {}
        """By node the names in ``_places``, and those of stored rules that name the node."""
        self._obeyed: dict[str, NodeChip] = {}
        self._evicted = 0
        """How many pods stored rules evict."""
        self._evicting: dict[str, int] = {}
        """By name of a rule the pods of a change to ``NoExecute`` that is under way."""
        self._use: tuple[DeviceUse, int] | None = None
        self._cannot_count = False
        self._waiting: set[str] = set()
        """Rules that wait for room under a limit."""

    # What is observed.

    def set_faults(self, node: str, faults: dict[int, ChipFault] | None) -> set[str]:
        """Take the faults of a node by chip; return the names of rules to plan again.

        ``None``: what the node reports is not known, so what was known of it stays.
        """
        if faults is None:
            self._reported.discard(node)
            return set(self._names.get(node, ()))
        if self._obeyed:
            self._obeyed = {
                name: chip
                for name, chip in self._obeyed.items()
                if chip.node != node or chip.physical_id in faults
            }
        was_unreported = node not in self._reported
        self._reported.add(node)
        if faults == self._faults.get(node, {}):
            return set(self._names.get(node, ())) if was_unreported else set()
        ended = self._faults.get(node, {}).keys() - faults.keys()
        if faults:
            self._faults[node] = faults
        else:
            self._faults.pop(node, None)
        return self._place(node) | (self.most_urgent() if ended else set())

    def replace_devices(self, nodes: Iterable[str]) -> set[str]:
        """Observe that ``pools`` has other devices of these nodes; return rules to plan again."""
        names: set[str] = set()
        for node in nodes:
            if node in self._faults or node in self._names:
                names |= self._place(node)
        # The limits grow with the devices.
        self._budget.change_chips()
        return names | self.most_urgent()

    def update_rule(self, name: str, rule: TaintRule | None, now_ms: int) -> set[str]:
        """Take a rule as it is stored, ``None`` for one that is gone; return rules to plan again.

        ``now_ms`` is steady time.
        """
        before = self._rules.pop(name, None)
        if before is not None:
            self._drop(before.node, name)
            self._evicted -= _evicted_pods(before)
        self._budget.change_chips()
        if rule is None:
            self._unanswered.pop(name, None)
            return {name} | self.most_urgent()
        self._rules[name] = rule
        self._evicted += _evicted_pods(rule)
        self._names.setdefault(rule.node, set()).add(name)
        if rule.effect is DeviceEffect.NO_EXECUTE:
            self._evicting.pop(name, None)
        is_new = before is None or (before.uid, before.generation) != (rule.uid, rule.generation)
        if is_new or _is_answered(rule):
            self._unanswered.pop(name, None)
        if is_new and not _is_answered(rule):
            self._unanswered[name] = now_ms
        eased = before is not None and is_stricter(before.effect, rule.effect)
        return {name} | (self.most_urgent() if eased else set())

    def obey(self, name: str, chip: NodeChip) -> bool:
        """Observe that another program or person deleted the rule for a chip.

        Return whether the chip has a fault: then the rule stays away until that ends. Where the
        faults of the node are not known yet, it has.
        """
        is_faulty = chip.physical_id in self._faults.get(chip.node, {})
        if is_faulty or chip.node not in self._reported:
            self._obeyed[name] = chip
            return True
        return False

    @property
    def devices_to_count(self) -> frozenset[Device]:
        """The devices whose rules may get to evict pods: a count covers all of them."""
        return frozenset(
            device
            for name, (device, chip) in self._places.items()
            if self._faults[chip.node][chip.physical_id].effect is DeviceEffect.NO_EXECUTE
            and not self._evicts(name)
        )

    def _evicts(self, name: str) -> bool:
        rule = self._rules.get(name)
        return rule is not None and rule.effect is DeviceEffect.NO_EXECUTE

    def set_use(self, use: DeviceUse | None, now_ms: int) -> set[str]:
        """Take a count of pods, ``None`` where they cannot be counted; steady time.

        Return the names of rules to plan again.
        """
        self._cannot_count = use is None
        self._use = None if use is None else (use, now_ms)
        names, self.uncounted = self.uncounted, set()
        return names

    def begin_eviction(self, name: str, pods: int) -> bool:
        """Return whether a change to ``NoExecute`` that evicts ``pods`` may begin now.

        Several changes are planned before the first of them is stored.
        """
        if not self._has_room(name, pods):
            return False
        self._evicting[name] = pods
        return True

    def end_eviction(self, name: str) -> None:
        """Observe that the change was not stored."""
        self._evicting.pop(name, None)

    def _place(self, node: str) -> set[str]:
        """Find the devices of the chips of a node with faults again."""
        before = self._names.pop(node, set())
        for name in before:
            place = self._places.get(name)
            # The device may be one of another node now, which was placed before.
            if place is not None and place[1].node == node:
                del self._places[name]
        now = {name for name in before if name in self._rules and self._rules[name].node == node}
        for physical_id in self._faults.get(node, ()):
            chip = NodeChip(node, physical_id)
            for device in self.pools.devices(chip):
                name = rule_name(device)
                self._places[name] = device, chip
                now.add(name)
        if now:
            self._names[node] = now
        self._budget.change_chips()
        return before | now

    def _drop(self, node: str, name: str) -> None:
        names = self._names.get(node)
        place = self._places.get(name)
        if names is not None and (place is None or place[1].node != node):
            names.discard(name)
            if not names:
                del self._names[node]

    # What follows.

    @property
    def names(self) -> set[str]:
        """The names of all rules that are there or are to be."""
        return self._rules.keys() | self._places.keys()

    @property
    def stored(self) -> Mapping[str, TaintRule]:
        """All rules by name as they are stored."""
        return self._rules

    def is_obeyed(self, name: str) -> bool:
        """Return whether another program or person deleted the rule during the fault."""
        return name in self._obeyed

    @property
    def obeyed(self) -> frozenset[str]:
        """The names of the rules that stay away."""
        return frozenset(self._obeyed)

    def next_answer_ms(self, now_ms: int) -> int | None:
        """Return when the next answer of the controller manager is late, after now (steady)."""
        for since_ms in self._unanswered.values():
            if since_ms + NO_ANSWER_MS > now_ms:
                return since_ms + NO_ANSWER_MS
        return None

    def unanswered(self, now_ms: int) -> list[str]:
        """Return the rules that no program has acted on for long."""
        return [
            name for name, since_ms in self._unanswered.items() if now_ms >= since_ms + NO_ANSWER_MS
        ]

    def contradictions(self) -> Iterator[str]:
        """Yield for people which chips with faults are claimed by several pools."""
        for node, faults in sorted(self._faults.items()):
            for physical_id in sorted(faults):
                claimants = self.pools.claimants(NodeChip(node, physical_id))
                if len(claimants) > 1:
                    names = " and ".join(f"{driver}/{pool}" for driver, pool in claimants)
                    yield f"{NodeChip(node, physical_id)} is claimed by the pools {names}"

    def step(self, name: str, now_ms: int) -> RuleStep | None:
        """Return the next step of a rule; ``None`` where it is as it should be. Steady time."""
        self._waiting.discard(name)
        stored = self._rules.get(name)
        goal = self._goal(name, stored)
        if goal is None:
            return None if stored is None else self._release(stored)
        if goal.effect is not DeviceEffect.NONE and not self._is_admitted(goal):
            share = f"{self._limits.chips} % of {plural(self.pools.chips, 'chip')}"
            self._waiting.add(name)
            return self._stay(Step.WAIT_FOR_ROOM, goal, stored, f"{share} have an effect already")
        if goal.effect is not DeviceEffect.NO_EXECUTE:
            step = self._change(goal, stored, goal.effect, f"{goal.chip}: {goal.fault.level}")
        elif stored is None:
            # The first of two steps: the controller manager answers how many pods would go.
            pods = self._count(goal.device, now_ms)
            if pods is None:
                self.uncounted.add(name)
            reason = f"{goal.chip}: {goal.fault.level}, first without an effect"
            step = self._change(goal, None, DeviceEffect.NONE, reason, pods)
        elif stored.effect is DeviceEffect.NO_EXECUTE:
            step = self._change(goal, stored, stored.effect, f"{goal.chip}: {goal.fault.level}")
        else:
            step = self._evict(goal, stored, now_ms)
        return step

    def _goal(self, name: str, stored: TaintRule | None) -> _Goal | None:
        if name in self._obeyed:
            return None
        place = self._places.get(name)
        if place is not None:
            device, chip = place
            fault = self._faults[chip.node][chip.physical_id]
            effect = fault.effect
            if len(self.pools.claimants(chip)) > 1:
                # Which of the pools is right is not known, so no pod is evicted.
                effect = weaker(effect, DeviceEffect.NO_SCHEDULE)
            return _Goal(device, chip, fault, effect, is_listed=True)
        if stored is None:
            return None
        # The driver may hide a device with a fault, and a pool may be incomplete. Pods that have
        # the device still do, so its rule stays, and gets no stricter.
        chip = NodeChip(stored.node, stored.chip)
        fault_now = self._faults.get(chip.node, {}).get(chip.physical_id)
        if fault_now is None or self.pools.chip_of(stored.device) not in (None, chip):
            return None
        effect = weaker(fault_now.effect, stored.effect)
        return _Goal(stored.device, chip, fault_now, effect, is_listed=False)

    def _is_admitted(self, goal: _Goal) -> bool:
        """Return whether a chip may have an effect: those that have one, then the worst, the
        oldest.
        """
        return not goal.is_listed or goal.chip in self._budget.admitted.chips

    def _demand(self) -> TaintDemand[NodeChip]:
        standing = {
            # The device may be another chip now than when its rule was written.
            self._places[name][1] if name in self._places else NodeChip(rule.node, rule.chip)
            for name, rule in self._rules.items()
            if rule.effect is not DeviceEffect.NONE
        }
        wanted = {
            chip: TaintTurn(fault.rank, fault.since_ms)
            for _, chip in self._places.values()
            if (fault := self._faults[chip.node][chip.physical_id]).effect is not DeviceEffect.NONE
        }
        return TaintDemand(wanted, standing, self.pools.chips, self._limits.chips)

    def most_urgent(self) -> set[str]:
        """Return the most urgent rules that wait for room: there may be some now."""
        self._waiting &= self._places.keys()
        return set(heapq.nsmallest(_MAX_REPLANNED, self._waiting, key=self._urgency))

    def _urgency(self, name: str) -> ChipFault:
        _, chip = self._places[name]
        return self._faults[chip.node][chip.physical_id]

    def _evict(self, goal: _Goal, stored: TaintRule, now_ms: int) -> RuleStep | None:
        """Return the step of a rule that is to evict pods and does not yet."""
        changed = self._change(goal, stored, stored.effect, f"{goal.chip}: {goal.fault.level}")
        if changed is not None:
            return changed
        since_ms = self._unanswered.get(stored.name)
        if since_ms is not None:
            if now_ms < since_ms + NO_ANSWER_MS:
                reason = "the controller manager has not answered how many pods would be evicted"
                return self._stay(Step.WAIT_FOR_COUNT, goal, stored, reason)
            reason = f"no program has acted on the rule for {NO_ANSWER_MS // 1000} s"
            return self._keep_pods_off(goal, stored, reason)
        pods = None if stored.eviction is None else stored.eviction.pods
        if pods is None:
            # Only a rule without an effect gets a number.
            pods = self._count(goal.device, now_ms)
        if pods is None or (pods and not self._is_counted(now_ms)):
            self.uncounted.add(stored.name)
            if self._cannot_count:
                reason = "the pods that use devices of chips cannot be counted"
                return self._keep_pods_off(goal, stored, reason)
            reason = "the pods that use devices of chips are not counted yet"
            return self._stay(Step.WAIT_FOR_COUNT, goal, stored, reason)
        if not self._has_room(stored.name, pods):
            self._waiting.add(stored.name)
            others = self._evicted_by_others(stored.name)
            reason = (
                f"{plural(pods, 'pod')} would be evicted, beside {others} of other rules; at most "
                f"{self._limits.allowed_pods(self._pods)} may be"
            )
            return self._keep_pods_off(goal, stored, reason, pods)
        reason = f"{goal.chip}: {goal.fault.level}, {plural(pods, 'pod')} will be evicted"
        return self._change(goal, stored, DeviceEffect.NO_EXECUTE, reason, pods)

    def _count(self, device: Device, now_ms: int) -> int | None:
        """Return how many pods ``NoExecute`` would evict from a device, if that was counted."""
        if self._use is None or not self._is_counted(now_ms):
            return None
        pods = self._use[0].evictable.get(device)
        return None if pods is None else len(pods)

    def _is_counted(self, now_ms: int) -> bool:
        """Return whether pods were counted lately."""
        return self._use is not None and now_ms < self._use[1] + COUNT_VALID_MS

    @property
    def _pods(self) -> int:
        """How many pods used devices of chips when they were counted last."""
        return 0 if self._use is None else len(self._use[0].pods)

    def _evicted_by_others(self, name: str) -> int:
        """Return how many pods all other rules evict or are about to."""
        own = self._rules.get(name)
        stored = self._evicted - (0 if own is None else _evicted_pods(own))
        return stored + sum(pods for other, pods in self._evicting.items() if other != name)

    def _has_room(self, name: str, pods: int) -> bool:
        allowed = self._limits.allowed_pods(self._pods)
        return not pods or self._evicted_by_others(name) + pods <= allowed

    def _keep_pods_off(
        self, goal: _Goal, stored: TaintRule, reason: str, pods: int | None = None
    ) -> RuleStep:
        """Return the step to ``NoSchedule``, which evicts no pod; else what the rule waits for."""
        step = self._change(goal, stored, DeviceEffect.NO_SCHEDULE, reason, pods)
        return step or self._stay(Step.WAIT_FOR_COUNT, goal, stored, reason, pods)

    def _change(
        self,
        goal: _Goal,
        stored: TaintRule | None,
        effect: DeviceEffect,
        reason: str,
        pods: int | None = None,
    ) -> RuleStep | None:
        """Return the step that makes or changes a rule; ``None`` where it is so already."""
        rule = _with_goal(goal, effect)
        fault = goal.fault
        if stored is None:
            return RuleStep(Step.MAKE, rule, reason, fault.rank, fault.since_ms, pods)
        if effect is DeviceEffect.NO_EXECUTE:
            evicted = stored.evicted_pods if pods is None else pods
            rule = msgspec.structs.replace(rule, evicted_pods=evicted)
        if rule.content == stored.content:
            return None
        rule = msgspec.structs.replace(rule, uid=stored.uid, version=stored.version)
        return RuleStep(Step.CHANGE, rule, reason, fault.rank, fault.since_ms, pods)

    def _stay(
        self,
        step: Step,
        goal: _Goal,
        stored: TaintRule | None,
        reason: str,
        pods: int | None = None,
    ) -> RuleStep:
        rule = stored or _with_goal(goal, DeviceEffect.NONE)
        return RuleStep(step, rule, reason, goal.fault.rank, goal.fault.since_ms, pods)

    def _release(self, stored: TaintRule) -> RuleStep | None:
        """Return the deletion of a rule; ``None`` while the faults of its node are not known."""
        if stored.node and stored.node not in self._reported:
            return None
        reason = f"{NodeChip(stored.node, stored.chip)} has no such fault any more"
        return RuleStep(Step.DELETE, stored, reason, MAX_TAINT_RANK, 0)


def _with_goal(goal: _Goal, effect: DeviceEffect) -> TaintRule:
    return TaintRule(
        device=goal.device,
        value=goal.fault.level,
        effect=effect,
        node=goal.chip.node,
        chip=goal.chip.physical_id,
        name=rule_name(goal.device),
    )


def _evicted_pods(rule: TaintRule) -> int:
    return rule.evicted_pods if rule.effect is DeviceEffect.NO_EXECUTE else 0


def _is_answered(rule: TaintRule) -> bool:
    """Return whether the controller manager has looked at this generation of a rule."""
    return rule.eviction is not None and rule.eviction.generation == rule.generation

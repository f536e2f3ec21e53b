"""Writes DeviceTaintRules for devices of chips with faults (``SignalWriter``).

Devices and rules are followed at the API server once it serves them, which is asked again every ten
minutes: rules are off by default in Kubernetes 1.36. What is decided is in ``device_rules.py``.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aggregator.scheduler_signals.device_pools import NodeChip
from aggregator.scheduler_signals.device_rules import DeviceRules, Limits, Step, chip_faults
from aggregator.scheduler_signals.reconciler import (
    BRAKE,
    CAP,
    CONFLICT,
    EVICTION,
    NOTHING,
    REMOVED,
    PlannedWrite,
    SignalPlan,
    Waiting,
)
from aggregator.scheduler_signals.signal_memory import RuleRow
from contract.documents.device_taints import CHIP_ATTRIBUTES, DeviceEffect, is_stricter
from contract.errors import StoreConflict, StoreError
from contract.plural import plural
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure
from service.owned_documents.foreign_writes import ForeignWrites
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from aggregator.config import DeviceTaintsSection
    from aggregator.scheduler_signals.device_rules import RuleStep
    from aggregator.scheduler_signals.node_evidence import NodeEvidence
    from aggregator.scheduler_signals.signal_memory import RuleMemory
    from aggregator.scheduler_signals.taint_budget import TaintBudget
    from contract.documents.device_taints import TaintRule
    from service.clock import Clock, Instant
    from stores.device_taints import DevicesEvent, DeviceTaints, RulesEvent, ServedVersions

_log = logging.getLogger(__name__)

NAME = "device_taints"
DISCOVERY_SECONDS = 600.0
"""An API server that is restarted with other switches serves other resources."""
_RETRY_SECONDS = 30.0
_MIN_COUNT_SECONDS = 2.0
_COUNT_PAUSES = 10
"""A count is followed by a pause of so many times its own duration: it reads all claims."""
_MAX_NAMED = 3


class DeviceTaintReconciler:
    """The option ``device_taints`` (``reconciler.Reconciler``).

    ``evidence`` returns what is known of a node, ``None`` where that is not confirmed yet.
    ``nodes`` returns all nodes of which something is published. ``plan_again`` gets the names of
    rules that are to be planned again.
    """

    name = NAME

    def __init__(
        self,
        taints: DeviceTaints,
        settings: DeviceTaintsSection,
        evidence: Callable[[str], NodeEvidence | None],
        nodes: Callable[[], Iterable[str]],
        clock: Clock,
        memory: RuleMemory,
        budget: TaintBudget,
        *,
        plan_again: Callable[[Iterable[str]], None],
    ) -> None:
        self.dry_run = settings.dry_run
        self.rules = DeviceRules(
            Limits(settings.max_chips_percent, settings.max_pods_percent), budget
        )
        self._attributes = CHIP_ATTRIBUTES | settings.drivers
        self._effects = settings.effects
        self._taints = taints
        self._evidence = evidence
        self._nodes = nodes
        self._clock = clock
        self._plan_again = plan_again
        self._memory = memory
        self._leads = False
        self._served: ServedVersions | None = None
        self._interrupted: dict[str, str] = {}
        """By kind why it is not followed now."""
        self._listed: set[str] = set()
        self._since: dict[str, int] = {}
        """Since when a rule differs, steady milliseconds."""
        self._ended: dict[str, str] = {}
        """By name the uid of a rule that we have deleted, or are about to."""
        self._sent: dict[str, tuple[object, ...]] = {}
        """By name the content of our last change of a rule."""
        self._foreign: dict[str, ForeignWrites] = {}
        self._count = asyncio.Event()
        self._answers = asyncio.Event()
        self._discovery = OngoingFailure(
            _log, "device_taints: resource.k8s.io cannot be asked: %s", "it can be asked again"
        )
        self._counting = OngoingFailure(
            _log, "device_taints: pods with chips cannot be counted: %s", "they can be counted"
        )

    # Reconciler.

    def begin_leading(self) -> Iterable[str]:
        """See ``Reconciler``."""
        self._leads = True
        self._obey_unseen()
        self._plan_again(self.rules.names)
        return {*self._nodes(), *self._rule_nodes()}

    def end_leading(self) -> None:
        """See ``Reconciler``."""
        self._leads = False

    def _obey_unseen(self) -> None:
        """Obey deletions that no leader has seen: they were made while none watched."""
        if self._is_followed and self._leads and not self.dry_run:
            for name, row in self._memory.items():
                if name not in self.rules.stored:
                    self._obey(name, row)

    def _rule_nodes(self) -> set[str]:
        """Return the nodes of all rules that are or were there."""
        rules = self.rules.stored.values()
        return {rule.node for rule in rules} | {row.node for _, row in self._memory.items()}

    def judge(self, nodes: Iterable[str], _: Instant) -> Iterable[str]:
        """See ``Reconciler``."""
        names: set[str] = set()
        for node in nodes:
            names |= self._observe_node(node)
        return names

    def written(self, target: str, _: Instant) -> Iterable[str]:
        """See ``Reconciler``."""
        return (target,)

    def _observe_node(self, node: str) -> set[str]:
        evidence = self._evidence(node)
        faults = None if evidence is None else chip_faults(evidence.faults, self._effects)
        before = self.rules.obeyed
        names = self.rules.set_faults(node, faults)
        for name in before - self.rules.obeyed:
            self._memory.put(name, None)
        return names

    def plan(self, target: str, now: Instant, hold_reason: str | None) -> SignalPlan:
        """See ``Reconciler``."""
        if not self._is_followed:
            return NOTHING
        if self.rules.is_obeyed(target):
            return SignalPlan(waiting=Waiting(REMOVED, "the rule was deleted during the fault"))
        step = self.rules.step(target, now.steady_ms)
        if self.rules.uncounted:
            self._count.set()
        if step is None:
            self._since.pop(target, None)
            return NOTHING
        text = _shown(step)
        if step.step is Step.WAIT_FOR_ROOM:
            return SignalPlan(waiting=Waiting(CAP, text))
        if step.step is Step.WAIT_FOR_COUNT:
            return SignalPlan(waiting=Waiting(EVICTION, text))
        stored = self.rules.stored.get(target)
        if hold_reason is not None and _gets_stricter(step, stored):
            return SignalPlan(waiting=Waiting(BRAKE, hold_reason))
        until_ms, waiting = self._conflict(target, now)
        since_ms = self._since.setdefault(target, now.steady_ms)
        send = partial(self._send, step, stored)
        return SignalPlan(PlannedWrite(step.rank, since_ms, text, send, until_ms), waiting)

    def _conflict(self, name: str, now: Instant) -> tuple[int, Waiting | None]:
        """Return when a rule may be written that other programs change, and why not before."""
        foreign = self._foreign.get(name)
        if foreign is None:
            return 0, None
        seconds = now.steady_ms / 1000
        foreign.end_if_over(seconds)
        foreign.report(_log, f"rule {name}")
        if not foreign.is_conflict:
            return 0, None
        until_ms = now.steady_ms + int(foreign.seconds_until_over(seconds) * 1000) + 1
        return until_ms, Waiting(CONFLICT, foreign.writer.changes(f"rule {name}"))

    async def _send(self, step: RuleStep, stored: TaintRule | None) -> None:
        assert self._served is not None, "nothing is planned before"
        version, rule = self._served.rules, step.rule
        assert version is not None, "nothing is planned before"
        if step.step is Step.DELETE:
            # Before the request: the watch may show the end before the answer comes.
            self._ended[rule.name] = rule.uid
            await self._taints.delete_rule(version, rule)
            self._apply(rule.name, None)
            return
        if stored is None:
            self._apply(rule.name, await self._taints.make_rule(version, rule))
            return
        evicts = rule.effect is DeviceEffect.NO_EXECUTE is not stored.effect
        # Others that were planned at the same time may have taken the room.
        if evicts and not self.rules.begin_eviction(rule.name, rule.evicted_pods):
            raise StoreConflict("other rules evict as many pods as is allowed")
        # The watch may show the change before the answer comes.
        self._sent[rule.name] = rule.content
        try:
            self._apply(rule.name, await self._taints.change_rule(version, rule))
        finally:
            self.rules.end_eviction(rule.name)

    async def read(self, target: str) -> None:
        """See ``Reconciler``."""
        if self._served is not None and self._served.rules is not None:
            self._apply(target, await self._taints.read_rule(self._served.rules, target))

    def problems(self) -> Iterator[str]:
        """See ``Reconciler``."""
        served = self._served
        if served is not None and (served.rules is None or served.devices is None):
            yield _not_served(served)
            return
        for kind, reason in sorted(self._interrupted.items()):
            yield f"device_taints: {kind} cannot be followed: {reason}"
        if self._counting.reason is not None:
            yield f"device_taints: pods with chips cannot be counted: {self._counting.reason}"
        unanswered = self.rules.unanswered(self._clock().steady_ms)
        if unanswered:
            yield (
                f"device_taints: no program acts on {plural(len(unanswered), 'rule')}, such as "
                f"{unanswered[0]}: start kube-controller-manager and kube-scheduler with "
                "--feature-gates=DRADeviceTaintRules=true"
            )
        if self._is_followed and not self.rules.pools.chips:
            drivers = ", ".join(sorted(self._attributes))
            yield f"device_taints: no ResourceSlice of {drivers} has a chip"
        for texts in (self.rules.contradictions(), self.rules.pools.problems()):
            problems = tuple(texts)
            for problem in problems[:_MAX_NAMED]:
                yield f"device_taints: {problem}"
            if len(problems) > _MAX_NAMED:
                yield f"device_taints: and {len(problems) - _MAX_NAMED} more of this kind"

    # What is followed.

    @property
    def _is_followed(self) -> bool:
        """Whether devices and rules are known: they are while a watch is interrupted, too."""
        return self._listed == {"devices", "rules"}

    async def run(self) -> NoReturn:
        """Follow devices and rules, and count pods where a rule needs that, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count_pods(), name="count pods with chips")
            tasks.create_task(self._await_answers(), name="answers to rules")
            following: tuple[asyncio.Task[None], ...] = ()
            while True:
                served = await self._discover()
                if served is not None and served != self._served:
                    for task in following:
                        task.cancel()
                    following = self._follow(served, tasks)
                seconds = _RETRY_SECONDS if served is None else DISCOVERY_SECONDS
                await asyncio.sleep(seconds)
        raise AssertionError("the loop never ends")

    async def _discover(self) -> ServedVersions | None:
        """Return which versions are served; ``None`` where the API server does not answer."""
        try:
            served = await self._taints.served()
        except StoreError as error:
            self._discovery.record_failure(str(error))
            return None
        self._discovery.end()
        return served

    def _follow(
        self, served: ServedVersions, tasks: asyncio.TaskGroup
    ) -> tuple[asyncio.Task[None], ...]:
        self._served = served
        self._listed.clear()
        self._interrupted.clear()
        if served.rules is None or served.devices is None:
            _log.warning("%s", _not_served(served))
            return ()
        _log.info("device_taints: resource.k8s.io/%s has rules", served.rules)
        devices = partial(self._taints.devices, served.devices, self._attributes)
        rules = partial(self._taints.rules, served.rules)
        return (
            tasks.create_task(self._follow_devices(followed(devices)), name="read devices"),
            tasks.create_task(self._follow_rules(followed(rules)), name="read rules"),
        )

    async def _follow_devices(self, events: AsyncIterator[DevicesEvent]) -> None:
        pools = self.rules.pools
        async for event in events:
            if isinstance(event, Snapshot):
                nodes = pools.replace(event.items, event.unreadable)
            elif isinstance(event, Update):
                nodes = pools.update(event.key, event.value)
            else:
                nodes = set()
            self._note("devices", event)
            self._plan_again(self.rules.replace_devices(nodes))

    async def _follow_rules(self, events: AsyncIterator[RulesEvent]) -> None:
        async for event in events:
            if isinstance(event, Snapshot):
                for name in self.rules.stored.keys() - event.items.keys() - event.unreadable:
                    self._observe(name, None)
                for name, rule in event.items.items():
                    self._observe(name, rule)
            elif isinstance(event, Update):
                self._observe(event.key, event.value)
            self._note("rules", event)

    def _note(self, kind: str, event: DevicesEvent | RulesEvent) -> None:
        """Take whether a kind is followed; once both are, everything is planned."""
        if isinstance(event, (Interrupted, KindUnavailable)):
            self._interrupted[kind] = event.reason
            return
        self._interrupted.pop(kind, None)
        if kind not in self._listed:
            self._listed.add(kind)
            if self._is_followed:
                for node in self._rule_nodes():
                    self._observe_node(node)
                self._obey_unseen()
                self._plan_again(self.rules.names)

    def _observe(self, name: str, rule: TaintRule | None) -> None:
        """Take what the watch shows of a rule."""
        before = self.rules.stored.get(name)
        if rule is None:
            ours = self._ended.pop(name, None)
            # A follower sees the deletions of the leader.
            if before is not None and before.uid != ours and self._leads and not self.dry_run:
                self._obey(name, RuleRow(before.node, before.chip))
        elif _is_older(rule, before):
            return
        elif (
            before is not None
            and rule.uid == before.uid
            and rule.content not in (before.content, self._sent.get(name))
        ):
            foreign = self._foreign.setdefault(name, ForeignWrites())
            foreign.record_foreign_write(self._clock().steady_ms / 1000)
            foreign.report(_log, f"rule {name}")
        self._apply(name, rule)

    def _obey(self, name: str, row: RuleRow) -> None:
        """Take a deletion by another one: during the fault the rule stays away."""
        if not self.rules.obey(name, NodeChip(row.node, row.chip)):
            self._memory.put(name, None)
            return
        if not row.is_deleted:
            _log.warning("rule %s was deleted: it stays away during the fault", name)
        self._memory.put(name, RuleRow(row.node, row.chip, is_deleted=True))

    def _apply(self, name: str, rule: TaintRule | None) -> None:
        """Take a rule as it is stored."""
        if rule is None:
            self._foreign.pop(name, None)
            self._sent.pop(name, None)
            if self._leads and not self.rules.is_obeyed(name):
                self._memory.put(name, None)
        elif self._leads and not self.dry_run:
            self._memory.put(name, RuleRow(rule.node, rule.chip))
        self._plan_again(self.rules.update_rule(name, rule, self._clock().steady_ms))
        self._answers.set()

    async def _count_pods(self) -> None:
        """Count pods while rules need that."""
        while True:
            await self._count.wait()
            self._count.clear()
            served, loop = self._served, asyncio.get_running_loop()
            if not self._leads or served is None or served.devices is None:
                self.rules.uncounted.clear()
                continue
            began = loop.time()
            devices = self.rules.devices_to_count
            try:
                use = await self._taints.use(served.devices, frozenset(self._attributes), devices)
            except StoreError as error:
                self._counting.record_failure(str(error))
                use = None
            else:
                self._counting.end()
            self._plan_again(self.rules.set_use(use, self._clock().steady_ms))
            pause = _COUNT_PAUSES * (loop.time() - began)
            await asyncio.sleep(_RETRY_SECONDS if use is None else max(_MIN_COUNT_SECONDS, pause))

    async def _await_answers(self) -> None:
        """SignalPlan rules again when their answer is late."""
        while True:
            self._answers.clear()
            now_ms = self._clock().steady_ms
            late = set(self.rules.unanswered(now_ms))
            self._plan_again(late)
            due_ms = self.rules.next_answer_ms(now_ms)
            seconds = None if due_ms is None else max(0, due_ms - now_ms + 1) / 1000
            await wait_for_event(self._answers, seconds)


def _gets_stricter(step: RuleStep, stored: TaintRule | None) -> bool:
    if step.step is Step.DELETE:
        return False
    return stored is None or is_stricter(step.rule.effect, stored.effect)


def _is_older(rule: TaintRule, before: TaintRule | None) -> bool:
    """Return whether the watch shows a version that our last write has replaced.

    Versions of one kind are numbers that grow (Kubernetes 1.35, KEP-5504).
    """
    if before is None or before.uid != rule.uid:
        return False
    versions = (rule.version, before.version)
    return all(map(str.isdecimal, versions)) and int(rule.version) < int(before.version)


def _shown(step: RuleStep) -> str:
    """Return a step for people."""
    rule = step.rule
    pods = "" if step.pods is None else f", {plural(step.pods, 'pod')} would be evicted"
    taint = "no rule" if step.step is Step.DELETE else f"{rule.value}:{rule.effect.value}"
    return f"{rule.device}: {taint} ({step.reason}{pods})"


def _not_served(served: ServedVersions) -> str:
    if not served.has_group:
        return (
            "device_taints: the API server does not serve resource.k8s.io: dynamic resource "
            "allocation needs Kubernetes 1.34 or later"
        )
    if served.devices is None:
        return "device_taints: the API server serves no ResourceSlices of v1 or v1beta2"
    return (
        "device_taints: the API server does not serve DeviceTaintRules. With Kubernetes 1.36 start "
        "it with --runtime-config=resource.k8s.io/v1beta2=true. It, kube-scheduler and "
        "kube-controller-manager need --feature-gates=DRADeviceTaintRules=true"
    )

"""Runs the steps of the demo on a fleet and compares the documents with the expected ones.

A step runs its actions and changes what is expected of nodes. Documents of nodes and of the cluster
are then followed until both show that, or the patience is over. Only the first step ends the run
when it fails, since then nothing runs.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from contract.errors import ConfigurationError, Problem
from contract.names import STATE_NAMESPACE, STATE_PREFIX
from contract.operator_rules.fault_configuration import (
    FAULT_CONFIG_NAME,
    FAULT_CONFIG_NAMESPACE,
    NODE_FAULT_CONFIG_NAME,
    NODE_FAULT_CONFIG_NAMESPACE,
)
from stores.base import Selection
from vigil.demo.cluster_operator import PUBLIC_FAULT_NAME
from vigil.demo.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stores.base import Store
    from vigil.demo.cluster_operator import Operator
    from vigil.demo.fleet import DemoNode, Fleet
    from vigil.demo.reader import DemoNodeView, DemoReader
    from vigil.demo.steps import DemoStep

_CONFIGURATIONS = (
    (FAULT_CONFIG_NAMESPACE, FAULT_CONFIG_NAME),
    (NODE_FAULT_CONFIG_NAMESPACE, NODE_FAULT_CONFIG_NAME),
)
_STATISTIC = ("cluster-system", "statistic-fault-info")
_LABELS = ("mx-consumer-cim", "mx-consumer-volcano", "mc-consumer-publicfault")
_START_SECONDS = 60.0
"""How long daemons may take to start: longer than 10 s where the load is 17 a processor.

With 10 s, a demo of Python 3.12 on such a machine showed ``never`` for a step that starts an agent.
"""
_PATIENCE_SECONDS = 10.0
# So long a wrong write has time to come before the documents are compared.
_STEADY_SECONDS = 0.4
_POLL_SECONDS = 0.1
_NO_ANSWER = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True)
class StepResult:
    """How one step went. Times are milliseconds from the action; ``None`` where nothing changes."""

    number: int
    step: DemoStep
    at_seconds: float
    device_info_ms: float | None
    cluster_info_ms: float | None
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """The whole demo: it is well when no step had a problem and no process died."""

    results: tuple[StepResult, ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def well(self) -> bool:
        """Return whether every expected state was reached."""
        return not self.problems and not any(result.problems for result in self.results)


class Player:
    """Plays the steps one after the other and keeps what is expected so far."""

    def __init__(
        self,
        fleet: Fleet,
        operator: Operator,
        reader: DemoReader,
        speed: float,
        show: Callable[[StepResult], None],
    ) -> None:
        self._fleet = fleet
        self._operator = operator
        self._reader = reader
        self._speed = speed
        self._show = show
        self._expected = {node.name: Expected(node.chips) for node in fleet.nodes}
        self._begun = 0.0
        self.blind: dict[str, frozenset[int]] = {}

    async def play(self, steps: Sequence[DemoStep]) -> tuple[StepResult, ...]:
        """Play all steps; a step that fails does not end the run."""
        started = time.monotonic()
        results = []
        for number, step in enumerate(steps, 1):
            await asyncio.sleep(step.pause_seconds / self._speed)
            result = await self._play_step(number, step, started)
            self._show(result)
            results.append(result)
            if number == 1 and result.problems:
                break  # nothing runs: every other step would only fail after its patience
        return tuple(results)

    async def _play_step(self, number: int, step: DemoStep, started: float) -> StepResult:
        before, begun = self._begun, time.monotonic()
        self._begun = begun
        for action in step.actions:
            await action(self._fleet, self._operator)
        problems = []
        if step.holds_seconds:
            problems = await self._hold(before + step.holds_seconds - begun)
        # Behind the hold, which compares with what was expected until now.
        self._expect(step)
        patience_seconds = _START_SECONDS if step.starts_daemons else _PATIENCE_SECONDS
        patience_seconds += step.takes_seconds / self._speed
        if step.blind is not None:
            problems += await self._wait_for_blindness(*step.blind, wanted=True)
        if step.sighted is not None:
            problems += await self._wait_for_blindness(*step.sighted, wanted=False)
        if step.policy is not None:
            problems += await self._wait_for_policy(step.policy)
        if step.unchanged:
            await asyncio.sleep(_STEADY_SECONDS)
        # Both sides at once, or the time of the second would include the wait for the first.
        device, cluster = await asyncio.gather(
            self._arrival("nodes", False, lambda: self._reader.device, patience_seconds),
            self._arrival("cluster", True, lambda: self._reader.cluster, patience_seconds),
        )
        problems += device.problems + cluster.problems
        return StepResult(
            number=number,
            step=step,
            at_seconds=begun - started,
            device_info_ms=None if step.unchanged else device.milliseconds_since(begun),
            cluster_info_ms=None if step.unchanged else cluster.milliseconds_since(begun),
            problems=tuple(problems),
        )

    async def _hold(self, seconds: float) -> list[str]:
        """Return what changed within ``seconds`` although it should have stayed."""

        def problems() -> list[str]:
            return [
                *self._differences("nodes", self._reader.device, in_cluster=False),
                *self._differences("cluster", self._reader.cluster, in_cluster=True),
            ]

        begun = time.monotonic()
        changed_at = await self._reader.wait_until(lambda: bool(problems()), seconds)
        if changed_at is None:
            return []
        return [f"after {changed_at - begun:.1f} s: {problem}" for problem in problems()]

    def _expect(self, step: DemoStep) -> None:
        def of(role: int) -> Expected:
            return self._expected[self._fleet.node(role).name]

        for (role, chip), codes in step.expect.items():
            of(role).faults[chip] = (codes,)
        for (role, chip), codes in step.soon.items():
            of(role).chip_soon(chip, codes)
        for (role, part), level in step.parts.items():
            of(role).parts[part] = level
        for (role, port), level in step.ports.items():
            of(role).ports[port] = level
        for (role, of_chip, code), level in step.public.items():
            of(role).public[of_chip, code] = level
        if step.lost_soon is not None:
            of(step.lost_soon).lost = (False, True)
        if step.lost is not None:
            of(step.lost).lost = (True,)
        if step.back is not None:
            of(step.back).lost = (False,)

    async def _arrival(
        self,
        side: str,
        in_cluster: bool,
        views: Callable[[], dict[str, DemoNodeView]],
        patience_seconds: float,
    ) -> _Arrival:
        def problems() -> list[str]:
            return self._differences(side, views(), in_cluster=in_cluster)

        reached_at = await self._reader.wait_until(lambda: not problems(), patience_seconds)
        return _Arrival(reached_at, [] if reached_at is not None else problems())

    def _differences(
        self, side: str, seen: dict[str, DemoNodeView], *, in_cluster: bool
    ) -> list[str]:
        return [
            f"{side}: {node} {difference}"
            for node, expected in self._expected.items()
            for difference in expected.differences(seen.get(node), in_cluster=in_cluster)
        ]

    async def _wait_for_policy(self, wanted: str) -> list[str]:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            policies = {node.name: await self._policy(node) for node in self._fleet.nodes}
            others = [name for name, policy in policies.items() if policy != wanted]
            if not others:
                return []
            if time.monotonic() > deadline:
                return [f"{name} reports that the policy is {policies[name]}" for name in others]
            await asyncio.sleep(_POLL_SECONDS)

    async def _policy(self, node: DemoNode) -> str | None:
        # A daemon that is being restarted by the step gives no answer; it is asked again.
        with suppress(*_NO_ANSWER):
            return await self._fleet.policy(node)
        return None

    async def _wait_for_blindness(self, role: int, chip: int, *, wanted: bool) -> list[str]:
        node = self._fleet.node(role)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (chip in await self._see_blind(node)) != wanted:
            if time.monotonic() > deadline:
                state = "not reported blind" if wanted else "still reported blind"
                return [f"chip {chip} of {node.name} is {state} after {_PATIENCE_SECONDS:g} s"]
            await asyncio.sleep(_POLL_SECONDS)
        return []

    async def _see_blind(self, node: DemoNode) -> frozenset[int]:
        with suppress(*_NO_ANSWER):
            self.blind[node.name] = await self._fleet.blind_chips(node)
            return self.blind[node.name]
        return frozenset()


@dataclass(frozen=True)
class _Arrival:
    reached_at: float | None
    problems: list[str]

    def milliseconds_since(self, begun: float) -> float | None:
        return None if self.reached_at is None else (self.reached_at - begun) * 1000


async def check_store_is_ours(store: Store, nodes: Sequence[str]) -> None:
    """Refuse a store in which another aggregator or real nodes would be disturbed."""
    reports, cluster, messages = [
        await store.list(Selection(label=(label, "true"))) for label in _LABELS
    ]
    ours = {f"mindx-dl-{kind}info-{node}" for node in nodes for kind in ("device", "node")}
    ours |= {f"npu-vigil-dpc-fault-{node}" for node in nodes}
    ours.add(PUBLIC_FAULT_NAME)
    # Documents of the demo itself may be left from a run that was interrupted.
    foreign = sorted({d.name for d in (*reports, *messages)} - ours) or [
        d.name for d in cluster if any(value for value in d.data.values())
    ]
    for namespace, name in (*_CONFIGURATIONS, _STATISTIC):
        if await store.get(namespace, name) is not None:
            foreign.append(name)
    if foreign:
        text = (
            f"holds documents of a real cluster ({', '.join(foreign[:3])}); the demo writes "
            "cluster-info and policies and would disturb it. Use an empty API server or directory"
        )
        raise ConfigurationError("vigil demo", [Problem(f"--store {store.url}", text)])


async def remove_documents(store: Store, nodes: Sequence[str]) -> None:
    """Remove what the demo left in a store that was empty before: documents and heartbeats."""
    for node in nodes:
        await store.forget_beat(node)
    for namespace, name in (*_CONFIGURATIONS, _STATISTIC):
        await store.delete(namespace, name)
    for document in await store.list(Selection(namespace=STATE_NAMESPACE)):
        if document.name.startswith(STATE_PREFIX):
            await store.delete(document.namespace, document.name)
    for label in _LABELS:
        for document in await store.list(Selection(label=(label, "true"))):
            await store.delete(document.namespace, document.name)


async def run(
    fleet: Fleet,
    operator: Operator,
    reader: DemoReader,
    steps: Sequence[DemoStep],
    speed: float,
    show: Callable[[StepResult], None],
    player_made: Callable[[Player], None],
    page_served: Callable[[str], None],
) -> Summary:
    """Start the fleet, run ``steps``, and return the result. The fleet keeps running.

    ``page_served`` is called with the address of the cluster's page.
    """
    started = time.monotonic()
    player = Player(fleet, operator, reader, speed, show)
    player_made(player)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(reader.follow(), name="follow documents")
        await fleet.start()
        page = await fleet.page()
        if page is not None:
            page_served(page)
        results = await player.play(steps)
        # It never ends by itself, and the task group would wait for it.
        following.cancel()
    problems = tuple(fleet.dead() + reader.errors)
    return Summary(results, problems, time.monotonic() - started)

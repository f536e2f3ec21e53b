"""Plays a story on a fleet and compares what the documents say with what they must say."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from contract.errors import ConfigurationError, Problem
from stores.base import Selection
from vigil.demo.fleet import CHIPS, Fleet
from vigil.demo.reader import ChipsView, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stores.base import Store
    from vigil.demo.fleet import Node
    from vigil.demo.story import Step

_PATIENCE_SECONDS = 10.0
_STEADY_SECONDS = 0.4
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Result:
    """How one step went. Times are milliseconds from the action; ``None`` where nothing changes."""

    number: int
    step: Step
    at_seconds: float
    device_info_ms: float | None
    cluster_info_ms: float | None
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """The whole demo: it is well when no step had a problem and no process died."""

    results: tuple[Result, ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def well(self) -> bool:
        """Whether every expected state was reached."""
        return not self.problems and not any(result.problems for result in self.results)


class Player:
    """Plays the steps one after the other and keeps what is expected so far."""

    def __init__(
        self, fleet: Fleet, reader: Reader, speed: float, show: Callable[[Result], None]
    ) -> None:
        self._fleet = fleet
        self._reader = reader
        self._speed = speed
        self._show = show
        self._faults: dict[str, dict[int, dict[str, str]]] = {node.name: {} for node in fleet.nodes}
        self.blind: dict[str, frozenset[int]] = {}

    async def play(self, story: Sequence[Step]) -> tuple[Result, ...]:
        """Play all steps; a step that fails does not end the story."""
        started = time.monotonic()
        results = []
        for number, step in enumerate(story, 1):
            await asyncio.sleep(step.pause_seconds / self._speed)
            result = await self._play_step(number, step, started)
            self._show(result)
            results.append(result)
            if number == 1 and result.problems:
                break  # nothing runs: every other step would only fail after its patience
        return tuple(results)

    async def _play_step(self, number: int, step: Step, started: float) -> Result:
        begun = time.monotonic()
        for action in step.actions:
            await self._fleet.act(action)
        for (role, chip), codes in step.expect.items():
            self._faults[self._fleet.node(role).name][chip] = codes
        problems: list[str] = []
        if step.blind is not None:
            problems += await self._wait_for_blindness(*step.blind, wanted=True)
        if step.sighted is not None:
            problems += await self._wait_for_blindness(*step.sighted, wanted=False)
        if step.unchanged:
            await asyncio.sleep(_STEADY_SECONDS)
        device, cluster = await asyncio.gather(
            self._arrival("device-info", lambda: self._reader.device),
            self._arrival("cluster-info", lambda: self._reader.cluster),
        )
        problems += device.problems + cluster.problems
        return Result(
            number=number,
            step=step,
            at_seconds=begun - started,
            device_info_ms=None if step.unchanged else device.milliseconds_since(begun),
            cluster_info_ms=None if step.unchanged else cluster.milliseconds_since(begun),
            problems=tuple(problems),
        )

    def _wanted(self) -> dict[str, ChipsView]:
        return {node: ChipsView.expected(CHIPS, faults) for node, faults in self._faults.items()}

    async def _arrival(self, document: str, views: Callable[[], dict[str, ChipsView]]) -> _Arrival:
        wanted = self._wanted()
        reached_at = await self._reader.wait_until(
            lambda: all(views().get(node) == view for node, view in wanted.items()),
            _PATIENCE_SECONDS,
        )
        if reached_at is not None:
            return _Arrival(reached_at, [])
        return _Arrival(
            None,
            [
                f"{document} of {node} {_difference(views().get(node), view)}"
                for node, view in wanted.items()
                if views().get(node) != view
            ],
        )

    async def _wait_for_blindness(self, role: int, chip: int, *, wanted: bool) -> list[str]:
        node = self._fleet.node(role)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (chip in await self._see_blind(node)) != wanted:
            if time.monotonic() > deadline:
                state = "not reported blind" if wanted else "still reported blind"
                return [f"chip {chip} of {node.name} is {state} after {_PATIENCE_SECONDS:g} s"]
            await asyncio.sleep(_POLL_SECONDS)
        return []

    async def _see_blind(self, node: Node) -> frozenset[int]:
        try:
            self.blind[node.name] = await self._fleet.blind_chips(node)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return frozenset()
        return self.blind[node.name]


def _difference(seen: ChipsView | None, wanted: ChipsView) -> str:
    if seen is None:
        return "was never seen"
    different = [
        f"chip {chip} is {_words(seen, chip)}, expected {_words(wanted, chip)}"
        for chip in sorted(seen.free | seen.unhealthy | seen.faults.keys() | set(CHIPS))
        if _words(seen, chip) != _words(wanted, chip)
    ]
    return "says " + "; ".join(different)


def _words(view: ChipsView, chip: int) -> str:
    words = [
        name for name, ids in (("free", view.free), ("unhealthy", view.unhealthy)) if chip in ids
    ]
    words += [f"{code} {level}" for code, level in sorted(view.faults.get(chip, {}).items())]
    return ", ".join(words) or "in no list"


@dataclass(frozen=True)
class _Arrival:
    reached_at: float | None
    problems: list[str]

    def milliseconds_since(self, begun: float) -> float | None:
        return None if self.reached_at is None else (self.reached_at - begun) * 1000


async def check_store_is_ours(store: Store, nodes: Sequence[str]) -> None:
    """Refuse a store in which another aggregator or real nodes would be disturbed."""
    device = await store.list(Selection(label=("mx-consumer-cim", "true")))
    cluster = await store.list(Selection(label=("mx-consumer-volcano", "true")))
    ours = {f"mindx-dl-deviceinfo-{node}" for node in nodes}
    foreign = sorted({d.name for d in device} - ours) or [
        d.name for d in cluster if any(value for value in d.data.values())
    ]
    if foreign:
        what = (
            f"holds documents of a real cluster ({', '.join(foreign[:3])}); the demo writes "
            "cluster-info and would disturb it. Use an empty API server or directory"
        )
        raise ConfigurationError("vigil demo", [Problem(f"--store {store.url}", what)])


async def remove_documents(store: Store) -> None:
    """Remove what the demo left in a store that was empty before."""
    for label in (("mx-consumer-cim", "true"), ("mx-consumer-volcano", "true")):
        for document in await store.list(Selection(label=label)):
            await store.delete(document.namespace, document.name)


async def run(
    fleet: Fleet,
    reader: Reader,
    story: Sequence[Step],
    speed: float,
    show: Callable[[Result], None],
    player_made: Callable[[Player], None],
) -> Summary:
    """Start the fleet, play ``story``, and sum up. The fleet goes on running."""
    started = time.monotonic()
    player = Player(fleet, reader, speed, show)
    player_made(player)
    async with asyncio.TaskGroup() as group:
        followers = [
            group.create_task(reader.follow_device_info(), name="follow device-info"),
            group.create_task(reader.follow_cluster_info(), name="follow cluster-info"),
        ]
        await fleet.start()
        results = await player.play(story)
        for follower in followers:
            follower.cancel()
    problems = tuple(fleet.dead() + reader.errors)
    return Summary(results, problems, time.monotonic() - started)

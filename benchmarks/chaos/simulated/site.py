"""Plays a plan in virtual time: two agents and two aggregators on one store in memory.

Each episode begins with new programs and empty directories, so a plan always does the same.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks.chaos.excuses import PastTrouble, excuses_of
from benchmarks.chaos.plan import AGGREGATORS, NODES
from benchmarks.chaos.simulated.programs import (
    Program,
    SimulatedAggregator,
    SimulatedNode,
    replaced,
)
from benchmarks.chaos.simulated.store import SimulatedApiServer, SimulatedStore
from benchmarks.chaos.simulated.virtual_time import VirtualTimeLoop
from benchmarks.chaos.stage import Stage, timeline
from contract.names import LEADER_LEASE, LEADER_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence, Set
    from typing import Any

    from benchmarks.chaos.judge import Excuse, Fault, Sample
    from benchmarks.chaos.plan import Plan
    from tests.cluster.apiserver import Change

START_SECONDS = 8.0
"""From the start of all programs until an episode begins."""
_LOOK_SECONDS = 0.5
_END_SECONDS = 10.0
"""A task of a killed program that lasts longer has lost its cancellation."""
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files need no disk, for the directories of episodes; ``None``: there is no such place."""
_LEADER = f"/apis/coordination.k8s.io/v1/namespaces/{LEADER_NAMESPACE}/leases/{LEADER_LEASE}"
_DOCUMENTS = ("mindx-dl-deviceinfo-", "cluster-info-")
_OFF: dict[str, Any] = {"enabled": False}
AGENT_OPTIONS: dict[str, Any] = {
    "chip_faults": {"audit_period_seconds": 4, "health_period_seconds": 2},
    "driver": {"probe_period_seconds": 2},
    "heartbeat": {"interval_seconds": 2},
    "trust_driver": True,
    "bmc": _OFF,
    "hang": _OFF,
    "file_systems": _OFF,
    "memory": _OFF,
    "kernel_log": _OFF,
    "clock": _OFF,
    "storage": {"dpc_file": "", "dtfs_file": ""},
}
"""The periods of the real platforms. What the machine suffers from belongs to no episode."""
_PERIODS = "chip_faults", "driver", "heartbeat"


class Episode:
    """What came of a plan: what was true, what was shown, what is excused, and what was written."""

    def __init__(self) -> None:
        self.faults: dict[int, Fault] = {}
        self.samples: list[Sample] = []
        self.excuses: list[Excuse] = []
        self.writes: list[tuple[float, str, str, str]] = []
        self.crashes: list[BaseException] = []
        """Errors that ended a program."""
        self.going_on: list[str] = []
        """Names of tasks that did not end with their programs."""

    @property
    def errors(self) -> list[tuple[str, str]]:
        """What was wrong with the programs: the kind, and a text."""
        return [("a program ended", repr(error)) for error in self.crashes] + [
            ("a task went on", name) for name in self.going_on
        ]

    @property
    def parts(self) -> tuple[list[Fault], list[Sample], list[Excuse]]:
        """What was true, what was shown and what is excused."""
        return [*self.faults.values()], self.samples, self.excuses


class SimulatedSite(Stage):
    """The programs of one episode, in ``directory``."""

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[str] = NODES,
        aggregators: Sequence[str] = AGGREGATORS,
        start_seconds: float = START_SECONDS,
        periods: str = "short",
    ) -> None:
        super().__init__()
        options = AGENT_OPTIONS
        if periods == "shipped":
            options = {name: value for name, value in options.items() if name not in _PERIODS}
        self.api = SimulatedApiServer(self._changed)
        self.store: SimulatedStore = SimulatedStore(self.api)
        self.nodes = {name: SimulatedNode(name, directory / name, self, options) for name in nodes}
        self.aggregators = {
            name: SimulatedAggregator(name, directory / name, self, {}) for name in aggregators
        }
        self.programs: dict[str, Program] = {**self.nodes, **self.aggregators}
        self.episode = Episode()
        self.loop = asyncio.get_running_loop()
        self._began = start_seconds
        self._is_looking = False
        for namespace in ("mindx-dl", "kube-system", "cluster-system"):
            self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})

    @override
    def waits(self, seconds: float) -> float:
        # A busy machine does not make virtual time longer.
        return seconds

    @override
    def leads(self, aggregator: str) -> bool:
        status, lease = self.api.ask("GET", _LEADER)
        holder = lease["spec"].get("holderIdentity") if status == 200 else ""
        # After a release any of them may be the next one.
        return not holder or holder.startswith(aggregator)

    @property
    @override
    def now(self) -> float:
        return self.loop.time() - self._began

    async def play(self, plan: Plan) -> None:
        """Start everything, play the plan, and end everything."""
        for program in self.programs.values():
            program.start()
        await asyncio.sleep(self._began - self.loop.time())
        self._is_looking = True
        looking = asyncio.create_task(self._look(), name="look")
        episode, troubles = self.episode, list[PastTrouble]()
        for at, kind, number in timeline(plan):
            await asyncio.sleep(max(0.0, at - self.now))
            self.act(plan, kind, number, episode.faults, troubles)
        episode.excuses += excuses_of(troubles)
        self._is_looking = False
        looking.cancel()
        await self.close()

    async def close(self) -> None:
        """End all programs, with their files as they are."""
        for program in self.programs.values():
            program.kill()
            self.episode.crashes += program.crashes
        self.episode.writes = self.api.writes
        going_on = await self._going_on()
        self.episode.going_on += sorted(task.get_name() for task in going_on)
        # A task that lost its cancellation would try for ever to reach a store from which it is
        # cut off.
        for task in going_on:
            task.cancel()
        await self._going_on()

    async def _going_on(self) -> Set[asyncio.Task[object]]:
        """Wait for the end of all tasks; return those that go on behind ``_END_SECONDS``."""
        end = self.loop.time() + _END_SECONDS
        # A task that is cancelled may begin another, which closes something.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            if self.loop.time() >= end:
                break
            await asyncio.wait(others, timeout=end - self.loop.time())
        return others

    async def _look(self) -> None:
        while True:
            self._sample()
            await asyncio.sleep(_LOOK_SECONDS)

    def _sample(self) -> None:
        self.episode.samples += self.seen()

    def _changed(self, change: Change) -> None:
        # What is shown for a moment only is seen, too.
        if self._is_looking and (change.place.name or "").startswith(_DOCUMENTS):
            self.loop.call_soon(self._sample)


def play_in(directory: Path, plan: Plan) -> tuple[Episode, dict[str, Path]]:
    """Play a plan; return what came of it, and the state directory of each node."""
    site = run_site(
        lambda: SimulatedSite(directory, periods=plan.periods),
        lambda site: site.play(plan),
        plan.seed,
    )
    return site.episode, {name: node.state_dir for name, node in site.nodes.items()}


def run_site(
    make: Callable[[], SimulatedSite],
    work: Callable[[SimulatedSite], Coroutine[Any, Any, None]],
    seed: int,
) -> SimulatedSite:
    """Make a site on a loop in virtual time, do ``work`` with it, and return it."""

    async def run() -> SimulatedSite:
        surroundings = _Surroundings()
        with replaced(surroundings, seed):
            site = make()
            surroundings.api, surroundings.programs = site.api, site.programs
            await work(site)
        return site

    level, collects = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    # What ends with a cycle would end at a moment that depends on what was played before.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(run())
    finally:
        logging.disable(level)
        if collects:
            gc.enable()


class _Surroundings:
    """What the replacements need of a site, which is made after them."""

    api: SimulatedApiServer
    programs: dict[str, Program]

"""The daemon ends at every await of a run, and between its rounds; then it is there again.

In virtual time: a step is a second. Of two replicas the other one leads 11 s after the leader was
killed, and at once after an orderly end.

Awaits of one process in one step with no write between them are one place: what a process
remembers ends with it, so the cluster goes on in the same way from each of them.

All runs of a case are the same until the process ends. So one run is played to its end, and the
others continue copies of its steps.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from contract.documents.elastic_job import read_cause, read_kept
from elastic.job import JobQueue
from elastic.job_cache import KINDS
from tests.elastic.bench import STEP_MS, Bench, uid_of
from tests.elastic.jobs import OPEN
from tests.elastic.seeded_run import Killed, Process

if TYPE_CHECKING:
    from collections.abc import Callable

_FAULT_AT, _AWAY, _OVER_AT, _ROOM_AT, _OPEN_AT = 6, range(10, 13), 16, 24, 28
_STARTED_WITHIN = 60
"""Steps from when there is room and a daemon until the job is started."""
_LEASE_STEPS = 11
_QUIET_STEPS = 8
"""Steps in which another start would be made."""
_GAPS = (0, 3, 60, 3600)
"""For so many seconds there is no such process."""
_CLOSED = {"q": JobQueue("default", "Closed")}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_CALLS = (
    *("read", "pods", "node", "patch", "patch_status", "jobs", "is_commanded", "terminate"),
    *("delete_pod", "request"),
)


class Awaits:
    """Counts the awaits of all processes; the one with the number ``kill`` ends its process."""

    def __init__(self) -> None:
        self.count = 0
        self.places: dict[tuple[int, int, Scripted], int] = {}
        """The first await of each place: time, writes until then, and process."""
        self.states: set[str] = set()
        """The phases of the job at all of them."""
        self.kill: int | None = None

    def pass_one(self, process: Scripted) -> None:
        """Pass one; raises ``Killed``."""
        bench = process.bench
        self.places.setdefault((bench.now_ms, bench.writes, process), self.count)
        self.count += 1
        self.states.add(phase_of(bench))
        if self.count - 1 == self.kill:
            raise Killed


class Scripted(Process):
    """A process that may end before and after each request to others."""

    def __init__(self, bench: Bench, awaits: Awaits) -> None:
        super().__init__(bench)
        self._kill_in = None
        self.awaits = awaits


def _counted(call: Callable[..., Any]) -> Callable[..., Any]:
    async def counted(process: Scripted, *arguments: Any, **options: Any) -> Any:
        process.awaits.pass_one(process)
        answer = await call(process, *arguments, **options)
        process.awaits.pass_one(process)
        return answer

    return counted


# Not on the instance: a copy of a process would call the methods of the first one.
for _name in _CALLS:
    setattr(Scripted, _name, _counted(getattr(Process, _name)))


class Case(NamedTuple):
    """How the job ends: ``begins`` is what happens to the node of its first pod."""

    begins: Callable[[Bench, str], None]
    grace: int


def phase_of(bench: Bench) -> str:
    """Return the phase of the job."""
    found: str = bench.jobs["j"]["status"]["state"]["phase"]
    return found


def _evicted(bench: Bench, node: str) -> None:
    bench.nodes.bad[node] = bench.now_ms
    bench.evict(node)


def _failed(bench: Bench, node: str) -> None:
    """Let a pod fail because the link of another one is down; Volcano records nothing."""
    bench.nodes.links_down[node] = bench.now_ms
    bench.mine("j")[1]["phase"] = "Failed"


def _cut(bench: Bench, node: str) -> None:
    """Let the job hang over a link, so that it is ended by a Command."""
    bench.nodes.links_down[node] = bench.now_ms


CASES = {
    "evicted": Case(_evicted, 1),
    "evicted, long grace": Case(_evicted, 30),
    "failed by itself": Case(_failed, 2),
    "ended by a Command": Case(_cut, 1),
}


class Run:
    """One run of the script: its process may end for ``gap`` seconds after ``stop_at``."""

    def __init__(self, case: Case, replicas: int, *, has_history: bool = True) -> None:
        self.bench = bench = Bench(1)
        bench.has_history = has_history
        bench.jobs.clear()
        bench.originals.clear()
        bench.is_calm = True
        bench.grace = case.grace
        bench.create("j", 3)
        job = bench.jobs["j"]
        job["spec"]["policies"][0]["action"] = "TerminateJob"
        # A job over a network fault is ended only where there is another place.
        self._needs_room = case.begins is not _cut
        job["metadata"]["annotations"]["minReplicas"] = "3" if self._needs_room else "2"
        self.awaits = Awaits()
        self.gap = 0
        self.stop_at: int | None = None
        self._case = case
        self._processes: list[Scripted | None] = [self._process() for _ in range(replicas)]
        self._back_at = [0] * replicas
        self._leads_from = [0] * replicas
        self.is_kept = False
        """Whether the cause was on the job when a process ended."""
        self.started_at: int | None = None
        self.had_room_at = 0
        self._last_end = 0
        self._step = 0

    def _process(self) -> Scripted:
        return Scripted(self.bench, self.awaits)

    async def play(self) -> None:
        """Play until the job was started, or has had the time for that."""
        while await self.step():
            pass

    async def step(self) -> bool:
        """Play one step; return whether another one follows."""
        step = self._step
        self._happen(step)
        self.bench.step()
        await self._round_all(step)
        if self.started_at is None and self.bench.starts:
            self.started_at = step
        if self._is_quiet(step):
            if None not in self._processes:
                return False
            # Nothing happens to a job that runs until the other process is there again.
            step = self._leap(step)
        self._step = step + 1
        last = _OPEN_AT + _STARTED_WITHIN + _LEASE_STEPS + 2 * self._gap_steps + 10
        return self._step < last

    def _is_quiet(self, step: int) -> bool:
        """Whether the job was started, and has run for the time of another start."""
        started_at = self.started_at
        return started_at is not None and self._runs() and step > started_at + _QUIET_STEPS

    def _leap(self, step: int) -> int:
        """Let the time pass until the step before a process is there again; return that step."""
        before = max(step, max(self._back_at) - 1)
        self.bench.now_ms += (before - step) * STEP_MS
        return before

    def _runs(self) -> bool:
        """Whether the job has the phase Running with pods: it has none while its size is 0."""
        return phase_of(self.bench) == "Running" and len(self.bench.mine("j")) >= 2

    @property
    def _gap_steps(self) -> int:
        """An hour is a leap: nothing happens to a job that waits."""
        return min(self.gap, 60)

    def _happen(self, step: int) -> None:
        bench = self.bench
        bench.is_away = step in _AWAY
        if step == _FAULT_AT:
            if self._needs_room:
                bench.nodes.bad |= dict.fromkeys(("n3", "n4", "n5"), bench.now_ms)
            self._case.begins(bench, bench.mine("j")[0]["node"])
        if step == _OVER_AT and self._case.begins is not _cut:
            # The fault itself passes long before there is room.
            bench.queues = _CLOSED
            for faults in (bench.nodes.links_down, bench.nodes.bad):
                for node in [one for one in faults if one in ("n0", "n1", "n2")]:
                    bench.nodes.ends(faults, node, bench.now_ms)
            bench.nodes.bad |= {"n0": bench.now_ms}
        if step == _ROOM_AT and self._needs_room:
            bench.nodes.bad.clear()
        if step == _OPEN_AT:
            bench.queues = OPEN

    async def _round_all(self, step: int) -> None:
        leader = self._leader(step)
        for index, process in enumerate(self._processes):
            if process is None and step >= self._back_at[index]:
                process = self._processes[index] = self._process()
                if self.gap > 60:
                    self.bench.now_ms += (self.gap - 60) * 1000
            if process is None:
                continue
            process.leads = index == leader
            process.see(tuple(KINDS))
            try:
                await process.controller.round()
                if step == self.stop_at and index == leader:
                    self._end(index, step, takeover=0)
            except Killed:
                self._end(index, step, takeover=_LEASE_STEPS)

    def _leader(self, step: int) -> int | None:
        there = (i for i, one in enumerate(self._processes) if one is not None)
        return next((i for i in there if step >= self._leads_from[i]), None)

    def _end(self, index: int, step: int, *, takeover: int) -> None:
        self._processes[index] = None
        self._last_end = step
        self._back_at[index] = step + 1 + self._gap_steps
        self._leads_from = [step + takeover] * len(self._processes)
        self.is_kept = read_cause(self.bench.jobs["j"]["metadata"]["annotations"]) is not None

    def check(self) -> None:
        """Check that the job was started once, and as soon as that could be."""
        job = self.bench.jobs["j"]
        kept = read_kept(job["metadata"]["annotations"])
        assert kept is not None, "it is never started"
        assert kept.start == 1
        assert self._runs()
        assert self.started_at is not None
        assert read_cause(job["metadata"]["annotations"]) is None, "the start removes the cause"
        waits = 0 if self._needs_room else _FAULT_AT + 20
        since = max(_OPEN_AT if self._needs_room else waits, self._last_end + self._gap_steps)
        assert self.started_at <= since + _LEASE_STEPS + _STARTED_WITHIN
        assert uid_of(job) not in self.bench.evicted


async def untouched(run: Run) -> list[Run]:
    """Play a run in which no process ends; return copies of it, each before a step."""
    copies = [deepcopy(run)]
    while await run.step():
        copies.append(deepcopy(run))
    return copies


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("case", "gaps"),
    [
        *(("evicted", (gap,)) for gap in _GAPS),
        *((case, _GAPS) for case in CASES if case != "evicted"),
    ],
)
async def test_one_start_follows_though_the_daemon_ends_at_any_await(
    case: str, gaps: tuple[int, ...], replicas: int
) -> None:
    """With several gaps each await has another one than the await before.

    An eviction is tried with every gap at every await, which has all pairs that several would have.
    """
    first = Run(CASES[case], replicas)
    steps = await untouched(first)
    first.check()
    assert {"Running", "Terminated"} & first.awaits.states, "states of the job are passed"
    assert len(first.awaits.places) > 40
    for index, number in enumerate(first.awaits.places.values()):
        run = deepcopy(next(step for step in reversed(steps) if step.awaits.count <= number))
        run.gap, run.awaits.kill = gaps[index % len(gaps)], number
        await run.play()
        try:
            run.check()
        except AssertionError as error:
            error.add_note(f"ended at await {number} of {first.awaits.count}, for {run.gap} s")
            raise


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("case", CASES)
async def test_one_start_follows_an_orderly_end_at_any_time(case: str, replicas: int) -> None:
    steps = await untouched(Run(CASES[case], replicas))
    for step in range(1, _OPEN_AT + 6):
        run = deepcopy(steps[step])
        run.gap, run.stop_at = _GAPS[step % 4], step
        await run.play()
        try:
            run.check()
        except AssertionError as error:
            error.add_note(f"ended after step {step}")
            raise


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("case", CASES)
async def test_what_is_on_the_job_is_enough_where_the_history_is_lost(
    case: str, replicas: int
) -> None:
    kept = 0
    steps = await untouched(Run(CASES[case], replicas, has_history=False))
    for step in range(_FAULT_AT, _OPEN_AT + 2):
        run = deepcopy(steps[step])
        run.gap, run.stop_at = 3600, step
        await run.play()
        if run.is_kept:
            kept += 1
            run.check()
    assert kept > 20

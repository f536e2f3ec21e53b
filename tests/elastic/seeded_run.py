"""One run of one or two processes of elastic training in a cluster in memory, by its seed.

What each process knew when it wrote is kept, so that a Command and a forced deletion are compared
with how long the fault had stood then.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.checks.ended_vcjobs import NETWORK, EndedJob, EndedJobs, FaultUnder
from advisor.report import ElasticAdvice
from contract.errors import StoreNotFound, StoreUnavailable
from elastic.aggregator_client import AggregatorReply
from elastic.controller import ElasticController
from elastic.job import read_group, read_job, read_pod
from elastic.job_cache import KINDS, QUEUES, SCHEDULER, evictions_of
from service.clock import Instant
from stores.cluster import Snapshot
from tests.elastic.bench import (
    STEP_MS,
    Bench,
    command_name,
    least_of,
    raw_group,
    raw_of,
    raw_pod,
    text_of,
    uid_of,
)
from tests.parts.kubernetes_object import made_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from advisor.snapshot import VcJob
    from elastic.decision import RestartDecision

STEPS = 160
_SETTLED_STEPS = 120
_GRACE_OVER_TIME = 20
_LINK_DOWN_MS = 20_000
_STOPPED = 0.02
"""How often a process is ended between two rounds."""
_GAPS_STEPS = (0, 0, 1, 3, 10, 60)
"""After so many steps it is there again."""
_CAUSELESS = ("no-cause", "cause-not-known")


# A watch shows an object when it changes, and not once a step. What is read is frozen.
_job = lru_cache(maxsize=256)(read_job)
_pod = lru_cache(maxsize=1024)(read_pod)


class Killed(Exception):
    """The process ends here."""


class Seen(msgspec.Struct, frozen=True):
    """What the aggregator last answered: since when links of jobs are down and nodes are silent.

    ``links`` is by the uid of the job; ``at_ms`` is when that was so.
    """

    at_ms: int = 0
    links: dict[str, int] = {}
    silent: dict[str, int] = {}
    is_alarm: bool = False


class Process:
    """One instance of ``ElasticController``, with a view of the cluster that is behind."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.leads = True
        self.holder = ""
        self._kill_in = bench.chance.choice((None, None, None, 1, 2, 3, 4))
        self._seen = Seen()
        self._not_ready: dict[str, tuple[int, int | None]] = {}
        """Nodes that were read: when, and since when they were NotReady then."""
        part: Any = self
        self.controller = ElasticController(
            part,
            part,
            part,
            part,
            self._now,
            acts=True,
            ends_on_network_faults=True,
            deletes_on_dead_nodes=True,
        )
        self.see(tuple(KINDS))

    def _now(self) -> Instant:
        return Instant(self.bench.now_ms, self.bench.now_ms)

    def see(self, kinds: Sequence[str]) -> None:
        """Observe all objects of each kind, as watches show them."""
        bench, observe = self.bench, self.controller.cache.update
        for kind in kinds:
            if kind == "jobs":
                items: dict[str, Any] = {uid_of(j): _job(raw_of(j)) for j in bench.jobs.values()}
            elif kind == "pods":
                items = {uid: _pod(raw) for uid, raw in bench.raw_pods().items()}
            elif kind == "groups":
                items = {uid: read_group(raw_group(uid)) for uid in bench.groups}
            elif kind == QUEUES:
                items = bench.queues
            elif kind == SCHEDULER:
                items = {"s": _GRACE_OVER_TIME}
            else:
                entries = {k: {"RescheduleRecords": v} for k, v in bench.records.items()}
                data = {"recent-reschedule-records": json.dumps(entries)}
                configmap = {"metadata": {"name": "records"}, "data": data}
                items = {"r": evictions_of(made_of(configmap))}
            observe(kind, Snapshot(items))

    async def read(self, _namespace: str, name: str) -> bytes:
        """See ``VcJobs``."""
        self._ask(0.03)
        if name not in self.bench.jobs:
            raise StoreNotFound(f"{name} is not there")
        return raw_of(self.bench.jobs[name])

    async def pods(self, _namespace: str, name: str) -> list[msgspec.Raw]:
        """See ``VcJobs``."""
        mine = (pod for pod in self.bench.pods.values() if pod["job"] == name)
        return [msgspec.Raw(raw_pod(pod)) for pod in mine]

    async def node(self, name: str) -> bytes:
        """See ``VcJobs``."""
        self._ask(0.03)
        bench = self.bench
        since_ms = bench.nodes.not_ready.get(name)
        self._not_ready[name] = (bench.now_ms, since_ms)
        ready = {"type": "Ready", "status": "True" if since_ms is None else "Unknown"}
        ready["lastTransitionTime"] = text_of(since_ms or 0)
        return raw_of({"metadata": {"name": name}, "status": {"conditions": [ready]}})

    async def patch(self, _namespace: str, name: str, patch: list[dict[str, Any]]) -> str:
        """See ``VcJobs``."""
        write = partial(self.bench.write, name, patch[0]["value"], None, patch)
        return str(self._write(write))

    async def patch_status(self, _namespace: str, name: str, patch: dict[str, Any]) -> str:
        """See ``VcJobs``."""
        version = patch["metadata"]["resourceVersion"]
        return str(self._write(partial(self.bench.write, name, version, patch["status"], None)))

    async def jobs(self) -> list[msgspec.Raw]:
        """See ``VcJobs``."""
        self._ask(0.03)
        return [msgspec.Raw(raw_of(job)) for job in self.bench.jobs.values()]

    async def is_commanded(self, _namespace: str, name: str, uid: str) -> bool:
        """See ``VcJobs``."""
        self._ask(0.03)
        return command_name(name, uid) in self.bench.commands

    async def terminate(self, _namespace: str, name: str, uid: str) -> None:
        """See ``VcJobs``. The link was down for 20 s by what this process knew."""
        seen = self._seen
        stood_ms = seen.at_ms - seen.links.get(uid, seen.at_ms)
        why = f"seed {self.bench.seed}: {name} is ended, its link down for {stood_ms} ms"
        assert stood_ms >= _LINK_DOWN_MS, why
        self._write(partial(self.bench.terminate, name, uid))

    async def delete_pod(self, _namespace: str, name: str, uid: str) -> None:
        """See ``VcJobs``. The node was silent and NotReady all the time, by what was known."""
        bench, seen = self.bench, self._seen
        pod = bench.pods.get(name)
        if pod is not None and pod["uid"] == uid:
            node, why = pod["node"], f"seed {bench.seed}: {name} is deleted by force"
            at_ms, since_ms = self._not_ready[node]
            grace_ms = _GRACE_OVER_TIME * 1000
            assert not seen.is_alarm, why
            assert seen.at_ms - seen.silent.get(node, seen.at_ms) > grace_ms, f"{why}: not silent"
            assert since_ms is not None, f"{why}: Ready"
            assert at_ms - since_ms > grace_ms, f"{why}: not ready for {at_ms - since_ms} ms"
            assert pod["deleted_at_ms"] <= bench.now_ms, f"{why}: within its grace"
        self._write(partial(bench.delete_pod, name, uid))

    def _write(self, write: Callable[[], object]) -> object:
        """Lose a write, delay it or its answer; or end the process before or after it."""
        self._end()
        self._ask(0.05)
        bench = self.bench
        if not bench.is_calm and bench.chance.random() < 0.05:
            at_ms = bench.now_ms + bench.chance.randint(1, 5) * STEP_MS
            bench.late.append((at_ms, write))
            raise StoreUnavailable("no answer in time")
        new = write()
        self._end()
        self._ask(0.05)
        return new

    def _ask(self, share: float) -> None:
        """Lose an answer, or have it come some seconds late."""
        bench = self.bench
        if bench.is_away:
            raise StoreUnavailable("no answer in time")
        if bench.is_calm:
            return
        if bench.chance.random() < share:
            raise StoreUnavailable("no answer in time")
        if bench.chance.random() < 0.02:
            self._wait()

    def _wait(self) -> None:
        for _ in range(self.bench.chance.randint(1, 9)):
            self.bench.step()

    def _end(self) -> None:
        if self._kill_in is not None and not self.bench.is_calm:
            self._kill_in -= 1
            if self._kill_in == 0:
                raise Killed

    async def request(
        self, sized: Sequence[VcJob], judged: Sequence[VcJob], *, running: bool, hit: bool
    ) -> AggregatorReply:
        """See ``Aggregators``: the largest size that there are nodes for."""
        bench = self.bench
        # A fault has to be seen for 20 s without a gap.
        share = 0.1 if sized or judged else 0.01
        if not bench.is_calm and bench.chance.random() < share:
            return AggregatorReply(troubles=("the aggregator is away",))
        found = []
        waiting = sum(1 for pod in bench.pods.values() if not pod["node"])
        room = max(0, len(bench.free()) - waiting)
        for job in (*sized, *judged):
            item = bench.jobs.get(job.name)
            most = bench.originals.get(job.name, 0)
            count = self._fitting(item, min(most, room))
            room -= count
            why = f"there is room for {room} × 8 chips"
            advice = ElasticAdvice("default", job.name, replicas=count or None, cards=8, why=why)
            version = int(job.version)
            given = advice if job in sized else None
            if job in judged and job.uid == (uid_of(item) if item else ""):
                found.append(self._judged(job.name, version, given))
            else:
                found.append(EndedJob("default", job.name, version, given, not_known=None))
        over, links = self._over(room) if running else ([], {})
        versions = [int(one["metadata"]["resourceVersion"]) for one in bench.jobs.values()]
        nodes = bench.nodes
        seen = Seen(bench.now_ms, links, dict(nodes.silent), nodes.is_alarm)
        if not bench.is_calm and bench.chance.random() < 0.05:
            self._wait()
        self._seen = seen
        under = tuple(self._hit()) if hit else ()
        ended = EndedJobs(max(versions, default=0), (), tuple(found), tuple(over), under)
        alarm = ("silence alarm",) if seen.is_alarm else ()
        return AggregatorReply(ended, alarm, frozenset(seen.silent))

    def _judged(self, name: str, version: int, advice: ElasticAdvice | None) -> EndedJob:
        """Return the faults under the pods of a job when it ended: the history has them all."""
        if not self.bench.has_history:
            return EndedJob("default", name, version, advice, self._under(name))
        faults = tuple(FaultUnder(*one, is_past=True) for one in self.bench.faults_at_end(name))
        return EndedJob("default", name, version, advice, faults, not_known="")

    def _under(self, name: str) -> tuple[FaultUnder, ...]:
        """Return the faults under the pods that a job has."""
        bench = self.bench
        nodes = {pod["node"] for pod in bench.mine(name)}
        found = bench.nodes.between(bench.now_ms, bench.now_ms)
        return tuple(FaultUnder(*one) for one in found if one[1] in nodes)

    def _hit(self) -> Iterator[EndedJob]:
        """Return the jobs with pods over a fault."""
        for name, item in self.bench.jobs.items():
            if faults := self._under(name):
                version = int(item["metadata"]["resourceVersion"])
                yield EndedJob("default", name, version, None, faults)

    @staticmethod
    def _fitting(job: dict[str, Any] | None, most: int) -> int:
        """Return how many pods are advised where there is room for ``most``."""
        return most if job is not None and most >= least_of(job) else 0

    def _over(self, room: int) -> tuple[list[EndedJob], dict[str, int]]:
        """Return the jobs of several pods that run over a network fault, and since when."""
        bench, found, links = self.bench, [], {}
        for name, item in bench.jobs.items():
            used = {pod["node"] for pod in bench.mine(name)}
            cut = {node: at for node, at in bench.nodes.links_down.items() if node in used}
            if item["status"]["state"]["phase"] != "Running" or len(used) < 2 or not cut:
                continue
            if not used.isdisjoint((*bench.nodes.bad, *bench.nodes.silent)):
                continue  # It is the scheduler's.
            most = min(bench.originals[name], room + len(used) - len(cut))
            count = self._fitting(item, most)
            version = int(item["metadata"]["resourceVersion"])
            faults = tuple(FaultUnder(NETWORK, node, at_ms) for node, at_ms in sorted(cut.items()))
            advice = ElasticAdvice("default", name, replicas=count or None, cards=8)
            found.append(EndedJob("default", name, version, advice, faults))
            links[uid_of(item)] = min(cut.values())
        return found, links

    def report_state(self, job: VcJob, state: str, why: str, *, is_overdue: bool = False) -> None:
        """See ``JobEvents``."""

    def report_write(self, job: VcJob, decision: RestartDecision) -> None:
        """See ``JobEvents``."""


def run(seed: int) -> Bench:
    """Play one run; returns the cluster at its end. Raises ``AssertionError``."""
    return asyncio.run(_run(seed))


async def _run(seed: int) -> Bench:
    bench = Bench(seed)
    processes: list[Process | None] = [Process(bench) for _ in range(bench.chance.randint(1, 2))]
    back_at = [0] * len(processes)
    kinds = tuple(KINDS)
    for number in range(STEPS + _SETTLED_STEPS):
        if number >= STEPS:
            bench.calm_down()
        bench.step()
        for index, process in enumerate(processes):
            if process is None and (number >= back_at[index] or bench.is_calm):
                process = processes[index] = Process(bench)
            if process is None:
                continue
            seen = kinds if bench.is_calm else [k for k in kinds if bench.chance.random() < 0.7]
            process.see(seen)
            # Now and then both lead.
            process.leads = index == 0 if bench.is_calm else bench.chance.random() < 0.7
            try:
                await process.controller.round()
                if not bench.is_calm and bench.chance.random() < _STOPPED:
                    raise Killed
            except Killed:
                processes[index] = None
                back_at[index] = number + bench.chance.choice(_GAPS_STEPS)
    last = processes[0]
    assert last is not None
    _check_end(bench, last)
    return bench


def _check_end(bench: Bench, process: Process) -> None:
    states = {one.name: one for one in process.controller.jobs}
    for name, job in bench.jobs.items():
        assert uid_of(job) not in bench.deleted, f"seed {bench.seed}"
        phase = job["status"]["state"]["phase"]
        if phase == "Running" and job["spec"]["tasks"][0]["replicas"]:
            continue
        shown = states[name]
        waits = (
            "no-cause",
            "cause-not-known",
            "waiting-for-room",
            "too-many-starts",
            "starting",
            "conditions",
        )
        assert shown.state in waits, f"seed {bench.seed}: {name} is {phase}: {shown}"
        is_without = shown.state in _CAUSELESS
        is_forgotten = uid_of(job) in bench.evicted and is_without
        assert not is_forgotten, f"seed {bench.seed}: {name} was evicted, and is not started again"
        is_left = uid_of(job) in bench.ending and is_without
        assert not is_left, f"seed {bench.seed}: {name} was ended by us and stays so"
        assert shown.why, f"seed {bench.seed}: {name} waits without a reason"

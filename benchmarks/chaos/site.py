"""A platform of real parts: two agents on emulated hardware, two aggregators, and their store."""

from __future__ import annotations

import dataclasses
import fcntl
import http.client
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import psutil
from typing_extensions import override

from benchmarks.chaos.excuses import PastTrouble, excuses_of
from benchmarks.chaos.host import HostDaemon, HostNode, build_library
from benchmarks.chaos.plan import AGGREGATORS, NODES
from benchmarks.chaos.stage import Stage, StorePlatform, timeline
from benchmarks.chaos.troubles import CLUSTER_INFO, Effect
from contract.names import LEADER_LEASE
from stores.directory.files import LEADER_LOCK_NAME
from tests.parts.controlplane import LEASES, ControlPlane
from tests.parts.deadlines import TooLate, wait_until
from tests.parts.places import Cluster, Folder, Place
from tests.parts.processes import PartFailed

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Collection, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from benchmarks.chaos.judge import Excuse, Fault, Sample
    from benchmarks.chaos.plan import Plan

_LOOK_SECONDS = 0.1
_START_SECONDS = 30.0
_MAX_WAITING = 4
"""So many troubles may have stopped agents that do not answer yet; a plan has no more."""
_MAX_ANSWER_SECONDS = 8.0
"""An agent that needs longer than this for its answer is slow by itself."""
_SETTLE_SECONDS = 60.0
_SHORT_PERIODS = {
    "VIGIL_CHIP_FAULTS_AUDIT_PERIOD_SECONDS": "4",
    "VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS": "2",
    "VIGIL_DRIVER_CALLS_PROBE_PERIOD_SECONDS": "2",
    "VIGIL_HEARTBEAT_INTERVAL_SECONDS": "2",
}
_OFF = {
    "VIGIL_BMC_ENABLED": "false",
    "VIGIL_HANG_ENABLED": "false",
    "VIGIL_KERNEL_LOG_ENABLED": "false",
}


class RealPlatform(StorePlatform, Protocol):
    """A store of real parts, of which it is visible which aggregator leads."""

    def leader(self) -> str:
        """Return the name of the aggregator that leads; empty where there may be none."""


class DirectoryPlatform:
    """A directory, which is renamed."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "store"
        self.place: Place = Folder(self._root)

    def take(self) -> None:
        """Rename the directory."""
        self._root.rename(self._root.with_name("away"))

    def give(self) -> None:
        """Rename it back; what was made meanwhile in its place gets another name."""
        if self._root.exists():
            self._root.rename(self._root.with_name(f"made-meanwhile-{time.time_ns()}"))
        self._root.with_name("away").rename(self._root)

    def leader(self) -> str:
        """Return the content of the file that the leader locks."""
        try:
            with (self._root / LEADER_LOCK_NAME).open() as file:
                # The kernel has released it where its holder has ended; the name stays.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return (self._root / LEADER_LOCK_NAME).read_text()
        except OSError:
            pass
        return ""


class KubernetesPlatform:
    """A real API server with its etcd, which is killed."""

    def __init__(self, directory: Path) -> None:
        place = directory / "control-plane"
        place.mkdir()
        self.plane = ControlPlane(place)
        self.plane.start()
        self.place: Place = Cluster(self.plane)

    def take(self) -> None:
        """Kill the API server."""
        self.plane.kill_apiserver()

    def give(self) -> None:
        """Start the API server."""
        self.plane.start_apiserver()

    def leader(self) -> str:
        """Return the holder of the Lease."""
        try:
            status, lease = self.plane.ask("GET", f"{LEASES}/{LEADER_LEASE}")
        except (OSError, http.client.HTTPException):
            return ""
        return lease["spec"].get("holderIdentity") or "" if status == 200 else ""


def open_platform(platform: str, directory: Path, stack: contextlib.ExitStack) -> RealPlatform:
    """Return the store of a real platform, which ``stack`` ends."""
    if platform == "kubernetes":
        kubernetes = KubernetesPlatform(directory)
        stack.callback(kubernetes.plane.stop)
        return kubernetes
    if platform == "mqtt":
        # Its module needs the client of a broker, and the other platforms do not.
        from benchmarks.chaos.broker import MqttPlatform

        mqtt = MqttPlatform(directory)
        stack.callback(mqtt.close)
        return mqtt
    return DirectoryPlatform(directory)


class Answers:
    """Waits beside an episode until agents that a trouble has stopped answer again.

    The bound of the trouble counts from then on: on a busy machine a process may take seconds until
    its program runs.
    """

    def __init__(self, nodes: Mapping[str, Any], now: Callable[[], float]) -> None:
        self._nodes = nodes
        self._now = now
        self._threads = ThreadPoolExecutor(_MAX_WAITING)
        self._ends: dict[int, Future[float]] = {}

    def note(self, past: Sequence[PastTrouble]) -> None:
        """Wait for the agents of the last trouble, if it is one of those."""
        number = len(past) - 1
        if past and number not in self._ends and Effect.STOPS in past[-1].trouble.effects:
            self._ends[number] = self._threads.submit(self._answer, past[-1].nodes)

    def ended(self, past: Sequence[PastTrouble]) -> list[PastTrouble]:
        """Return the troubles with the ends by which their agents answer.

        That of a trouble stays where an agent does not come up: a later trouble has ended it.
        """
        troubles = [*past]
        for number, answered in self._ends.items():
            if answered.exception() is None:
                ended = troubles[number].end
                end = max(ended, min(answered.result(), ended + _MAX_ANSWER_SECONDS))
                troubles[number] = dataclasses.replace(troubles[number], end=end)
        self._threads.shutdown()
        return troubles

    def _answer(self, nodes: Collection[str]) -> float:
        for name in nodes:
            self._nodes[name].up()
        return self._now()


class Site(Stage):
    """Plays plans, one after the other, on one set of processes; looks at the documents all the
    time.
    """

    def __init__(
        self,
        directory: Path,
        built: Path,
        store: RealPlatform,
        aggregators: Sequence[str] = AGGREGATORS,
        program: str = "vigil",
    ) -> None:
        """Make everything; ``program`` is the module that aggregators are started from."""
        super().__init__()
        self.store: RealPlatform = store
        self._directory = directory
        library = build_library(directory)
        self.nodes = {
            name: HostNode(directory / name, built, self.place, name, library) for name in NODES
        }
        for node in self.nodes.values():
            node.environment |= _SHORT_PERIODS | _OFF
        self.aggregators = {
            name: HostDaemon(directory / name, library, *self.place.options) for name in aggregators
        }
        for aggregator in self.aggregators.values():
            aggregator.program = program
        self.errors: list[tuple[str, str]] = []
        """What was wrong after the last episode: kinds and texts."""
        self._periods = "short"
        self._is_started = False
        self._samples: list[Sample] = []
        self._began = 0.0
        self._looking = False

    @property
    def programs(self) -> list[str]:
        """The names of all programs, which their directories have, too."""
        return [*self.nodes, *self.aggregators]

    @property
    @override
    def now(self) -> float:
        return time.monotonic() - self._began

    @override
    def leads(self, aggregator: str) -> bool:
        if aggregator not in self.aggregators:
            return False
        holder = self.store.leader()
        # Its name ends with what is in its state directory. After a release any may be the next.
        mark = (self._directory / aggregator / "identity").read_text().strip()
        return not holder or holder.endswith(mark)

    @override
    def crash_driver(self, node: str) -> None:
        self.nodes[node].crash_driver()

    def _start(self) -> None:
        """Start everything, unless it runs; return when both nodes are in cluster-info."""
        if self._is_started:
            return
        self._is_started = True
        for node in self.nodes.values():
            node.start()
        for aggregator in self.aggregators.values():
            aggregator.spawn()
        for node in self.nodes.values():
            node.healthy()
        self.nodes[NODES[0]].wait(self._is_settled, "both nodes are published")

    def _set_periods(self, periods: str) -> None:
        """Restart the agents with short or shipped periods, unless they have them."""
        if periods == self._periods:
            return
        self._periods = periods
        for node in self.nodes.values():
            node.stop()
            for name in _SHORT_PERIODS:
                node.environment.pop(name, None)
            if periods == "short":
                node.environment |= _SHORT_PERIODS
            node.start()
        # Until the new agent writes, the store has the document of the one before.
        for node in self.nodes.values():
            node.up()
            node.ready(_START_SECONDS)
        self.nodes[NODES[0]].wait(self._is_settled, "both nodes are published")

    def close(self) -> None:
        """End everything."""
        for aggregator in self.aggregators.values():
            aggregator.stop()
        for node in self.nodes.values():
            node.close()

    def play(self, plan: Plan) -> tuple[list[Fault], list[Sample], list[Excuse]]:
        """Play a plan; return what was true, what was shown, and what was excused.

        The first one starts everything. Once there are errors, no other one can be played.
        """
        self._samples, self.errors = [], []
        faults: dict[int, Fault] = {}
        troubles: list[PastTrouble] = []
        try:
            self._start()
            self._set_periods(plan.periods)
            self._act_all(plan, faults, troubles)
        except (PartFailed, TooLate) as error:
            self.errors.append(("a program did not come up", str(error)))
        except psutil.NoSuchProcess as error:
            self.errors.append(("a program ended", str(error)))
        except subprocess.TimeoutExpired as error:
            self.errors.append(("a program did not end", str(error)))
        samples = self._samples
        if not self.errors:
            self._recover(plan, faults)
        return list(faults.values()), samples, excuses_of(troubles)

    def _act_all(self, plan: Plan, faults: dict[int, Fault], troubles: list[PastTrouble]) -> None:
        self._began, self._looking = time.monotonic(), True
        looking = threading.Thread(target=self._look, daemon=True)
        looking.start()
        answers = Answers(self.nodes, lambda: self.now)
        try:
            for at, kind, number in timeline(plan):
                time.sleep(max(0.0, self._began + at - time.monotonic()))
                self.act(plan, kind, number, faults, troubles)
                answers.note(troubles)
        finally:
            self._looking = False
            looking.join()
            troubles[:] = answers.ended(troubles)

    def _recover(self, plan: Plan, faults: dict[int, Fault]) -> None:
        """End what holds, and wait until the next episode can begin."""
        for number, fault in faults.items():
            if fault.end is None and not fault.once:
                self.nodes[fault.node].emulator.recover(fault.chip, plan.faults[number].code)
        try:
            wait_until(self._is_settled, "all documents are without a fault", _SETTLE_SECONDS)
        except TooLate as error:
            self.errors.append(("documents stay wrong after the episode", str(error)))
            for program in (*self.nodes.values(), *self.aggregators.values()):
                # Its log gets the stacks of all threads, and is kept.
                program.process.signal(signal.SIGABRT)
        for node in self.nodes.values():
            # An event that is still to be lost would be one of the next episode, without an excuse.
            node.emulator.reset()

    def _is_settled(self) -> bool:
        samples = {
            (sample.document, sample.nodes): sample for sample in self.seen() if not sample.is_gone
        }
        # One for each node, and one for the cluster, with both nodes.
        is_whole = len(samples) == 3 and (CLUSTER_INFO, frozenset(NODES)) in samples
        return is_whole and not any(sample.levels or sample.lost for sample in samples.values())

    def _look(self) -> None:
        while self._looking:
            for sample in self.seen():
                self._samples.append(sample)
            time.sleep(_LOOK_SECONDS)

"""A platform of real parts: two agents on emulated hardware, two aggregators, and their store."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks.chaos.excuses import PastTrouble, excuses_of
from benchmarks.chaos.plan import AGGREGATORS, NODES
from benchmarks.chaos.stage import Stage, entries_of, timeline
from benchmarks.chaos.troubles import CLUSTER_INFO
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.controlplane import ControlPlane
from tests.parts.places import Cluster, Folder

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.chaos.judge import Excuse, Fault, Sample
    from benchmarks.chaos.plan import Plan
    from benchmarks.chaos.stage import StorePlatform
    from tests.parts.places import Place

_LOOK_SECONDS = 0.1
_SHORT_PERIODS = {
    "VIGIL_CHIP_FAULTS_AUDIT_PERIOD_SECONDS": "4",
    "VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS": "2",
    "VIGIL_DRIVER_CALLS_PROBE_PERIOD_SECONDS": "2",
    "VIGIL_HEARTBEAT_INTERVAL_SECONDS": "2",
    "VIGIL_BMC_ENABLED": "false",
    "VIGIL_HANG_ENABLED": "false",
    "VIGIL_KERNEL_LOG_ENABLED": "false",
}


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


def open_platform(platform: str, directory: Path, stack: contextlib.ExitStack) -> StorePlatform:
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


class Site(Stage):
    """Plays plans, one after the other, on one set of processes; looks at the documents all the
    time.
    """

    def __init__(
        self,
        directory: Path,
        built: Path,
        store: StorePlatform,
        aggregators: Sequence[str] = AGGREGATORS,
        program: str = "vigil",
    ) -> None:
        """Make everything; ``program`` is the module that aggregators are started from."""
        super().__init__()
        self.store = store
        self.nodes = {name: Node(directory / name, built, self.place, name) for name in NODES}
        for node in self.nodes.values():
            node.environment |= _SHORT_PERIODS
        self.aggregators = {
            name: Daemon(directory / name, *self.place.options) for name in aggregators
        }
        for aggregator in self.aggregators.values():
            aggregator.program = program
        self._samples: list[Sample] = []
        self._began = 0.0
        self._looking = False

    @property
    @override
    def now(self) -> float:
        return time.monotonic() - self._began

    def start(self) -> None:
        """Start everything; return when both nodes are in cluster-info."""
        for node in self.nodes.values():
            node.start()
        for aggregator in self.aggregators.values():
            aggregator.spawn()
        for node in self.nodes.values():
            node.healthy()
        self.nodes[NODES[0]].wait(
            lambda: self._published() == len(NODES),
            "both nodes are published",
        )

    def _published(self) -> int:
        data = self.place.read("cluster-info-device-0")
        return 0 if data is None else len(entries_of(data["cluster-info-device-0"]))

    def close(self) -> None:
        """End everything."""
        for aggregator in self.aggregators.values():
            aggregator.stop()
        for node in self.nodes.values():
            node.close()

    def play(self, plan: Plan) -> tuple[list[Fault], list[Sample], list[Excuse]]:
        """Play a plan; return what was true, what was shown, and what was excused."""
        self._samples, self._began, self._looking = [], time.monotonic(), True
        looking = threading.Thread(target=self._look, daemon=True)
        looking.start()
        faults: dict[int, Fault] = {}
        troubles: list[PastTrouble] = []
        try:
            for at, kind, number in timeline(plan):
                time.sleep(max(0.0, self._began + at - time.monotonic()))
                self.act(plan, kind, number, faults, troubles)
        finally:
            self._looking = False
            looking.join()
        samples = self._samples
        self._recover(plan, faults)
        return list(faults.values()), samples, excuses_of(troubles)

    def _recover(self, plan: Plan, faults: dict[int, Fault]) -> None:
        """End what holds, and wait until the next episode can begin."""
        for number, fault in faults.items():
            if fault.end is None:
                self.nodes[fault.node].emulator.recover(fault.chip, plan.faults[number].code)
        self._samples = []

        def is_settled() -> bool:
            samples = {(sample.document, sample.nodes): sample for sample in self.seen()}
            # One for each node, and one for the cluster, with both nodes.
            is_whole = len(samples) == 3 and (CLUSTER_INFO, frozenset(NODES)) in samples
            return is_whole and not any(sample.levels or sample.lost for sample in samples.values())

        self.nodes[NODES[0]].wait(is_settled, "all documents are without a fault", 60)

    def _look(self) -> None:
        while self._looking:
            for sample in self.seen():
                self._samples.append(sample)
            time.sleep(_LOOK_SECONDS)

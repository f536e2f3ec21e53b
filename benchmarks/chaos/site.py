"""A platform of real parts: two agents on emulated hardware, two aggregators, and their store."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, Protocol

from benchmarks.chaos.judge import Excuse, Fault, Sample
from benchmarks.chaos.plan import AGGREGATORS, NODES
from benchmarks.chaos.troubles import CLUSTER_INFO, DEVICE_INFO, TROUBLES
from contract.names import CLUSTER_NODE_NAME
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import patience
from tests.parts.places import Cluster, Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.chaos.plan import Plan
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
_FAULT_SUFFIX = "-Fault"


class StorePlatform(Protocol):
    """The store of a platform, which can be taken away and given back."""

    @property
    def place(self) -> Place:
        """The store as a stranger reads and writes it."""

    def take(self) -> None:
        """Take it away from everybody."""

    def give(self) -> None:
        """Give it back as it was."""


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


class Site:
    """Plays plans, one after the other, on one set of processes; looks at the documents all the
    time.
    """

    def __init__(self, directory: Path, built: Path, store: StorePlatform) -> None:
        self.store = store
        self.place = store.place
        self.nodes = {name: Node(directory / name, built, self.place, name) for name in NODES}
        for node in self.nodes.values():
            node.environment |= _SHORT_PERIODS
        self.aggregators = {
            name: Daemon(directory / name, *self.place.options) for name in AGGREGATORS
        }
        self._samples: list[Sample] = []
        self._began = 0.0
        self._looking = False
        self.read_errors = 0

    def start(self) -> None:
        """Start everything; return when both nodes are in cluster-info."""
        for node in self.nodes.values():
            node.start()
        for aggregator in self.aggregators.values():
            aggregator.spawn()
        for node in self.nodes.values():
            node.healthy()
        self.nodes[NODES[0]].wait(
            lambda: len(self._entries(self.place.read("cluster-info-device-0"))) == len(NODES),
            "both nodes are published",
        )

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
        excuses: list[Excuse] = []
        try:
            for at, kind, number in _timeline(plan):
                time.sleep(max(0.0, self._began + at - time.monotonic()))
                self._act(plan, kind, number, faults, excuses)
        finally:
            self._looking = False
            looking.join()
        samples = self._samples
        self._recover(plan, faults)
        return list(faults.values()), samples, excuses

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _act(
        self,
        plan: Plan,
        kind: str,
        number: int,
        faults: dict[int, Fault],
        excuses: list[Excuse],
    ) -> None:
        if kind in ("occur", "recover"):
            planned = plan.faults[number]
            emulator = self.nodes[planned.node].emulator
            if kind == "occur":
                emulator.occur(planned.chip, planned.code)
                place = planned.node, planned.chip, planned.code
                faults[number] = Fault(*place, self._now)
            else:
                emulator.recover(planned.chip, planned.code)
                before = faults[number]
                place = before.node, before.chip, before.code
                faults[number] = Fault(*place, before.begin, self._now)
        elif kind in ("apply", "undo"):
            planned_trouble = plan.troubles[number]
            trouble, subject = TROUBLES[planned_trouble.name], planned_trouble.subject
            begin = self._now
            if kind == "apply":
                trouble.apply(self, subject)
                excuses.append(_excuse(planned_trouble.name, subject, begin, self._now))
            else:
                trouble.undo(self, subject)
                excuses.append(
                    _excuse(planned_trouble.name, subject, planned_trouble.at, self._now)
                )

    def _recover(self, plan: Plan, faults: dict[int, Fault]) -> None:
        """End what holds, and wait until the next episode can begin."""
        for number, fault in faults.items():
            if fault.end is None:
                self.nodes[fault.node].emulator.recover(fault.chip, plan.faults[number].code)
        self._samples = []

        def is_settled() -> bool:
            samples = {(sample.document, sample.nodes): sample for sample in self._seen()}
            # One for each node, and one for the cluster, with both nodes.
            is_whole = len(samples) == 3 and (CLUSTER_INFO, frozenset(NODES)) in samples
            return is_whole and not any(sample.levels or sample.lost for sample in samples.values())

        self.nodes[NODES[0]].wait(is_settled, "all documents are without a fault", 60)

    def _look(self) -> None:
        while self._looking:
            for sample in self._seen():
                self._samples.append(sample)
            time.sleep(_LOOK_SECONDS)

    def _seen(self) -> Iterator[Sample]:
        # A document that is away while it is read shows nothing; readers keep what they have.
        for node in self.nodes.values():
            at = self._now
            data = self._read(node.document)
            if data is not None:
                levels = _levels_of(node.name, data.get("DeviceInfoCfg", ""), is_wrapped=True)
                if levels is not None:
                    yield Sample(DEVICE_INFO, at, frozenset({node.name}), levels)
        at = self._now
        data, servers = self._read("cluster-info-device-0"), self._read(CLUSTER_NODE_NAME)
        if data is not None:
            nodes = frozenset(self._entries(data))
            lost = frozenset() if servers is None else _lost(servers[CLUSTER_NODE_NAME])
            yield Sample(CLUSTER_INFO, at, nodes, self._levels(data), lost)

    def _read(self, name: str) -> dict[str, str] | None:
        try:
            return self.place.read(name)
        # A stranger's write, or a directory that is taken away in the middle.
        except (OSError, ValueError, KeyError, AssertionError, http.client.HTTPException):
            self.read_errors += 1
            return None

    def _entries(self, data: dict[str, str] | None) -> dict[str, str]:
        if data is None:
            return {}
        entries: dict[str, object] = json.loads(data["cluster-info-device-0"] or "{}")
        return {
            key.removeprefix("mindx-dl-deviceinfo-"): json.dumps(entry)
            for key, entry in entries.items()
        }

    def _levels(self, data: dict[str, str] | None) -> dict[tuple[str, int, str], str]:
        levels: dict[tuple[str, int, str], str] = {}
        for node, entry in self._entries(data).items():
            levels |= _levels_of(node, entry, is_wrapped=False) or {}
        return levels


def _excuse(name: str, subject: str, begin: float, end: float) -> Excuse:
    trouble = TROUBLES[name]
    nodes = frozenset({subject}) if subject in NODES else frozenset(NODES)
    end += patience(trouble.bound_seconds)
    return Excuse(name, begin, end, nodes, trouble.excuses)


def _timeline(plan: Plan) -> Iterator[tuple[float, str, int]]:
    steps = [(fault.at, "occur", number) for number, fault in enumerate(plan.faults)]
    steps += [
        (fault.until, "recover", number)
        for number, fault in enumerate(plan.faults)
        if fault.until is not None
    ]
    for number, trouble in enumerate(plan.troubles):
        steps += [(trouble.at, "apply", number), (trouble.until, "undo", number)]
    yield from sorted(steps)
    yield plan.seconds, "end", 0


def _levels_of(node: str, text: str, *, is_wrapped: bool) -> dict[tuple[str, int, str], str] | None:
    """Return the level of each code by chip; ``None`` for what is not a document."""
    try:
        content = json.loads(text)
        devices = (content["DeviceInfo"] if is_wrapped else content)["DeviceList"]
    except (ValueError, KeyError, TypeError):
        return None
    return {
        (node, int(entry["npu_name"].rpartition("-")[2]), code): item["fault_level"]
        for key, value in devices.items()
        if key.endswith(_FAULT_SUFFIX)
        for entry in json.loads(value)
        for code, item in entry["fault_time_and_level_map"].items()
    }


def _lost(text: str) -> frozenset[str]:
    entries = json.loads(text or "{}")
    return frozenset(
        key.removeprefix("mindx-dl-nodeinfo-")
        for key, entry in entries.items()
        if entry["NodeStatus"] == "UnHealthy"
    )

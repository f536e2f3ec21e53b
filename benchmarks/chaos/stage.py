"""What all platforms have: nodes, aggregators and a store, what happens to them, what they show."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.chaos.judge import Excuse, Fault, Sample
from benchmarks.chaos.plan import NODES
from benchmarks.chaos.troubles import CLUSTER_INFO, DEVICE_INFO, TROUBLES
from contract.names import CLUSTER_NODE_NAME
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.chaos.plan import Plan
    from tests.parts.places import Place

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


class Stage:
    """The parts of a platform; ``now`` is the time since the episode began (seconds)."""

    store: StorePlatform
    nodes: Mapping[str, Any]
    aggregators: Mapping[str, Any]
    """Programs of each platform, with the methods that ``troubles`` call."""
    read_errors = 0

    @property
    def place(self) -> Place:
        """The store as a stranger reads and writes it."""
        return self.store.place

    @property
    def now(self) -> float:
        """The time since the episode began (seconds)."""
        raise NotImplementedError

    def act(
        self,
        plan: Plan,
        kind: str,
        number: int,
        faults: dict[int, Fault],
        excuses: list[Excuse],
    ) -> None:
        """Do what ``timeline`` yielded; add to what is true and what is excused."""
        if kind in ("occur", "recover"):
            planned = plan.faults[number]
            emulator = self.nodes[planned.node].emulator
            if kind == "occur":
                emulator.occur(planned.chip, planned.code)
                place = planned.node, planned.chip, planned.code
                faults[number] = Fault(*place, self.now)
            else:
                emulator.recover(planned.chip, planned.code)
                before = faults[number]
                place = before.node, before.chip, before.code
                faults[number] = Fault(*place, before.begin, self.now)
        elif kind in ("apply", "undo"):
            planned_trouble = plan.troubles[number]
            trouble, subject = TROUBLES[planned_trouble.name], planned_trouble.subject
            begin = self.now
            if kind == "apply":
                trouble.apply(self, subject)
                excuses.append(self._excuse(planned_trouble.name, subject, begin))
            else:
                trouble.undo(self, subject)
                excuses.append(self._excuse(planned_trouble.name, subject, planned_trouble.at))

    def bound(self, seconds: float) -> float:
        """Return how long a trouble excuses after its end; it is longer on a busy machine."""
        return patience(seconds)

    def _excuse(self, name: str, subject: str, begin: float) -> Excuse:
        trouble = TROUBLES[name]
        nodes = frozenset({subject}) if subject in NODES else frozenset(NODES)
        end = self.now + self.bound(trouble.bound_seconds)
        return Excuse(name, begin, end, nodes, trouble.excuses)

    def seen(self) -> Iterator[Sample]:
        """Yield what each document shows now."""
        # A document that is away while it is read shows nothing; readers keep what they have.
        for node in self.nodes.values():
            at = self.now
            data = self._read(node.document)
            if data is not None:
                levels = _levels_of(node.name, data.get("DeviceInfoCfg", ""), is_wrapped=True)
                if levels is not None:
                    yield Sample(DEVICE_INFO, at, frozenset({node.name}), levels)
        at = self.now
        data, servers = self._read("cluster-info-device-0"), self._read(CLUSTER_NODE_NAME)
        if data is not None:
            nodes = frozenset(self.entries(data))
            lost = frozenset() if servers is None else _lost(servers[CLUSTER_NODE_NAME])
            yield Sample(CLUSTER_INFO, at, nodes, self._levels(data), lost)

    def _read(self, name: str) -> dict[str, str] | None:
        try:
            return self.place.read(name)
        # A stranger's write, or a directory that is taken away in the middle.
        except (OSError, ValueError, KeyError, AssertionError, http.client.HTTPException):
            self.read_errors += 1
            return None

    def entries(self, data: dict[str, str] | None) -> dict[str, str]:
        """Return the entries of cluster-info by node."""
        if data is None:
            return {}
        entries: dict[str, object] = json.loads(data["cluster-info-device-0"] or "{}")
        return {
            key.removeprefix("mindx-dl-deviceinfo-"): json.dumps(entry)
            for key, entry in entries.items()
        }

    def _levels(self, data: dict[str, str] | None) -> dict[tuple[str, int, str], str]:
        levels: dict[tuple[str, int, str], str] = {}
        for node, entry in self.entries(data).items():
            levels |= _levels_of(node, entry, is_wrapped=False) or {}
        return levels


def timeline(plan: Plan) -> Iterator[tuple[float, str, int]]:
    """Yield what happens in a plan by time: time, kind, number of the fault or trouble."""
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

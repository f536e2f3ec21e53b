"""What all platforms have: nodes, aggregators and a store, what happens to them, what they show."""

from __future__ import annotations

import functools
import http.client
import json
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from agent.journal.file import FILE_NAME
from benchmarks.chaos.excuses import PastTrouble, nodes_of
from benchmarks.chaos.judge import (
    Fault,
    Sample,
    Silence,
    Verdict,
    Wrong,
    judge,
    settled_seconds,
)
from benchmarks.chaos.plan import AGGREGATORS, CODES
from benchmarks.chaos.troubles import CLUSTER_INFO, DEVICE_INFO, TROUBLES, Effect
from contract.codes.catalogue import shipped
from contract.names import CLUSTER_NODE_NAME
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.chaos.judge import Excuse
    from benchmarks.chaos.plan import Plan
    from tests.parts.places import Place

_FAULT_SUFFIX = "-Fault"
_LEVELS = {code: shipped().chip_levels[code].value for code in CODES}
_Key: TypeAlias = tuple[str, int, str]
_Shown: TypeAlias = tuple[dict[_Key, str], dict[_Key, int]]
"""Levels and times of faults."""


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

    def __init__(self) -> None:
        self._unseen: set[int] = set()
        """Numbers of troubles of the plan that hit an aggregator which does not lead."""

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
        past: list[PastTrouble],
    ) -> None:
        """Do what ``timeline`` yielded; add to what is true, and to the troubles that are over."""
        if kind in ("occur", "recover"):
            planned = plan.faults[number]
            emulator = self.nodes[planned.node].emulator
            place = planned.node, planned.chip, planned.code
            # The time is taken before the call: a document may show a fault before this goes on.
            if planned.once:
                faults[number] = Fault(*place, self.now, once=True)
                emulator.once(planned.chip, planned.code)
            elif kind == "occur":
                faults[number] = Fault(*place, self.now)
                emulator.occur(planned.chip, planned.code)
            else:
                faults[number] = Fault(*place, faults[number].begin, self.now)
                emulator.recover(planned.chip, planned.code)
        elif kind in ("apply", "undo"):
            planned_trouble = plan.troubles[number]
            trouble, subject = TROUBLES[planned_trouble.name], planned_trouble.subject
            begin = self.now
            if kind == "apply":
                self._unseen.discard(number)
                if subject in AGGREGATORS and not self.leads(subject):
                    self._unseen.add(number)
                trouble.apply(self, subject)
                ends = Effect.AT_ONCE in trouble.effects
            else:
                trouble.undo(self, subject)
                ends = Effect.AT_ONCE not in trouble.effects
                begin = planned_trouble.at
            if ends and number not in self._unseen:
                bound = self.waits(trouble.bounds[plan.platform])
                past.append(PastTrouble(trouble, nodes_of(subject), begin, self.now, bound))

    def waits(self, seconds: float) -> float:
        """Return how long a bound of ``seconds`` is here; it is longer on a busy machine."""
        return patience(seconds)

    def crash_driver(self, node: str) -> None:
        """End what has loaded the driver, as an error in it does."""
        self.nodes[node].emulator.crash()

    def leads(self, aggregator: str) -> bool:
        """Return whether an aggregator may lead now; one that does not is not visible."""
        return aggregator in self.aggregators

    def seen(self) -> Iterator[Sample]:
        """Yield what each document shows now."""
        # A document that cannot be read shows nothing.
        for node in self.nodes.values():
            at = self.now
            data = self._read(node.document)
            if data is not None:
                shown = _shown_by_agent(node.name, data.get("DeviceInfoCfg", ""))
                levels, times = shown or ({}, {})
                yield Sample(
                    *(DEVICE_INFO, at, frozenset({node.name}), levels),
                    times=times,
                    is_gone=shown is None,
                    until=self.now,
                )
        at = self.now
        data, servers = self._read("cluster-info-device-0"), self._read(CLUSTER_NODE_NAME)
        if data:
            nodes, (levels, times) = _shown_by_cluster(data["cluster-info-device-0"])
            lost = _lost(servers[CLUSTER_NODE_NAME]) if servers else None
            yield Sample(CLUSTER_INFO, at, nodes, levels, lost, times, until=self.now)
        elif data is not None:
            nodes = frozenset(self.nodes)
            yield Sample(CLUSTER_INFO, at, nodes, {}, is_gone=True, until=self.now)

    def _read(self, name: str) -> dict[str, str] | None:
        """Return what a document has: nothing where it is gone, ``None`` where that is open."""
        try:
            return self.place.read(name) or {}
        # A stranger's write, or a directory that is taken away in the middle.
        except (OSError, ValueError, KeyError, AssertionError, http.client.HTTPException):
            self.read_errors += 1
            return None


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


def truncate_journal(state_dir: Path) -> None:
    """Cut the journal in half, as a file system does that lost the rest; its log is gone, too."""
    journal = state_dir / FILE_NAME
    for file in state_dir.glob(f"{FILE_NAME}-*"):
        file.unlink()
    os.truncate(journal, journal.stat().st_size // 2)


def judged(
    plan: Plan, faults: Sequence[Fault], samples: Sequence[Sample], excuses: Sequence[Excuse]
) -> list[Verdict]:
    """Return all that is wrong in an episode of ``plan``, by the shipped fault configuration.

    Where a document has no sample, nothing else could be wrong in it.
    """
    silences = [
        Silence(trouble.name, trouble.subject, trouble.at, trouble.until)
        for trouble in plan.troubles
        if Effect.SILENCES in TROUBLES[trouble.name].effects
    ]
    absent = [
        Verdict(Wrong.ABSENT, document, node, None, "", plan.seconds, "there is no sample of it")
        for document in (DEVICE_INFO, CLUSTER_INFO)
        for node in sorted({fault.node for fault in plan.faults})
        if not any(
            node in sample.nodes and not sample.is_gone
            for sample in samples
            if sample.document == document
        )
    ]
    return absent + judge(faults, samples, excuses, _LEVELS, silences)


def settled(plan: Plan, faults: Sequence[Fault], samples: Iterable[Sample]) -> float:
    """Return how long after the end of the last trouble the documents were wrong (seconds)."""
    ends = (
        trouble.at if Effect.AT_ONCE in TROUBLES[trouble.name].effects else trouble.until
        for trouble in plan.troubles
    )
    return settled_seconds(faults, samples, _LEVELS, max(ends, default=0.0))


def _entries_of(text: str) -> dict[str, Any]:
    """Return the entries of cluster-info by node."""
    return {
        key.removeprefix("mindx-dl-deviceinfo-"): entry
        for key, entry in json.loads(text or "{}").items()
    }


@functools.lru_cache(maxsize=64)
def _shown_by_agent(node: str, text: str) -> _Shown | None:
    try:
        return _shown_in(node, json.loads(text)["DeviceInfo"])
    except (ValueError, KeyError, TypeError):
        return None


@functools.lru_cache(maxsize=64)
def _shown_by_cluster(text: str) -> tuple[frozenset[str], _Shown]:
    """Return the nodes of cluster-info, and what it shows of them."""
    entries = _entries_of(text)
    levels: dict[_Key, str] = {}
    times: dict[_Key, int] = {}
    for node, entry in entries.items():
        shown = _shown_in(node, entry)
        if shown is not None:
            levels |= shown[0]
            times |= shown[1]
    return frozenset(entries), (levels, times)


def _shown_in(node: str, content: Any) -> _Shown | None:
    """Return the level and the begin of each code by chip; ``None`` for what is not a document."""
    try:
        devices = content["DeviceList"]
    except (KeyError, TypeError):
        return None
    codes = {
        (node, int(entry["npu_name"].rpartition("-")[2]), code): item
        for key, value in devices.items()
        if key.endswith(_FAULT_SUFFIX)
        for entry in json.loads(value)
        for code, item in entry["fault_time_and_level_map"].items()
    }
    return (
        {key: item["fault_level"] for key, item in codes.items()},
        {key: item["fault_time"] for key, item in codes.items()},
    )


@functools.lru_cache(maxsize=64)
def _lost(text: str) -> frozenset[str]:
    entries = json.loads(text or "{}")
    return frozenset(
        key.removeprefix("mindx-dl-nodeinfo-")
        for key, entry in entries.items()
        if entry["NodeStatus"] == "UnHealthy"
    )

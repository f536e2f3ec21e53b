"""Separate chips whose faults come too often, and release them: *manual separation* upstream.

A new fault of a job's chip first waits 30 s in ``FaultWindows``: the same code on two chips at once
is the software's fault and does not count. What counts is a time in the list of its chip and code.
``threshold`` times within ``window_hours`` separate the chip at the last of them, and the list is
begun anew. The chip is released when an operator takes it out of ``clusterd-manual-info-cm``, or
by time. Invariant: a chip is separated only while ``enabled and any(now - at < free)`` over the
times ``at`` at which its codes separated it. A policy that is off forgets all of it.

Source: ``docs/spec/clusterd.md#2.7`` and 3.9; upstream compares a fault with everything that is
queued, here it is with what came within 30 s (defect B31). Values in and out by wall time; no I/O,
no clock.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

import msgspec

from aggregator.processors.record_edits import PUBLIC_FAULT
from aggregator.processors.state_types import Occurrence, earliest
from contract.codes.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.inputs.node_context import NodeContext
    from aggregator.processors.state_types import DeviceState, Times
    from contract.documents.cluster_device import DeviceRecord

# The counter keeps times for 720 h, the largest fault_window_hours there is (clusterd#2.7, 3.9).
KEPT_MS = 720 * 3_600_000
NEVER = -1
_HOUR_MS = 3_600_000
_AHEAD_MS = 60_000
"""Clocks differ by less; a time further ahead is of a clock that has been set back since."""

# More times than the threshold can never be needed (fault_threshold is 1 to 50, clusterd#2.7).
_MAX_TIMES = 50
"""The greatest threshold there is."""

_MAX_CODES = 1000
"""Of one chip: a driver has fewer. Who makes up new ones all the time must not fill the memory."""

# Upstream ignores the same levels and the synthetic code (clusterd#3.9).
_NEVER_COUNT = frozenset({ChipLevel.NOT_HANDLE_FAULT.value, ChipLevel.SUB_HEALTH_FAULT.value})
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value

Codes = dict[str, int]
"""Fault code to the time at which it separated the chip last (wall milliseconds)."""

Counts = dict[str, dict[str, tuple[int, ...]]]
"""Chip to code to the times at which it came, oldest first."""


class SeparationPolicy(msgspec.Struct, frozen=True):
    """When chips are separated and released: ``threshold`` times within ``window_hours`` separate a
    chip.

    Without another fault for ``free_hours`` it is released (-1: never). Off unless a document sets
    it.
    """

    # The defaults of upstream's document are true, 24, 3 and 48 (clusterd#2.7); only ``enabled``
    # differs.
    enabled: bool = False
    window_hours: int = 24
    threshold: int = 3
    free_hours: int = 48

    @property
    def window_ms(self) -> int:
        """``window_hours`` in milliseconds."""
        return self.window_hours * _HOUR_MS

    @property
    def free_ms(self) -> int | None:
        """``free_hours`` in milliseconds; ``None``: never."""
        return None if self.free_hours == NEVER else self.free_hours * _HOUR_MS


def new_faults(
    node: str, record: DeviceRecord, state: DeviceState, received: Times, node_context: NodeContext
) -> tuple[dict[str, dict[str, str]], tuple[Occurrence, ...]]:
    """Return the faults that are shown of a node now, and those of them that are new and count.

    Faults on chips that no job uses do not count. Upstream's design counts them, but its program
    and that program's own test do not (clusterd#3.9, B31), and other programs see what the program
    does. No fault is new as long as it is not known which chips are used. Public faults do not
    count: their sender also reports when they end.
    """
    if node_context.used is None:
        return state.seen, ()
    # Reversed, so of two jobs on one chip the first by name counts: the later assignment replaces
    # the earlier.
    pods = sorted(node_context.pods, key=lambda pod: pod.job, reverse=True)
    jobs = {chip: pod.job for pod in pods if pod.job for chip in pod.chips}
    seen: dict[str, dict[str, str]] = {}
    occurrences = []
    for fault in record.faults:
        if fault.fault_type == PUBLIC_FAULT or fault.code == _MANUAL:
            continue
        codes = seen.setdefault(fault.chip, {})
        # A chip may have a code under two fault types; it counts once.
        if fault.code in codes:
            continue
        codes[fault.code] = fault.level
        # Another level is a new fault for upstream, too (clusterd#3.9).
        is_known = state.seen.get(fault.chip, {}).get(fault.code) == fault.level
        if is_known or fault.level in _NEVER_COUNT or fault.chip not in jobs:
            continue
        at_ms = received[fault.chip][fault.code]
        occurrences.append(Occurrence(at_ms, node, fault.chip, fault.code, jobs[fault.chip]))
    return seen, tuple(occurrences)


class Separated(msgspec.Struct, frozen=True, omit_defaults=True):
    """A separated chip: why, and in the documents of which stores that was seen (by number)."""

    codes: dict[str, int]
    shown: tuple[int, ...] = ()


class ManualSeparation:
    """Counts of faults, and the chips that are separated."""

    def __init__(self) -> None:
        self.policy = SeparationPolicy()
        self.counts: dict[str, Counts] = {}
        self.chips: dict[str, dict[str, Separated]] = {}
        """Node to chip."""
        self.changed: set[str] = set()
        """Nodes whose state is to be stored again."""

    def of(self, node: str) -> frozenset[str]:
        """Return the separated chips of a node, where the policy is on."""
        return frozenset(self.chips.get(node, ())) if self.policy.enabled else frozenset()

    def set_policy(self, policy: SeparationPolicy) -> frozenset[str]:
        """Judge by ``policy``; return the nodes that are concerned. One that is off forgets."""
        was, self.policy = self.policy, policy
        if policy.enabled:
            return frozenset() if was.enabled else frozenset(self.chips)
        nodes = frozenset(self.chips)
        self.changed |= nodes | self.counts.keys()
        self.chips.clear()
        self.counts.clear()
        return nodes

    def count(self, occurrences: Iterable[Occurrence]) -> frozenset[str]:
        """Count new faults; return the nodes where a chip is separated by that."""
        nodes = set()
        for occurrence in sorted(occurrences):
            self.changed.add(occurrence.node)
            codes = self.counts.setdefault(occurrence.node, {}).setdefault(occurrence.chip, {})
            # Times of a clock that was ahead would make the span negative, and so separate at once.
            before = (
                min(at_ms, occurrence.at_ms + _AHEAD_MS) for at_ms in codes.get(occurrence.code, ())
            )
            times = tuple(sorted((*before, occurrence.at_ms)))[-_MAX_TIMES:]
            threshold = self.policy.threshold
            # The last ``threshold`` times must span less than the window; threshold 1 separates at
            # once (clusterd#3.9).
            if len(times) < threshold or times[-1] - times[-threshold] >= self.policy.window_ms:
                codes[occurrence.code] = times
                if len(codes) > _MAX_CODES:
                    # The code that came longest ago goes: its times leave the window first.
                    del codes[min(codes, key=lambda code: codes[code][-1])]
                continue
            # The counter of this code begins anew once it has separated the chip, as upstream.
            self._forget(occurrence.node, occurrence.chip, occurrence.code)
            chips = self.chips.setdefault(occurrence.node, {})
            current = chips.get(occurrence.chip, Separated({}))
            separated = {**current.codes, occurrence.code: times[-1]}
            if len(separated) > _MAX_CODES:
                del separated[min(separated, key=separated.__getitem__)]
            chips[occurrence.chip] = msgspec.structs.replace(current, codes=separated)
            nodes.add(occurrence.node)
        return frozenset(nodes)

    def set_back(self, now_ms: int) -> None:
        """Move separations that are later than now to now: a clock that was set back must not keep
        a chip.
        """
        for node, chips in self.chips.items():
            for chip, separated in chips.items():
                # Within a minute it may be the clock of another replica; ``release`` bears that.
                if max(separated.codes.values(), default=0) > now_ms + _AHEAD_MS:
                    codes = {code: min(at_ms, now_ms) for code, at_ms in separated.codes.items()}
                    chips[chip] = msgspec.structs.replace(separated, codes=codes)
                    self.changed.add(node)

    def release(self, now_ms: int) -> frozenset[str]:
        """Release whose time is over; return their nodes."""
        free_ms = self.policy.free_ms
        nodes = set()
        if free_ms is None or not self.policy.enabled:
            return frozenset()
        # A copy: ``_drop`` removes entries during the loop.
        for node, chips in tuple(self.chips.items()):
            for chip, separated in tuple(chips.items()):
                codes = {code: at for code, at in separated.codes.items() if now_ms - at < free_ms}
                if len(codes) == len(separated.codes):
                    continue
                # Its counter goes with it; else the next single fault could separate the chip
                # again.
                for code in separated.codes.keys() - codes.keys():
                    self._forget(node, chip, code)
                nodes.add(node)
                if codes:
                    chips[chip] = msgspec.structs.replace(separated, codes=codes)
                else:
                    self._drop(node, chip)
        self.changed |= nodes
        return frozenset(nodes)

    def prune(self, now_ms: int) -> None:
        """Forget what was counted more than 720 h ago."""
        for node, chips in tuple(self.counts.items()):
            for chip, codes in tuple(chips.items()):
                for code, times in tuple(codes.items()):
                    recent = tuple(at for at in times if now_ms - at < KEPT_MS)
                    if len(recent) == len(times):
                        continue
                    self.changed.add(node)
                    if recent:
                        codes[code] = recent
                    else:
                        self._forget(node, chip, code)

    def adopt(self, reported: Mapping[str, Mapping[str, Codes]]) -> frozenset[str]:
        """Take over chips that only a store's document has; return their nodes."""
        nodes = set()
        for node, chips in reported.items():
            for chip, codes in chips.items():
                # Ours knows more of a chip, such as in which stores it was shown.
                if chip not in self.chips.get(node, {}):
                    self.chips.setdefault(node, {})[chip] = Separated(dict(codes))
                    nodes.add(node)
        self.changed |= nodes
        return frozenset(nodes)

    def compare(
        self, source: int, reported: Mapping[str, Mapping[str, Codes]], unread: Iterable[str]
    ) -> frozenset[tuple[str, str]]:
        """Compare with the document of a store; return nodes and chips that an operator released.

        A chip that was in it and is not was released, with all that was counted (clusterd#2.7).
        Nothing is known of the nodes ``unread``.
        """
        skipped = frozenset(unread)
        self.mark_shown(source, reported)
        released = set()
        for node, chips in tuple(self.chips.items()):
            for chip, separated in tuple(chips.items()):
                if (
                    # A document that never had the chip cannot release it: it may be older than the
                    # separation.
                    source in separated.shown
                    # A value that cannot be read must not look like a release by an operator.
                    and node not in skipped
                    and chip not in reported.get(node, {})
                ):
                    self.drop(node, chip)
                    released.add((node, chip))
        return frozenset(released)

    def mark_shown(self, source: int, reported: Mapping[str, Mapping[str, Codes]]) -> None:
        """Remember which of the separated chips the document of a store has."""
        for node, chips in self.chips.items():
            for chip, separated in tuple(chips.items()):
                if chip in reported.get(node, {}) and source not in separated.shown:
                    shown = tuple(sorted((*separated.shown, source)))
                    chips[chip] = msgspec.structs.replace(separated, shown=shown)
                    self.changed.add(node)

    def drop(self, node: str, chip: str) -> None:
        """Release a chip, and forget what was counted of it."""
        self._drop(node, chip)
        for code in tuple(self.counts.get(node, {}).get(chip, ())):
            self._forget(node, chip, code)
        self.changed.add(node)

    def next_release_ms(self) -> int | None:
        """Return the wall time at which ``release`` has something to do."""
        free_ms = self.policy.free_ms
        if free_ms is None or not self.policy.enabled:
            return None
        times = (
            at
            for chips in self.chips.values()
            for separated in chips.values()
            for at in separated.codes.values()
        )
        first = earliest(*times)
        return None if first is None else first + free_ms

    def _drop(self, node: str, chip: str) -> None:
        del self.chips[node][chip]
        if not self.chips[node]:
            del self.chips[node]

    def _forget(self, node: str, chip: str, code: str) -> None:
        chips = self.counts.get(node, {})
        codes = chips.get(chip, {})
        codes.pop(code, None)
        if not codes:
            chips.pop(chip, None)
        if not chips:
            self.counts.pop(node, None)


WINDOW_MS = 30_000
# At 10,000 nodes that is five faults of each within 30 s.
MAX_WAITING = 50_000
"""Faults that wait at once; more of them are not counted."""


def _judged_queue(
    queue: list[Occurrence], now_ms: int
) -> tuple[list[Occurrence], list[Occurrence], list[Occurrence]]:
    """Return what of a job's ``queue`` (sorted) counts, what does not, and what must wait."""
    counted: list[Occurrence] = []
    dropped: list[Occurrence] = []
    # Only the oldest is judged: its window of 30 s is over, and so all that could match it has
    # come.
    while queue and queue[0].at_ms + WINDOW_MS <= now_ms:
        first = queue[0]
        same = [
            occurrence
            for occurrence in queue
            if occurrence.code == first.code and occurrence.at_ms <= first.at_ms + WINDOW_MS
        ]
        alone = all(
            (occurrence.node, occurrence.chip) == (first.node, first.chip) for occurrence in same
        )
        # The same code on two chips at once is the software's fault and does not count
        # (clusterd#3.9).
        (counted if alone else dropped).extend(same)
        gone = set(same)
        queue = [occurrence for occurrence in queue if occurrence not in gone]
    return counted, dropped, queue


class FaultWindows:
    """The new faults of all jobs that wait for their 30 s."""

    def __init__(self) -> None:
        self.lost_total = 0
        """Faults that were not counted because too many waited."""
        self._jobs: dict[str, list[Occurrence]] = {}
        self._size = 0
        self._latest_ms = 0

    @property
    def size(self) -> int:
        """How many wait."""
        return self._size

    @property
    def waiting(self) -> Iterable[Occurrence]:
        """Everything that waits."""
        return (occurrence for queue in self._jobs.values() for occurrence in queue)

    def add(self, occurrences: Iterable[Occurrence]) -> None:
        """Queue further occurrences."""
        for occurrence in occurrences:
            if self._size >= MAX_WAITING:
                self.lost_total += 1
                continue
            # A fault that changes its level counts again, at the time at which it came.
            insort(self._jobs.setdefault(occurrence.job, []), occurrence)
            self._size += 1
            self._latest_ms = max(self._latest_ms, occurrence.at_ms)

    def set_back(self, now_ms: int) -> frozenset[str]:
        """Move times that are later than now to now, because the clock was set back; return the
        nodes of what changes.
        """
        # One comparison in the usual case: this runs in each step.
        if self._latest_ms <= now_ms:
            return frozenset()
        nodes: set[str] = set()
        for job, queue in self._jobs.items():
            nodes.update(occurrence.node for occurrence in queue if occurrence.at_ms > now_ms)
            self._jobs[job] = sorted(
                msgspec.structs.replace(occurrence, at_ms=min(occurrence.at_ms, now_ms))
                for occurrence in queue
            )
        self._latest_ms = now_ms
        return frozenset(nodes)

    def step(self, now_ms: int) -> tuple[list[Occurrence], frozenset[str]]:
        """Judge what is due (wall time); return what counts, and the nodes that wait for less."""
        occurrences: list[Occurrence] = []
        nodes: set[str] = set()
        # A copy, as jobs whose queue is empty are deleted in the loop.
        for job, queue in tuple(self._jobs.items()):
            counted, dropped, waiting = _judged_queue(queue, now_ms)
            occurrences += counted
            nodes.update(occurrence.node for occurrence in (*counted, *dropped))
            self._size -= len(counted) + len(dropped)
            if waiting:
                self._jobs[job] = waiting
            else:
                del self._jobs[job]
        return occurrences, frozenset(nodes)

    def clear(self) -> None:
        """Forget everything."""
        self._jobs.clear()
        self._size = 0

    def next_due_ms(self) -> int | None:
        """Return the wall time at which ``step`` has something to do."""
        first = earliest(*(queue[0].at_ms for queue in self._jobs.values()))
        return None if first is None else first + WINDOW_MS

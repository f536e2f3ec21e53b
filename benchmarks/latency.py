"""How long a driver event takes to device-info and to cluster-info, on a real API server or broker.

``python -m benchmarks.latency [--json] [--count 200]`` starts everything itself: kube-apiserver and
etcd, three emulated A3 servers with a real agent each, one aggregator. Between the changes
of each pattern the bare cost of one ConfigMap write plus watch delivery is measured.

With ``--broker`` all of it meets on a mosquitto, and the bare cost is one publication until a
subscriber has it; ``--broker "set_tcp_nodelay true"`` gives it more lines of configuration.
``--only single`` (repeatable) measures some patterns only.

Patterns, each with ``count`` faults that occur and ``count`` that recover (a train with a quarter):

* single: one change, on one node after the other, 0.1 to 3 s apart;
* burst: ten changes of one node at once, 0.1 to 3 s between bursts;
* train: ten changes of one node, one after the other with a fixed gap. The shorter ones run against
  the rule that ``UpdateTime``, in whole seconds, grows with every write and is at most 5 s ahead of
  the clock, so they are shown apart and have no budget.

* links, switch: like single, with a quarter of the changes: a chip's link, a port of a switch;
* bmc: alarms of the BMC, which sends nothing by itself and is polled every 10 s: five on each node,
  at any time of that period;
* taint: like single, with a quarter of the changes: faults for which the aggregator taints the
  Node. Only with ``--only taint``, which switches that option on for all patterns.

``--parts`` measures single changes only, and shows which part of the way takes how long
(``benchmarks/parts.py``). Every source of a node is on. Ends with 1 if a change never became
visible.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.scheduler_signals.service import SETTLE_SECONDS
from benchmarks import parts
from benchmarks.cluster import CHIPS, Cluster, Node
from benchmarks.report import (
    BMC_PERIOD_SECONDS,
    HOST_TARGETS,
    TAINT_TARGETS,
    TARGETS,
    Pattern,
    Report,
    print_table,
)
from benchmarks.visibility import Bare, Change, Kind, Visibility
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.switch_codes import parse_switch_code
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.switch_faults import PORTS, EmulatedSwitchFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import TypeAlias

    from dcmi_shim.emulator.control import Emulator

    Fault: TypeAlias = tuple[Kind, int | str, str]
    """What it is of, where there, and its code as documents show it."""

_CODES = ("80E01801", "80C98008", "80E18402", "80E3A201", "8C204E00", "80CD8809", "80F38008")
_SEPARATE_CODES = ("80E18402", "80E3A201", "80DF8402")
"""At a level that taints the Node by default."""
_TAINTS = {
    "VIGIL_NODE_TAINTS_ENABLED": "true",
    "VIGIL_NODE_TAINTS_CHIPS": "any",
    "VIGIL_NODE_TAINTS_MAX_NODES_PERCENT": "100",
}
_PORT_CODE = "[0x00f1fef5,155914,npu,na]"
_PORT_CHIP = 2
_ALARM_CODE = "06000025"
_FAN = "Fan"
_ALARMS = 5
_TARGETS = {"bmc": HOST_TARGETS, "taint": TAINT_TARGETS}
"""Where the changes of a pattern are shown, if not where those of chips are."""
_BURST = 10
_SHORTEST_GAP_SECONDS = 0.1
_LONGEST_GAP_SECONDS = 3.0
_TRAIN_GAPS_SECONDS = (0.1, 0.3, 1.0, 3.0)
# Two periods of a BMC that is polled every 10 s, and five seconds for the way.
_LOST_SECONDS = 25.0
_START_SECONDS = 60.0
_WARM_UP = 20


class Bench:
    """One run on one cluster."""

    def __init__(self, cluster: Cluster, visibility: Visibility, bare: Bare) -> None:
        self._cluster = cluster
        self._visibility = visibility
        self._bare = bare
        self._faults = {node.name: _faults() for node in cluster.nodes}

    async def start(self, *, taints: bool, marks: Path | None = None) -> list[float]:
        """Start the agents one after the other; seconds until each one's first device-info.

        With ``marks``, they note their steps in that file (``benchmarks/parts.py``).
        """
        module = "vigil" if marks is None else parts.MODULE
        variables = {} if marks is None else {parts.OUTPUT: str(marks)}
        self._cluster.start_aggregator(module, {**variables, **(_TAINTS if taints else {})})
        seconds = []
        for node in self._cluster.nodes:
            begun = time.perf_counter()
            self._cluster.start_agent(node, module, variables)
            # A start that hangs ends the run, since without all agents nothing is comparable.
            async with asyncio.timeout(_START_SECONDS):
                while node.name not in self._visibility.first_seen:
                    await asyncio.sleep(0.05)
                    self._cluster.check()
            seconds.append(self._visibility.first_seen[node.name] - begun)
        names = {node.name for node in self._cluster.nodes}
        async with asyncio.timeout(_START_SECONDS):
            while not names <= self._visibility.in_cluster_info:
                await asyncio.sleep(0.05)
                self._cluster.check()
        return seconds

    def patterns(self, count: int) -> dict[str, Callable[[], Awaitable[list[Change]]]]:
        """Return what can be measured, in this order."""
        part = count // len(_TRAIN_GAPS_SECONDS)
        trains = {
            f"train {gap} s": functools.partial(self.train, part, gap)
            for gap in _TRAIN_GAPS_SECONDS
        }
        return {
            "single": functools.partial(self.single, count),
            "burst": functools.partial(self.burst, count),
            "links": functools.partial(self.single, part, _links()),
            "switch": functools.partial(self.single, part, _ports()),
            "bmc": self.bmc,
            **trains,
            "taint": functools.partial(self.single, part, _separations(), taints=True),
        }

    async def single(
        self, count: int, faults: Iterator[Fault] | None = None, *, taints: bool = False
    ) -> list[Change]:
        """Make one change after the other: a fault occurs here, the one before recovers there.

        ``faults`` are the ones to make, on chips by default. ``taints``: they taint the Node.
        """
        nodes = itertools.cycle(self._cluster.nodes)
        changes: list[Change] = []
        before: tuple[Node, Change] | None = None
        # One fault stays while the next begins elsewhere, so documents are never all empty.
        for _ in range(count):
            node = next(nodes)
            begins = self._next_fault(node) if faults is None else _begin(node, next(faults))
            begins.taints = taints
            fault = await self._after_gap(node, begins)
            changes.append(fault)
            if before is not None:
                changes.append(await self._after_gap(before[0], _end_of(before[1])))
            before = node, fault
        if before is not None:
            changes.append(await self._after_gap(before[0], _end_of(before[1])))
        await _all_seen(changes)
        return changes

    async def burst(self, count: int) -> list[Change]:
        """Make ten changes at once."""
        changes: list[Change] = []
        for node in itertools.islice(itertools.cycle(self._cluster.nodes), count // _BURST):
            faults = [self._next_fault(node) for _ in range(_BURST)]
            for group in (faults, [_end_of(fault) for fault in faults]):
                await self._pause()
                for change in group:
                    self._make(node, change)
                changes += group
                await _all_seen(group)
        return changes

    async def bmc(self) -> list[Change]:
        """Raise alarms on all nodes, side by side, then end them."""
        changes: list[Change] = []

        async def turn(node: Node, change: Change) -> None:
            # At any time of the period: an alarm right before a poll would look fast.
            await asyncio.sleep(random.uniform(0, BMC_PERIOD_SECONDS))
            self._make(node, change)
            changes.append(change)
            await _all_seen([change])

        for fan in range(_ALARMS):
            faults = [
                (node, _begin(node, (Kind.HOST, f"{_FAN} {fan}", _ALARM_CODE)))
                for node in self._cluster.nodes
            ]
            for group in (faults, [(node, _end_of(fault)) for node, fault in faults]):
                await asyncio.gather(*(turn(node, change) for node, change in group))
                await self._pause()
        return changes

    async def train(self, count: int, gap_seconds: float) -> list[Change]:
        """Make ten changes one after the other with the same gap, on all nodes side by side."""
        changes: list[Change] = []
        trains = math.ceil(count / _BURST)

        async def ride(node: Node, times: int) -> None:
            for _ in range(times):
                faults = [self._next_fault(node) for _ in range(_BURST)]
                for group in (faults, [_end_of(fault) for fault in faults]):
                    for change in group:
                        await asyncio.sleep(gap_seconds)
                        self._make(node, change)
                    changes.extend(group)
                    await _all_seen(group)

        async def measure_beside() -> None:
            # Beside the trains: their gaps are fixed, so nothing can be measured between them.
            while True:
                await self._bare.measure()
                await asyncio.sleep(_LONGEST_GAP_SECONDS / 10)

        beside = asyncio.create_task(measure_beside(), name="bare")
        try:
            async with asyncio.TaskGroup() as rides:
                for number, node in enumerate(self._cluster.nodes):
                    times = len(range(number, trains, len(self._cluster.nodes)))
                    rides.create_task(ride(node, times))
        finally:
            beside.cancel()
            await asyncio.wait([beside])
        self._cluster.check()
        return changes

    async def warm_up(self) -> None:
        """Make the first writes, whose extra cost is not measured."""
        for _ in range(_WARM_UP):
            await self._bare.measure()
        # Thrown away: these belong to the warm-up.
        self._bare.taken()
        for node in self._cluster.nodes:
            fault = self._next_fault(node)
            for change in (fault, _end_of(fault)):
                self._make(node, change)
                await _all_seen([change])

    async def _after_gap(self, node: Node, change: Change) -> Change:
        await self._pause()
        self._make(node, change)
        return change

    async def _pause(self) -> None:
        """Pause, with one measurement of the bare cost in the middle."""
        self._cluster.check()
        # Short gaps are as frequent as long ones, in powers of two.
        gap = _SHORTEST_GAP_SECONDS * (_LONGEST_GAP_SECONDS / _SHORTEST_GAP_SECONDS) ** (
            random.random()
        )
        await asyncio.sleep(gap / 2)
        begun = time.perf_counter()
        await self._bare.measure()
        # The measurement counts as a part of the pause, so that gaps keep their length.
        await asyncio.sleep(max(gap / 2 - (time.perf_counter() - begun), 0))

    def _make(self, node: Node, change: Change) -> None:
        self._visibility.expect(change)
        _act(node.emulator, change)

    def _next_fault(self, node: Node) -> Change:
        return _begin(node, next(self._faults[node.name]))


def _faults() -> Iterator[Fault]:
    """Yield chips and codes such that a fault has long ended when its turn comes again."""
    return itertools.cycle((Kind.CHIP, chip, code) for code in _CODES for chip in range(CHIPS))


def _separations() -> Iterator[Fault]:
    return itertools.cycle(
        (Kind.CHIP, chip, code) for code in _SEPARATE_CODES for chip in range(CHIPS)
    )


def _links() -> Iterator[Fault]:
    return itertools.cycle((Kind.CHIP, chip, LINK_DOWN) for chip in range(CHIPS))


def _ports() -> Iterator[Fault]:
    return itertools.cycle(
        (Kind.SWITCH, "", f"{_PORT_CODE}_{_PORT_CHIP}_{port}") for port in range(PORTS)
    )


def _begin(node: Node, fault: Fault) -> Change:
    kind, place, code = fault
    return Change(node.name, place, code, occurs=True, kind=kind)


def _end_of(fault: Change) -> Change:
    return Change(
        fault.node, fault.place, fault.code, occurs=False, kind=fault.kind, taints=fault.taints
    )


def _act(emulator: Emulator, change: Change) -> None:
    """Apply ``change`` to the hardware."""
    occurs, code = change.occurs, change.code
    if change.kind is Kind.SWITCH:
        port = EmulatedSwitchFault(
            parse_switch_code(_PORT_CODE), _PORT_CHIP, int(code.rpartition("_")[2])
        )
        (emulator.switch_occur if occurs else emulator.switch_recover)(port)
    elif change.kind is Kind.HOST:
        fan = int(str(change.place).rpartition(" ")[2])
        if occurs:
            emulator.bmc.occur(BmcAlarm(code, _FAN, fan))
        else:
            emulator.bmc.recover(code, _FAN, fan)
    elif code == LINK_DOWN:
        emulator.link(int(change.place), up=not occurs)
    else:
        (emulator.occur if occurs else emulator.recover)(int(change.place), code)


async def _all_seen(changes: Sequence[Change]) -> None:
    # A change that never comes is counted by the report (``lost``), and stops nothing.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOST_SECONDS):
            for change in changes:
                await change.seen.wait()


async def measure(
    directory: Path,
    count: int,
    broker: Sequence[str] | None,
    only: Sequence[str],
    marks: Path | None = None,
) -> Report:
    """Run everything in ``directory`` with ``count`` changes of each kind.

    With ``marks``, the daemons note their steps in that file.
    """
    taints = "taint" in only
    with Cluster(directory, broker) as cluster:
        # Separate connections, so that no measurement waits for another one's.
        watched = cluster.open_store()
        written = cluster.open_store()
        visibility = Visibility(watched)
        bare = Bare(written)
        followers = [
            asyncio.create_task(follow, name=name)
            for name, follow in (
                ("device-info", visibility.follow_device_info()),
                ("node-info", visibility.follow_node_info()),
                ("cluster-info", visibility.follow_cluster_info()),
                ("bare", bare.follow()),
                *((("taints", visibility.follow_taints()),) if taints else ()),
            )
        ]
        try:
            bench = Bench(cluster, visibility, bare)
            start = await bench.start(taints=taints, marks=marks)
            # A new leader taints nothing for the first seconds.
            await asyncio.sleep(SETTLE_SECONDS + 1 if taints else 1)
            await bench.warm_up()
            patterns = []
            for name, run in bench.patterns(count).items():
                if name in only or (not only and name != "taint"):
                    targets = _TARGETS.get(name, TARGETS)
                    patterns.append(Pattern(name, await run(), bare.taken(), targets))
            return Report(start, patterns, visibility.interruptions)
        finally:
            for follower in followers:
                follower.cancel()
            # A follower that failed would make the figures wrong, so its error ends the run.
            results = await asyncio.gather(*followers, return_exceptions=True)
            await watched.close()
            await written.close()
            for result in results:
                if isinstance(result, Exception):
                    raise result


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--count", type=int, default=200, help="changes of each kind (200)")
    parser.add_argument(
        "--broker",
        nargs="*",
        metavar="LINE",
        help="meet on a mosquitto with these lines in its configuration, not on an API server",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="measure this pattern only"
    )
    parser.add_argument("--parts", action="store_true", help="show the parts of single changes")
    options = parser.parse_args()
    if options.parts and (options.only or options.broker is not None or options.json):
        parser.error("--parts: it measures single changes on an API server, and prints a table")
    if "taint" in options.only and options.broker is not None:
        parser.error("--only taint: only an API server has Nodes")
    # A burst is ten changes; with fewer there would be none.
    if options.count < _BURST:
        parser.error(f"--count must be at least {_BURST}")
    with tempfile.TemporaryDirectory(prefix="vigil-bench-") as directory:
        marks = Path(directory) / "marks" if options.parts else None
        if marks is not None:
            marks.touch()
        only = ["single"] if options.parts else options.only
        run = measure(Path(directory), options.count, options.broker, only, marks)
        report = asyncio.run(run)
        if marks is not None:
            changes = [change for change in report.patterns[0].changes if change.is_seen]
            parts.print_parts(parts.parts_of(parts.read_marks(marks), changes))
    if options.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print_table(report)
    return 1 if report.lost() else 0


if __name__ == "__main__":
    sys.exit(main())

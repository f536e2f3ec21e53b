"""How agents and aggregator stand connections that die, slow admission, and a slow API server.

::

    python -m benchmarks.requests freeze [--times 10] [--nodes 3]
    python -m benchmarks.requests webhooks [--nodes 3] [--timeouts 10 30]
    python -m benchmarks.requests agents [--agents 200] [--seconds 60]

A real API server, real daemons on emulated hardware, a proxy before the API server. ``freeze``:
all connections freeze 5, 10, 30 and 80 s after the start, and after a burst of faults.
``webhooks``: one that never answers, with a timeout of 10 and 30 s, on ConfigMaps, on Leases and on
both; one node is killed meanwhile. ``agents``: many clients as agents have them, in one process, at
a server that answers at once and at one that answers after 1 to 8 s.

An independent reader records what was published. Ends with 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.request_clients import Client
from dcmi_shim.emulator.install import install
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.admission import HangingWebhook
from tests.parts.api_proxy import ApiProxy, Rule
from tests.parts.controlplane import ControlPlane
from tests.parts.node_reader import NodeReader
from tests.parts.places import Proxied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FREEZE_AT_SECONDS = (5, 10, 30, 80)
# Two intervals of 5 s less a second: one beat may be late, none may be missed.
_GAP_SECONDS = 9.0
_SHOWN_SECONDS = 5.0
_CLUSTER_SECONDS = 15.0
_AFTER_SECONDS = 12.0
_BURST = 20
_CODES = ("80E01801", "80E18402", "80C98000")
_TIMEOUTS_SECONDS = (10, 30)
_RESOURCES = (("configmaps",), ("leases",), ("configmaps", "leases"))
_INTERVAL_SECONDS = 5
_LEASE_SECONDS = 10
"""A leader's Lease without trouble."""
_MORE_REQUESTS = 1.2
_MORE_CONNECTIONS = 1.5
_WARM_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class Table:
    """Prints a line for each figure, and remembers whether a limit was exceeded."""

    def __init__(self) -> None:
        self.is_well = True

    def add(self, what: str, figure: float | None, limit: float) -> None:
        """Add a figure that must not be above ``limit``; ``None``: it was not reached at all."""
        is_well = figure is not None and figure <= limit
        self.is_well &= is_well
        shown = "never" if figure is None else f"{figure:.2f}"
        print(f"{'ok ' if is_well else 'BAD'} {what}: {shown} (limit {limit:g})", flush=True)


@contextlib.contextmanager
def _cluster(directory: Path, nodes: int) -> Iterator[tuple[Proxied, list[Node], NodeReader]]:
    """Start an API server, agents and an aggregator; yield them when they have begun to publish."""
    (directory / "plane").mkdir(parents=True)
    install(directory / "built" / "driver", directory / "built" / "emulator")
    with (
        ControlPlane(directory / "plane") as plane,
        ApiProxy(plane) as proxy,
        NodeReader(plane) as reader,
        contextlib.ExitStack() as ends,
    ):
        place = Proxied(plane, proxy)
        made = []
        for number in range(nodes):
            name = f"node-{number}"
            node = Node(directory / name, directory / "built", place, name)
            ends.callback(node.close)
            made.append(node)
        daemon = Daemon(directory / "aggregator", *place.options)
        ends.callback(daemon.stop)
        daemon.spawn()
        for node in made:
            node.start()
        for node in made:
            node.healthy(120)
        yield place, made, reader


def _until(happened: Callable[[], float | None], seconds: float) -> float | None:
    give_up = time.monotonic() + seconds
    while (at := happened()) is None and time.monotonic() < give_up:
        time.sleep(_LOOK_SECONDS)
    return at


def _shown(
    reader: NodeReader, document: str, node: Node, chip: int, code: str, seconds: float
) -> float | None:
    """Return when a fault was shown."""
    device = f"Ascend910-{chip}"
    return _until(lambda: reader.shown_at(document, node.name, device, code), seconds)


def freeze(table: Table, directory: Path, times: int, nodes: int) -> None:
    """Freeze all connections at some time after the start, or after a burst of faults."""
    for number in range(times):
        for after_seconds in (*_FREEZE_AT_SECONDS, None):
            here = directory / f"{number}-{after_seconds}"
            with _cluster(here, nodes) as (place, made, reader):
                _freeze(table, place, made, reader, after_seconds)


def _freeze(
    table: Table, place: Proxied, nodes: list[Node], reader: NodeReader, after: int | None
) -> None:
    begin = time.monotonic()
    node, code = nodes[0], _CODES[0]
    if after is None:
        for number in range(_BURST):
            for one in nodes:
                one.emulator.occur(1 + number % 7, _CODES[number % len(_CODES)])
    else:
        time.sleep(after)
    place.proxy.freeze_old()
    # The time counts from the freeze: the fault occurs while all connections are dead.
    frozen = time.monotonic()
    node.emulator.occur(0, code)
    case = "after a burst" if after is None else f"{after} s after the start"
    at = _shown(reader, node.document, node, 0, code, 60)
    table.add(f"frozen {case}: device-info [s]", at and at - frozen, _SHOWN_SECONDS)
    at = _shown(reader, "cluster-info-device-", node, 0, code, 60)
    table.add(f"frozen {case}: cluster-info [s]", at and at - frozen, _CLUSTER_SECONDS)
    time.sleep(max(0.0, frozen + _AFTER_SECONDS - time.monotonic()))
    gap = max(reader.longest_gap(one.name, begin) for one in nodes)
    table.add(f"frozen {case}: longest time without a beat [s]", gap, _GAP_SECONDS)
    table.add(f"frozen {case}: nodes lost", len(reader.lost), 0)


def webhooks(table: Table, directory: Path, nodes: int, timeouts: list[int]) -> None:
    """Measure with a webhook that never answers, and a node that is killed meanwhile."""
    for timeout in timeouts:
        for resources in _RESOURCES:
            here = directory / f"{timeout}-{'-'.join(resources)}"
            with _cluster(here, nodes) as (place, made, reader):
                _webhook(table, place, made, reader, timeout, resources)


def _webhook(
    table: Table,
    place: Proxied,
    nodes: list[Node],
    reader: NodeReader,
    timeout: int,
    resources: tuple[str, ...],
) -> None:
    case = f"{len(nodes)} nodes, {timeout} s on {' and '.join(resources)}"
    time.sleep(3 * _INTERVAL_SECONDS)
    # A webhook on Leases delays no document.
    waits = timeout if "configmaps" in resources else 0
    node, code = nodes[0], _CODES[0]

    def fault(chip: int, when: str) -> None:
        node.emulator.occur(chip, code)
        occurred = time.monotonic()
        at = _shown(reader, node.document, node, chip, code, 4 * timeout)
        table.add(f"{case}, {when}: device-info [s]", at and at - occurred, waits + 2)
        at = _shown(reader, "cluster-info-device-", node, chip, code, 6 * timeout)
        table.add(f"{case}, {when}: cluster-info [s]", at and at - occurred, 2 * waits + 2)

    with HangingWebhook(place.plane, timeout, resources):
        begin = time.monotonic()
        if not waits:
            # Until the leader's first Lease has run out, since its renewals are slow now.
            time.sleep(_LEASE_SECONDS)
        # The leader's first slow renewal is still under way when this reaches cluster-info.
        fault(1, "in the beginning")
        time.sleep(max(0.0, begin + 3 * timeout + _INTERVAL_SECONDS - time.monotonic()))
        fault(2, "later")
        table.add(f"{case}: nodes lost", len(reader.lost), 0)
        dead = nodes[-1]
        dead.kill()
        killed = time.monotonic()
        at = _until(lambda: reader.lost.get(dead.name, [None])[0], 10 * timeout)
        # The verdict is published by a write that is delayed itself.
        limit = 3 * _INTERVAL_SECONDS + 2 * timeout + waits
        table.add(f"{case}: a killed node is lost [s]", at and at - killed, limit)
        table.add(f"{case}: other nodes lost", len(reader.lost.keys() - {dead.name}), 0)


async def _agents(
    plane: ControlPlane, agents: int, seconds: float, delay: Callable[[object], float] | None
) -> tuple[int, int]:
    """Return the requests and connections of so many agents in ``seconds``."""
    with ApiProxy(plane) as proxy:
        if delay is not None:
            # Watches are answered at once by a server that has everything in its cache.
            for verb in ("get", "update", "create", "patch", "delete"):
                proxy.delay(delay, Rule(verb))
        clients = [Client(proxy.kubeconfig, f"agent-{number}") for number in range(agents)]
        async with asyncio.TaskGroup() as tasks:
            running = []
            for client in clients:
                running.append(tasks.create_task(client.run()))
                # Agents of a real cluster do not start in one moment, and neither do these.
                await asyncio.sleep(_WARM_SECONDS / agents)
            await asyncio.sleep(seconds)
            for task in running:
                task.cancel()
        await asyncio.gather(*(client.close() for client in clients))
        beats = sum(client.heartbeat.beats for client in clients)
        failures = sum(client.heartbeat.failures for client in clients)
        print(f"    {beats} beats, {failures} failures, {len(proxy.requests())} requests,", end=" ")
        print(f"{proxy.connections} connections", flush=True)
        return len(proxy.requests()), proxy.connections


def slow(table: Table, directory: Path, agents: int, seconds: float) -> None:
    """Measure the same agents at a quick server and at a slow one."""
    directory.mkdir(parents=True, exist_ok=True)
    with ControlPlane(directory) as plane:
        quick = asyncio.run(_agents(plane, agents, seconds, None))
        # The second run must create its objects as the first did.
        plane.clean()
        slow = asyncio.run(_agents(plane, agents, seconds, lambda _: random.uniform(1.0, 8.0)))
    table.add(f"{agents} agents, slow server: requests [x]", slow[0] / quick[0], _MORE_REQUESTS)
    more = slow[1] / quick[1]
    table.add(f"{agents} agents, slow server: connections [x]", more, _MORE_CONNECTIONS)


def main() -> int:
    """Measure what is asked for; 1 if a limit was exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("freeze", "webhooks", "agents"))
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--timeouts", type=int, nargs="+", default=_TIMEOUTS_SECONDS)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        match options.what:
            case "freeze":
                freeze(table, directory, options.times, options.nodes)
            case "webhooks":
                webhooks(table, directory, options.nodes, options.timeouts)
            case _:
                slow(table, directory, options.agents, options.seconds)
    return 0 if table.is_well else 1


if __name__ == "__main__":
    sys.exit(main())

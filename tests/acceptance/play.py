"""Plays recordings of the real device plugin and NodeD against a real agent, in real time.

    python -m tests.acceptance.play NAME|FILE ... [--at-once N] [--vigil PROGRAM] [--keep DIR]
                                   [--api-server] [--speed N] [--bmc device|tool]

A NAME is one of ``tests/vectors/device-plugin/recordings`` or ``tests/vectors/noded/recordings``,
``all`` and ``all-noded`` are all of them; a FILE is any recording in their formats, as NodeD's were
made, too, or in that of ``tests/vectors/device-plugin/ours``. The agent is an installed one on the
independent driver, tools and BMC of this room, and publishes to a directory; with ``--api-server``,
or where a recording has steps that a directory cannot have, to a real API server of its own, and
Events, or the serial number on the Node, are compared, too. What differs is printed for each: what
is in ``docs/differences.md`` is only counted. Exit status 1: something else differs,
or could not be played.

It takes as long as the recordings did, 8 at a time by default: about ten minutes for ``all``, forty
for ``all-noded``, whose pauses ``--speed`` makes shorter (but not the starts of agents).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stores.address import open_store
from tests.acceptance.bmc import Bmc, compile_device
from tests.acceptance.daemons import Agent
from tests.acceptance.hardware import compile_library
from tests.acceptance.installed import install
from tests.acceptance.noded import RecordedServer
from tests.acceptance.places import Cluster, Folder
from tests.acceptance.recorded import RecordedNode, make_hardware
from tests.acceptance.results import Result, show, status_of
from tests.compatibility import unlisted
from tests.parts.controlplane import ControlPlane
from tests.replay.beside import missing_events
from tests.replay.comparison import compared
from tests.replay.noded import is_of_noded, read
from tests.replay.noded_real import NodedPlay
from tests.replay.on_cluster import ONLY_THERE, do, events_of, serial_number_on
from tests.replay.real import CannotPlay, RealPlay
from tests.replay.snapshots import surprises
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.acceptance.noded import Way
    from tests.compatibility import Difference

_NODE = "node-1"
_RECORDINGS = VECTORS / "device-plugin" / "recordings"
_OF_NODED = VECTORS / "noded" / "recordings"


@dataclass(frozen=True)
class Printed:
    """How to play. ``api_server``: on one, even if a directory would do; the rest for NodeD."""

    api_server: bool = False
    speed: float = 1.0
    bmc: Way = "device"


def _files(names: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        if name in ("all", "all-noded"):
            found += sorted((_RECORDINGS if name == "all" else _OF_NODED).glob("*.json"))
        elif Path(name).is_file():
            found.append(Path(name))
        else:
            of_noded = _OF_NODED / f"{name}.json"
            found.append(of_noded if of_noded.is_file() else _RECORDINGS / f"{name}.json")
    return found


async def play(
    file: Path, place: Path, vigil: Path, libraries: Path, gate: asyncio.Lock, options: Printed
) -> Result:
    """Play one recording. ``place`` is for all that the node has, the rest is shared."""
    recording: dict[str, Any] = json.loads(file.read_text())
    if is_of_noded(recording):
        return await play_noded(read(file), place, vigil, libraries, gate, options)
    library = await asyncio.to_thread(_compiled, libraries, "libdcmi")
    lingqu = partial(_compiled, libraries, "liblingqu-dcmi")
    hardware = make_hardware(place / "driver", recording["profile"], library, lingqu)
    with ExitStack() as ends:
        cluster = None
        if options.api_server or any(step["do"] in ONLY_THERE for step in recording["steps"]):
            (place / "plane").mkdir()
            async with gate:
                made = ControlPlane(place / "plane")
                await asyncio.to_thread(ends.enter_context, made)
            cluster = Cluster(made)
            made.request("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
        where = cluster or Folder(place / "store")
        agent = Agent(vigil, place / "agent", where, hardware, _NODE)
        ends.callback(agent.close)
        try:
            found = await _differences(recording, agent, where, gate)
        except CannotPlay as error:
            return Result(file.stem, problem=str(error))
        except BaseExceptionGroup as group:
            return Result(file.stem, problem=repr(group.exceptions[0]))
        except Exception as error:
            return Result(file.stem, problem=repr(error))
    if not isinstance(found, list):
        return Result(file.stem, surprises=found)
    unknown = unlisted(f"device-plugin/{file.stem}", found)
    return Result(file.stem, len(found) - len(unknown), tuple(unknown))


async def play_noded(
    recording: dict[str, Any],
    place: Path,
    vigil: Path,
    libraries: Path,
    gate: asyncio.Lock,
    options: Printed,
) -> Result:
    """Play a recording of NodeD; return the result."""
    name, steps = recording["name"], recording["steps"]
    library = await asyncio.to_thread(_compiled, libraries, "libdcmi")
    lingqu = partial(_compiled, libraries, "liblingqu-dcmi")
    hardware = make_hardware(place / "driver", "a2", library, lingqu)
    with ExitStack() as ends:
        where: Cluster | Folder = Folder(place / "store")
        if options.api_server or any(step["do"] == "api-server" for step in steps):
            (place / "plane").mkdir()
            async with gate:
                made = ControlPlane(place / "plane")
                await asyncio.to_thread(ends.enter_context, made)
            where = Cluster(made)
        node = next(step["node_name"] for step in steps if step["do"] == "start-agent")
        agent = Agent(vigil, place / "agent", where, hardware, node)
        ends.callback(agent.close)
        bmc = ends.enter_context(Bmc())
        server = RecordedServer(agent, bmc, _compiled_device(libraries), options.bmc)
        server.prepare(name, options.speed)
        try:
            found = await _differences_of_noded(recording, server, where, gate, options.speed)
        except CannotPlay as error:
            return Result(name, problem=str(error))
        except Exception as error:
            return Result(name, problem=repr(error))
    return Result(name, unknown=tuple(found))


async def _differences_of_noded(
    recording: dict[str, Any],
    server: RecordedServer,
    where: Cluster | Folder,
    gate: asyncio.Lock,
    speed: float,
) -> list[Difference]:
    if isinstance(where, Folder):
        store = open_store(f"directory:{where.root}")
        play = NodedPlay(recording, server, store, speed=speed, gate=gate)
    else:
        store = open_store("kubernetes:", where.plane.kubeconfig)
        play = NodedPlay(
            recording,
            server,
            store,
            partial(do, where.plane),
            partial(serial_number_on, where.plane),
            speed,
            gate,
        )
    try:
        return await play.run()
    finally:
        await store.close()


async def _differences(
    recording: dict[str, Any], agent: Agent, where: Cluster | Folder, gate: asyncio.Lock
) -> list[Difference] | tuple[str, ...]:
    """Return the differences from the real program, or the surprises in a recording of ours."""
    if isinstance(where, Folder):
        store, elsewhere = open_store(f"directory:{where.root}"), None
    else:
        store = open_store("kubernetes:", where.plane.kubeconfig)
        elsewhere = partial(do, where.plane)
    try:
        shown = await RealPlay(recording, RecordedNode(agent), store, elsewhere, gate=gate).run()
    finally:
        await store.close()
    if "expected" in recording:
        return tuple(surprises(recording, [(one.at_ms, one.data) for one in shown]))
    found = compared(recording, shown, for_real=True)
    if isinstance(where, Cluster):
        events = [row["event"] for row in recording["observed"] if "event" in row]
        options = await asyncio.to_thread(events_of, where.plane, _NODE)
        found += missing_events(events, options)
    return found


@cache
def _compiled_device(directory: Path) -> Path:
    return compile_device(directory)


@cache
def _compiled(directory: Path, name: str) -> Path:
    return compile_library(directory, name=name)


async def play_all(
    files: Sequence[Path], place: Path, vigil: Path, at_once: int, options: Printed
) -> list[Result]:
    """Play ``files``, some at a time, and print what came of each as it ends."""
    libraries = place / "libraries"
    libraries.mkdir(parents=True)
    for name in ("libdcmi", "liblingqu-dcmi"):
        _compiled(libraries, name)
    seats, gate = asyncio.Semaphore(at_once), asyncio.Lock()

    async def one(file: Path) -> Result:
        async with seats:
            result = await play(file, place / file.stem, vigil, libraries, gate, options)
        show(result)
        return result

    return await asyncio.gather(*map(one, files))


def main() -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.acceptance.play",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recordings", nargs="+", metavar="NAME|FILE")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--vigil", type=Path, help="an installed vigil (default: this tree's)")
    parser.add_argument("--keep", type=Path, help="where logs and stores stay (default: nowhere)")
    parser.add_argument("--api-server", action="store_true", help="one for each recording")
    parser.add_argument("--speed", type=float, default=1.0, help="of NodeD's recordings")
    parser.add_argument("--bmc", choices=("device", "tool"), default="device", help="the way to it")
    options = parser.parse_args()
    files = _files(options.recordings)
    for missing in (file for file in files if not file.is_file()):
        parser.error(f"{missing.stem} is neither a recording's name nor a file")
    with tempfile.TemporaryDirectory(prefix="npu-vigil-play-") as temporary:
        place = options.keep or Path(temporary)
        vigil = options.vigil or install(Path(temporary) / "installed")
        results = asyncio.run(
            play_all(
                files,
                place,
                vigil.absolute(),
                options.at_once,
                Printed(options.api_server, options.speed, options.bmc),
            )
        )
    return status_of(results)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)

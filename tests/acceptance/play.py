"""Plays recordings of the real device plugin against a real agent, in real time.

    python -m tests.acceptance.play NAME|FILE ... [--at-once N] [--vigil PROGRAM] [--keep DIR]
                                   [--api-server]

A NAME is one of ``tests/vectors/device-plugin/recordings``, ``all`` are all of them; a FILE is any
recording in their format, or in that of ``tests/vectors/device-plugin/ours``. The agent is an
installed one on the independent driver and tools of this room, and publishes to a directory; with
``--api-server``, or where a recording has steps that a directory cannot have, to a real API server
of its own, and Events are compared, too. What differs is printed for each: what is in the table of
``docs/compatibility.md`` is only counted. Exit status 1: something else differs, or could not be
played.

It takes as long as the recordings did, 8 at a time by default: about ten minutes for ``all``.
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
from tests.acceptance.daemons import Agent
from tests.acceptance.hardware import compile_library
from tests.acceptance.installed import install
from tests.acceptance.places import Cluster, Folder
from tests.acceptance.recorded import RecordedNode, make_hardware
from tests.compatibility import unlisted
from tests.parts.controlplane import ControlPlane
from tests.replay.beside import missing_events
from tests.replay.comparison import compared
from tests.replay.moments import surprises
from tests.replay.on_cluster import ONLY_THERE, do, events_of
from tests.replay.real import CannotPlay, RealPlay
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.compatibility import Difference

_NODE = "node-1"
_RECORDINGS = VECTORS / "device-plugin" / "recordings"


@dataclass(frozen=True)
class Result:
    """What came of one recording. ``problem`` says why it could not be played to its end."""

    name: str
    known: int = 0
    unknown: tuple[Difference, ...] = ()
    problem: str | None = None
    surprises: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is to be looked at."""
        return self.problem is None and not self.unknown and not self.surprises


def _files(names: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        if name == "all":
            found += sorted(_RECORDINGS.glob("*.json"))
        elif Path(name).is_file():
            found.append(Path(name))
        else:
            found.append(_RECORDINGS / f"{name}.json")
    return found


async def play(
    file: Path, place: Path, vigil: Path, libraries: Path, gate: asyncio.Lock, plane: bool
) -> Result:
    """Play one recording. ``place`` is for all that the node has, the rest is shared.

    ``plane``: on an API server, even if a directory would do.
    """
    recording: dict[str, Any] = json.loads(file.read_text())
    library = await asyncio.to_thread(_compiled, libraries, "libdcmi")
    lingqu = partial(_compiled, libraries, "liblingqu-dcmi")
    hardware = make_hardware(place / "driver", recording["profile"], library, lingqu)
    with ExitStack() as ends:
        cluster = None
        if plane or any(step["do"] in ONLY_THERE for step in recording["steps"]):
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


async def _differences(
    recording: dict[str, Any], agent: Agent, where: Cluster | Folder, gate: asyncio.Lock
) -> list[Difference] | tuple[str, ...]:
    """How it differs from what the real program did; of one of ours, what is unexpected."""
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
        told = await asyncio.to_thread(events_of, where.plane, _NODE)
        found += missing_events(events, told)
    return found


@cache
def _compiled(directory: Path, name: str) -> Path:
    return compile_library(directory, name=name)


async def play_all(
    files: Sequence[Path], place: Path, vigil: Path, at_once: int, plane: bool
) -> list[Result]:
    """Play ``files``, some at a time, and print what came of each as it ends."""
    libraries = place / "libraries"
    libraries.mkdir(parents=True)
    for name in ("libdcmi", "liblingqu-dcmi"):
        _compiled(libraries, name)
    seats, gate = asyncio.Semaphore(at_once), asyncio.Lock()

    async def one(file: Path) -> Result:
        async with seats:
            result = await play(file, place / file.stem, vigil, libraries, gate, plane)
        _print(result)
        return result

    return await asyncio.gather(*map(one, files))


def _print(result: Result) -> None:
    if result.problem is not None:
        _say(f"{result.name}: NOT PLAYED: {result.problem}")
        return
    known = f", {result.known} known differences" if result.known else ""
    _say(f"{result.name}: {'as expected' if result.is_well else 'DIFFERS'}{known}")
    for one in result.unknown:
        _say(f"    {one.path}: upstream {one.upstream}, ours {one.ours}")
    for surprise in result.surprises:
        _say(f"    {surprise}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """The program; its exit status."""
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
    told = parser.parse_args()
    files = _files(told.recordings)
    for missing in (file for file in files if not file.is_file()):
        parser.error(f"{missing.stem} is neither a recording's name nor a file")
    with tempfile.TemporaryDirectory(prefix="npu-vigil-play-") as temporary:
        place = told.keep or Path(temporary)
        vigil = told.vigil or install(Path(temporary) / "installed")
        results = asyncio.run(
            play_all(files, place, vigil.absolute(), told.at_once, told.api_server)
        )
    well = sum(result.is_well for result in results)
    _say(f"{well} of {len(results)} as expected")
    return 0 if well == len(results) else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)

"""Plays recordings of the real device plugin against a real agent, in real time.

    python -m tests.acceptance.play NAME|FILE ... [--at-once N] [--vigil PROGRAM] [--keep DIR]

A NAME is one of ``tests/vectors/device-plugin/recordings``, ``all`` are all of them; a FILE is any
recording in their format. The agent is an installed one on the independent driver and tools of this
room, and publishes to a directory. What differs is printed for each: what is in the table of
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
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stores.address import open_store
from tests.acceptance.daemons import Agent
from tests.acceptance.hardware import compile_library
from tests.acceptance.installed import install
from tests.acceptance.places import Folder
from tests.acceptance.recorded import RecordedNode, make_hardware
from tests.compatibility import unlisted
from tests.replay.comparison import compared
from tests.replay.real import CannotPlay, RealPlay
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.compatibility import Difference

_RECORDINGS = VECTORS / "device-plugin" / "recordings"


@dataclass(frozen=True)
class Result:
    """What came of one recording. ``problem`` says why it could not be played to its end."""

    name: str
    known: int = 0
    unknown: tuple[Difference, ...] = ()
    problem: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether nothing is to be looked at."""
        return self.problem is None and not self.unknown


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


async def play(file: Path, place: Path, vigil: Path, libraries: Path, gate: asyncio.Lock) -> Result:
    """Play one recording. ``place`` is for all that the node has, the rest is shared."""
    recording: dict[str, Any] = json.loads(file.read_text())
    library = await asyncio.to_thread(_compiled, libraries, "libdcmi")
    lingqu = partial(_compiled, libraries, "liblingqu-dcmi")
    hardware = make_hardware(place / "driver", recording["profile"], library, lingqu)
    folder = Folder(place / "store")
    agent = Agent(vigil, place / "agent", folder, hardware, "node-1")
    store = open_store(f"directory:{folder.root}")
    try:
        shown = await RealPlay(recording, RecordedNode(agent), store, gate=gate).run()
    except CannotPlay as error:
        return Result(file.stem, problem=str(error))
    except BaseExceptionGroup as group:
        return Result(file.stem, problem=repr(group.exceptions[0]))
    except Exception as error:
        return Result(file.stem, problem=repr(error))
    finally:
        agent.close()
        await store.close()
    found = compared(recording, shown, for_real=True)
    unknown = unlisted(f"device-plugin/{file.stem}", found)
    return Result(file.stem, len(found) - len(unknown), tuple(unknown))


@cache
def _compiled(directory: Path, name: str) -> Path:
    return compile_library(directory, name=name)


async def play_all(files: Sequence[Path], place: Path, vigil: Path, at_once: int) -> list[Result]:
    """Play ``files``, some at a time, and print what came of each as it ends."""
    libraries = place / "libraries"
    libraries.mkdir(parents=True)
    for name in ("libdcmi", "liblingqu-dcmi"):
        _compiled(libraries, name)
    seats, gate = asyncio.Semaphore(at_once), asyncio.Lock()

    async def one(file: Path) -> Result:
        async with seats:
            result = await play(file, place / file.stem, vigil, libraries, gate)
        _print(result)
        return result

    return await asyncio.gather(*map(one, files))


def _print(result: Result) -> None:
    if result.problem is not None:
        _say(f"{result.name}: NOT PLAYED: {result.problem}")
        return
    known = f", {result.known} known differences" if result.known else ""
    _say(f"{result.name}: {'DIFFERS' if result.unknown else 'as expected'}{known}")
    for one in result.unknown:
        _say(f"    {one.path}: upstream {one.upstream}, ours {one.ours}")


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
    told = parser.parse_args()
    files = _files(told.recordings)
    for missing in (file for file in files if not file.is_file()):
        parser.error(f"{missing.stem} is neither a recording's name nor a file")
    with tempfile.TemporaryDirectory(prefix="npu-vigil-play-") as temporary:
        place = told.keep or Path(temporary)
        vigil = told.vigil or install(Path(temporary) / "installed")
        results = asyncio.run(play_all(files, place, vigil.absolute(), told.at_once))
    well = sum(result.is_well for result in results)
    _say(f"{well} of {len(results)} as expected")
    return 0 if well == len(results) else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)

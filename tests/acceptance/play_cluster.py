"""Plays recordings of the real ClusterD against a real aggregator, in real time.

    python -m tests.acceptance.play_cluster NAME|FILE ... [--at-once N] [--keep DIR]

A NAME is one of ``tests/vectors/clusterd``, ``all`` is all of them; a FILE is any recording in
their format. Each gets an API server of its own (with Volcano's resources where it has steps about
them) and a process ``vigil aggregator``, which is asked by gRPC with messages made from upstream's
numbers. What differs is printed for each: what is in ``docs/differences.md`` is
only counted. Exit status 1: something else differs, or could not be played.

It takes as long as the recordings did: half a minute each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stores.address import open_store
from tests.acceptance.results import Result, show, status_of
from tests.aggregator.daemon import Daemon
from tests.cluster import recorded
from tests.cluster.comparison import compared
from tests.cluster.real import RealPlay
from tests.cluster.steps import CannotPlay
from tests.compatibility import unlisted
from tests.parts.controlplane import ControlPlane
from tests.parts.processes import PartFailed, free_ports
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence


_RECORDINGS = VECTORS / "clusterd"


def _files(names: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        if name == "all":
            found += [_RECORDINGS / f"{one}.json" for one in recorded.names()]
        else:
            found.append(Path(name) if Path(name).is_file() else _RECORDINGS / f"{name}.json")
    return found


async def play(file: Path, place: Path, gate: asyncio.Lock) -> Result:
    """Play one recording. ``place`` is for all that the cluster has."""
    recording: dict[str, Any] = json.loads(file.read_text())
    (place / "plane").mkdir(parents=True)
    with ExitStack() as ends:
        plane = ControlPlane(place / "plane")
        async with gate:
            await asyncio.to_thread(ends.enter_context, plane)
        store = open_store("kubernetes:", plane.kubeconfig)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        options = ("--grpc-listen", address, "--grpc-plaintext")
        kubernetes = ("--store", "kubernetes:", "--kubeconfig", str(plane.kubeconfig))
        daemon = Daemon(place / "aggregator", *kubernetes, *options)
        ends.callback(daemon.stop)
        real = RealPlay(recording, plane, store, daemon, address)
        try:
            played = await real.run()
        except (CannotPlay, PartFailed, AssertionError) as error:
            return Result(file.stem, problem=str(error))
        finally:
            await store.close()
    known, unknown = 0, []
    for one in compared(recording, played, real.at_last_seconds):
        new = unlisted(one.name, one.differences)
        known += len(one.differences) - len(new)
        unknown += new
    return Result(file.stem, known, tuple(dict.fromkeys(unknown)))


async def play_all(files: Sequence[Path], place: Path, at_once: int) -> list[Result]:
    """Play ``files``, some at a time, and print what came of each as it ends."""
    seats, gate = asyncio.Semaphore(at_once), asyncio.Lock()

    async def one(file: Path) -> Result:
        async with seats:
            result = await play(file, place / file.stem, gate)
        show(result)
        return result

    return await asyncio.gather(*map(one, files))


def main() -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.acceptance.play_cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recordings", nargs="+", metavar="NAME|FILE")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where logs and data stay (default: nowhere)")
    options = parser.parse_args()
    files = _files(options.recordings)
    for missing in (file for file in files if not file.is_file()):
        parser.error(f"{missing.stem} is neither a recording's name nor a file")
    with tempfile.TemporaryDirectory(prefix="npu-vigil-play-") as temporary:
        place = options.keep or Path(temporary)
        results = asyncio.run(play_all(files, place, options.at_once))
    return status_of(results)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)

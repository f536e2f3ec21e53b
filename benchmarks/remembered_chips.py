"""What readers see of a chip that is silent when its agent starts, on each profile.

::

    python -m benchmarks.remembered_chips [--profile a2 ...] [--case drop ...]

For each case: an emulated server, a real agent on a directory, a fault on chip 3, a stop; then what
the case describes, and a start. A reader of its own follows device-info throughout: no version
may withdraw the fault before its source does. Ends with 1 when one did.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dcmi_shim.emulator.install import install
from tests.end_to_end.node import Node
from tests.end_to_end.places import Folder
from tests.end_to_end.remembered import (
    FAULT,
    LOST,
    PROFILES,
    QUICK,
    following,
    forget,
    has,
    is_blind,
    names,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.parts.following import Following

CHIP, HEALTHY = 3, 1


@dataclass
class Run:
    """One case on one profile."""

    node: Node
    profile: str
    document: Following
    first: int = 0

    @property
    def name(self) -> str:
        """The device with the fault."""
        return f"{PROFILES[self.profile][0]}-{CHIP}"

    def start(self) -> None:
        """Start the agent again."""
        self.first = len(self.document.versions)
        self.node.start()
        self.node.up()

    def kept(self, *others_that_may_be_missing: int) -> None:
        """Raise ``AssertionError`` if a version since the start lacks the fault, or frees it."""
        free = names(self.profile, CHIP, *others_that_may_be_missing)
        for version in self.document.versions[self.first :]:
            assert has(self.name, FAULT)(version), f"withdrawn: {version.text}"
            assert self.name in version.unhealthy
            assert version.free >= free, f"others are not free: {version.free}"
            assert self.name not in version.free


def drop(run: Run) -> None:
    """Drop the card off the bus; it is lost, and comes back."""
    run.node.emulator.drop(CHIP, hard=True)
    run.start()
    run.node.wait(lambda: is_blind(run.node, CHIP), "it is blind")
    run.document.until(has(run.name, LOST), "it is lost")
    run.node.emulator.restore(CHIP)
    run.document.until(lambda now: set(now.levels[run.name]) == {FAULT}, "it answers")
    run.kept()
    run.node.emulator.recover(CHIP, FAULT)
    run.document.until(lambda now: now.free == names(run.profile), "its recovery counts")


def state_lost(run: Run) -> None:
    """Lose the state directory as well."""
    run.node.emulator.drop(CHIP, hard=True)
    shutil.rmtree(run.node.state_dir)
    run.start()
    run.document.until(has(run.name, LOST), "it is lost")
    run.kept()


def all_unlisted(run: Run) -> None:
    """Take all cards off the bus."""
    chips = range(PROFILES[run.profile][1])
    for chip in chips:
        run.node.emulator.drop(chip, hard=True)
    run.start()
    run.document.until(lambda now: len(now.levels) == len(chips), "all are lost")
    run.kept(*chips)
    assert run.node.ask("/readyz")[0] == 503
    for chip in chips:
        run.node.emulator.restore(chip)
    run.document.until(lambda now: now.free == names(run.profile, CHIP), "they are back")


def driver_gone(run: Run) -> None:
    """There is no driver at the start, and then there is."""
    away = run.node.driver_root.with_name("away")
    run.node.driver_root.rename(away)
    run.start()
    run.node.wait(lambda: is_blind(run.node, CHIP), "it is blind")
    time.sleep(2)
    assert len(run.document.versions) == run.first, "the document changed"
    assert run.node.ask("/readyz")[0] == 503
    away.rename(run.node.driver_root)
    run.node.wait(lambda: run.node.ask("/readyz")[0] == 200, "it is ready")
    run.kept()


def both_lost(run: Run) -> None:
    """State directory and driver are lost; the driver comes back without the card."""
    run.node.emulator.drop(CHIP, hard=True)
    shutil.rmtree(run.node.state_dir)
    away = run.node.driver_root.with_name("away")
    run.node.driver_root.rename(away)
    run.start()
    time.sleep(2)
    assert len(run.document.versions) == run.first, "the document changed"
    assert run.node.ask("/readyz")[0] == 503
    away.rename(run.node.driver_root)
    run.document.until(has(run.name, LOST), "it is lost", 40)
    run.kept()


def replaced(run: Run) -> None:
    """Another card is in its place."""
    run.node.emulator.replace(CHIP)
    run.start()
    run.document.until(lambda now: now.free == names(run.profile), "the new one is well")
    changes = [one for row in run.node.journal("changes") for one in row if one["kind"] == "ended"]
    assert "replaced" in changes[-1]["because"], changes


def forgotten(run: Run) -> None:
    """Take the card out on purpose."""
    run.node.emulator.drop(CHIP, hard=True)
    run.start()
    run.node.wait(lambda: is_blind(run.node, CHIP), "it is blind")
    run.kept()
    assert forget(run.node, run.name).returncode == 0
    run.kept()
    output = forget(run.node, run.name, "--yes")
    assert output.returncode == 0, output
    run.document.until(lambda now: run.name not in now.named, "it is forgotten", 5)


def healthy(run: Run) -> None:
    """Drop a chip without a fault off the bus, too."""
    run.node.emulator.drop(HEALTHY, hard=True)
    run.start()
    left = names(run.profile, CHIP, HEALTHY)
    run.document.until(lambda now: now.free == left, "it is not free")
    run.kept(HEALTHY)
    assert f"{PROFILES[run.profile][0]}-{HEALTHY}" not in run.document.last.named


CASES: dict[str, Callable[[Run], None]] = {
    "drop": drop,
    "state-lost": state_lost,
    "all-unlisted": all_unlisted,
    "driver-gone": driver_gone,
    "both-lost": both_lost,
    "replaced": replaced,
    "forgotten": forgotten,
    "healthy": healthy,
}


def play(directory: Path, built: Path, profile: str, case: Callable[[Run], None]) -> None:
    """Play one case. Raises ``AssertionError`` for what readers must not see."""
    node = Node(directory, built, Folder(directory / "store"), profile=profile)
    node.driver_root = Path(shutil.copytree(node.driver_root, directory / "host" / "driver"))
    node.environment |= QUICK
    try:
        node.start()
        with following(node) as document:
            run = Run(node, profile, document)
            document.until(lambda now: now.free == names(profile), "all are free")
            node.emulator.occur(CHIP, FAULT)
            document.until(has(run.name, FAULT), "the fault")
            node.stop()
            case(run)
    finally:
        node.close()


def main() -> int:
    """Play the matrix; 1 when a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="append", choices=PROFILES)
    parser.add_argument("--case", action="append", choices=CASES)
    chosen = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="npu-vigil-") as place:
        built = Path(place) / "built"
        install(built / "driver", built / "emulator")
        for profile in chosen.profile or PROFILES:
            for name in chosen.case or CASES:
                began = time.monotonic()
                try:
                    play(Path(place) / f"{profile}-{name}", built, profile, CASES[name])
                except AssertionError as error:
                    failed += 1
                    print(f"{profile:6} {name:14} FAILED: {error}", flush=True)
                else:
                    seconds = time.monotonic() - began
                    print(f"{profile:6} {name:14} ok, {seconds:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What an episode came to, and where plans with something wrong are kept."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from benchmarks.chaos.judge import excused_seconds, one_off_seconds
from benchmarks.chaos.plan import Plan
from benchmarks.chaos.shrink import MAX_SECONDS, shrunk
from benchmarks.chaos.stage import judged, settled
from vigil.prove.gather import Journals
from vigil.prove.match import prove
from vigil.prove.report import report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.chaos.judge import Excuse, Fault, Sample


class Outcome(msgspec.Struct, frozen=True):
    """What an episode came to; ``wrong`` are names of what is wrong, ``texts`` are all of it."""

    plan: Plan
    faults: int
    samples: int
    wrong: list[str]
    texts: list[str]
    share: float
    """Which part of the episode is excused."""
    settled_seconds: float
    one_off_seconds: list[float]
    """For how long each one-off fault was shown that was shown."""
    proved: int = 0
    gaps: dict[str, int] = {}
    is_proved: bool = True
    processor_seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong, and all is proved."""
        return not self.wrong and self.is_proved


class NotPlayed(msgspec.Struct, frozen=True):
    """Plans that were not played, because their store did not start."""

    plans: list[Plan]
    cause: str


def outcome_of(
    plan: Plan,
    faults: list[Fault],
    samples: list[Sample],
    excuses: list[Excuse],
    errors: Sequence[tuple[str, str]] = (),
) -> Outcome:
    """Judge an episode; ``errors`` are kinds and texts of what was wrong with its programs."""
    verdicts = judged(plan, faults, samples, excuses)
    kinds = [kind for kind, _ in errors]
    return Outcome(
        *(plan, len(faults), len(samples)),
        [verdict.wrong.value for verdict in verdicts] + kinds,
        [msgspec.json.encode(verdict).decode() for verdict in verdicts]
        + [f"{kind}: {text}" for kind, text in errors],
        excused_seconds(excuses, plan.seconds) / plan.seconds,
        settled(plan, faults, samples),
        one_off_seconds(faults, samples),
    )


def proved(outcome: Outcome, directories: Iterable[Path]) -> Outcome:
    """Return the outcome with what ``vigil prove`` makes of the journals of the nodes."""
    journals = Journals()
    journals.add_files(directories, since_ms=None)
    proof = prove(journals.by_node.values(), None, None)
    report = report_of(proof, journals.by_node, journals.not_known, "nothing")
    return replace(
        outcome, proved=report.proved, gaps=report.gaps_by_name, is_proved=report.status == 0
    )


class Kept(msgspec.Struct, frozen=True):
    """Where plans with something wrong are kept: ``directory``, ``None`` for nowhere.

    ``mutant`` is the name of the wrong product.
    """

    directory: Path | None
    mutant: str | None

    def add(self, plan: Plan, fails: Callable[[Plan], bool]) -> None:
        """Keep a plan with something wrong, as small as it becomes within its time."""
        if self.directory is None:
            return
        end = time.monotonic() + MAX_SECONDS
        small = shrunk(plan, fails, lambda: end - time.monotonic())
        name = f"{plan.platform}-{plan.seed}" if self.mutant is None else self.mutant
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / f"{name.replace(' ', '-')}.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(small)) + b"\n")

    def add_files(self, plan: Plan, programs: Iterable[Path]) -> None:
        """Keep logs and state of programs, by their directories, beside the plan played last."""
        if self.directory is None:
            return
        place = self.directory / f"{plan.platform}-{plan.seed}"
        shutil.rmtree(place, ignore_errors=True)
        for program in programs:
            shutil.copytree(program, place / program.name, ignore=_no_files)


def _no_files(directory: str, names: list[str]) -> list[str]:
    """Return the names that are neither files nor directories, such as sockets."""
    paths = {name: Path(directory, name) for name in names}
    return [name for name, path in paths.items() if not (path.is_file() or path.is_dir())]

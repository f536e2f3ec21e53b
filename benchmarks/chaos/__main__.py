"""Plays episodes of faults and troubles, and judges what was shown.

::

    python -m benchmarks.chaos --world directory --episodes N --seed S [--keep DIR]
    python -m benchmarks.chaos --replay FILE...
    python -m benchmarks.chaos --world simulated --episodes N --seed S --mutant NAME

The worlds ``directory``, ``kubernetes`` and ``mqtt`` are real parts, ``simulated`` is virtual time.
Prints a line for each episode with something wrong, of real parts for each, and a summary as JSON.
Exit status: 0 nothing wrong, 1 something is. A plan with something wrong is made smaller, kept in
DIR, and can be played again. A mutant is a wrong product: the first episode that finds it is the
last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.chaos.judge import excused_share
from benchmarks.chaos.plan import aggregators_of
from benchmarks.chaos.shrink import MAX_SECONDS, shrunk
from benchmarks.chaos.stage import judged
from benchmarks.chaos.troubles import plan_of, read_plan
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.chaos.judge import Excuse, Fault, Sample
    from benchmarks.chaos.plan import Plan
    from benchmarks.chaos.stage import StorePlatform

_SIMULATED = "simulated"
_REAL_MUTANTS = {("mqtt", "a deletion assumed at once"): "benchmarks.chaos.hasty_aggregator"}
"""The module that aggregators are started from, by world and name."""


class _Results:
    """What all episodes came to; ``keep`` is where plans go, ``mutant`` the wrong product."""

    def __init__(self, keep: Path | None, mutant: str | None) -> None:
        self.wrong: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self.proved = 0
        self.mutant = mutant
        self._shares: list[float] = []
        self._keep = keep

    def add(
        self,
        plan: Plan,
        faults: list[Fault],
        samples: list[Sample],
        excuses: list[Excuse],
        crashes: Iterable[BaseException] = (),
    ) -> bool:
        """Judge an episode and print what is wrong; return whether anything is."""
        verdicts = judged(plan, faults, samples, excuses)
        self._shares.append(excused_share(excuses, plan.seconds))
        self.wrong.update(verdict.wrong.value for verdict in verdicts)
        texts = [msgspec.json.encode(verdict).decode() for verdict in verdicts]
        texts += [f"a program ended: {error!r}" for error in crashes]
        self.wrong["a program ended"] += len(texts) - len(verdicts)
        if texts or plan.platform != _SIMULATED:
            names = ", ".join(f"{item.name} of {item.subject}" for item in plan.troubles)
            print(
                f"seed {plan.seed}: {len(faults)} faults, {names}: "
                f"{len(samples)} samples, {len(texts)} wrong",
                *texts,
                sep="\n  ",
                flush=True,
            )
        return bool(texts)

    def keep(self, plan: Plan, fails: Callable[[Plan], bool]) -> None:
        """Keep a plan with something wrong, as small as it becomes within its time."""
        if self._keep is None:
            return
        end = time.monotonic() + MAX_SECONDS
        small = shrunk(plan, fails, lambda: end - time.monotonic())
        name = f"{plan.platform}-{plan.seed}" if self.mutant is None else self.mutant
        self._keep.mkdir(parents=True, exist_ok=True)
        file = self._keep / f"{name.replace(' ', '-')}.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(small)) + b"\n")

    def prove(self, directories: Iterable[Path]) -> bool:
        """Judge the journals of the nodes by ``vigil prove``; return whether all is proved."""
        options = [word for path in directories for word in ("--state-dir", str(path))]
        status, output, _ = run_verb("prove", "--json", *options)
        proof = json.loads(output)
        self.proved += proof["proved"]
        self.gaps.update(proof["gaps_by_name"])
        return status == 0

    @property
    def episodes(self) -> int:
        """How many there were."""
        return len(self._shares)

    def summary(self) -> dict[str, object]:
        """Return what all episodes came to."""
        return {
            "episodes": self.episodes,
            "wrong": {name: number for name, number in self.wrong.items() if number},
            "excused": round(sum(self._shares) / self.episodes, 2),
            "proof": {"proved": self.proved, "gaps": dict(self.gaps)},
        }


def main() -> int:
    """Play the episodes that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--world",
        dest="platform",
        choices=("directory", "kubernetes", "mqtt", _SIMULATED),
        default="directory",
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, nargs="+", help="kept plans of one world")
    parser.add_argument("--keep", type=Path, help="where to keep plans with something wrong")
    parser.add_argument("--mutant", help="a wrong product, in the worlds simulated and mqtt")
    given = parser.parse_args()
    if given.replay is not None:
        try:
            plans = [read_plan(file) for file in given.replay]
        except ValueError as error:
            parser.error(str(error))
        if len({plan.platform for plan in plans}) > 1:
            parser.error("the plans are of several worlds: play those of each by themselves")
    else:
        seeds = range(given.seed, given.seed + given.episodes)
        plans = [plan_of(given.platform, seed) for seed in seeds]
    results = _Results(given.keep, given.mutant)
    play = _play_simulated if plans[0].platform == _SIMULATED else _play_real
    is_proved = play(plans, results)
    summary = results.summary()
    if play is _play_simulated:
        used_seconds = time.process_time() / results.episodes
        summary["processor_seconds_per_episode"] = round(used_seconds, 2)
    print(json.dumps(summary, indent=1))
    return 0 if is_proved and not results.wrong.total() else 1


def _play_simulated(plans: list[Plan], results: _Results) -> bool:
    """Play each plan with programs of its own; return whether all is proved."""
    from benchmarks.chaos.simulated.mutants import MUTANTS
    from benchmarks.chaos.simulated.site import MEMORY, play_in

    # The order of sets of strings is a part of what a seed decides.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONHASHSEED": "0"})
    mutant = contextlib.nullcontext if results.mutant is None else MUTANTS[results.mutant]

    def fails(plan: Plan) -> bool:
        with tempfile.TemporaryDirectory(prefix="vigil-chaos-", dir=MEMORY) as directory, mutant():
            episode, _ = play_in(Path(directory), plan)
        return bool(judged(plan, *episode.parts) or episode.crashes)

    is_proved = True
    for plan in plans:
        with tempfile.TemporaryDirectory(prefix="vigil-chaos-", dir=MEMORY) as directory:
            with mutant():
                episode, state_dirs = play_in(Path(directory), plan)
            is_wrong = results.add(plan, *episode.parts, episode.crashes)
            is_proved = results.prove(state_dirs.values()) and is_proved
        if is_wrong:
            results.keep(plan, fails)
            if results.mutant is not None:
                break
    return is_proved


def _play_real(plans: list[Plan], results: _Results) -> bool:
    """Play all plans with one set of processes; return whether all is proved."""
    from benchmarks.chaos.broker import MqttPlatform
    from benchmarks.chaos.site import DirectoryPlatform, KubernetesPlatform, Site
    from dcmi_shim.emulator.install import install

    platform, program = plans[0].platform, "vigil"
    if results.mutant is not None:
        program = _REAL_MUTANTS[platform, results.mutant]
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-") as folder:
        directory = Path(folder)
        install(directory / "driver", directory / "emulator", "a2")
        with contextlib.ExitStack() as stack:
            store: StorePlatform
            if platform == "kubernetes":
                store = KubernetesPlatform(directory)
                stack.callback(store.plane.stop)
            elif platform == "mqtt":
                store = MqttPlatform(directory)
                stack.callback(store.close)
            else:
                store = DirectoryPlatform(directory)
            names = aggregators_of(platform)
            site = Site(directory, directory, store, names, program)
            stack.callback(site.close)
            site.start()
            for plan in plans:
                if results.add(plan, *site.play(plan)):
                    results.keep(plan, lambda plan: bool(judged(plan, *site.play(plan))))
                    if results.mutant is not None:
                        break
            return results.prove(node.state_dir for node in site.nodes.values())


if __name__ == "__main__":
    sys.exit(main())

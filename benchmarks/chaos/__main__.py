"""Plays episodes of faults and troubles, and judges what was shown.

::

    python -m benchmarks.chaos --world directory --episodes N --seed S [--replay FILE] [--keep DIR]

The worlds ``directory`` and ``kubernetes`` are real parts, ``simulated`` is virtual time. Prints a
line for each episode with something wrong, of real parts for each, and a summary as JSON. Exit
status: 0 nothing wrong, 1 something is. A plan with something wrong is kept in DIR and can be
played again.
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

from benchmarks.chaos.judge import Verdict, excused_share, judge
from benchmarks.chaos.plan import CODES, Plan, make_plan
from benchmarks.chaos.troubles import troubles_of
from contract.codes.catalogue import shipped
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.chaos.judge import Excuse, Fault, Sample
    from benchmarks.chaos.stage import StorePlatform

_SIMULATED = "simulated"


class _Results:
    """What all episodes came to."""

    def __init__(self, keep: Path | None) -> None:
        self.wrong: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self.proved = 0
        self._shares: list[float] = []
        self._keep = keep
        self._levels = {code: shipped().chip_levels[code].value for code in CODES}

    def add(
        self, plan: Plan, faults: list[Fault], samples: list[Sample], excuses: list[Excuse]
    ) -> None:
        """Judge an episode, print what is wrong, and keep its plan then."""
        verdicts: list[Verdict] = judge(faults, samples, excuses, self._levels)
        self._shares.append(excused_share(excuses, plan.seconds))
        self.wrong.update(verdict.wrong.value for verdict in verdicts)
        if verdicts or plan.platform != _SIMULATED:
            self._print(plan, faults, samples, [msgspec.json.encode(item) for item in verdicts])
        if verdicts:
            self._keep_plan(plan)

    def add_errors(self, plan: Plan, errors: list[BaseException]) -> None:
        """Count programs that ended by themselves."""
        if errors:
            self.wrong["a program ended"] += len(errors)
            self._print(plan, [], [], [repr(error).encode() for error in errors])
            self._keep_plan(plan)

    def prove(self, directories: Iterable[Path]) -> bool:
        """Judge the journals of the nodes by ``vigil prove``; return whether all is proved."""
        options = [word for path in directories for word in ("--state-dir", str(path))]
        status, output, _ = run_verb("prove", "--json", *options)
        proof = json.loads(output)
        self.proved += proof["proved"]
        self.gaps.update(proof["gaps_by_name"])
        return status == 0

    def summary(self) -> dict[str, object]:
        """Return what all episodes came to."""
        return {
            "episodes": len(self._shares),
            "wrong": dict(self.wrong),
            "excused": round(sum(self._shares) / len(self._shares), 2),
            "proof": {"proved": self.proved, "gaps": dict(self.gaps)},
        }

    def _print(
        self, plan: Plan, faults: list[Fault], samples: list[Sample], wrong: list[bytes]
    ) -> None:
        names = ", ".join(f"{item.name} of {item.subject}" for item in plan.troubles)
        print(
            f"seed {plan.seed}: {len(faults)} faults, {names}: "
            f"{len(samples)} samples, {len(wrong)} wrong",
            flush=True,
        )
        for text in wrong:
            print(f"  {text.decode()}", flush=True)

    def _keep_plan(self, plan: Plan) -> None:
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            file = self._keep / f"{plan.platform}-{plan.seed}.json"
            file.write_bytes(msgspec.json.format(msgspec.json.encode(plan)))


def main() -> int:
    """Play the episodes that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--world",
        dest="platform",
        choices=("directory", "kubernetes", _SIMULATED),
        default="directory",
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="a kept plan")
    parser.add_argument("--keep", type=Path, help="where to keep plans with something wrong")
    given = parser.parse_args()
    if given.replay is not None:
        plans = [msgspec.json.decode(given.replay.read_bytes(), type=Plan)]
    else:
        seeds = range(given.seed, given.seed + given.episodes)
        subjects = troubles_of(given.platform)
        plans = [make_plan(given.platform, seed, subjects) for seed in seeds]
    results = _Results(given.keep)
    began = time.process_time()
    play = _play_simulated if plans[0].platform == _SIMULATED else _play_real
    is_proved = play(plans, results)
    summary = results.summary()
    if play is _play_simulated:
        used_seconds = (time.process_time() - began) / len(plans)
        summary["processor_seconds_per_episode"] = round(used_seconds, 2)
    print(json.dumps(summary, indent=1))
    return 0 if is_proved and not results.wrong else 1


def _play_simulated(plans: list[Plan], results: _Results) -> bool:
    """Play each plan with programs of its own; return whether all is proved."""
    from benchmarks.chaos.simulated.site import play_in

    # The order of sets of strings is a part of what a seed decides.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONHASHSEED": "0"})
    is_proved = True
    for plan in plans:
        with tempfile.TemporaryDirectory(prefix="vigil-chaos-") as directory:
            episode, state_dirs = play_in(Path(directory), plan)
            results.add(plan, [*episode.faults.values()], episode.samples, episode.excuses)
            results.add_errors(plan, episode.crashes)
            is_proved = results.prove(state_dirs.values()) and is_proved
    return is_proved


def _play_real(plans: list[Plan], results: _Results) -> bool:
    """Play all plans with one set of processes; return whether all is proved."""
    from benchmarks.chaos.site import DirectoryPlatform, KubernetesPlatform, Site
    from dcmi_shim.emulator.install import install

    with tempfile.TemporaryDirectory(prefix="vigil-chaos-") as folder:
        directory = Path(folder)
        install(directory / "driver", directory / "emulator", "a2")
        with contextlib.ExitStack() as stack:
            store: StorePlatform
            if plans[0].platform == "kubernetes":
                store = KubernetesPlatform(directory)
                stack.callback(store.plane.stop)
            else:
                store = DirectoryPlatform(directory)
            site = Site(directory, directory, store)
            stack.callback(site.close)
            site.start()
            for plan in plans:
                results.add(plan, *site.play(plan))
            return results.prove(node.state_dir for node in site.nodes.values())


if __name__ == "__main__":
    sys.exit(main())

"""Plays episodes of faults and troubles on real parts, and judges what was shown.

::

    python -m benchmarks.chaos --world directory --episodes N --seed S [--replay FILE] [--keep DIR]

Prints a line for each episode and a summary as JSON. Exit status: 0 nothing wrong, 1 something is.
A plan with something wrong is kept in DIR and can be played again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from benchmarks.chaos.judge import excused_share, judge
from benchmarks.chaos.plan import CODES, Plan, make_plan
from benchmarks.chaos.site import DirectoryPlatform, KubernetesPlatform, Site, StorePlatform
from benchmarks.chaos.troubles import troubles_of
from contract.codes.catalogue import shipped
from dcmi_shim.emulator.install import install
from tests.parts.verbs import run_verb


def main() -> int:
    """Play the episodes that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--world", dest="platform", choices=("directory", "kubernetes"), default="directory"
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="a kept plan")
    parser.add_argument("--keep", type=Path, help="where to keep plans with something wrong")
    given = parser.parse_args()
    subjects = troubles_of(given.platform)
    if given.replay is not None:
        plans = [msgspec.json.decode(given.replay.read_bytes(), type=Plan)]
    else:
        seeds = range(given.seed, given.seed + given.episodes)
        plans = [make_plan(given.platform, seed, subjects) for seed in seeds]
    levels = {code: shipped().chip_levels[code].value for code in CODES}
    found: Counter[str] = Counter()
    shares: list[float] = []
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-") as folder:
        directory = Path(folder)
        install(directory / "driver", directory / "emulator", "a2")
        with contextlib.ExitStack() as stack:
            store: StorePlatform
            if given.platform == "kubernetes":
                store = KubernetesPlatform(directory)
                stack.callback(store.plane.stop)
            else:
                store = DirectoryPlatform(directory)
            site = Site(directory, directory, store)
            stack.callback(site.close)
            site.start()
            for plan in plans:
                faults, samples, excuses = site.play(plan)
                verdicts = judge(faults, samples, excuses, levels)
                shares.append(excused_share(excuses, plan.seconds))
                found.update(verdict.wrong.value for verdict in verdicts)
                names = ", ".join(f"{item.name} of {item.subject}" for item in plan.troubles)
                print(
                    f"seed {plan.seed}: {len(faults)} faults, {names}: "
                    f"{len(samples)} samples, {len(verdicts)} wrong",
                    flush=True,
                )
                for verdict in verdicts:
                    print(f"  {msgspec.json.encode(verdict).decode()}", flush=True)
                if verdicts and given.keep is not None:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    file = given.keep / f"{plan.platform}-{plan.seed}.json"
                    file.write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
            directories = [str(node.state_dir) for node in site.nodes.values()]
            options = [word for text in directories for word in ("--state-dir", text)]
            status, output, _ = run_verb("prove", "--json", *options)
            proof = json.loads(output)
    summary = {
        "episodes": len(plans),
        "wrong": dict(found),
        "excused": round(sum(shares) / len(shares), 2),
        "proof": {"status": status, "proved": proof["proved"], "gaps": proof["gaps_by_name"]},
    }
    print(json.dumps(summary, indent=1))
    return 1 if found or status else 0


if __name__ == "__main__":
    sys.exit(main())

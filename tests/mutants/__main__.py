"""``python -m tests.mutants``: changes the product in many places, names the tests that notice."""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.measured.lookup import Measured
from tests.mutants.defects import DEFECTS, locate
from tests.mutants.draw import Chooser, all_sites, constants_at, draw
from tests.mutants.runner import Copy, Outcome, import_packages
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.edits import Edit

_EQUIVALENT = Path(__file__).with_name("equivalent.toml")
_SEED = 20261128
_LEAST_FOUND = 0.92
_MOST_EQUIVALENT = 0.10


class _Task(NamedTuple):
    group: str
    title: str
    path: str
    source: str
    """The whole changed file."""
    tests: list[str]


_copy: Copy


def _begin(folder: str) -> None:
    global _copy
    place = Path(folder) / multiprocessing.current_process().name
    _copy = Copy(place)


def _run(task: _Task) -> tuple[_Task, Outcome]:
    return task, _copy.run(task.path, task.source, task.tests)


def _changed(path: str, edit: Edit) -> str:
    return edit.apply((ROOT / path).read_text(encoding="utf-8"))


def _run_all(tasks: Sequence[_Task], workers: int) -> list[tuple[_Task, Outcome]]:
    import_packages()
    folder = tempfile.mkdtemp(prefix="mutants-")
    results = []
    try:
        Copy(Path(folder) / "control")  # a pool would begin anew for ever
        with multiprocessing.get_context("fork").Pool(workers, _begin, (folder,)) as pool:
            for task, outcome in pool.imap_unordered(_run, tasks):
                results.append((task, outcome))
                noticed = outcome.noticed_by or f"SURVIVED {outcome.tests} tests"
                print(f"{task.title}\n    {noticed} ({outcome.seconds:.1f} s)", flush=True)
    finally:
        shutil.rmtree(folder)
    return results


def _defects(workers: int, names: Sequence[str]) -> int:
    chooser = Chooser(Measured())
    tasks = []
    for defect in DEFECTS:
        if names and not any(name in defect.breaks for name in names):
            continue
        place = locate(defect)
        tests = chooser.tests(place.path, place.ran)
        tasks.append(_Task("defects", defect.breaks, place.path, _changed(*place[:2]), tests))
    results = _run_all(tasks, workers)
    missed = [task.title for task, outcome in results if outcome.noticed_by is None]
    print(f"{len(results) - len(missed)} of {len(results)} defects are noticed")
    return 1 if missed else 0


def _mutants(count: int, seed: int, workers: int) -> int:
    begin = time.monotonic()
    rows = tomllib.loads(_EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    equivalent = {(row["scope"], row["kind"], row["before"], row["number"]) for row in rows}
    sites = all_sites()
    groups = {site: name for name, found in sites.items() for site in found}
    drawn = draw(sites, count, seed)
    rest = [one for one in drawn if (one.scope, one.kind, one.before, one.number) not in equivalent]
    chooser = Chooser(Measured())
    tasks = []
    for site in rest:
        title = f"{site.path}:{site.line} {site.scope or 'module'}, {site.kind} {site.number}: "
        source = (ROOT / site.path).read_text(encoding="utf-8")
        constants = constants_at(source, site.line) if site.ran is None else ()
        tests = chooser.tests(site.path, site.ran, constants)
        tasks.append(
            _Task(
                groups[site],
                title + site.before[:160],
                site.path,
                _changed(site.path, site.edit),
                tests,
            )
        )
    results = _run_all(tasks, workers)
    survived = [task for task, outcome in results if outcome.noticed_by is None]
    print(f"\nseed {seed}; {len(drawn)} places, {len(drawn) - len(rest)} of them equivalent")
    all_of, missed = (Counter(one.group for one in some) for some in (tasks, survived))
    for group in all_of:
        print(f"{group}: {all_of[group] - missed[group]} of {all_of[group]} found")
    for task in survived:
        print(f"survived: {task.title}")
    share = 1 - len(survived) / len(rest)
    print(f"{share:.1%} found in {(time.monotonic() - begin) / 60:.0f} minutes")
    is_enough = share >= _LEAST_FOUND
    return 0 if is_enough and len(drawn) - len(rest) <= _MOST_EQUIVALENT * len(drawn) else 1


def main() -> int:
    """Return 0 where enough is found, 1 where it is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many places")
    parser.add_argument("--seed", type=int, default=_SEED)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--defects", nargs="*", metavar="NAME", help="the known defects instead")
    options = parser.parse_args()
    if options.defects is not None:
        return _defects(options.workers, options.defects)
    return _mutants(options.count, options.seed, options.workers)


if __name__ == "__main__":
    sys.exit(main())

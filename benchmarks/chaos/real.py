"""Plays plans with real parts, in several processes at once."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import resource
import tempfile
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from msgspec.structs import replace

from benchmarks.chaos.outcome import NotPlayed, Outcome, outcome_of, proved
from benchmarks.chaos.plan import aggregators_of
from benchmarks.chaos.site import Site, open_platform
from benchmarks.chaos.stage import judged
from dcmi_shim.emulator.install import install
from tests.parts.processes import PartFailed, end_with_the_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.chaos.outcome import Kept
    from benchmarks.chaos.plan import Plan

_REAL_MUTANTS = {("mqtt", "a deletion assumed at once"): "benchmarks.chaos.hasty_aggregator"}
"""The module that aggregators are started from, by world and name."""


def play_real(
    plans: list[Plan], add: Callable[[Outcome | NotPlayed], None], kept: Kept, workers: int
) -> None:
    """Play the plans in so many processes, each with programs, a store and ports of its own."""
    # Agents start with short periods, and restart where the periods change.
    plans = sorted(plans, key=lambda plan: plan.periods, reverse=True)
    # A forked process would give out the same ports as this one.
    context = multiprocessing.get_context("spawn")
    readers: list[Connection] = []
    for number in range(min(workers, len(plans))):
        reader, writer = context.Pipe(duplex=False)
        arguments = plans[number::workers], kept, writer
        context.Process(target=_work, args=arguments, name=f"world-{number}").start()
        writer.close()
        readers.append(reader)
    while readers:
        for ready in wait(readers):
            assert isinstance(ready, Connection)
            try:
                add(ready.recv())
            except EOFError:
                readers.remove(ready)


def _work(plans: list[Plan], kept: Kept, writer: Connection) -> None:
    """Play plans, and send what each came to. A store that does not start ends it."""
    end_with_the_parent()
    is_over = False
    while plans and not is_over:
        # Its plan is kept behind the last result, so the loop must come to its end.
        for result in play_until_wrong(plans, kept):
            writer.send(result)
            if isinstance(result, NotPlayed) or (kept.mutant is not None and result.wrong):
                is_over = True
            plans = plans[1:]


def play_until_wrong(plans: list[Plan], kept: Kept) -> Iterator[Outcome | NotPlayed]:
    """Play plans with one set of programs, until something is wrong in an episode.

    Yields what each came to. The last outcome has the proof and the processor time of all. Where
    the store does not start, no plan is played.
    """
    before = _processor_seconds()
    platform, program = plans[0].platform, "vigil"
    if kept.mutant is not None:
        program = _REAL_MUTANTS[platform, kept.mutant]
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-") as folder:
        directory = Path(folder)
        install(directory / "driver", directory / "emulator", "a2")
        with contextlib.ExitStack() as stack:
            try:
                store = open_platform(platform, directory, stack)
            except (PartFailed, OSError) as error:
                yield NotPlayed(plans, str(error))
                return
            names = aggregators_of(platform)
            site = Site(directory, directory, store, names, program)
            stack.callback(site.close)
            for number, plan in enumerate(plans, 1):
                outcome = outcome_of(plan, *site.play(plan), site.errors)
                if not outcome.wrong and number < len(plans):
                    yield outcome
                    continue
                # The journals of the nodes are those of all episodes.
                outcome = proved(outcome, (node.state_dir for node in site.nodes.values()))
                used = _processor_seconds() - before
                # What is wrong is printed before its plan is made smaller.
                yield replace(outcome, processor_seconds=used)
                if not outcome.is_right:
                    kept.add_files(plan, (directory / name for name in site.programs))
                if site.errors or not outcome.is_proved:
                    # The gap may be of any episode, and stays in the journal: none can be smaller.
                    for played in plans[:number]:
                        kept.add(played, lambda _: False)
                elif outcome.wrong:
                    kept.add(plan, functools.partial(_fails, site))
                return


def _fails(site: Site, plan: Plan) -> bool:
    """Return whether something is wrong in a smaller plan, which the site can still play."""
    if site.errors:
        return False
    verdicts = judged(plan, *site.play(plan))
    return bool(verdicts) and not site.errors


def _processor_seconds() -> float:
    """Return what this process and those that it started took, as far as they were waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds

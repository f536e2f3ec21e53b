"""Runs a demo with the options of the command line and shows it."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from stores.address import open_store
from vigil.demo import show
from vigil.demo.cluster_operator import Operator
from vigil.demo.fleet import Fleet, node_names
from vigil.demo.reader import DemoReader
from vigil.demo.run import check_store_is_ours, remove_documents, run
from vigil.demo.steps import FULL_SCENARIO, SHORT_SCENARIO, steps_of_profile
from vigil.language import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from vigil.demo.run import Player, StepResult
    from vigil.demo.steps import DemoStep


@dataclass(frozen=True)
class DemoOptions:
    """What the command line asks for; ``directory`` is empty and the demo's own."""

    directory: Path
    nodes: int
    speed: float
    json: bool
    keep: bool
    store: str | None
    kubeconfig: Path | None
    profile: str | None = None
    full: bool = False


def scenario(options: DemoOptions) -> tuple[DemoStep, ...]:
    """Return the steps that ``options`` ask for; servers of one profile have their own."""
    if options.profile is not None:
        return steps_of_profile(options.profile)
    return FULL_SCENARIO if options.full else SHORT_SCENARIO


async def play(options: DemoOptions, steps: Sequence[DemoStep]) -> bool:
    """Play and show ``steps``; return whether every expected state was reached."""
    url = options.store or f"directory:{options.directory / 'store'}"
    # The variable KUBECONFIG may set the option, and a directory has no use for it.
    kubeconfig = options.kubeconfig if url.startswith("kubernetes:") else None
    async with AsyncExitStack() as stack:
        store = open_store(url, kubeconfig=kubeconfig)
        stack.push_async_callback(store.close)
        names = node_names(options.nodes)
        # A fleet compiles the emulator, which takes seconds: a store is refused before that.
        await check_store_is_ours(store, names)
        operator = Operator(store, options.speed)
        fleet = Fleet(
            options.directory, options.nodes, url, kubeconfig, options.speed, options.profile
        )
        operator.write_rules(fleet.fault_config)
        # Callbacks run in reverse: the daemons end first, or they would write the documents again.
        stack.push_async_callback(remove_documents, store, names)
        stack.push_async_callback(fleet.close)
        reader = DemoReader(store)
        screen = await stack.enter_async_context(_screen(options, fleet, reader))
        summary = await run(
            fleet,
            operator,
            reader,
            steps,
            options.speed,
            screen.add,
            screen.use,
            screen.show_page,
        )
        if options.json:
            print(json.dumps(show.as_json(summary), indent=2))
        else:
            screen.print_line(show.summary_lines(summary))
        if options.keep:
            _explain_keep(fleet, url)
            # Nothing sets it: Ctrl-C or SIGTERM cancels the task.
            await asyncio.Event().wait()
    return summary.well


class _Screen:
    """Shows results as they come: nothing for JSON, lines without a terminal, else a table."""

    def __init__(self, fleet: Fleet, reader: DemoReader, live: Live | None, *, lines: bool) -> None:
        self._fleet = fleet
        self._reader = reader
        self._live = live
        self._lines = lines
        self._results: list[StepResult] = []
        self._player: Player | None = None

    def use(self, player: Player) -> None:
        """Take the blind chips from ``player``."""
        self._player = player

    def show_page(self, url: str) -> None:
        """Show the address of the cluster's page, above all steps."""
        text = translated("the cluster in a browser: {url}", url=url)
        if self._live is not None:
            self._live.console.print(text)
        elif self._lines:
            print(text, flush=True)
        else:
            # With --json, standard output has the document alone.
            print(text, file=sys.stderr, flush=True)

    def add(self, result: StepResult) -> None:
        """Show one more step."""
        self._results.append(result)
        if self._lines:
            print(show.plain(result), flush=True)
        self.draw()

    def draw(self) -> None:
        """Draw the table again, where there is one."""
        if self._live is not None and self._player is not None:
            names = [node.name for node in self._fleet.nodes]
            self._live.update(
                show.live(names, self._reader.cluster, self._player.blind, self._results),
                refresh=True,
            )

    def print_line(self, text: str) -> None:
        """Write below the table."""
        if self._live is not None:
            self._live.stop()
            # The table shows only ok or FAILED, so problems are printed below it.
            for result in self._results:
                for problem in result.problems:
                    step = translated("step {number}", number=result.number)
                    print(f"{step}: {show.problem_line(problem)}")
        print(text, flush=True)


@asynccontextmanager
async def _screen(options: DemoOptions, fleet: Fleet, reader: DemoReader) -> AsyncIterator[_Screen]:
    if options.json or not sys.stdout.isatty():
        yield _Screen(fleet, reader, None, lines=not options.json)
        return
    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        screen = _Screen(fleet, reader, live, lines=False)
        ticker = asyncio.create_task(_draw_often(screen), name="draw")
        try:
            yield screen
        finally:
            ticker.cancel()


async def _draw_often(screen: _Screen) -> None:
    while True:
        screen.draw()
        await asyncio.sleep(0.1)


def _explain_keep(fleet: Fleet, url: str) -> None:
    text = translated("Still running, until Ctrl-C. Documents: {url}", url=url)
    print(f"\n{text}", file=sys.stderr)
    for node in fleet.nodes:
        print(
            f"  VIGIL_EMULATOR_DIR={node.directory / 'emulator'} vigil simulate occur 3 80E01801"
            f"   # {translated('on {node}; its log: {log}', node=node.name, log=node.log)}",
            file=sys.stderr,
        )

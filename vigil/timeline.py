"""``vigil timeline``: what happened to faults, from the history of an aggregator."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.options import takes_login
from vigil.sources import options


@takes_login
def timeline(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NODE[/CHIP]]", help="Of this only.", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="From then on: 90s, 10min, 2h or 1d ago, or 2026-11-23T21:44.",
            show_default="the newest 1000",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "--watch", help="Keep running and print each new event, until Ctrl-C."
        ),
    ] = False,
    server: options.Server = None,
    state_dir: options.StateDir = None,
    kubeconfig: options.Kubeconfig = None,
    store: options.Store = None,
    lang: options.Lang = None,
    utc: options.Utc = False,
    as_json: options.Json = False,
) -> None:
    """Show what happened to faults, oldest first: as nodes report it and as it was published.

    Exit status: 0 done, 2 wrong use or unknown node, 3 no answer.
    """
    import time
    from contextlib import closing

    from vigil.reports.show import answering
    from vigil.reports.times import since_of
    from vigil.sources.watch import show_timeline

    since_ms = None if since is None else since_of(since, int(time.time() * 1000), utc=utc)
    language = options.language_of(lang)
    node, _, part = (name or "").partition("/")
    with closing(options.sources_of(server, state_dir, kubeconfig, store, "history")) as sources:
        history = sources.query(lambda source: source.history(node or None, part, since_ms))
        with answering():
            show_timeline(history, follow=follow, language=language, as_json=as_json, utc=utc)

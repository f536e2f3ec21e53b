"""``vigil timeline``: what happened to faults, from the history of an aggregator."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.status.options import Json, Lang, Server, StateDir, Utc, cluster_client_of, language_of

_ASK_SECONDS = 0.25
_AGAIN_SECONDS = 1.0


def timeline(
    what: Annotated[
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
        bool, typer.Option("--follow", help="Go on, and show what comes until Ctrl-C.")
    ] = False,
    server: Server = None,
    state_dir: StateDir = None,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show what happened to faults, oldest first: as nodes report it and as it was published.

    Exit status: 0 done, 2 wrong use or unknown node, 3 no answer.
    """
    import contextlib
    import sys
    import time

    import msgspec

    from contract.errors import StoreUnavailable
    from vigil.status.job_report import leader_of
    from vigil.status.past import HistoryReader, Past, past_lines, since_of
    from vigil.status.show import print_lines, source_lines, width

    since_ms = None if since is None else since_of(since, int(time.time() * 1000), utc=utc)
    client, language = cluster_client_of(server, state_dir), language_of(lang)
    node, _, part = (what or "").partition("/")
    past = Past(leader_of(client), client.server, (), ())
    history = HistoryReader(client, node or None, part, since_ms)
    if as_json and not follow:
        past = msgspec.structs.replace(past, rows=tuple(history.read()))
        print(msgspec.json.encode(past).decode())
        return
    if not as_json:
        print_lines(source_lines(past, width()))
    with contextlib.suppress(KeyboardInterrupt):
        trouble = ""
        while True:
            try:
                for row in history.read():
                    if as_json:
                        print(msgspec.json.encode(row).decode())
                    else:
                        print_lines(past_lines(row, language=language, utc=utc, columns=width()))
                trouble = ""
            except StoreUnavailable as error:
                if not follow:
                    raise
                if str(error) != trouble:
                    trouble = str(error)
                    print(f"vigil: {trouble}", file=sys.stderr)
                time.sleep(_AGAIN_SECONDS)
            sys.stdout.flush()
            if not follow:
                return
            time.sleep(_ASK_SECONDS)

"""``vigil status``: whether a node or the cluster is well, and why not."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.status.options import (
    NOT_WELL,
    STATE_DIR,
    Json,
    Lang,
    Server,
    StateDir,
    Utc,
    client_of,
    language_of,
)


def status(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Of this node.", show_default=False)
    ] = None,
    server: Server = None,
    state_dir: StateDir = STATE_DIR,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show whether all is well, and why not.

    Exit status: 0 well, 1 not well or partly unknown, 2 wrong use or unknown node, 3 no answer.
    """
    from vigil.status.report import report_of
    from vigil.status.show import print_lines, status_lines, width

    report = report_of(client_of(server, state_dir), node)
    if as_json:
        import msgspec

        print(msgspec.json.encode(report).decode())
    else:
        language = language_of(lang)
        print_lines(status_lines(report, language=language, utc=utc, columns=width()))
    raise typer.Exit(0 if report.well else NOT_WELL)

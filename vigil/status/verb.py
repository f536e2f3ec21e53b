"""``vigil status``: whether a node or the cluster is well, and why not."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.status.options import Json, Lang, Server, StateDir, Utc, Watch, client_of, language_of


def status(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Of this node.", show_default=False)
    ] = None,
    server: Server = None,
    state_dir: StateDir = None,
    watch: Watch = False,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show whether all is well, and why not.

    Exit status: 0 well, 1 not well or partly unknown, 2 wrong use or unknown node, 3 no answer.
    """
    from vigil.status.output import Output, show
    from vigil.status.report import report_of
    from vigil.status.show import status_lines

    client, language = client_of(server, state_dir), language_of(lang)

    def ask() -> Output:
        report = report_of(client, node)
        return Output(
            report,
            lambda columns: status_lines(report, language=language, utc=utc, columns=columns),
            report.well,
        )

    show(client, ask, node=node, watching=watch, as_json=as_json, utc=utc)

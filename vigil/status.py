"""``vigil status``: whether a node or the cluster is well, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vigil.options import takes_login
from vigil.sources import options

if TYPE_CHECKING:
    from vigil.sources.source import AnswerSource


@takes_login
def status(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Of this node.", show_default=False)
    ] = None,
    server: options.Server = None,
    state_dir: options.StateDir = None,
    kubeconfig: options.Kubeconfig = None,
    store: options.Store = None,
    watch: options.Watch = False,
    lang: options.Lang = None,
    utc: options.Utc = False,
    as_json: options.Json = False,
) -> None:
    """Show whether all is well, and why not.

    Exit status: 0 well, 1 not well or partly unknown, 2 wrong use or unknown node, 3 no answer.
    """
    from vigil.reports.show import status_lines
    from vigil.sources.watch import Output, show

    sources = options.sources_of(server, state_dir, kubeconfig, store)
    language = options.language_of(lang)

    def query(source: AnswerSource) -> Output:
        report = source.report(node)
        return Output(
            report,
            lambda columns: status_lines(report, language=language, utc=utc, columns=columns),
            report.well,
        )

    show(sources, query, node=node, watching=watch, as_json=as_json, utc=utc)

"""``vigil status``: whether a node or the cluster is well, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vigil.sources.options import (
    Json,
    Kubeconfig,
    Lang,
    Server,
    StateDir,
    Store,
    Utc,
    Watch,
    language_of,
    sources_of,
)

if TYPE_CHECKING:
    from vigil.sources.source import AnswerSource


def status(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Of this node.", show_default=False)
    ] = None,
    server: Server = None,
    state_dir: StateDir = None,
    kubeconfig: Kubeconfig = None,
    store: Store = None,
    watch: Watch = False,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show whether all is well, and why not.

    Exit status: 0 well, 1 not well or partly unknown, 2 wrong use or unknown node, 3 no answer.
    """
    from vigil.reports.show import status_lines
    from vigil.sources.watch import Output, show

    sources = sources_of(server, state_dir, kubeconfig, store)
    language = language_of(lang)

    def ask(source: AnswerSource) -> Output:
        report = source.report(node)
        return Output(
            report,
            lambda columns: status_lines(report, language=language, utc=utc, columns=columns),
            report.well,
        )

    show(sources, ask, node=node, watching=watch, as_json=as_json, utc=utc)

"""``vigil faults``: every fault that holds, one in a row."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vigil.options import takes_login
from vigil.sources import options

if TYPE_CHECKING:
    from vigil.sources.source import AnswerSource


class Order(StrEnum):
    """Which faults come first."""

    WORST = "worst"
    NEWEST = "newest"


@takes_login
def faults(
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this node only.", show_default=False)
    ] = None,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="At this level only.", show_default=False)
    ] = None,
    code: Annotated[
        str | None, typer.Option(metavar="CODE", help="With this code only.", show_default=False)
    ] = None,
    order: Annotated[Order, typer.Option(help="Which come first.")] = Order.WORST,
    server: options.Server = None,
    state_dir: options.StateDir = None,
    kubeconfig: options.Kubeconfig = None,
    store: options.Store = None,
    watch: options.Watch = False,
    lang: options.Lang = None,
    utc: options.Utc = False,
    as_json: options.Json = False,
) -> None:
    """Show every fault that holds: part, code, name, severity, level, since, effect on jobs.

    Exit status: 0 all is well, 1 a fault is shown or something is not known, 2 wrong use, 3 no
    answer.
    """
    import msgspec

    from vigil.reports.show import newest_first, report_lines, worst_first
    from vigil.reports.status_report import check_filters, same_code
    from vigil.sources.watch import Output, show

    check_filters(level, code)
    sources = options.sources_of(server, state_dir, kubeconfig, store)
    language = options.language_of(lang)
    arranged = worst_first if order is Order.WORST else newest_first

    def query(source: AnswerSource) -> Output:
        report = source.report(node)
        rows = tuple(
            row
            for row in arranged(report.faults)
            if level in (None, row.level) and (code is None or same_code(code, row.code))
        )
        report = msgspec.structs.replace(report, faults=rows)
        return Output(
            report,
            # With a filter, an empty table does not mean that no fault holds.
            lambda columns: report_lines(
                report, language=language, utc=utc, columns=columns, is_all=level is code is None
            ),
            report.well and not rows,
        )

    show(sources, query, node=node, watching=watch, as_json=as_json, utc=utc)

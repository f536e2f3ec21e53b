"""``vigil faults``: every fault that holds, one in a row."""

from __future__ import annotations

from enum import StrEnum
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


class Order(StrEnum):
    """Which faults come first."""

    WORST = "worst"
    NEWEST = "newest"


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
    server: Server = None,
    state_dir: StateDir = STATE_DIR,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show every fault that holds: part, code, name, severity, level, since, effect on jobs.

    Exit status: 0 all is well, 1 a fault is shown or something is not known, 2 wrong use, 3 no
    answer.
    """
    import msgspec

    from vigil.status.report import report_of, same_code
    from vigil.status.show import fault_lines, newest_first, print_lines, source_lines, worst_first
    from vigil.status.show import width as columns_of

    report = report_of(client_of(server, state_dir), node)
    arranged = worst_first if order is Order.WORST else newest_first
    rows = [
        row
        for row in arranged(report.faults)
        if level in (None, row.level) and (code is None or same_code(code, row.code))
    ]
    report = msgspec.structs.replace(report, faults=tuple(rows))
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        columns = columns_of()
        language = language_of(lang)
        print_lines(source_lines(report, columns))
        print_lines(
            fault_lines(rows, report.at_ms, language=language, utc=utc, columns=columns)
            if rows
            else ["no fault holds"]
        )
    raise typer.Exit(NOT_WELL if rows or not report.well else 0)

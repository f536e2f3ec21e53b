"""Shows what happened to faults, once or until Ctrl-C."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreUnavailable, printable
from vigil.reports.show import print_json, print_lines, source_lines, width
from vigil.reports.status_report import in_language
from vigil.reports.times import written
from vigil.reports.wrapping import wrapped

if TYPE_CHECKING:
    from vigil.reports.fault_history import TimelineRow
    from vigil.sources.source import FaultHistory

_ASK_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_STATUS = "status"


def show_timeline(
    history: FaultHistory, *, follow: bool, language: str, as_json: bool, utc: bool
) -> None:
    """Print what ``history`` has; with ``follow`` go on with what comes, until Ctrl-C."""
    past = history.about()
    if as_json and not follow:
        past = msgspec.structs.replace(past, rows=tuple(history.read()))
        print_json(past)
        return
    if not as_json:
        print_lines(source_lines(past.source, past.server, past.not_known, width()))

    def show_row(row: TimelineRow) -> None:
        if as_json:
            print_json(row)
        else:
            print_lines(_row_lines(row, language=language, utc=utc, columns=width()))

    if not follow:
        for row in history.read():
            show_row(row)
        return
    with suppress(KeyboardInterrupt):
        trouble = ""
        while True:
            try:
                for row in history.read():
                    show_row(row)
                trouble = ""
            except StoreUnavailable as error:
                # Once for each outage, and not with each try.
                if str(error) != trouble:
                    trouble = str(error)
                    print(printable(f"vigil: {trouble}"), file=sys.stderr)
                time.sleep(_RETRY_SECONDS)
            sys.stdout.flush()
            time.sleep(_ASK_SECONDS)


def _row_lines(row: TimelineRow, *, language: str, utc: bool, columns: int) -> list[str]:
    """Return the text of one change."""
    at = written(row.at_ms, utc=utc)
    name = in_language(language, row.name_en, row.name_zh)
    code = "" if row.code == _STATUS else row.code
    words = (at, row.node, row.part, code, row.origin, _what(row), row.because, name)
    return wrapped("  ".join(filter(None, words)), columns)


def _what(row: TimelineRow) -> str:
    if row.lost:
        return f"{row.lost} earlier changes are in no journal any more"
    if row.was is None:
        return f"begins at {row.level or 'no level'}"
    if row.level is None:
        return f"ends, was {row.was or 'without level'}"
    if row.was == row.level:
        return f"stays {row.level or 'without level'}"
    return f"changes from {row.was or 'no level'} to {row.level or 'no level'}"

"""Shows what happened to faults, once or until Ctrl-C."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreUnavailable, printable
from vigil.reports.fault_history import past_lines
from vigil.reports.show import print_json, print_lines, source_lines, width

if TYPE_CHECKING:
    from vigil.reports.fault_history import PastRow
    from vigil.sources.source import FaultHistory

_ASK_SECONDS = 0.25
_AGAIN_SECONDS = 1.0


def show_past(
    history: FaultHistory, *, follow: bool, language: str, as_json: bool, utc: bool
) -> None:
    """Print what ``history`` has; with ``follow`` go on with what comes, until Ctrl-C."""
    past = history.about()
    if as_json and not follow:
        past = msgspec.structs.replace(past, rows=tuple(history.read()))
        print_json(past)
        return
    if not as_json:
        print_lines(source_lines(past, width()))

    def show_row(row: PastRow) -> None:
        if as_json:
            print_json(row)
        else:
            print_lines(past_lines(row, language=language, utc=utc, columns=width()))

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
                if str(error) != trouble:
                    trouble = str(error)
                    print(printable(f"vigil: {trouble}"), file=sys.stderr)
                time.sleep(_AGAIN_SECONDS)
            sys.stdout.flush()
            time.sleep(_ASK_SECONDS)

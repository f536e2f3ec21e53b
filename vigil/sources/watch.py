"""Shows a state or a timeline once, or each new one until Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec
import typer

from contract.errors import StoreUnavailable, printable
from contract.sentences import english, sentence
from vigil.exit_status import ExitStatus
from vigil.language import shown, shown_error, translated
from vigil.reports.show import answering, print_json, print_lines, source_lines, width
from vigil.reports.status_report import in_language
from vigil.reports.times import written
from vigil.reports.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vigil.reports.fault_history import TimelineRow
    from vigil.sources.source import AnswerSource, FaultHistory
    from vigil.sources.sources import AnswerSources

_RETRY_SECONDS = 1.0
_CLEAR = "\x1b[H\x1b[2J"
_AGES = re.compile(rb"[0-9.]+ (s|min|h|d)\b")
_ASK_SECONDS = 0.25
_STATUS = "status"


@dataclass(frozen=True)
class Output:
    """What a verb shows: ``document`` as JSON, ``lines`` of a width as text."""

    document: msgspec.Struct
    lines: Callable[[int], Iterable[str]]
    well: bool

    @property
    def key(self) -> bytes:
        """Return what makes two states differ: all but the ages in them."""
        values = msgspec.to_builtins(self.document, enc_hook=english)
        # These differ in each answer without another state.
        for name in ("at_ms", "facts", "documents"):
            values.pop(name, None)
        # Ages change each second; only what else differs is a new state.
        return _AGES.sub(b"", msgspec.json.encode(values))


def show(
    sources: AnswerSources,
    query: Callable[[AnswerSource], Output],
    *,
    node: str | None,
    watching: bool,
    as_json: bool,
    utc: bool,
) -> NoReturn:
    """Show what ``query`` returns of the first source that answers; ends with the exit status.

    With ``watching`` each change (of ``node`` only with one) is shown, until Ctrl-C.
    """
    try:
        if watching:
            # Ctrl-C is how watching ends, so it is not an error.
            with suppress(KeyboardInterrupt), answering():
                _watch(sources, query, node, as_json=as_json, utc=utc)
            raise typer.Exit
        state = sources.query(query)
        with answering():
            if as_json:
                print_json(state.document)
            else:
                print_lines(state.lines(width()))
        raise typer.Exit(0 if state.well else ExitStatus.NOT_WELL)
    finally:
        sources.close()


def _watch(
    sources: AnswerSources,
    query: Callable[[AnswerSource], Output],
    node: str | None,
    *,
    as_json: bool,
    utc: bool,
) -> None:
    screen: _Paper | _Terminal = _Paper(as_json=as_json, utc=utc)
    # A dumb terminal shows escape sequences as text.
    if not as_json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        screen = _Terminal()
    screen.show(sources.query(query))
    signal = sources.chosen.signal(node)
    while True:
        signal.wait()
        try:
            # Asked anew after each signal: an event does not contain the state.
            screen.show(sources.query(query))
        except StoreUnavailable as error:
            screen.fail(error)
            time.sleep(_RETRY_SECONDS)


class _Paper:
    """Prints each new state behind the last one."""

    def __init__(self, *, as_json: bool, utc: bool) -> None:
        self._as_json = as_json
        self._utc = utc
        self._shown = b""

    def show(self, state: Output) -> None:
        self._print(state.key, state.document, state.lines)

    def fail(self, error: StoreUnavailable) -> None:
        reason = str(error)
        key = reason.encode(errors="replace")
        self._print(key, {"error": reason}, lambda _: [shown_error(error)])

    def _print(self, key: bytes, document: object, lines: Callable[[int], Iterable[str]]) -> None:
        if key == self._shown:
            return
        self._shown = key
        if self._as_json:
            print_json(document)
        else:
            now = written(int(time.time() * 1000), utc=self._utc)
            print_lines([now, *lines(width()), ""])
            sys.stdout.flush()


class _Terminal:
    """Draws the newest state on the whole screen; ages in it are drawn again each second."""

    def __init__(self) -> None:
        self._shown = b""
        self._drawn = 0.0

    def show(self, state: Output) -> None:
        key, now = state.key, time.monotonic()
        if key == self._shown and now - self._drawn < _RETRY_SECONDS:
            return
        self._shown, self._drawn = key, now
        self._draw(list(state.lines(width())))

    def fail(self, error: StoreUnavailable) -> None:
        # The next state is drawn in any case, over the reason.
        self._shown = b""
        self._draw([shown_error(error)])

    def _draw(self, lines: list[str]) -> None:
        # Asked each time, as a window may be resized; one row is for the cursor.
        rows = shutil.get_terminal_size().lines - 1
        if len(lines) > rows:
            lines = [
                *lines[: rows - 1],
                translated("{count} more lines", count=len(lines) - rows + 1),
            ]
        print(_CLEAR, end="")
        print_lines(lines)
        sys.stdout.flush()


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
                    print(printable(f"vigil: {shown_error(error)}"), file=sys.stderr)
                time.sleep(_RETRY_SECONDS)
            sys.stdout.flush()
            time.sleep(_ASK_SECONDS)


def _row_lines(row: TimelineRow, *, language: str, utc: bool, columns: int) -> list[str]:
    """Return the text of one change."""
    at = written(row.at_ms, utc=utc)
    name = in_language(language, row.name_en, row.name_zh)
    code = "" if row.code == _STATUS else row.code
    # Entries that are lost are no lost node, so this word is not translated.
    origin = row.origin if row.lost else translated(row.origin)
    words = (at, row.node, row.part, code, origin, shown(_what(row)), row.because, name)
    return wrapped("  ".join(filter(None, words)), columns)


def _what(row: TimelineRow) -> str:
    if row.lost:
        return sentence("{count} earlier changes are in no journal any more", count=row.lost)
    no_level = sentence("no level")
    if row.was is None:
        return sentence("begins at {level}", level=row.level or no_level)
    without = sentence("without level")
    if row.level is None:
        return sentence("ends, was {level}", level=row.was or without)
    if row.was == row.level:
        return sentence("stays {level}", level=row.level or without)
    return sentence(
        "changes from {earlier} to {later}",
        earlier=row.was or no_level,
        later=row.level or no_level,
    )

"""A report as text, for any width."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from contract.errors import printable
from contract.sentences import Sentence, english, message, sentence
from vigil.exit_status import ExitStatus
from vigil.language import listed, shown, translated
from vigil.reports.times import since
from vigil.reports.wrapping import columns_of, padded, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vigil.reports.explanation import FaultExplanation, JobExplanation, NodeExplanation
    from vigil.reports.status_report import BlindRow, FaultRow, StatusReport

_WIDTH_OF_A_FILE = 160
_NARROWEST = 20
_GAP = "  "
_MAX_FAULTS = 10
_FAULT_COLUMNS = (
    *(message("NODE"), message("PART"), message("CODE"), message("SEVERITY")),
    *(message("LEVEL"), message("SINCE"), message("JOBS"), message("NAME")),
)
_NARROWEST_NAME = 30
_WELL = message("{about} is well")
_PARTLY_KNOWN = message("no fault of {about} is known, but not all is known")


def width() -> int:
    """Return the columns of the terminal, or of lines in a file."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return _WIDTH_OF_A_FILE
    return max(shutil.get_terminal_size().columns, _NARROWEST)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line; what its encoding lacks or no terminal should get is ``?``."""
    encoding = sys.stdout.encoding or "ascii"
    for line in lines:
        print(printable(line).encode(encoding, "replace").decode(encoding))


def print_json(value: object) -> None:
    """Print ``value`` as one line of JSON, whose texts are English."""
    print(msgspec.json.encode(value, enc_hook=english).decode(), flush=True)


@contextmanager
def answering() -> Iterator[None]:
    """Keep the exit status of the answer where the reader of the output ends early.

    Ends with 3 where the output cannot be written for another reason, such as a full disk.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered is written when Python ends.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
        if not isinstance(error, BrokenPipeError):
            print(f"vigil: standard output: {error.strerror}", file=sys.stderr)
            sys.exit(ExitStatus.OUTSIDE)


def status_lines(report: StatusReport, *, language: str, utc: bool, columns: int) -> Iterator[str]:
    """Return the whole report: well or not and why first."""
    yield from head_lines(report.about, report.reasons, columns, well=report.well)
    yield from source_lines(report.source, report.server, report.not_known, columns)
    for heading, counts in report.counts.items():
        numbers = (f"{number} {_states(words)}" for words, number in counts.items())
        counted = listed(numbers, message("{before}; {part}"))
        yield from field(translated(heading), counted or translated("none"), columns)
    for heading, texts in report.facts.items():
        for text in texts:
            yield from field(translated(heading), text, columns)
    for row in report.blind:
        yield from field(translated("no answer"), blind_text(row, report.at_ms, utc=utc), columns)
    if report.faults:
        yield ""
        rows = worst_first(report.faults)[:_MAX_FAULTS]
        yield from fault_lines(rows, report.at_ms, language=language, utc=utc, columns=columns)
        if len(report.faults) > len(rows):
            yield translated("{count} more: vigil faults", count=len(report.faults) - len(rows))


def _states(words: str) -> str:
    """Return the states of a node, or the level of a chip, in the chosen language."""
    return listed(map(translated, words.split(", ")))


def head_lines(about: str, reasons: Sequence[str], columns: int, *, well: bool) -> Iterator[str]:
    """Return whether ``about`` is well, else why not, and an empty line.

    What is not well without a reason is only partly known.
    """
    if not reasons:
        first = translated(_WELL if well else _PARTLY_KNOWN, about=shown(about))
        yield from wrapped(first, columns)
    elif isinstance(reasons[0], Sentence):
        first = translated(
            "{about} is not well: {reason}", about=shown(about), reason=shown(reasons[0])
        )
        yield from wrapped(first, columns)
    else:
        # A daemon made the reason, so the sentence is English in each language.
        yield from wrapped(f"{about} is not well: {reasons[0]}", columns)
    for reason in reasons[1:]:
        yield from wrapped(shown(reason), columns, "  ")
    yield ""


def source_lines(source: str, server: str, not_known: Iterable[str], columns: int) -> Iterator[str]:
    """Yield the source that answered, and what is then not known."""
    yield from field(translated("answered by"), f"{shown(source)} ({server})", columns)
    for text in not_known:
        yield from field(translated("not known"), text, columns)


def report_lines(
    report: StatusReport, *, language: str, utc: bool, columns: int, is_all: bool = True
) -> Iterator[str]:
    """Return the source that answered, and a table of all faults in their order.

    Without ``is_all`` the report has only those that were asked for.
    """
    yield from source_lines(report.source, report.server, report.not_known, columns)
    if not report.faults:
        if is_all:
            yield translated("no fault holds")
        else:
            yield translated("no fault that holds is as asked for")
        return
    yield from fault_lines(report.faults, report.at_ms, language=language, utc=utc, columns=columns)


def fault_lines(
    rows: Sequence[FaultRow], now_ms: int, *, language: str, utc: bool, columns: int
) -> Iterator[str]:
    """Return a table of ``rows``, in two lines each where ``columns`` do not suffice for one.

    Where not even those suffice it is a paragraph for each. Names come last, so that characters of
    double width move no column.
    """
    cells = [
        (
            row.node,
            row.part,
            row.code,
            row.severity,
            translated("{level} (withheld)", level=row.level) if row.withheld else row.level,
            "" if row.since_ms is None else shown(since(row.since_ms, now_ms, utc=utc)),
            translated(row.jobs),
            row.name(language),
        )
        for row in rows
    ]
    table = [tuple(map(translated, _FAULT_COLUMNS)), *cells]
    starts = _aligned([line[:-1] for line in table])
    if columns_of(starts[0]) + _NARROWEST_NAME <= columns:
        for start, line in zip(starts, table, strict=True):
            yield from wrapped(line[-1], columns, start, " " * columns_of(start))
        return
    firsts = _aligned([(node, part, level, at) for node, part, _, _, level, at, _, _ in table])
    if columns_of(firsts[0].rstrip()) <= columns:
        yield firsts[0].rstrip()
    else:
        firsts = [
            f"{node} {part}: {listed(filter(None, (level, at)))}"
            for node, part, _, _, level, at, _, _ in table
        ]
    for first, (_, _, code, severity, _, _, jobs, name) in zip(firsts[1:], cells, strict=True):
        yield from wrapped(first.rstrip(), columns)
        about = f"{code} ({severity})" if severity else code
        yield from wrapped(" ".join(filter(None, (about, name))), columns, "  ")
        if jobs:
            yield from wrapped(translated("jobs: {effect}", effect=jobs), columns, "  ")


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return each line with its cells in columns of one width."""
    widths = [max(map(columns_of, column)) for column in zip(*table, strict=True)]
    return [
        "".join(padded(cell, size) + _GAP for cell, size in zip(line, widths, strict=True))
        for line in table
    ]


def worst_first(rows: Iterable[FaultRow]) -> list[FaultRow]:
    """Return ``rows`` by level, the newest of a level first."""
    from vigil.reports.status_report import rank

    return sorted(rows, key=lambda row: (rank(row.level), -(row.since_ms or 0), row.node, row.part))


def newest_first(rows: Iterable[FaultRow]) -> list[FaultRow]:
    """Return ``rows`` by time; those without one come last."""
    return sorted(rows, key=lambda row: (-(row.since_ms or 0), row.node, row.part, row.code))


def blind_text(row: BlindRow, now_ms: int, *, utc: bool) -> str:
    """Return which source gives no answer and since when, and why in the words of a daemon."""
    # Verbs such as ``prove`` have no blind sources, and start without this module.
    from vigil.reports.status_report import blind_source

    source = blind_source(row)
    if row.since_ms is not None:
        began = since(row.since_ms, now_ms, utc=utc)
        source = sentence("{source}, since {since}", source=source, since=began)
    return f"{shown(source)}: {row.reason}"


def field(heading: str, text: str, columns: int) -> list[str]:
    """Return ``text`` behind ``heading``, in lines of at most ``columns``."""
    return wrapped(padded(f"{heading}:", 13) + shown(text), columns, following=" " * 13)


def explanation_lines(
    explanation: NodeExplanation, *, language: str, utc: bool, columns: int
) -> Iterator[str]:
    """Return the whole explanation: well or not and why, then part by part, then jobs."""
    yield from head_lines(
        f"{explanation.node} {shown(explanation.part)}".strip(),
        explanation.reasons,
        columns,
        well=explanation.well,
    )
    yield from source_lines(explanation.source, explanation.server, explanation.not_known, columns)
    for text in explanation.because:
        yield from field(translated("because"), text, columns)
    for text in explanation.documents:
        yield from field(translated("documents"), text, columns)
    for row in explanation.blind:
        yield from field(
            translated("no answer"), blind_text(row, explanation.at_ms, utc=utc), columns
        )
    for part in explanation.parts:
        yield ""
        yield from wrapped(part.part, columns)
        for text in part.because:
            yield from _field(translated("state"), text, columns)
        if part.pods:
            yield from _field(translated("used by"), listed(part.pods), columns)
        for fault in part.faults:
            yield from _fault_lines(
                fault, explanation.at_ms, language=language, utc=utc, columns=columns
            )
    for job in explanation.jobs:
        yield ""
        yield from _job_lines(job, explanation.at_ms, utc=utc, columns=columns)


def _fault_lines(
    explanation: FaultExplanation, now_ms: int, *, language: str, utc: bool, columns: int
) -> Iterator[str]:
    fault = explanation.fault
    yield from wrapped(f"{fault.code}  {fault.name(language)}", columns, "  ", "    ")
    times = [
        None if at_ms is None else since(at_ms, now_ms, utc=utc)
        for at_ms in (fault.since_ms, explanation.until_ms)
    ]
    names = explanation.observed_by
    observed = sentence("by {sources}", sources=listed(names)) if names else None
    for heading, text in (
        (translated("since"), times[0]),
        (translated("severity"), fault.severity or None),
        (translated("observed"), observed),
        *(
            (translated("rule"), f"{r.text} ({r.file}, {r.key}, line {r.line})")
            for r in explanation.rules
        ),
        (translated("reported"), explanation.reported),
        (translated("published"), explanation.published),
        *((translated("because"), text) for text in explanation.because),
        (translated("until"), times[1]),
        (translated("jobs"), translated(explanation.effect) or None),
        (translated("to do"), translated(explanation.remedy) or None),
    ):
        if text is not None:
            yield from _field(heading, text, columns)


def _job_lines(job: JobExplanation, now_ms: int, *, utc: bool, columns: int) -> Iterator[str]:
    yield from wrapped(translated("job {job}: {health}", job=job.job, health=job.health), columns)
    if job.since_ms is not None:
        yield from _field(translated("since"), since(job.since_ms, now_ms, utc=utc), columns)
    yield from _field(translated("pods"), listed(job.pods), columns)
    for text in job.because:
        yield from _field(translated("because"), text, columns)


def _field(heading: str, text: str, columns: int) -> list[str]:
    return wrapped(padded(f"{heading}:", 11) + shown(text), columns, "    ", " " * 15)

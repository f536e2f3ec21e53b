"""An explanation of a node as text, for any width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vigil.reports.show import blind_text, field, head_lines, source_lines
from vigil.reports.times import since
from vigil.reports.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.reports.explanation import FaultExplanation, JobExplanation, NodeExplanation


def explanation_lines(
    explanation: NodeExplanation, *, language: str, utc: bool, columns: int
) -> Iterator[str]:
    """Return the whole explanation: well or not and why, then part by part, then jobs."""
    yield from head_lines(
        f"{explanation.node} {explanation.part}".strip(),
        explanation.reasons,
        columns,
        well=explanation.well,
    )
    yield from source_lines(explanation.source, explanation.server, explanation.not_known, columns)
    for text in explanation.because:
        yield from field("because", text, columns)
    for text in explanation.documents:
        yield from field("documents", text, columns)
    for row in explanation.blind:
        yield from field("no answer", blind_text(row, explanation.at_ms, utc=utc), columns)
    for part in explanation.parts:
        yield ""
        yield from wrapped(part.part, columns)
        for text in part.because:
            yield from _field("state", text, columns)
        if part.pods:
            yield from _field("used by", ", ".join(part.pods), columns)
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
    observed = f"by {', '.join(explanation.observed_by)}" if explanation.observed_by else None
    for heading, text in (
        ("since", times[0]),
        ("severity", fault.severity or None),
        ("observed", observed),
        *(("rule", f"{r.text} ({r.file}, {r.key}, line {r.line})") for r in explanation.rules),
        ("reported", explanation.reported),
        ("published", explanation.published),
        *(("because", text) for text in explanation.because),
        ("until", times[1]),
        ("jobs", explanation.effect or None),
        ("to do", explanation.remedy or None),
    ):
        if text is not None:
            yield from _field(heading, text, columns)


def _job_lines(job: JobExplanation, now_ms: int, *, utc: bool, columns: int) -> Iterator[str]:
    yield from wrapped(f"job {job.job}: {job.health}", columns)
    if job.since_ms is not None:
        yield from _field("since", since(job.since_ms, now_ms, utc=utc), columns)
    yield from _field("pods", ", ".join(job.pods), columns)
    for text in job.because:
        yield from _field("because", text, columns)


def _field(heading: str, text: str, columns: int) -> list[str]:
    return wrapped(f"{heading + ':':<11}{text}", columns, "    ", " " * 15)

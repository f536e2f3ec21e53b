"""``vigil jobs``: which jobs are hit, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def jobs(
    server: Server = None,
    state_dir: StateDir = None,
    kubeconfig: Kubeconfig = None,
    store: Store = None,
    watch: Watch = False,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show which jobs are hit, by which faults on which nodes. An agent does not know.

    Exit status: 0 no job is hit, 1 a job is hit or pods are not known, 2 wrong use, 3 no answer.
    """
    from vigil.reports.job_report import job_lines
    from vigil.sources.watch import Output, show

    sources = sources_of(server, state_dir, kubeconfig, store, "cluster")
    language = language_of(lang)

    def ask(source: AnswerSource) -> Output:
        report = source.jobs()
        return Output(
            report,
            lambda columns: job_lines(report, language=language, utc=utc, columns=columns),
            not report.jobs and not report.not_known,
        )

    show(sources, ask, node=None, watching=watch, as_json=as_json, utc=utc)

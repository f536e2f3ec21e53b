"""``vigil jobs``: which jobs are hit, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vigil.options import takes_login
from vigil.sources import options

if TYPE_CHECKING:
    from vigil.sources.source import AnswerSource


@takes_login
def jobs(
    server: options.Server = None,
    state_dir: options.StateDir = None,
    kubeconfig: options.Kubeconfig = None,
    store: options.Store = None,
    watch: options.Watch = False,
    lang: options.Lang = None,
    utc: options.Utc = False,
    as_json: options.Json = False,
) -> None:
    """Show which jobs are hit, by which faults on which nodes. An agent does not know.

    Exit status: 0 no job is hit, 1 a job is hit or pods are not known, 2 wrong use, 3 no answer.
    """
    from vigil.reports.job_report import job_lines
    from vigil.sources.watch import Output, show

    sources = options.sources_of(server, state_dir, kubeconfig, store, "cluster")
    language = options.language_of(lang)

    def query(source: AnswerSource) -> Output:
        report = source.jobs()
        return Output(
            report,
            lambda columns: job_lines(report, language=language, utc=utc, columns=columns),
            not report.jobs and not report.not_known,
        )

    show(sources, query, node=None, watching=watch, as_json=as_json, utc=utc)

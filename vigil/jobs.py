"""``vigil jobs``: which jobs are hit, and by what."""

from __future__ import annotations

from vigil.status.options import (
    Json,
    Lang,
    Server,
    StateDir,
    Utc,
    Watch,
    cluster_client_of,
    language_of,
)


def jobs(
    server: Server = None,
    state_dir: StateDir = None,
    watch: Watch = False,
    lang: Lang = None,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show which jobs are hit, by which faults on which nodes. Only an aggregator knows.

    Exit status: 0 no job is hit, 1 a job is hit or pods are not known, 2 wrong use, 3 no answer.
    """
    from vigil.status.job_report import job_lines, job_report
    from vigil.status.output import Output, show

    client, language = cluster_client_of(server, state_dir), language_of(lang)

    def ask() -> Output:
        report = job_report(client)
        return Output(
            report,
            lambda columns: job_lines(report, language=language, utc=utc, columns=columns),
            not report.jobs and not report.not_known,
        )

    show(client, ask, node=None, watching=watch, as_json=as_json, utc=utc)

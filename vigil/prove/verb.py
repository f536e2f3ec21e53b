"""``vigil prove``: shows that each fault of the journals was delivered, and nothing else."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer

from vigil.options import takes_login
from vigil.sources import options  # noqa: TC001  (typer reads it)


@takes_login
def prove(
    state_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="State directory of an agent; its journal is read. Repeatable.",
            show_default="/var/lib/npu-vigil, if --agents is missing",
        ),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of agents' pages with {node}: read the journals of all nodes that the "
            "aggregator at --server knows. For instance http://{node}:9820.",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="VIGIL_SERVER",
            help="The aggregator: http://HOST:PORT, https://HOST:PORT or unix:PATH.",
            show_default=False,
        ),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="VIGIL_STORE",
            help="Without --server: compare with the documents of this store.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Leave out what was over before: 90s, 10min, 2h or 1d ago, or 2026-11-23T21:44.",
            show_default="the whole journal",
        ),
    ] = None,
    utc: options.Utc = False,
    as_json: options.Json = False,
) -> None:
    """Prove that faults in the journals of agents were published, and that nothing else was.

    Exit status: 0 proved, 1 there is a gap, 2 wrong use, 3 not possible. That is so where the
    journals of more than 1 % of the nodes are missing, or the aggregator does not answer.
    """
    import time

    from contract.errors import ConfigurationError, Problem
    from contract.sentences import sentence
    from vigil.daemon_client import DaemonClient
    from vigil.prove.gather import (
        Journals,
        cluster_of_documents,
        cluster_of_server,
        node_names,
    )
    from vigil.prove.match import prove as matched
    from vigil.prove.report import report_of, show
    from vigil.reports.show import answering
    from vigil.reports.times import since_of
    from vigil.sources.sources import AGENT_PLACE, kubeconfig_of

    if agents is not None and (server is None or "{node}" not in agents):
        text = sentence(
            "must contain {field}, and needs the aggregator at --server", field="{node}"
        )
        raise ConfigurationError("command line", [Problem("--agents", text)])
    since_ms = None if since is None else since_of(since, int(time.time() * 1000), utc=utc)
    journals = Journals()
    journals.add_files(state_dir or ([AGENT_PLACE[0]] if agents is None else []), since_ms)
    cluster, compared_with = None, sentence("nothing")
    if server is not None:
        client = DaemonClient(server, 60.0)
        if agents is not None:
            journals.add_pages(agents, node_names(client), since_ms)
        begins = [item.from_ms for item in journals.by_node.values() if item.from_ms is not None]
        # Entries may look older than their verdicts, by the clocks of two hosts.
        cluster = cluster_of_server(client, max(0, min(begins, default=0) - 3_600_000))
        compared_with = sentence("the aggregator at {server}", server=server)
    elif store is not None:
        from vigil.sources.documents import StoreSource

        source = StoreSource(store, kubeconfig_of(kubeconfig))
        try:
            cluster = cluster_of_documents(source)
        finally:
            source.close()
        compared_with = sentence("the documents of {store}", store=store)
    proof = matched(journals.by_node.values(), cluster, since_ms)
    report = report_of(proof, journals.by_node, journals.not_known, compared_with)
    with answering():
        show(report, as_json=as_json, utc=utc)
    raise typer.Exit(report.status)

"""``vigil aggregator``: the cluster daemon."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)


def aggregator(
    store: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="kubernetes: (default), directory:PATH or mqtt[s]://HOST; read from each given.",
        ),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Publish to each of these; default the first --store."),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="State directory with history and name; default /var/lib/npu-vigil-aggregator.",
        ),
    ] = None,
    listen: options.Listen = None,
    log_format: options.LogFormatOption = None,
    grpc_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="ClusterD's gRPC services, over mutual TLS with the files in [grpc]; port 0: any.",
        ),
    ] = None,
    grpc_plaintext: Annotated[
        bool | None,
        typer.Option(
            "--grpc-plaintext", help="gRPC without TLS: whoever can connect can isolate chips."
        ),
    ] = None,
    touch_period_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Write documents again that were not written for so long; default 45."
        ),
    ] = None,
    config: options.Config = None,
) -> None:
    """Merge what the nodes report into the documents that schedulers read."""
    import os

    from vigil.daemon_process import daemon_process, loading

    given = {
        "store": store or None,
        "publish": publish or None,
        "kubeconfig": kubeconfig,
        "state_dir": state_dir,
        "listen": listen,
        "log_format": log_format,
        "grpc.listen": grpc_listen,
        "grpc.plaintext": grpc_plaintext,
        "touch_period_seconds": touch_period_seconds,
    }
    with daemon_process():
        with loading():
            from aggregator.config import load_aggregator
            from aggregator.process import run

        run(load_aggregator(config, os.environ, given))

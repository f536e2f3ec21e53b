"""``vigil elastic``: the daemon of elastic training, and commands about its jobs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)

app = typer.Typer(
    help="Start elastic vcjobs again after a fault, at the size there is room for.",
    rich_markup_mode=None,
)

_Job = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The vcjob.")]
_Json = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.callback(invoke_without_command=True)
def elastic(
    context: typer.Context,
    act: Annotated[
        bool | None,
        typer.Option("--act", help="Write vcjobs. Without it nothing but its Lease is written."),
    ] = None,
    network_faults: Annotated[
        bool | None,
        typer.Option(
            "--network-faults",
            help="End jobs that run over a network fault, where they can start elsewhere.",
        ),
    ] = None,
    dead_nodes: Annotated[
        bool | None,
        typer.Option(
            "--dead-nodes",
            help="Delete pods of dead nodes by force. A node may still write the checkpoint.",
        ),
    ] = None,
    aggregator: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of the aggregators, which are asked for sizes."),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Its name; default /var/lib/npu-vigil-elastic."),
    ] = None,
    listen: options.Listen = None,
    log_format: options.LogFormatOption = None,
    config: options.Config = None,
) -> None:
    """Run the daemon, unless a command follows."""
    if context.invoked_subcommand is not None:
        return
    import os

    from vigil.daemon_process import daemon_process

    given = {
        "act": act,
        "network_faults": network_faults,
        "dead_nodes": dead_nodes,
        "aggregator": aggregator,
        "kubeconfig": kubeconfig,
        "state_dir": state_dir,
        "listen": listen,
        "log_format": log_format,
    }
    with daemon_process():
        from elastic.config import load_elastic
        from elastic.process import run

        run(load_elastic(config, os.environ, given))


@app.command("list")
def list_jobs(kubeconfig: options.Kubeconfig = None, as_json: _Json = False) -> None:
    """Show all vcjobs that ask for elastic training. Reads with the caller's own rights."""
    from vigil.elastic.jobs import show_all

    show_all(kubeconfig, as_json=as_json)


@app.command()
def show(job: _Job, kubeconfig: options.Kubeconfig = None, as_json: _Json = False) -> None:
    """Show one vcjob: sizes, cause, conditions that do not hold, and what comes next."""
    from vigil.elastic.jobs import show_one

    show_one(kubeconfig, job, as_json=as_json)


@app.command()
def off(job: _Job, kubeconfig: options.Kubeconfig = None) -> None:
    """Leave the vcjob alone from now on."""
    from vigil.elastic.jobs import switch

    switch(kubeconfig, job, is_on=False)


@app.command()
def on(job: _Job, kubeconfig: options.Kubeconfig = None) -> None:
    """Take ``off`` and ``restore`` back."""
    from vigil.elastic.jobs import switch

    switch(kubeconfig, job, is_on=True)


@app.command()
def restore(
    job: _Job,
    now: Annotated[
        bool, typer.Option("--now", help="End the running job first; its pods keep their grace.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Start the vcjob with its original size the next time, once there is room for it."""
    from vigil.elastic.jobs import restore_job

    if now and not yes:
        from vigil.language import translated

        question = translated("End {job} now? Its pods get their grace and start again.", job=job)
        typer.confirm(question, abort=True)
    restore_job(kubeconfig, job, is_now=now)

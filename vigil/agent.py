"""``vigil agent``: the node daemon."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer


def agent(
    node_name: Annotated[
        str | None, typer.Option(help="Name of this node (also NODE_NAME).", show_default=False)
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="kubernetes: (default) or directory:PATH."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="How to reach the API server.")
    ] = None,
    driver_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The driver; default /usr/local/Ascend/driver."),
    ] = None,
    trust_driver: Annotated[
        bool | None,
        typer.Option(
            "--trust-driver", help="Load a driver that does not belong to root (development)."
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Journal and socket; default /var/lib/npu-vigil."),
    ] = None,
    fault_config_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Fault configuration as files, where no ConfigMap has it."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Health, metrics and API over HTTP; port 0: any."),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(metavar="KINDS", help="What to publish: device-info,node-info (default)."),
    ] = None,
    shadow: Annotated[
        bool | None,
        typer.Option(
            "--shadow", help="Write nothing; compare what the Device Plugin writes with ours."
        ),
    ] = None,
    heartbeat_interval_seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="How often the agent says that it is alive; default 5."),
    ] = None,
    heartbeat_annotations: Annotated[
        bool | None,
        typer.Option(
            "--heartbeat-annotations", help="Also beat on the Node, for readers of old releases."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="VIGIL_CONFIG", help="TOML; options win over it."),
    ] = None,
) -> None:
    """Watch the NPUs of this node and publish what is wrong with them."""
    import os

    from vigil.starting import end_at_a_signal

    end_at_a_signal()
    from agent.config import load_agent
    from agent.daemon import run

    options = {
        "node_name": node_name,
        "store": store,
        "kubeconfig": kubeconfig,
        "driver_root": driver_root,
        "trust_driver": trust_driver,
        "state_dir": state_dir,
        "fault_config_dir": fault_config_dir,
        "listen": listen,
        "documents": documents,
        "shadow": shadow,
        "heartbeat.interval_seconds": heartbeat_interval_seconds,
        "heartbeat.annotations": heartbeat_annotations,
    }
    raise typer.Exit(run(load_agent(config, os.environ, options)))

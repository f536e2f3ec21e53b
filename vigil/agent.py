"""``vigil agent``: the node daemon."""

from __future__ import annotations

import typer

from vigil import options


def agent(
    node_name: options.NodeName = None,
    store: options.Store = None,
    kubeconfig: options.Kubeconfig = None,
    driver_root: options.DriverRoot = None,
    trust_driver: options.TrustDriver = None,
    state_dir: options.StateDir = None,
    fault_config_dir: options.FaultConfigDir = None,
    listen: options.Listen = None,
    log_format: options.LogFormatOption = None,
    documents: options.Documents = None,
    shadow: options.Shadow = None,
    heartbeat_interval_seconds: options.HeartbeatIntervalSeconds = None,
    heartbeat_generation: options.HeartbeatGeneration = None,
    config: options.Config = None,
) -> None:
    """Watch the NPUs of this node and publish what is wrong with them."""
    given = options.agent_settings(locals())
    import os

    from vigil.daemon_process import daemon_process, loading

    with daemon_process():
        with loading():
            from agent.config import load_agent
            from agent.daemon import run

        raise typer.Exit(run(load_agent(config, os.environ, given)))

"""``vigil agent``: the node daemon."""

from __future__ import annotations

import typer

from vigil import agent_options as options  # noqa: TC001  (typer reads it)


def agent(
    node_name: options.NodeName = None,
    store: options.Store = None,
    kubeconfig: options.Kubeconfig = None,
    driver_root: options.DriverRoot = None,
    trust_driver: options.TrustDriver = None,
    state_dir: options.StateDir = None,
    fault_config_dir: options.FaultConfigDir = None,
    listen: options.Listen = None,
    documents: options.Documents = None,
    shadow: options.Shadow = None,
    heartbeat_interval_seconds: options.HeartbeatIntervalSeconds = None,
    heartbeat_generation: options.HeartbeatGeneration = None,
    config: options.Config = None,
) -> None:
    """Watch the NPUs of this node and publish what is wrong with them."""
    import os

    from vigil.starting import end_at_a_signal

    end_at_a_signal()
    from agent.config import load_agent
    from agent.daemon import run

    given = {
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
        "heartbeat.generation": heartbeat_generation,
    }
    raise typer.Exit(run(load_agent(config, os.environ, given)))

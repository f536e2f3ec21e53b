"""``vigil agent``: the node daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from vigil import options

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from dcmi_shim.worker.process import StartedProcess


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

            configuration = load_agent(config, os.environ, given)
            first = _started_driver(configuration)
            from agent.daemon import run

        raise typer.Exit(run(configuration, first))


def _started_driver(configuration: AgentConfiguration) -> StartedProcess | None:
    """Start the driver's process, which loads its modules while the daemon loads its own.

    Return ``None`` where that is not possible, which the daemon reports.
    """
    import os

    from contract.errors import DriverNotFound
    from dcmi_shim.library.discovery import VendorPaths, find_library
    from dcmi_shim.worker.process import start_process

    try:
        paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
        return start_process(find_library(paths))
    except (DriverNotFound, OSError):
        return None

"""``vigil scan``: whether everything that the agent needs is there and works."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer

from vigil import options


def scan(
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
    aggregator_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The aggregator's TOML; default /etc/npu-vigil/aggregator.toml, if it is there.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look once at everything that the agent would use, change nothing, and show what to do.

    Give it the options of ``vigil agent``. Exit status: 0 all is well, 1 something is not, 2 the
    configuration is wrong, 3 the driver or the store cannot be used.
    """
    given = options.agent_settings(locals())
    import asyncio
    import logging
    import os
    import sys

    import msgspec

    from contract.errors import ConfigurationError, Problem
    from contract.sentences import english
    from vigil.installation import hidden_packages

    # First: the checks import these packages.
    if hidden := hidden_packages():
        advice = "install NPU Vigil into an environment of its own"
        raise ConfigurationError(
            "installation",
            [Problem(name, f"it comes from {place}; {advice}") for name, place in hidden.items()],
        )
    from vigil.scan.findings import lines
    from vigil.scan.run import scan as look

    # The checks report what the parts in use would log.
    logging.disable(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    report = loop.run_until_complete(look(config, os.environ, given, aggregator_config))
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report, enc_hook=english), indent=2).decode())
    else:
        print("\n".join(lines(report)))
    sys.stdout.flush()
    # Threads that hang in the kernel would be waited for by any other end.
    os._exit(report.exit_status)

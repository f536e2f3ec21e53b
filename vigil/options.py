"""Options that several verbs take; above all those of ``vigil agent``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

NodeName = Annotated[
    str | None, typer.Option(help="Name of this node (also NODE_NAME).", show_default=False)
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="kubernetes: (default), directory:PATH, mqtt:// or mqtts://HOST."
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kubeconfig with which the API server is reached."),
]
DriverRoot = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Root directory of the driver; default /usr/local/Ascend/driver."
    ),
]
TrustDriver = Annotated[
    bool | None,
    typer.Option(
        "--trust-driver", help="Load a driver that does not belong to root (development)."
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="State directory; contains the journal and the socket; default /var/lib/npu-vigil.",
    ),
]
FaultConfigDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Fault configuration as files, where no ConfigMap has it."),
]
Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Health, metrics and API over HTTP; port 0: any."),
]
Documents = Annotated[
    str | None,
    typer.Option(metavar="KINDS", help="Documents to publish: device-info,node-info (default)."),
]
Shadow = Annotated[
    bool | None,
    typer.Option(
        "--shadow", help="Write nothing; compare what the Device Plugin writes with ours."
    ),
]
HeartbeatIntervalSeconds = Annotated[
    float | None,
    typer.Option(metavar="S", help="How often the agent sends its heartbeat; default 5."),
]
HeartbeatGeneration = Annotated[
    str | None,
    typer.Option(
        metavar="GENERATION",
        help="Readers of old releases: lease (none), annotation, cm-v5 or cm-v6rc.",
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        help="Form of the log: text (default) or json, an object on each line.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="VIGIL_CONFIG",
        help="Configuration file (TOML); options take precedence.",
    ),
]
AggregatorConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", envvar="VIGIL_CONFIG", help="TOML of the aggregator: stores, MQTT."
    ),
]
Confirmed: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Do it. Without it, only show what would be done.")
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", envvar="VIGIL_JSON", help="Print one JSON document.")
]

_SETTINGS = (
    *("node_name", "store", "kubeconfig", "driver_root", "trust_driver", "state_dir"),
    *("fault_config_dir", "listen", "log_format", "documents", "shadow"),
    *("heartbeat_interval_seconds", "heartbeat_generation"),
)
"""Parameters of a verb that set something of the configuration."""


def agent_settings(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return what a verb's arguments set of the agent's configuration, by path."""
    return {name.replace("heartbeat_", "heartbeat."): arguments[name] for name in _SETTINGS}

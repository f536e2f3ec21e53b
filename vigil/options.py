"""Options that several verbs take; above all those of ``vigil agent``."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from service.login.client import LoginFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


_LOGIN_HELP = {
    "ca_file": "Authorities of the daemon's certificate (PEM); default those of the system.",
    "certificate_file": "Own certificate (PEM) for a daemon that needs a login.",
    "key_file": "Key of --certificate-file (PEM), if it is another file.",
    "password_file": "File with a line USER:PASSWORD, for a daemon that needs a login.",
    "token_file": "File with a token, for an aggregator or a proxy that accepts tokens.",
}
_login = LoginFiles()


def login_files() -> LoginFiles:
    """Return the files that this command was given."""
    return _login


def takes_login(verb: Callable[..., None]) -> Callable[..., None]:
    """Return ``verb`` with the options of a login, which count for each daemon that it asks.

    A command has one login. Else each verb would hand it through all layers down to the client.
    """

    @functools.wraps(verb)
    def run(**arguments: Any) -> None:
        global _login
        _login = LoginFiles(**{name: arguments.pop(name) for name in LoginFiles._fields})
        try:
            verb(**arguments)
        finally:
            _login = LoginFiles()

    added = {
        name: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE", envvar=f"VIGIL_{name.upper()}", help=text, show_default=False
            ),
        ]
        for name, text in _LOGIN_HELP.items()
    }
    own = inspect.signature(verb, eval_str=True)
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in added.items()
    ]
    # Typer reads both.
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*own.parameters.values(), *parameters]
    )
    run.__annotations__ = {**verb.__annotations__, **added}
    return run


_SETTINGS = (
    *("node_name", "store", "kubeconfig", "driver_root", "trust_driver", "state_dir"),
    *("fault_config_dir", "listen", "log_format", "documents", "shadow"),
    *("heartbeat_interval_seconds", "heartbeat_generation"),
)
"""Parameters of a verb that set something of the configuration."""


def agent_settings(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return what a verb's arguments set of the agent's configuration, by path."""
    return {name.replace("heartbeat_", "heartbeat."): arguments[name] for name in _SETTINGS}

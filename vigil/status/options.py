"""Options and exit statuses that the verbs share which ask a daemon."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from vigil.daemon_client import DaemonClient

NOT_WELL = 1
_ANSWER_SECONDS = 10.0


class Language(StrEnum):
    """Language of the names of faults. Codes, levels and keys are never translated."""

    ENGLISH = "en"
    CHINESE = "zh"


Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="VIGIL_SERVER",
        help="Ask this agent or aggregator: http://HOST:PORT, https://HOST:PORT or unix:PATH.",
        show_default="the agent on this host, else its aggregator",
    ),
]
StateDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="VIGIL_STATE_DIR",
        help="Of the agent or aggregator on this host; has its socket.",
        show_default="/var/lib/npu-vigil, /var/lib/npu-vigil-aggregator",
    ),
]
Lang: TypeAlias = Annotated[
    Language | None,
    typer.Option(
        "--lang", envvar="VIGIL_LANG", help="Of the names of faults.", show_default="from LANG"
    ),
]
Utc: TypeAlias = Annotated[bool, typer.Option("--utc", help="Show times in UTC.")]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", envvar="VIGIL_JSON", help="Print one JSON document.")
]
_AGENT = (Path("/var/lib/npu-vigil"), "agent.sock")
_AGGREGATOR = (Path("/var/lib/npu-vigil-aggregator"), "aggregator.sock")
Watch: TypeAlias = Annotated[
    bool, typer.Option("--watch", help="Go on, and show each change until Ctrl-C.")
]


def client_of(server: str | None, state_dir: Path | None) -> DaemonClient:
    """Return who is asked: ``server``, else the agent on this host, else the aggregator on it."""
    return _client(server, state_dir, (_AGENT, _AGGREGATOR))


def cluster_client_of(server: str | None, state_dir: Path | None) -> DaemonClient:
    """Return who is asked about the cluster: ``server``, else the aggregator on this host."""
    return _client(server, state_dir, (_AGGREGATOR,))


def _client(
    server: str | None, state_dir: Path | None, places: tuple[tuple[Path, str], ...]
) -> DaemonClient:
    from vigil.daemon_client import DaemonClient, listening

    if server is None:
        server = listening([(state_dir or usual) / name for usual, name in places])
    return DaemonClient(server, _ANSWER_SECONDS)


def language_of(chosen: Language | None) -> Language:
    """Return the language that was chosen, else that of the environment."""
    import os

    if chosen is not None:
        return chosen
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if os.environ.get(name):
            return Language.CHINESE if os.environ[name].startswith("zh") else Language.ENGLISH
    return Language.ENGLISH

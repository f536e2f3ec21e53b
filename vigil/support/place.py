"""Where the archive is made: which daemons, files and clusters can be asked, and their secrets."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import load_agent
from aggregator.config import load_aggregator
from aggregator.notify.history_file import FILE_NAME as HISTORY_NAME
from contract.errors import ConfigurationError, StoreError
from vigil.daemon_client import NOT_FOUND, DaemonClient, is_listening
from vigil.sources.sources import AGENT_PLACE, AGGREGATOR_PLACE, kubeconfig_of
from vigil.support.secrets import is_secret_name, secrets_in_settings, secrets_of_file

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from aggregator.config import AggregatorConfiguration
    from vigil.sources.api_server import ApiServerClient

_AGENT_FILE = Path("/etc/npu-vigil/agent.toml")
_AGGREGATOR_FILE = Path("/etc/npu-vigil/aggregator.toml")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_ANSWER_SECONDS = 10.0
_MAX_SECRET_FILE = 1 << 20


@dataclass
class SupportPlace:
    """The options of the verb, as they were given."""

    server: str | None
    state_dir: Path | None
    kubeconfig: str | None
    store: str | None
    config: Path | None
    agent: AgentConfiguration | None = field(init=False)
    aggregator: AggregatorConfiguration | None = field(init=False)
    refused: dict[str, list[str]] = field(init=False, default_factory=dict)
    """The keys that are wrong, by the daemon whose configuration is refused."""

    def __post_init__(self) -> None:
        """Read the configuration of both daemons, as they would."""
        host = socket.gethostname()
        # A configuration without a name is that of a DaemonSet, which gives it in the environment.
        environment = {"NODE_NAME": host, **os.environ}
        self.agent = self.aggregator = None
        try:
            self.agent = load_agent(self.agent_file, environment, {})
        except ConfigurationError as error:
            self._refuse("agent", error)
        try:
            self.aggregator = load_aggregator(self.aggregator_file, environment, {})
        except ConfigurationError as error:
            self._refuse("aggregator", error)

    def _refuse(self, daemon: str, error: ConfigurationError) -> None:
        # Only where: the text of a problem may repeat a value.
        self.refused[daemon] = [problem.where for problem in error.problems]

    @property
    def agent_file(self) -> Path | None:
        """Return the agent's configuration file; ``None`` where there is none."""
        return self.config or (_AGENT_FILE if _AGENT_FILE.exists() else None)

    @property
    def aggregator_file(self) -> Path | None:
        """Return the aggregator's configuration file; ``None`` where there is none."""
        return _AGGREGATOR_FILE if _AGGREGATOR_FILE.exists() else None

    @property
    def agent_state_dir(self) -> Path:
        """Return where the journal of an agent is."""
        if self.state_dir is not None:
            return self.state_dir
        return AGENT_PLACE[0] if self.agent is None else self.agent.state_dir

    @property
    def aggregator_state_dir(self) -> Path:
        """Return where the history of an aggregator is."""
        if self.state_dir is not None:
            return self.state_dir
        return AGGREGATOR_PLACE[0] if self.aggregator is None else self.aggregator.state_dir

    def has_history_file(self) -> bool:
        """Return whether there is the history of an aggregator that does not run now."""
        directory = self.aggregator_state_dir
        return (directory / HISTORY_NAME).is_file() and not is_listening(
            directory / AGGREGATOR_PLACE[1]
        )

    @property
    def is_node(self) -> bool:
        """Return whether an agent is or was on this host."""
        return self.agent_file is not None or self.agent_state_dir.is_dir()

    def daemons(self) -> dict[str, DaemonClient]:
        """Return the daemons that listen, by the folder of what they answer."""
        if self.server is not None:
            client = DaemonClient(self.server, _ANSWER_SECONDS)
            is_agent = client.fetch("/api/v1/leader")[0] == NOT_FOUND
            return {"agent" if is_agent else "aggregator": client}
        clients: dict[str, DaemonClient] = {}
        for label, (usual, name) in (("agent", AGENT_PLACE), ("aggregator", AGGREGATOR_PLACE)):
            path = (self.state_dir or usual) / name
            if is_listening(path):
                clients[label] = DaemonClient(f"unix:{path}", _ANSWER_SECONDS)
        if (cluster := self.api_server()) is not None:
            clients["cluster"] = cluster
        if not clients:
            place = self.state_dir or AGENT_PLACE[0]
            raise StoreError(f"no daemon listens in {place}, and there is no kubeconfig")
        return clients

    def api_server(self) -> ApiServerClient | None:
        """Return the way to the API server; ``None`` without a kubeconfig."""
        if self.kubeconfig is None:
            return None
        from vigil.sources.api_server import ApiServerClient

        return ApiServerClient(self.kubeconfig)

    def secrets(self) -> list[str]:
        """Return the secrets that this host knows: of files, kubeconfig and environment."""
        secrets = [value for name, value in os.environ.items() if is_secret_name(name)]
        settings = [file for file in (self.agent_file, self.aggregator_file) if file is not None]
        if self.kubeconfig is not None:
            settings += map(Path, self.kubeconfig.split(os.pathsep))
        files = [_SERVICE_ACCOUNT]
        for file in settings:
            text = _read(file)
            secrets += secrets_in_settings(text)
            files += ((file.parent / value) for value in secrets_in_settings(text, of_files=True))
        for mqtt in (section.mqtt for section in (self.agent, self.aggregator) if section):
            files += (file for file in (mqtt.password_file, mqtt.key_file) if file is not None)
        if self.aggregator is not None and self.aggregator.grpc.key_file is not None:
            files.append(self.aggregator.grpc.key_file)
        for file in files:
            secrets += secrets_of_file(_read(file))
        return secrets


def place_of(
    server: str | None,
    state_dir: Path | None,
    kubeconfig: Path | None,
    store: str | None,
    config: Path | None,
) -> SupportPlace:
    """Return the place for the options of the verb. Raises ``ConfigurationError``."""
    return SupportPlace(server, state_dir, kubeconfig_of(kubeconfig), store, config)


def _read(file: Path) -> str:
    """Return the text of a small file; empty where this process cannot read it.

    Then no part of the archive can have it either.
    """
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_SECRET_FILE).decode(errors="replace")
    except OSError:
        return ""

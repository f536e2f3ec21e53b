"""The configuration of ``vigil elastic run``: command line beats environment beats TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from contract.settings import ListenAddress, Section, ValueRule
from service.configuration import load_daemon
from service.log.setup import LogFormat
from service.login.client import LoginFiles

if TYPE_CHECKING:
    from collections.abc import Mapping


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("is not a valid address; use http://HOST:PORT or https://HOST:PORT")
    return text


class ElasticConfiguration(Section, frozen=True):
    """All settings of the daemon."""

    act: bool = False
    """Write vcjobs. Otherwise the log has what would be written, and only the Lease is."""
    network_faults: bool = False
    """End jobs that run over a network fault, where there is another place for them."""
    dead_nodes: bool = False
    """Delete pods of dead nodes by force. Such a node may still write the checkpoint."""
    kubeconfig: Path | None = None
    aggregator: Annotated[str, ValueRule(_address)] = "http://npu-vigil-aggregator.mindx-dl:9821"
    ca_file: Path | None = None
    """Authorities of the aggregator's certificate (PEM); otherwise those of the system."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    password_file: Path | None = None
    """With a line ``USER:PASSWORD``."""
    token_file: Path | None = None
    """With a token, such as the kubelet projects; read again for each request."""
    state_dir: Path = Path("/var/lib/npu-vigil-elastic")
    listen: ListenAddress | None = None
    log_format: LogFormat = LogFormat.TEXT
    lease_seconds: Annotated[int, Meta(ge=2, le=300)] = 10

    @property
    def login(self) -> LoginFiles:
        """The files of the login at the aggregator."""
        return LoginFiles(*(getattr(self, name) for name in LoginFiles._fields))

    def __post_init__(self) -> None:
        if any(self.login) and not self.aggregator.startswith("https://"):
            raise ValueError(
                "aggregator is without TLS; a login and certificates are for https:// only"
            )


def load_elastic(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> ElasticConfiguration:
    """Merge and check all layers. Raises ``ConfigurationError`` with every problem."""
    return load_daemon(ElasticConfiguration, file, environment, command_line, "elastic")

"""The agent's configuration: command line beats environment beats TOML file.

Every option is described in ``docs/configuration.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from collectors.registry import COLLECTORS
from contract.names import node_name_problem
from contract.settings import HostName, ListenAddress, Section, StoreAddress, ValueRule
from service.configuration import load, load_daemon
from service.log.setup import LogFormat
from service.pages.settings import PagesTlsSection
from stores.settings import Directory, Mqtt

if TYPE_CHECKING:
    from collections.abc import Mapping


def _node_name(text: str) -> str:
    problem = node_name_problem(text)
    if problem is not None:
        raise ValueError(problem)
    return text


S = TypeVar("S", bound=Section)

DocumentKind: TypeAlias = Literal["device-info", "node-info"]
"""What this agent may own: write, repair and delete."""


class CompatibilitySection(Section, frozen=True):
    """Where to do as upstream does, and otherwise do not."""

    hccn_error: Literal["blind", "down"] = "blind"
    duo_cards: Literal["apart", "together"] = "apart"


class DriverCallsSection(Section, frozen=True):
    """How the vendor library is called; times in seconds."""

    call_deadline_seconds: Annotated[float, Meta(ge=0.05, le=10)] = 0.5
    probe_period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0


class MetricsSection(Section, frozen=True):
    """What ``/metrics`` shows."""

    npu_exporter_names: bool = False
    """Off: beside a real NPU exporter every sum would double."""
    fault_pods: bool = False
    """Off: names of pods are of users, and each new pod is a new series."""


class AgentPagesSection(PagesTlsSection, frozen=True):
    """Limits and TLS of the pages on the address of ``--listen``."""

    max_connections: Annotated[int, Meta(ge=16, le=1024)] = 64
    """Eight of them are reserved for addresses of the host itself."""
    host_names: tuple[HostName, ...] = ()
    """Host names accepted in requests over loopback, besides ``localhost`` and addresses."""


class HeartbeatSection(Section, frozen=True):
    """The proof that the agent is alive."""

    interval_seconds: Annotated[float, Meta(ge=1, le=300)] = 5.0
    absence_seconds: Annotated[float, Meta(ge=0, le=900)] = 0.0
    generation: Literal["lease", "annotation", "cm-v5", "cm-v6rc"] = "lease"
    """The heartbeat to publish besides our own.

    Each but ``lease`` wakes all watchers of Nodes or documents.
    """


class NodeLabelsSection(Section, frozen=True):
    """The labels and annotations of the Node."""

    enabled: bool = True


# mypy refuses a base class that is made at run time.
if TYPE_CHECKING:
    _CollectorSections = Section
else:
    _CollectorSections = msgspec.defstruct(
        "_CollectorSections",
        [
            (collector.name.replace("-", "_"), collector.settings, collector.settings())
            for collector in COLLECTORS
            if collector.settings is not Section
        ],
        bases=(Section,),
        frozen=True,
    )


class AgentConfiguration(_CollectorSections, frozen=True, kw_only=True):
    """All options of ``vigil agent``: these, and a section of each collector.

    Those are declared by the collectors and returned by ``settings_of``.
    """

    node_name: Annotated[str, ValueRule(_node_name)]
    store: StoreAddress = "kubernetes:"
    kubeconfig: Path | None = None
    mqtt: Mqtt = Mqtt()
    directory: Directory = Directory()
    driver_root: Path | None = None
    trust_driver: bool = False
    state_dir: Path = Path("/var/lib/npu-vigil")
    fault_config_dir: Path | None = None
    listen: ListenAddress | None = None
    log_format: LogFormat = LogFormat.TEXT
    documents: Annotated[tuple[DocumentKind, ...], Meta(min_length=1)] = (
        "device-info",
        "node-info",
    )
    shadow: bool = False
    """Beside a real Device Plugin: compare its document with the one we would write; write nothing.
    """
    compatibility: CompatibilitySection = CompatibilitySection()
    driver: DriverCallsSection = DriverCallsSection()
    metrics: MetricsSection = MetricsSection()
    pages: AgentPagesSection = AgentPagesSection()
    heartbeat: HeartbeatSection = HeartbeatSection()
    node_labels: NodeLabelsSection = NodeLabelsSection()

    def settings_of(self, model: type[S]) -> S:
        """Return the section of the collector whose settings are a ``model``."""
        sections = (getattr(self, name) for name in self.__struct_fields__)
        return next((section for section in sections if type(section) is model), model())

    def __post_init__(self) -> None:
        generation = self.heartbeat.generation
        if generation == "annotation" and self.store != "kubernetes:":
            raise ValueError(
                "heartbeat.generation annotation needs the store kubernetes: only that has Nodes"
            )
        if generation.startswith("cm-") and "node-info" not in self.documents:
            raise ValueError(
                f"heartbeat.generation {generation} is in node-info, which is not in `documents`"
            )


def load_agent(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> AgentConfiguration:
    """Merge and check all layers; return the configuration.

    ``NODE_NAME`` is used where ``VIGIL_NODE_NAME`` is missing. Raises ``ConfigurationError`` with
    all problems.
    """
    variables = dict(environment)
    if "NODE_NAME" in variables:
        variables.setdefault("VIGIL_NODE_NAME", variables["NODE_NAME"])
    return load_daemon(AgentConfiguration, file, variables, command_line, "agent")


def check_agent(content: Mapping[str, object], source: str) -> None:
    """Check the content of a configuration file by itself.

    Options that flags or environment set may be missing. Raises ``ConfigurationError`` with all
    problems.
    """
    file = {"node_name": "any", **content}
    load(AgentConfiguration, file=file, environment={}, command_line={}, source=source)

"""The agent's configuration: command line beats environment beats TOML file.

Every option is described in ``docs/configuration.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from contract.configuration import ListenAddress, Section, StoreAddress, load
from contract.names import node_name_problem
from service.files import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping


def _node_name(text: str) -> str:
    problem = node_name_problem(text)
    if problem is not None:
        raise ValueError(problem)
    return text


DocumentKind: TypeAlias = Literal["device-info", "node-info"]
"""What this agent may own: write, repair and delete."""


class ChipFaults(Section):
    """How the chip collector works."""

    audit_period_seconds: float = Field(default=15.0, ge=0.1, le=3600)
    health_period_seconds: float = Field(default=5.0, ge=0.1, le=3600)
    card_lost_after_seconds: float = Field(default=300.0, ge=10, le=86_400)


class BmcAlarms(Section):
    """How the server's BMC is asked for its alarms."""

    enabled: bool = True
    period_seconds: float = Field(default=10.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=60)
    device: str = "/dev/ipmi0"


class Switch(Section):
    """How the collector of on-board switches works."""

    audit_period_seconds: float = Field(default=30.0, ge=0.1, le=3600)


class Links(Section):
    """How network links are asked about."""

    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=600)


class Compatibility(Section):
    """Where to be as wrong as upstream."""

    hccn_error: Literal["blind", "down"] = "blind"


class HangDetection(Section):
    """When a chip counts as hanging (``spec/device-plugin.md`` 4)."""

    enabled: bool = True
    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=600)
    aicore_utilization: int = Field(default=5, ge=0, le=101)
    hbm_memory_delta: int = Field(default=0, ge=0, le=100)
    traffic_delta: int = Field(default=100, ge=0)
    cpu_time_delta: int = Field(default=5, ge=0)
    detect_duration: int = Field(default=5, ge=1, le=1440)


class DriverCalls(Section):
    """How the vendor library is called."""

    call_deadline_seconds: float = Field(default=0.5, ge=0.05, le=10)
    probe_period_seconds: float = Field(default=10.0, ge=0.1, le=3600)


class Metrics(Section):
    """What ``/metrics`` shows."""

    npu_exporter_names: bool = False
    """Off: beside a real NPU exporter every sum would double."""


class Heartbeat(Section):
    """The proof that the agent is alive."""

    interval_seconds: float = Field(default=5.0, ge=0.1, le=300)
    absence_seconds: float = Field(default=0.0, ge=0, le=900)
    annotations: bool = False
    """Off: each is a write of the Node object, which wakes everybody who watches nodes."""


class NodeLabels(Section):
    """The labels and annotations of the Node."""

    enabled: bool = True


class AgentConfiguration(Section):
    """Everything that ``vigil agent`` can be told."""

    node_name: Annotated[str, AfterValidator(_node_name)]
    store: StoreAddress = "kubernetes:"
    kubeconfig: Path | None = None
    driver_root: Path | None = None
    trust_driver: bool = False
    state_dir: Path = Path("/var/lib/npu-vigil")
    fault_config_dir: Path | None = None
    listen: ListenAddress | None = None
    documents: Annotated[tuple[DocumentKind, ...], Field(min_length=1)] = (
        "device-info",
        "node-info",
    )
    shadow: bool = False
    """Beside a real Device Plugin: compare what it writes with what we would, and write nothing."""
    chip_faults: ChipFaults = ChipFaults()
    bmc: BmcAlarms = BmcAlarms()
    switch: Switch = Switch()
    links: Links = Links()
    hang: HangDetection = HangDetection()
    compatibility: Compatibility = Compatibility()
    driver: DriverCalls = DriverCalls()
    metrics: Metrics = Metrics()
    heartbeat: Heartbeat = Heartbeat()
    node_labels: NodeLabels = NodeLabels()


def load_agent(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> AgentConfiguration:
    """Merge and check all layers. ``NODE_NAME`` stands in for ``VIGIL_NODE_NAME``.

    Raises ``ConfigurationError`` with all problems.
    """
    variables = dict(environment)
    if "NODE_NAME" in variables:
        variables.setdefault("VIGIL_NODE_NAME", variables["NODE_NAME"])
    return load(
        AgentConfiguration,
        file=None if file is None else read_toml(file),
        environment=variables,
        command_line=command_line,
        source="vigil agent" if file is None else str(file),
    )


def check_agent_file(file: Path) -> None:
    """Check a file for itself: what it leaves to flags and environment is not missing.

    Raises ``ConfigurationError`` with all problems.
    """
    check_agent(read_toml(file), str(file))


def check_agent(content: Mapping[str, object], source: str) -> None:
    """The same for the content of a file."""
    file = {"node_name": "any", **content}
    load(AgentConfiguration, file=file, environment={}, command_line={}, source=source)
